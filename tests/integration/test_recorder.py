"""RunWriter over every storage: a step is written whole or not at all, and histories hold across runs."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.run_writer import RunWriter
from wtb.application.runs.run_creator import MAIN
from wtb.application.runs.steps import Position
from wtb.domain.checkpoint import CheckpointDraft, Snapshot
from wtb.domain.errors import (
    AlreadyExists,
    CheckpointNotFound,
    Conflict,
    InvalidInput,
    LeaseLost,
    StateNotSerialisable,
    WTBError,
)
from wtb.domain.events import EventType
from wtb.domain.execution import Branch, Execution, Lease
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.state import DELETE, Append, SetValue, Splice, State, StateDelta, append
from wtb.infrastructure.system import Uuid7Ids
from wtb.testing.fakes import FakeClock

WORKFLOW = {"name": "flow", "version": "1"}
CLOCK, IDS = FakeClock(), Uuid7Ids()


@pytest.fixture
def recorder(storage: Storage) -> RunWriter:
    return RunWriter(storage, CLOCK, IDS)


@pytest.fixture
def start(recorder: RunWriter) -> Position:
    return recorder.start(WORKFLOW, {"a": 1, "items": [1, 2]}, execution_id="run", created_by="me")


def step(recorder: RunWriter, at: Position, node: str = "a", **changes: Any) -> Position:
    delta = StateDelta.of(**changes or {"items": Append((node,))})
    return recorder.complete(at, recorder.node_run(at, node, at.head.step + 1), delta)


def steps(recorder: RunWriter, at: Position, nodes: str) -> list[Position]:
    line = [at]
    for node in nodes.split():
        line.append(step(recorder, line[-1], node))
    return line


def load(storage: Storage, checkpoint_id: CheckpointId) -> Snapshot:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.checkpoints.load(checkpoint_id)


def history(storage: Storage, execution_id: str = "run") -> ExecutionHistory:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.checkpoints.load_history(ExecutionId(execution_id))


def everything(storage: Storage) -> Any:
    """Return all that is known of the run."""
    with storage.unit_of_work(readonly=True) as uow:
        execution = uow.executions.get(ExecutionId("run"))
        rows = uow.checkpoints.list_infos(execution.id), uow.branches.list_branches(execution.id)
        return execution, *rows, uow.node_runs.list_boundaries(execution.id), uow.events.list_events()


def check_refused(storage: Storage, error: type[WTBError], action: Any, *arguments: Any, **options: Any) -> None:
    before = everything(storage)
    with pytest.raises(error):
        action(*arguments, **options)
    assert everything(storage) == before


def test_a_run_begins_with_its_input_on_the_main_branch(storage: Storage, start: Position) -> None:
    execution, (checkpoint,), (branch,), boundaries, events = everything(storage)
    assert (execution, checkpoint, branch) == (start.execution, start.head, start.branch)
    assert (branch.name, branch.head_id, boundaries) == (MAIN, checkpoint.id, ())
    assert [event.type for event in events] == [EventType.EXECUTION_CREATED, EventType.EXECUTION_STARTED]
    assert {event.stream for event in events} == {"run"}
    assert load(storage, checkpoint.id).state == {"a": 1, "items": [1, 2]}


def test_a_step_moves_checkpoint_boundary_head_version_and_events_together(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    after = step(recorder, start)
    execution, checkpoints, (branch,), (boundary,), events = everything(storage)
    assert (execution, branch, checkpoints) == (after.execution, after.branch, (start.head, after.head))
    assert execution.version == start.execution.version + 1
    assert boundary.first_id == boundary.last_id == branch.head_id == after.head.id
    assert events[-1].type is EventType.NODE_COMPLETED


def test_a_step_that_cannot_be_stored_leaves_nothing(storage: Storage, recorder: RunWriter, start: Position) -> None:
    check_refused(storage, StateNotSerialisable, step, recorder, start, a=SetValue(object()))
    check_refused(storage, InvalidInput, step, recorder, start, a=Append((1,)))
    assert step(recorder, start).head.step == 1


@pytest.mark.parametrize("key", ["\ud800", 5, None])
def test_a_returned_key_that_is_no_text_leaves_nothing(
    storage: Storage, recorder: RunWriter, start: Position, key: Any
) -> None:
    run = recorder.node_run(start, "a", 1)
    check_refused(storage, InvalidInput, recorder.complete, start, run, StateDelta(), returned={key: 1})


def test_a_node_whose_name_is_no_valid_text_leaves_nothing(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    check_refused(storage, InvalidInput, step, recorder, start, "\ud800")


def test_a_step_from_where_the_run_no_longer_is_leaves_nothing(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    step(recorder, start)
    check_refused(storage, Conflict, step, recorder, start)


def leased(storage: Storage, at: Position) -> Position:
    """Lease the run to somebody."""
    execution = at.execution.leased("host:1", CLOCK.now(), timedelta(minutes=1))
    with storage.unit_of_work() as uow:
        uow.executions.save(execution)
        uow.commit()
    return replace(at, execution=execution)


def test_a_step_of_a_process_that_lost_its_lease_leaves_nothing(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    at = leased(storage, start)
    run = recorder.node_run(at, "a", 1)
    stale = replace(at, execution=replace(at.execution, lease=Lease(owner="me", token=7, expires_at=CLOCK.now())))
    check_refused(storage, LeaseLost, recorder.complete, stale, run, StateDelta())
    assert recorder.complete(at, run, StateDelta()).head.step == 1


def test_a_fork_becomes_the_active_branch_and_its_name_is_its_own(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    line = steps(recorder, start, "a b")
    fork = recorder.fork(line[-1], line[1].head.id, "other")
    assert history(storage).branch().name == "other"
    check_refused(storage, AlreadyExists, recorder.fork, fork, start.head.id, "other")
    check_refused(storage, CheckpointNotFound, recorder.fork, fork, CheckpointId("nope"), "third")
    step(recorder, fork, "x")
    assert history(storage).path() == (("a", 1), ("x", 2))
    assert history(storage).path(MAIN) == (("a", 1), ("b", 2))


@pytest.mark.parametrize("execution_id", ["", "a b", "a/b", "\ud800", "x" * 500])
def test_an_id_that_could_not_be_typed_is_refused(recorder: RunWriter, execution_id: str) -> None:
    with pytest.raises(InvalidInput, match="the run id"):
        recorder.start(WORKFLOW, {}, execution_id=execution_id)


def test_an_id_that_is_taken_is_refused(storage: Storage, recorder: RunWriter, start: Position) -> None:
    check_refused(storage, AlreadyExists, recorder.start, WORKFLOW, {}, execution_id="run")


RETURNED: list[Mapping[str, Any]] = [
    {"a": 2},
    {"a": DELETE},
    {"items": [3]},
    {"items": 3},
    {"items": []},
    {"items": ["x" * 10_000]},
    {"a": "y" * 10_000, "new": {"deep": [(1, {2})]}},
    {"items": DELETE, "a": None},
    {},
]


@pytest.mark.parametrize("update", RETURNED, ids=lambda update: str(update)[:30])
def test_what_a_node_returned_is_kept_beside_what_the_reducers_made_of_it(
    storage: Storage, recorder: RunWriter, start: Position, update: Mapping[str, Any]
) -> None:
    state = State({"a": 1, "items": [1, 2]})
    delta = StateDelta.of_update(state, update, {"items": append})
    after = recorder.complete(start, recorder.node_run(start, "a", 1), delta, returned=update)
    found = load(storage, after.head.id)
    assert found.returned == {"a": update}
    assert found.state == state.apply(delta)


def emigrated(storage: Storage, name: str, *heads: CheckpointId) -> list[Position]:
    """Begin another run whose branches all begin at checkpoints of the first one."""
    now = CLOCK.now()
    branches = [
        Branch(
            id=BranchId(IDS.new()),
            execution_id=ExecutionId(name),
            name=f"branch {number}",
            head_id=head,
            forked_from_id=head,
            created_at=now,
        )
        for number, head in enumerate(heads)
    ]
    with storage.unit_of_work() as uow:
        execution = Execution(
            id=ExecutionId(name),
            workflow_id=uow.workflows.save(WORKFLOW),
            workflow_name="flow",
            branch_id=branches[0].id,
            created_at=now,
            updated_at=now,
        )
        uow.executions.add(execution)
        for branch in branches:
            uow.branches.add(branch)
        infos = [uow.checkpoints.get(head) for head in heads]
        uow.commit()
    return [Position(execution=execution, branch=branches[i], head=infos[i]) for i in range(len(heads))]


def test_a_run_that_was_only_just_forked_from_another_has_a_history(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    line = steps(recorder, start, "a b")
    emigrated(storage, "other", line[1].head.id)
    found = history(storage, "other")
    assert found.latest() == line[1].head
    assert found.lineage() == (start.head, line[1].head)
    assert found.path() == (("a", 1),)


def test_branches_that_left_another_run_at_two_points_each_see_its_visits_once(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    line = steps(recorder, start, "a b c")
    first, second = emigrated(storage, "other", line[1].head.id, line[3].head.id)
    first = step(recorder, first, "x")
    step(recorder, replace(second, execution=first.execution), "y")
    found = history(storage, "other")
    assert found.path("branch 0") == (("a", 1), ("x", 2))
    assert found.path("branch 1") == (("a", 1), ("b", 2), ("c", 3), ("y", 4))
    assert len({run.id for run in found.node_runs}) == len(found.node_runs)


def test_the_lineage_of_a_fork_stays_whole_when_the_run_that_it_left_is_deleted(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    line = steps(recorder, start, "a b c")
    (fork,) = emigrated(storage, "other", line[2].head.id)
    after = step(recorder, fork, "x")
    with storage.unit_of_work() as uow:
        uow.checkpoints.delete_run(ExecutionId("run"))
        uow.commit()
    found = history(storage, "other").lineage()
    assert [checkpoint.id for checkpoint in found] == [at.head.id for at in (*line[:3], after)]
    assert [checkpoint.deleted for checkpoint in found] == [True, True, True, False]
    assert load(storage, after.head.id).state["items"] == [1, 2, "a", "b", "x"]


def test_a_fork_that_was_undone_leaves_no_trace_in_what_is_built_on_its_parent(
    storage: Storage, recorder: RunWriter, start: Position
) -> None:
    """Forking seals the lists of the parent into chunks; undone, those chunks exist nowhere."""
    at = start
    for number in range(12):
        at = step(recorder, at, items=Append((f"{number} " * 1_000,)))
    draft = CheckpointDraft(
        id=CheckpointId(IDS.new()),
        execution_id=at.execution.id,
        branch_id=BranchId("another"),
        parent_id=at.head.id,
        step=at.head.step + 1,
        created_at=CLOCK.now(),
    )
    with storage.unit_of_work() as uow:
        uow.checkpoints.save(draft, StateDelta())
    after = step(recorder, at, items=Splice(0, 13))
    assert load(storage, after.head.id).state["items"] == ["11 " * 1_000]
