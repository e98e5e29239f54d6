"""The contract of Storage and UnitOfWork: a subclass gives the fixtures `storage`, and `bus`, which it publishes to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import AlreadyExists, Conflict, InvalidInput, NotFound, StateNotSerialisable, WTBError
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import Execution
from wtb.domain.ids import WorkflowId
from wtb.domain.ports import Clock, EventBus, Ids, Storage, UnitOfWork
from wtb.domain.state import Append, Splice, StateDelta
from wtb.testing.stories import Story, StoryFixtures, delta_of

WAIT_S = 30.0
"""How long a test waits for what must happen: a failure, never a pass, takes that long."""


class Chapter:
    """One of everything that a unit of work can write, and how to look for each."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._workflow = {"name": "chapter", "version": "1"}
        self._workflow_id = WorkflowId("")
        self._draft = story.draft()
        self._execution = story.new_execution()
        self._branch = story.new_branch("chapter")
        self._node_run = story.new_node_run()
        self._event = story.new_event()

    def write(self, uow: UnitOfWork) -> None:
        """Write one of everything."""
        self._workflow_id = uow.workflows.save(self._workflow)
        uow.executions.add(self._execution)
        uow.branches.add(self._branch)
        uow.checkpoints.save(self._draft, delta_of({"x": 1}))
        uow.branches.move_head(self._branch.id, self._draft.id, expected=None)
        uow.node_runs.save(self._node_run)
        uow.events.append(self._event)

    def found(self, uow: UnitOfWork) -> list[str]:
        """Name what is there."""
        looks: dict[str, Callable[[], Any]] = {
            "workflow": lambda: uow.workflows.get(self._workflow_id),
            "execution": lambda: uow.executions.get(self._execution.id),
            "branch": lambda: uow.branches.get(self._branch.id),
            "checkpoint": lambda: uow.checkpoints.load(self._draft.id),
            "node run": lambda: uow.node_runs.get(self._story.id, self._node_run.id),
            "info": lambda: uow.checkpoints.list_infos(self._story.id)[0],
            "boundary": lambda: uow.node_runs.list_boundaries(self._story.id)[0],
            "event": lambda: uow.events.list_events(stream=self._story.id)[0],
        }
        return [name for name, look in looks.items() if _answers(look)]


ALL = ["workflow", "execution", "branch", "checkpoint", "node run", "info", "boundary", "event"]


def _answers(look: Callable[[], Any]) -> bool:
    with suppress(NotFound, IndexError):
        look()
        return True
    return False


def _found(storage: Storage, chapter: Chapter) -> list[str]:
    with storage.unit_of_work(readonly=True) as uow:
        return chapter.found(uow)


