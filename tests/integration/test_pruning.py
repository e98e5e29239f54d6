"""Pruning beside whatever else is going on: what others do meanwhile is respected, and never an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.upkeep import GRACE, World
from wtb.application.runs.steps import INTERRUPTED, Ending, Position
from wtb.application.upkeep import retention
from wtb.application.upkeep.retention import Retention, RunPruning
from wtb.domain.checkpoint import Kind
from wtb.domain.errors import ExecutionNotFound
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.retention import Reason, RetentionPolicy
from wtb.domain.state import SetValue, StateDelta


@pytest.fixture
def world(storage: Storage, tmp_path: Path) -> World:
    return World(storage, tmp_path, keep_last=2)


def steps(world: World, at: Position, count: int) -> Position:
    for number in range(count):
        at = world.step(at, StateDelta.of(n=SetValue(number), text=SetValue(f"{number} " * 500)))
    return at


def line(world: World, at: Position) -> list[CheckpointId]:
    with world.storage.unit_of_work(readonly=True) as uow:
        return [each.id for each in uow.checkpoints.load_history(at.execution.id).lineage() if not each.deleted]


def pruned_while(world: World, *meanwhile: Callable[[], Any]) -> list[RunPruning]:
    """Prune; after each plan, and before what follows from it, one of these happens."""
    waiting = list(meanwhile)

    def policy(_: str) -> RetentionPolicy:
        if waiting:
            waiting.pop(0)()
        return world.policy

    pruning = Retention(world.storage, world.clock, world.garbage, policy_for=policy, grace=GRACE)
    found = list(pruning.prune())
    assert waiting == []
    world.check()
    return found


def test_what_goes_is_what_was_planned_with_an_event_for_each_reason(world: World) -> None:
    at = steps(world, world.start(), 8)
    world.fork(at, line(world, at)[5], "other")
    (plan,) = world.retention.plan()
    assert plan.counts == {Reason.BEYOND_LAST: 3, Reason.OFF_LINE: 2}
    assert plan.size_bytes > 5 * 500
    assert list(world.retention.prune()) == [plan]
    with world.storage.unit_of_work(readonly=True) as uow:
        events = uow.events.list_events(stream=at.execution.id, types=[EventType.CHECKPOINT_DELETED])
    assert [event.data for event in events] == [
        {"count": 3, "reason": Reason.BEYOND_LAST.value},
        {"count": 2, "reason": Reason.OFF_LINE.value},
    ]
    world.check()


def test_a_plan_changes_nothing(world: World) -> None:
    at = steps(world, world.start(), 6)
    before = line(world, at)
    planned = list(world.retention.plan())
    assert planned
    assert list(world.retention.plan()) == planned
    assert line(world, at) == before


def test_one_run_or_one_workflow_can_be_pruned(world: World) -> None:
    one, two = (steps(world, world.start(), 5) for _ in range(2))
    assert [each.execution_id for each in world.retention.prune(run=one.execution.id)] == [one.execution.id]
    assert (len(line(world, one)), len(line(world, two))) == (3, 6)
    assert list(world.retention.prune(workflow="another")) == []
    assert len(list(world.retention.prune(workflow="flow"))) == 2
    assert len(line(world, two)) == 3
    with pytest.raises(ExecutionNotFound):
        list(world.retention.prune(run=ExecutionId("no such run")))


def test_many_batches_are_as_good_as_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    at = steps(world, world.start(), 12)
    assert world.prune() == 10
    assert len(line(world, at)) == 3
    world.check()


def test_a_long_run_is_read_and_deleted_in_parts_of_which_is_told(world: World) -> None:
    at = steps(world, world.start(), 2 * retention.BATCH + 10)
    told: list[tuple[str, int]] = []
    (found,) = world.retention.prune(watch=lambda what, count: told.append((what, count)))
    assert sum(found.counts.values()) == 2 * retention.BATCH + 8
    assert told == [("looked at", 500)] * 2 + [("deleted", 500), ("deleted", 500), ("deleted", 8)]
    assert len(line(world, at)) == 3


def test_a_run_that_goes_on_meanwhile_is_pruned_as_planned(world: World) -> None:
    at = steps(world, world.start(), 6)
    (found,) = pruned_while(world, lambda: steps(world, world.ends[0], 3))
    assert (sum(found.counts.values()), found.problem) == (4, None)
    assert len(line(world, at)) == 1 + 2 + 3


def test_a_branch_that_somebody_made_meanwhile_keeps_its_point(world: World) -> None:
    at = steps(world, world.start(), 6)
    point = line(world, at)[2]
    (found,) = pruned_while(world, lambda: world.fork(at, point, "new"))
    assert found.problem is None
    assert point in world.living()


@pytest.mark.parametrize("more", [0, 2])
def test_a_run_that_was_forked_off_meanwhile_keeps_its_point(world: World, more: int) -> None:
    at = steps(world, world.start(), 6)
    point = world.copies[line(world, at)[2]].checkpoint
    found = pruned_while(world, lambda: steps(world, world.fork_run(point), more))
    assert [each.problem for each in found if each.problem] == []
    assert point.id in world.living()
    assert sum(sum(each.counts.values()) for each in found) == 3


def test_checkpoints_that_somebody_deleted_meanwhile_are_gone_already(world: World) -> None:
    at = steps(world, world.start(), 6)

    def delete() -> None:
        with world.storage.unit_of_work() as uow:
            uow.checkpoints.delete(line(world, at)[2:4])
            uow.commit()

    (found,) = pruned_while(world, delete)
    assert (sum(found.counts.values()), found.problem) == (2, None)


def test_a_line_that_a_rollback_left_meanwhile_can_be_redone(world: World) -> None:
    at = steps(world, world.start(), 6)
    at = world.recorder.end(at, Ending(status=ExecutionStatus.PAUSED, pause=INTERRUPTED))
    before = line(world, at)

    def roll_back() -> None:
        """As a rollback does: a safety checkpoint at the end, then the head moves back, and the run goes on."""
        resumed = world.recorder.begin(world.recorder.load(at.execution.id), None)
        safe = world.mark(resumed, Kind.SYSTEM)
        with world.storage.unit_of_work() as uow:
            uow.branches.move_head(at.branch.id, before[1], expected=safe.head.id)
            uow.commit()
        back = Position(
            execution=safe.execution, branch=safe.branch.moved(before[1]), head=world.copies[before[1]].checkpoint
        )
        steps(world, back, 1)

    (found,) = pruned_while(world, roll_back)
    assert found.problem is None
    assert set(before[2:]) <= set(world.living())


def test_a_run_that_never_stands_still_is_left_for_the_next_time(world: World) -> None:
    at = steps(world, world.start(), 6)

    def disturb() -> None:
        paused = world.recorder.end(
            world.recorder.load(at.execution.id), Ending(status=ExecutionStatus.PAUSED, pause=INTERRUPTED)
        )
        world.recorder.begin(paused, "somebody")

    (found,) = pruned_while(world, *[disturb] * 5)
    assert found.counts == {}
    assert found.problem is not None
    assert world.prune() == 4


def test_a_damaged_run_is_left_alone_and_the_others_are_pruned(world: World) -> None:
    one, two = (steps(world, world.start(), 6) for _ in range(2))
    _tamper(world.storage, line(world, one)[3])
    found = {each.execution_id: each for each in world.retention.prune()}
    assert "damaged" in (found[one.execution.id].problem or "")
    assert found[two.execution.id].problem is None
    assert len(line(world, two)) == 3


def test_a_run_that_has_lost_a_checkpoint_is_left_alone(world: World) -> None:
    at = steps(world, world.start(), 6)
    _remove(world.storage, line(world, at)[4])
    (found,) = world.retention.prune()
    assert found.counts == {}
    assert "is missing" in (found.problem or "")


def _remove(storage: Any, checkpoint_id: CheckpointId) -> None:
    if hasattr(storage, "tables"):
        storage.tables.tables["checkpoints"].drop(checkpoint_id)
        return
    with storage.unit_of_work() as uow:
        uow._sql.run("DELETE FROM wtb_checkpoints WHERE id = ?", (checkpoint_id,))
        uow.commit()


def _tamper(storage: Any, checkpoint_id: CheckpointId) -> None:
    if hasattr(storage, "tables"):
        row, payload = storage.tables.tables["checkpoints"].rows[checkpoint_id]
        storage.tables.tables["checkpoints"].rows[checkpoint_id] = (row._replace(node="another"), payload)
        return
    with storage.unit_of_work() as uow:
        uow._sql.run("UPDATE wtb_checkpoints SET node = 'another' WHERE id = ?", (checkpoint_id,))
        uow.commit()


@pytest.mark.parametrize("storage", ["sqlite", "postgres"], indirect=True)
def test_a_run_whose_record_is_damaged_is_told_of_and_left_out(
    world: World, storage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = (steps(world, world.start(), 6) for _ in range(3))
    with storage.unit_of_work() as uow:
        uow._sql.run("UPDATE wtb_executions SET metadata = 'no JSON' WHERE id = ?", (two.execution.id,))
        uow.commit()
    assert [each.execution_id for each in world.retention.prune()] == [three.execution.id, one.execution.id]
    assert two.execution.id in caplog.text
