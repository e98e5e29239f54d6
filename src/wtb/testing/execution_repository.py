"""The contract of ExecutionRepository: a subclass gives the fixture `storage`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from wtb.domain.errors import (
    AlreadyExists,
    BranchNotFound,
    CheckpointNotFound,
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    LeaseLost,
    NodeRunNotFound,
    WTBError,
)
from wtb.domain.execution import Execution, ExecutionStatus, Failure, Lease, Pause, PauseKind
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.job_origin import JobOrigin, of_fork
from wtb.domain.ports import Clock, HeadMove, Ids, RunPosition, Storage
from wtb.testing.stories import Story, StoryFixtures

_HOUR = timedelta(hours=1)
_ASKED = Pause(reason="r", kind=PauseKind.QUESTION, node="n", question={"q": 1})


class ExecutionRepositoryContract(StoryFixtures):
    """What every repository of executions does."""

    def test_an_execution_comes_back_as_it_was(self, storage: Storage, story: Story) -> None:
        now = story.execution.created_at
        full = story.new_execution(
            workflow_source="flows.py:flow",
            status=ExecutionStatus.FAILED,
            version=1 << 40,
            lease=Lease(owner="host:1:ü", token=7, expires_at=now + _HOUR),
            lease_token=7,
            failure=Failure(
                type="ValueError",
                message="\x00 \ud800 ☃",
                traceback="…\n",
                node="work",
                visit=2,
                input_checkpoint_id=CheckpointId("c"),
            ),
            metadata={"tags": ["a", {"b": None}], "seed": 1.5, "": "\x00"},
            created_by="ü@example.org",
            created_at=now.replace(microsecond=1).astimezone(timezone(timedelta(hours=9))),
        )
        _add(storage, full)
        assert _get(storage, full) == full

    def test_an_id_is_given_once(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            with pytest.raises(AlreadyExists, match=story.id):
                uow.executions.add(replace(story.execution, workflow_name="other"))
            assert uow.executions.get(story.id) == story.execution

    def test_an_unknown_id_is_named(self, storage: Storage, story: Story) -> None:
        unknown = story.new_execution(id=ExecutionId("no-such-id"))
        with storage.unit_of_work() as uow:
            with pytest.raises(ExecutionNotFound, match="no-such-id"):
                uow.executions.get(unknown.id)
            with pytest.raises(ExecutionNotFound, match="no-such-id"):
                uow.executions.save(unknown.stepped(unknown.created_at))
            with pytest.raises(ExecutionNotFound, match="no-such-id"):
                uow.executions.save(unknown.stepped(unknown.created_at), token=1)
            with pytest.raises(ExecutionNotFound, match="no-such-id"):
                uow.executions.delete(unknown.id)

    def test_every_change_is_kept(self, storage: Storage, story: Story) -> None:
        now, execution = story.execution.created_at + _HOUR, story.execution
        changes: list[Callable[[Execution], Execution]] = [
            lambda it: it.leased("me", now, _HOUR),
            lambda it: it.moved_to(ExecutionStatus.RUNNING, now),
            lambda it: it.renewed(1, now + 2 * _HOUR).stepped(now),
            lambda it: it.on_branch(story.new_branch("other").id, now),
            lambda it: replace(it.stepped(now), metadata={"note": "changed"}),
            lambda it: it.released(1, now),
            lambda it: it.moved_to(ExecutionStatus.PAUSED, now, pause=_ASKED),
            lambda it: it.moved_to(ExecutionStatus.RUNNING, now),
            lambda it: it.moved_to(ExecutionStatus.FAILED, now, failure=Failure(type="E", message="m")),
            lambda it: it.leased("you", now, _HOUR),
        ]
        for change in changes:
            execution = change(execution)
            _save(storage, execution)
            assert _get(storage, execution) == execution

    @pytest.mark.parametrize("offset", [-2, -1, 1, 2])
    def test_only_the_next_version_is_accepted(self, storage: Storage, story: Story, offset: int) -> None:
        now = story.execution.created_at
        stored = story.execution.stepped(now).stepped(now)
        for version in (1, 2):
            _save(storage, replace(stored, version=version))
        stranger = replace(stored, version=3 + offset, metadata={"by": "a stranger"})
        with storage.unit_of_work() as uow:
            with pytest.raises(Conflict, match=story.id):
                uow.executions.save(stranger)
            uow.commit()
        assert _get(storage, stored) == stored

    def test_the_holder_of_the_lease_may_write(self, storage: Storage, story: Story) -> None:
        leased = _leased(storage, story, "me")
        _save(storage, leased.stepped(leased.updated_at), token=1)
        assert _get(storage, leased).version == leased.version + 1

    def test_nobody_else_may_write_under_a_token(self, storage: Storage, story: Story) -> None:
        leased = _leased(storage, story, "me")
        for token in (0, 2, -1):
            with storage.unit_of_work() as uow:
                with pytest.raises(LeaseLost, match=story.id):
                    uow.executions.save(leased.stepped(leased.updated_at), token=token)
                uow.commit()
        assert _get(storage, leased) == leased

    def test_a_token_without_a_lease_is_worth_nothing(self, storage: Storage, story: Story) -> None:
        now = story.execution.created_at
        released = _leased(storage, story, "me").released(1, now)
        _save(storage, released, token=1)
        with storage.unit_of_work() as uow, pytest.raises(LeaseLost, match=story.id):
            uow.executions.save(released.stepped(now), token=1)

    def test_who_lost_the_lease_is_told_so_even_when_the_version_is_old_too(
        self, storage: Storage, story: Story
    ) -> None:
        mine = _leased(storage, story, "me")
        later = mine.updated_at + 2 * _HOUR
        theirs = mine.leased("you", later, _HOUR)
        _save(storage, theirs)
        with storage.unit_of_work() as uow, pytest.raises(LeaseLost, match="you"):
            uow.executions.save(mine.stepped(later), token=1)
        _save(storage, theirs.stepped(later), token=2)

    def test_an_old_version_under_the_right_token_is_a_conflict(self, storage: Storage, story: Story) -> None:
        leased = _leased(storage, story, "me")
        _save(storage, leased.stepped(leased.updated_at))
        with storage.unit_of_work() as uow, pytest.raises(Conflict) as raised:
            uow.executions.save(leased.stepped(leased.updated_at), token=1)
        assert not isinstance(raised.value, LeaseLost)

    def test_a_step_changes_version_and_time_and_leaves_the_lease_as_it_is(
        self, storage: Storage, story: Story
    ) -> None:
        leased = _leased(storage, story, "me")
        renewed = leased.updated_at + 3 * _HOUR
        with storage.unit_of_work() as uow:
            uow.executions.renew(story.id, 1, renewed)
            uow.commit()
        with storage.unit_of_work() as uow:
            stepped = leased.stepped(leased.updated_at + _HOUR)
            assert uow.executions.advance(stepped, token=1) is None
            uow.commit()
        assert leased.lease is not None
        assert _get(storage, leased) == replace(stepped, lease=replace(leased.lease, expires_at=renewed))

    def test_a_step_is_refused_as_a_save_is(self, storage: Storage, story: Story) -> None:
        leased = _leased(storage, story, "me")
        now = leased.updated_at
        with storage.unit_of_work() as uow:
            with pytest.raises(LeaseLost):
                uow.executions.advance(leased.stepped(now), token=2)
            with pytest.raises(Conflict, match=story.id):
                uow.executions.advance(leased.stepped(now).stepped(now), token=1)
            with pytest.raises(ExecutionNotFound):
                uow.executions.advance(story.new_execution().stepped(now))
            uow.commit()
        assert _get(storage, leased) == leased

    def test_a_step_moves_the_head_with_its_version(self, storage: Storage, story: Story) -> None:
        leased, (first,) = _leased(storage, story, "me"), story.line({})
        stepped = leased.stepped(leased.updated_at)
        with storage.unit_of_work() as uow:
            assert uow.executions.advance(stepped, token=1, move=HeadMove(story.main.id, first.id, None)) is None
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.branches.get(story.main.id).head_id == first.id
        assert _get(storage, leased).version == stepped.version

    def test_a_step_whose_version_or_head_is_refused_raises_the_error_of_each_alone(
        self, storage: Storage, story: Story
    ) -> None:
        leased, (first,) = _leased(storage, story, "me"), story.line({})
        stepped, move = leased.stepped(leased.updated_at), HeadMove(story.main.id, first.id, None)
        refused: list[tuple[Execution, int, HeadMove, type[WTBError]]] = [
            (stepped, 2, move, LeaseLost),
            (stepped.stepped(leased.updated_at), 1, move, Conflict),
            (stepped, 1, move._replace(expected=first.id), Conflict),
            (stepped, 1, move._replace(head_id=CheckpointId("no-such-id")), CheckpointNotFound),
            (stepped, 2, move._replace(expected=first.id), LeaseLost),
        ]
        for execution, token, moved, kind in refused:
            with storage.unit_of_work() as uow, pytest.raises(kind):
                uow.executions.advance(execution, token=token, move=moved)
        assert _get(storage, leased) == leased
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.branches.get(story.main.id).head_id is None

    def test_a_step_hears_what_was_requested_until_that_is_taken_back(self, storage: Storage, story: Story) -> None:
        execution = story.execution
        for request, heard in (("pause", "pause"), ("stop", "stop"), (None, None)):
            with storage.unit_of_work() as uow:
                uow.executions.request(story.id, request)
                uow.commit()
            for _ in range(2):
                execution = execution.stepped(execution.updated_at)
                with storage.unit_of_work() as uow:
                    assert uow.executions.advance(execution) == heard
                    uow.commit()
        assert _get(storage, execution) == execution

    def test_metadata_that_is_no_plain_data_is_refused_and_nothing_is_kept(
        self, storage: Storage, story: Story
    ) -> None:
        bad = story.new_execution(metadata={"x": float("nan")})
        with storage.unit_of_work() as uow:
            with pytest.raises(InvalidInput, match=bad.id):
                uow.executions.add(bad)
            with pytest.raises(InvalidInput, match=story.id):
                uow.executions.save(replace(story.execution.stepped(bad.created_at), metadata={"x": object()}))
            uow.commit()
        assert _get(storage, story.execution) == story.execution
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(ExecutionNotFound):
            uow.executions.get(bad.id)

    def test_what_is_done_to_metadata_afterwards_is_not_stored(self, storage: Storage, story: Story) -> None:
        metadata: dict[str, Any] = {"tags": ["a"]}
        execution = story.new_execution(metadata=metadata)
        _add(storage, execution)
        metadata["tags"].append("b")
        assert _get(storage, execution).metadata == {"tags": ["a"]}

    def test_executions_are_listed_newest_first(self, storage: Storage, story: Story) -> None:
        now = story.execution.created_at
        made = [story.new_execution(created_at=now + hours * _HOUR) for hours in (3, 1, 2)]
        _add(storage, *made)
        assert _ids(storage) == [made[0].id, made[2].id, made[1].id, story.id]

    def test_filters_are_combined(self, storage: Storage, story: Story) -> None:
        crowd = _crowd(storage, story)
        running, failed = ExecutionStatus.RUNNING, ExecutionStatus.FAILED
        assert _ids(storage, workflow="a") == _fitting(crowd, lambda it: it.workflow_name == "a")
        assert _ids(storage, statuses=[running]) == _fitting(crowd, lambda it: it.status is running)
        assert _ids(storage, statuses={running, failed}, workflow="b") == _fitting(
            crowd, lambda it: it.status in {running, failed} and it.workflow_name == "b"
        )
        assert _ids(storage, workflow="no-such-workflow") == []

    def test_since_counts_its_own_moment(self, storage: Storage, story: Story) -> None:
        crowd = _crowd(storage, story)
        since = crowd[3].created_at
        assert _ids(storage, since=since) == _fitting(crowd, lambda it: it.created_at >= since)
        assert _ids(storage, since=since.astimezone(timezone(_HOUR)), statuses=[ExecutionStatus.FAILED]) == _fitting(
            crowd, lambda it: it.created_at >= since and it.status is ExecutionStatus.FAILED
        )

    def test_ids_are_found_by_how_they_begin(self, storage: Storage, story: Story) -> None:
        _add(storage, *(story.new_execution(id=ExecutionId(id)) for id in ("abc_1", "abcd1", "ABC_1", "é_1", "x.abc_")))
        assert _ids(storage, prefix="abc_") == ["abc_1"]
        assert sorted(_ids(storage, prefix="abc")) == ["abc_1", "abcd1"]
        assert _ids(storage, prefix="é_") == ["é_1"]
        assert _ids(storage, prefix="abc%") == []
        assert len(_ids(storage, prefix="")) == 6

    def test_runs_of_batches_are_found_and_left_out(self, storage: Storage, story: Story) -> None:
        job = JobOrigin(batch_id="b", combination='x, "fork":true, %', case_id='","fork":true,"', repeat=0)
        made = {
            "job": job.to_data(),
            "other": replace(job, batch_id="b2").to_data(),
            "fork": of_fork(job.to_data()),
            "alone": {"about": {"batch": "b"}},
        }
        _add(storage, *(story.new_execution(id=ExecutionId(id), metadata=each) for id, each in made.items()))
        assert _ids(storage, batch="b") == ["job"]
        assert _ids(storage, batch="no such batch") == []
        assert set(_ids(storage, without_batches=True)) == {"fork", "alone", story.execution.id}
        assert len(_ids(storage)) == 5

    def test_pages_follow_each_other(self, storage: Storage, story: Story) -> None:
        crowd = _crowd(storage, story)
        pages = [_ids(storage, limit=5, offset=offset) for offset in range(0, len(crowd) + 6, 5)]
        assert [id for page in pages for id in page] == _fitting(crowd, lambda _: True)
        assert pages[-1] == []
        assert _ids(storage, limit=0) == []

    def test_a_page_begins_after_any_position_also_among_runs_of_one_moment(
        self, storage: Storage, story: Story
    ) -> None:
        crowd = _crowd(storage, story)
        twins = [story.new_execution(id=ExecutionId(id), created_at=crowd[2].created_at) for id in ("é", "a", "B", "b")]
        _add(storage, *twins)
        every = _ids(storage)
        found, page = [], _list(storage, limit=3)
        while page:
            found += [each.id for each in page]
            page = _list(storage, limit=3, before=RunPosition(page[-1].created_at, page[-1].id))
        assert found == every
        assert len(every) == len(crowd) + 4
        last = crowd[-1]
        assert _ids(storage, before=RunPosition(last.created_at, last.id)) == []

    def test_runs_are_found_by_who_created_them_and_until_when(self, storage: Storage, story: Story) -> None:
        crowd = _crowd(storage, story)
        _add(storage, by_ann := story.new_execution(created_by="ann"))
        until = crowd[3].created_at
        assert _ids(storage, created_by="ann") == [by_ann.id]
        assert _ids(storage, created_by="an") == []
        assert _ids(storage, until=until, workflow="a") == _fitting(
            crowd, lambda it: it.created_at < until and it.workflow_name == "a"
        )

    def test_an_execution_is_deleted_with_its_branches_and_node_runs(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        other = Story(storage, ids, clock)
        runs = [story.new_node_run(), other.new_node_run()]
        with storage.unit_of_work() as uow:
            for run in runs:
                uow.node_runs.save(run)
            uow.executions.delete(story.id)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            with pytest.raises(ExecutionNotFound):
                uow.executions.get(story.id)
            with pytest.raises(BranchNotFound):
                uow.branches.get(story.main.id)
            with pytest.raises(NodeRunNotFound):
                uow.node_runs.get(story.id, runs[0].id)
            assert uow.node_runs.list_boundaries(story.id) == ()
            assert uow.branches.list_branches(other.id) == (other.main,)
            assert uow.node_runs.list_boundaries(other.id) == (runs[1].boundary(),)

    def test_an_execution_that_has_checkpoints_is_not_deleted(self, storage: Storage, story: Story) -> None:
        checkpoint = story.save({"x": 1})
        with storage.unit_of_work() as uow:
            with pytest.raises(Conflict, match=story.id):
                uow.executions.delete(story.id)
            uow.commit()
        assert _get(storage, story.execution) == story.execution
        assert story.state(checkpoint) == {"x": 1}

    def test_the_id_of_a_deleted_execution_is_free_again(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            uow.executions.delete(story.id)
            uow.executions.add(story.execution)
            uow.branches.add(story.main)
            uow.commit()
        assert _get(storage, story.execution) == story.execution


def _add(storage: Storage, *executions: Execution) -> None:
    with storage.unit_of_work() as uow:
        for execution in executions:
            uow.executions.add(execution)
        uow.commit()


def _save(storage: Storage, execution: Execution, *, token: int | None = None) -> None:
    with storage.unit_of_work() as uow:
        uow.executions.save(execution, token=token)
        uow.commit()


def _get(storage: Storage, execution: Execution) -> Execution:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.executions.get(execution.id)


def _leased(storage: Storage, story: Story, owner: str) -> Execution:
    leased = story.execution.leased(owner, story.execution.created_at, _HOUR)
    _save(storage, leased)
    return leased


def _list(storage: Storage, **filters: Any) -> tuple[Execution, ...]:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.executions.list_executions(**filters)


def _ids(storage: Storage, **filters: Any) -> list[str]:
    return [execution.id for execution in _list(storage, **filters)]


def _crowd(storage: Storage, story: Story) -> list[Execution]:
    """Store executions of two workflows in three statuses, and return them with the story's own, newest first."""
    statuses = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.FAILED)
    crowd = [
        story.new_execution(
            workflow_name="ab"[number % 2], status=statuses[number % 3], created_at=_hour(story, number)
        )
        for number in range(1, 13)
    ]
    _add(storage, *crowd)
    return [*reversed(crowd), story.execution]


def _hour(story: Story, number: int) -> datetime:
    return story.execution.created_at + number * _HOUR


def _fitting(crowd: list[Execution], fits: Callable[[Execution], bool]) -> list[str]:
    return [execution.id for execution in crowd if fits(execution)]