class UnitOfWorkContract(StoryFixtures):
    """What every unit of work does."""

    @pytest.fixture
    def chapter(self, story: Story) -> Chapter:
        return Chapter(story)

    def test_what_is_committed_is_there(self, storage: Storage, chapter: Chapter) -> None:
        with storage.unit_of_work() as uow:
            chapter.write(uow)
            uow.commit()
        assert _found(storage, chapter) == ALL

    def test_what_is_not_committed_is_undone(self, storage: Storage, chapter: Chapter) -> None:
        with storage.unit_of_work() as uow:
            chapter.write(uow)
        assert _found(storage, chapter) == []

    def test_an_error_undoes_everything_and_passes_through(self, storage: Storage, chapter: Chapter) -> None:
        with pytest.raises(KeyError, match="mine"):
            _write_and_fail(storage, chapter)
        assert _found(storage, chapter) == []

    def test_a_unit_sees_its_own_work(self, storage: Storage, chapter: Chapter) -> None:
        with storage.unit_of_work() as uow:
            chapter.write(uow)
            assert chapter.found(uow) == ALL

    def test_others_see_nothing_before_the_commit_and_wait_for_nobody(self, storage: Storage, chapter: Chapter) -> None:
        with storage.unit_of_work() as uow:
            chapter.write(uow)
            assert _found(storage, chapter) == []
            uow.commit()
            assert _found(storage, chapter) == ALL

    def test_what_was_undone_is_not_in_the_way(self, storage: Storage, chapter: Chapter) -> None:
        with storage.unit_of_work() as uow:
            chapter.write(uow)
        with storage.unit_of_work() as uow:
            chapter.write(uow)
            uow.commit()
        assert _found(storage, chapter) == ALL

    def test_an_undone_checkpoint_leaves_no_trace_in_a_later_one_of_the_same_id(
        self, storage: Storage, story: Story
    ) -> None:
        draft = story.draft()
        with storage.unit_of_work() as uow:
            uow.checkpoints.save(draft, delta_of({"undone": "x" * 1_000}))
        saved = story.save_draft(draft, {"kept": 1})
        child = story.save({"more": 2}, parent=saved)
        assert story.state(saved) == {"kept": 1}
        assert story.state(child) == {"kept": 1, "more": 2}

    def test_undone_work_on_a_long_list_does_not_hinder_what_comes_after(self, storage: Storage, story: Story) -> None:
        line = story.line(*[StateDelta.of(items=Append((str(number) * 1_000,))) for number in range(20)])
        other_branch = story.draft(parent=line[-1], branch_id=story.add_branch("other", line[-1]).id)
        with storage.unit_of_work() as uow:
            uow.checkpoints.save(other_branch, delta_of({"undone": 1}))
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete([line[-2].id])
        cut = story.save(StateDelta.of(items=Splice(1, 18)), parent=line[-1])
        assert story.state(cut) == {"items": ["0" * 1_000, "19" * 1_000]}

    def test_a_refused_write_does_not_spoil_the_unit(self, storage: Storage, story: Story, chapter: Chapter) -> None:
        with storage.unit_of_work() as uow:
            chapter.write(uow)
            with pytest.raises(AlreadyExists):
                uow.executions.add(story.execution)
            with pytest.raises(AlreadyExists):
                uow.branches.add(story.main)
            with pytest.raises(Conflict):
                uow.executions.save(story.execution)
            with pytest.raises(NotFound):
                uow.workflows.get(WorkflowId("unknown"))
            with pytest.raises(StateNotSerialisable):
                uow.checkpoints.save(story.draft(), delta_of({"x": object()}))
            with pytest.raises(InvalidInput):
                uow.events.append(story.new_event(data={"x": object()}))
            uow.commit()
        assert _found(storage, chapter) == ALL

    def test_a_unit_is_used_once(self, storage: Storage) -> None:
        unit = storage.unit_of_work()
        with unit as uow:
            uow.commit()
        with pytest.raises(InvalidInput, match="once"):
            unit.__enter__()

    def test_a_unit_cannot_be_entered_twice_at_a_time(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow, pytest.raises(InvalidInput, match="once"):
            uow.__enter__()

    def test_a_unit_that_has_not_begun_cannot_commit(self, storage: Storage) -> None:
        with pytest.raises(InvalidInput, match="with"):
            storage.unit_of_work().commit()

    def test_a_read_only_unit_cannot_commit(self, storage: Storage, chapter: Chapter) -> None:
        with storage.unit_of_work(readonly=True) as uow:
            with suppress(WTBError):
                chapter.write(uow)
            with pytest.raises(InvalidInput, match="read"):
                uow.commit()
        assert _found(storage, chapter) == []

    def test_a_unit_commits_once(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            uow.executions.save(story.execution.stepped(story.execution.created_at))
            uow.commit()
            with pytest.raises(InvalidInput, match="ended"):
                uow.commit()
        with pytest.raises(InvalidInput, match="ended"):
            uow.commit()

    @pytest.mark.parametrize("committed", [True, False], ids=["committed", "undone"])
    def test_a_unit_that_has_ended_says_so(self, storage: Storage, story: Story, *, committed: bool) -> None:
        with storage.unit_of_work() as uow:
            if committed:
                uow.commit()
        for use in _uses(uow, story):
            with pytest.raises(InvalidInput, match="ended"):
                use()

    def test_a_reader_keeps_its_view_while_others_commit(self, storage: Storage, story: Story) -> None:
        first = story.save({"x": 1})
        story.move_head(first)
        with storage.unit_of_work(readonly=True) as uow:
            before = _view(uow, story)
            story.move_head(story.save({"x": 2}, parent=first))
            _step(storage, story.execution)
            with storage.unit_of_work() as writer:
                writer.events.append(story.new_event())
                writer.node_runs.save(story.new_node_run())
                writer.commit()
            assert _view(uow, story) == before
        with storage.unit_of_work(readonly=True) as uow:
            assert _view(uow, story) != before

    def test_a_reader_never_sees_half_of_a_unit(self, storage: Storage, story: Story) -> None:
        start = story.save({"step": 0})
        story.move_head(start)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(_write_steps, storage, story, start, 100)
            while not writing.done():
                with storage.unit_of_work(readonly=True) as uow:
                    head = uow.checkpoints.load_history(story.id).latest()
                    assert head is not None
                    assert head.step == uow.executions.get(story.id).version
                    assert uow.checkpoints.load(head.id).state["step"] == head.step
            writing.result()

    def test_units_of_several_threads_do_not_disturb_each_other(self, storage: Storage, ids: Ids, clock: Clock) -> None:
        def tell(number: int) -> tuple[Story, Checkpoint]:
            story = Story(storage, ids, clock)
            line = story.line({"number": number}, *[StateDelta.of(items=Append((n,))) for n in range(20)])
            return story, line[-1]

        with ThreadPoolExecutor(4) as pool:
            saved = list(pool.map(tell, range(20)))
        for number, (story, end) in enumerate(saved):
            assert story.state(end) == {"number": number, "items": list(range(20))}

    def test_no_update_is_lost_between_writers(self, storage: Storage, story: Story) -> None:
        meet = Barrier(2)

        def count(_: int) -> int:
            meet.wait(WAIT_S)
            return sum(_step_if_first(storage, story) for _ in range(25))

        with ThreadPoolExecutor(2) as pool:
            counted = sum(pool.map(count, range(2)))
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.executions.get(story.id).version == counted
        assert counted >= 25

    def test_events_reach_the_bus_with_the_commit_and_not_before(
        self, storage: Storage, bus: EventBus, story: Story
    ) -> None:
        got: list[RecordedEvent] = []
        bus.subscribe(got.append)
        with storage.unit_of_work() as uow:
            recorded = uow.events.append(story.new_event(data={"n": 1}), story.new_event(data={"n": 2}))
            assert bus.flush(WAIT_S)
            assert got == []
            uow.commit()
        assert bus.flush(WAIT_S)
        assert got == list(recorded)

    def test_events_of_an_undone_unit_never_reach_the_bus(self, storage: Storage, bus: EventBus, story: Story) -> None:
        got: list[RecordedEvent] = []
        bus.subscribe(got.append)
        with storage.unit_of_work() as uow:
            uow.events.append(story.new_event())
        assert bus.flush(WAIT_S)
        assert got == []

    def test_a_subscriber_finds_what_the_event_tells_of(self, storage: Storage, bus: EventBus, story: Story) -> None:
        found: list[dict[str, Any]] = []
        draft = story.draft()

        def look(event: RecordedEvent) -> None:
            with storage.unit_of_work(readonly=True) as uow:
                found.append(dict(uow.checkpoints.load(draft.id).state))

        bus.subscribe(look)
        with storage.unit_of_work() as uow:
            uow.checkpoints.save(draft, delta_of({"x": 1}))
            uow.events.append(story.new_event())
            uow.commit()
        assert bus.flush(WAIT_S)
        assert found == [{"x": 1}]


def _write_and_fail(storage: Storage, chapter: Chapter) -> None:
    with storage.unit_of_work() as uow:
        chapter.write(uow)
        raise KeyError("mine")


def _uses(uow: UnitOfWork, story: Story) -> list[Callable[[], Any]]:
    return [
        lambda: uow.workflows.save({"name": "late", "version": "1"}),
        lambda: uow.executions.get(story.id),
        uow.executions.list_executions,
        lambda: uow.executions.add(story.new_execution()),
        lambda: uow.branches.list_branches(story.id),
        lambda: uow.branches.add(story.new_branch("late")),
        lambda: uow.node_runs.save(story.new_node_run()),
        lambda: uow.node_runs.list_runs(story.id),
        lambda: uow.checkpoints.save(story.draft(), delta_of({})),
        lambda: uow.checkpoints.list_infos(story.id),
        lambda: uow.checkpoints.delete([story.draft().id]),
        lambda: uow.events.append(story.new_event()),
        uow.events.list_events,
        uow.commit,
    ]


def _view(uow: UnitOfWork, story: Story) -> tuple[Any, ...]:
    return (
        uow.executions.get(story.id),
        uow.executions.list_executions(),
        uow.branches.get(story.main.id),
        uow.checkpoints.list_infos(story.id),
        uow.node_runs.list_runs(story.id),
        uow.events.list_events(),
    )


def _step(storage: Storage, execution: Execution) -> None:
    with storage.unit_of_work() as uow:
        uow.executions.save(execution.stepped(execution.updated_at))
        uow.commit()


def _step_if_first(storage: Storage, story: Story) -> bool:
    """Make one step of the execution as it is now; False when somebody else came in between."""
    with suppress(Conflict), storage.unit_of_work() as uow:
        execution = uow.executions.get(story.id)
        uow.executions.save(execution.stepped(execution.updated_at))
        uow.commit()
        return True
    return False


def _write_steps(storage: Storage, story: Story, head: Checkpoint, count: int) -> None:
    for step in range(1, count + 1):
        with storage.unit_of_work() as uow:
            before, head = head, uow.checkpoints.save(story.draft(parent=head), delta_of({"step": step}))
            execution = uow.executions.get(story.id)
            uow.executions.save(execution.stepped(execution.updated_at))
            uow.branches.move_head(story.main.id, head.id, expected=before.id)
            uow.commit()
