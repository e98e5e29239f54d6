"""The contract of PendingWriteRepository."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Storage
from wtb.infrastructure.langgraph.pending_writes import PendingWrite, pending_writes_of
from wtb.testing.stories import Story, StoryFixtures


class PendingWriteRepositoryContract(StoryFixtures):
    """What every repository of pending writes does."""

    def test_writes_come_back_in_the_order_in_which_they_are_applied(self, storage: Storage, story: Story) -> None:
        values = [("b", 1, "~2", {"large": "x" * 10_000}), ("b", 0, "~2", Decimal("1.5")), ("a", 0, "~3", (1, {2}))]
        writes = [_write(story, *facts) for facts in values]
        _add(storage, *writes)
        _add(storage, _write(story, "c", 0, "", None))

        assert _listed(storage, story) == (_write(story, "c", 0, "", None), writes[1], writes[0], writes[2])

    def test_a_number_is_written_once_unless_it_is_negative(self, storage: Storage, story: Story) -> None:
        _add(storage, _write(story, "a", 0, "", "first"), _write(story, "a", -1, "", "first"))
        _add(storage, _write(story, "a", 0, "", "second"), _write(story, "a", -1, "~1", "second"))

        assert [write.value for write in _listed(storage, story)] == ["first", "second"]

    def test_of_writes_with_one_number_in_one_call_the_first_stays_or_if_it_is_negative_the_last(
        self, storage: Storage, story: Story
    ) -> None:
        numbers = [(number, f"{number} {turn}") for turn in ("first", "last") for number in (0, -1, -2)]
        _add(storage, *(_write(story, "a", number, "", value) for number, value in numbers))

        assert [write.value for write in _listed(storage, story)] == ["-2 last", "-1 last", "0 first"]

    def test_writes_are_found_by_checkpoint_and_given_to_another_execution(
        self, storage: Storage, story: Story
    ) -> None:
        here, there = (_write(story, "a", 0, "", at, at=at) for at in ("here", "there"))
        _add(storage, here, there)
        other = ExecutionId("other")
        with storage.unit_of_work() as uow:
            pending_writes_of(uow).copy([story.id], [CheckpointId("here")], other)
            pending_writes_of(uow).copy([story.id], [CheckpointId("here")], other)
            uow.commit()

        assert _listed(storage, story, "here") == (here,)
        with storage.unit_of_work() as uow:
            writes, copied = pending_writes_of(uow), here._replace(execution_id=other)
            assert writes.list_writes([other]) == (copied,)
            writes.delete(story.id, [CheckpointId("here")])
            assert set(writes.list_writes([story.id, other])) == {copied, there}
            writes.delete(other)
            assert writes.list_writes([story.id, other]) == (there,)

    def test_what_is_done_to_a_value_afterwards_is_not_stored(self, storage: Storage, story: Story) -> None:
        value = [1]
        _add(storage, _write(story, "a", 0, "", value))
        value.append(2)

        assert _listed(storage, story)[0].value == [1]

    def test_a_checkpoint_that_is_deleted_takes_the_writes_after_it_along(self, storage: Storage, story: Story) -> None:
        gone, stays = story.line({}, {})
        _add(storage, *(_write(story, "a", 0, "", 1, at=each.id) for each in (gone, stays)))
        story.delete(gone)

        assert [write.checkpoint_id for write in _listed(storage, story)] == [stays.id]

    def test_an_execution_that_is_deleted_takes_its_writes_along(self, storage: Storage, story: Story) -> None:
        other = ExecutionId("other")
        _add(storage, _write(story, "a", 0, "", 1), _write(story, "a", 0, "", 1)._replace(execution_id=other))
        with storage.unit_of_work() as uow:
            uow.executions.delete(story.id)
            uow.commit()

        with storage.unit_of_work(readonly=True) as uow:
            assert [write.execution_id for write in pending_writes_of(uow).list_writes([story.id, other])] == [other]

    def test_a_branch_that_goes_back_drops_the_writes_after_its_new_head(self, storage: Storage, story: Story) -> None:
        first, second = story.line({}, {})
        story.move_head(second)
        _add(storage, *(_write(story, "a", 0, "", 1, at=each.id) for each in (first, second)))
        with storage.unit_of_work() as uow:
            uow.branches.rewind(story.main.id, first.id, expected=second.id)
            uow.commit()
        assert [write.checkpoint_id for write in _listed(storage, story)] == [second.id]

        story.move_head(second)
        assert [write.checkpoint_id for write in _listed(storage, story)] == [second.id]

    def test_what_is_not_committed_is_not_there(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            pending_writes_of(uow).add([_write(story, "a", 0, "", 1)])
        assert _listed(storage, story) == ()


def _write(story: Story, task: str, number: int, path: str, value: Any, *, at: str = "here") -> PendingWrite:
    return PendingWrite(
        execution_id=story.id,
        checkpoint_id=CheckpointId(at),
        task_id=task,
        number=number,
        path=path,
        channel="out",
        value=value,
        created_at=story.execution.created_at + timedelta(seconds=1),
    )


def _add(storage: Storage, *writes: PendingWrite) -> None:
    with storage.unit_of_work() as uow:
        pending_writes_of(uow).add(writes)
        uow.commit()


def _listed(storage: Storage, story: Story, at: str | None = None) -> tuple[PendingWrite, ...]:
    with storage.unit_of_work(readonly=True) as uow:
        return pending_writes_of(uow).list_writes([story.id], None if at is None else [CheckpointId(at)])
