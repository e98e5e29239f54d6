"""RunEditor: forks runs, names checkpoints, and deletes both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.application.runs.head_editor import HeadEditor
from wtb.application.runs.leases import Leases, check_not_rolling_back
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.recovery import is_open
from wtb.application.runs.run_creator import MAIN, RunCreator
from wtb.application.workspaces import Workspaces
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.engine import Engine
from wtb.domain.errors import (
    AlreadyExists,
    CheckpointNotFound,
    Conflict,
    DamagedData,
    InvalidInput,
    InvalidTransition,
    LeaseLost,
)
from wtb.domain.event_catalogue import CheckpointDeleted, ExecutionDeleted
from wtb.domain.events import Event
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.history import ExecutionHistory, check_name
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Clock, Owners, Storage, UnitOfWork
from wtb.domain.rollback import calls_after
from wtb.domain.state import State, StateDelta
from wtb.domain.tools import ToolCall
from wtb.domain.values import evolve

STILL = (ExecutionStatus.PAUSED, ExecutionStatus.FAILED, ExecutionStatus.COMPLETED, ExecutionStatus.CANCELLED)
"""The statuses of a run that has started and that no process is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A new run, and the checkpoint of the other run that it begins at."""

    execution: Execution
    checkpoint: Checkpoint


class RunEditor:
    """Forks runs, names checkpoints, and deletes runs and checkpoints. Forking and naming change nothing else."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        owners: Owners,
        creator: RunCreator,
        recorder: Recorder,
        head_editor: HeadEditor,
        workspaces: Workspaces,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._leases = Leases(storage, clock, owners, user=user)
        self._creator = creator
        self._recorder = recorder
        self._head_editor = head_editor
        self._workspaces = workspaces
        self._user = user

    def fork(
        self,
        execution_id: ExecutionId,
        target: str | int | None = None,
        *,
        run_id: str | None = None,
        name: str = MAIN,
        update: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
        variants: Mapping[str, str] | None = None,
        created_by: str | None = None,
        engine: Engine | None = None,
    ) -> Forked:
        """Start a new run at a checkpoint of this one, which does not change. A large state does not make it slower.

        Without a target, the fork starts at the last checkpoint, even of a running run. `update` overwrites keys of the
        state first. `input` starts from the beginning, with another input. If an engine of another library drives the
        run, it sees both first.
        """
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
            check_not_rolling_back(execution)
            point = _fork_point(uow, execution, target, from_start=input is not None)
            state = None if input is None else uow.checkpoints.load(point.id).state
        change = StateDelta.setting(update or {} if engine is None else engine.accepted(update or {}))
        begun = None
        if input is not None and state is not None:
            begun = None if engine is None else engine.begin(input)
            given = State({**input}) if begun is None else begun.state
            change = StateDelta.between(state, given).compose(change)
        if change and point.is_inside:
            raise InvalidInput(
                f"checkpoint {point.id!r} is in the middle of node {point.node!r}, so its state cannot be changed; "
                "fork without update, or from before the node"
            )
        chosen = {**execution.options.get("variants", {}), **(variants or {})}
        source = evolve(execution, options={**execution.options, "variants": chosen})
        forked = self._creator.fork(
            source,
            point,
            name=name,
            execution_id=run_id,
            change=change,
            begun=begun,
            created_by=created_by,
        )
        return Forked(execution=forked.execution, checkpoint=point)

    def effects_after(self, execution_id: ExecutionId, point: Checkpoint) -> tuple[ToolCall, ...]:
        """Return the calls with effects that a run has made since a checkpoint; a fork does not undo them."""
        with self._storage.unit_of_work(readonly=True) as uow:
            calls = [call for call in uow.tool_calls.list_calls(execution_id) if call.may_have_happened]
            if not calls:
                return ()
            history = uow.checkpoints.load_history(execution_id)
        return tuple(calls_after(history, point, calls))

    def checkpoint(
        self, execution_id: ExecutionId, name: str, description: str = "", *, created_by: str | None = None
    ) -> Checkpoint:
        """Name the current position of an idle run."""
        at = self._recorder.load(execution_id)
        check_still(at.execution, STILL)
        with self._storage.unit_of_work(readonly=True) as uow:
            runs = uow.node_runs.list_leading_to(execution_id, [at.head])
            nodes = uow.workflows.get(at.execution.workflow_id)["nodes"]
            check_name(name, [node["name"] for node in nodes])
        begun = [run for run in runs if is_open(run, at)]
        if len(begun) > 1:
            raise InvalidInput(
                f"run {execution_id!r} is in the middle of a parallel step ({', '.join(run.node for run in begun)}); "
                "resume it, and name a checkpoint after the step has ended"
            )
        facts = {"name": name, "description": description, "created_by": created_by}
        try:
            return self._head_editor.name_head(at, begun[0] if begun else None, **facts)
        except LeaseLost as error:  # it had the lease of another process, which has ended its work meanwhile
            raise Conflict(f"another process has just changed run {execution_id!r}; name a checkpoint again") from error
        except AlreadyExists as error:
            raise AlreadyExists(
                f"run {execution_id!r} already has a checkpoint {name!r}; choose another name, or delete that one: "
                f"`wtb delete '{execution_id}@{name}'`"
            ) from error

    def delete_checkpoint(self, execution_id: ExecutionId, target: str | int, *, by: str | None = None) -> Checkpoint:
        """Delete one checkpoint; later checkpoints stay whole."""
        with self._storage.unit_of_work() as uow:
            check_not_rolling_back(uow.executions.get(execution_id))
            _, found = resolved(uow, execution_id, target)
            if found.execution_id != execution_id:
                raise InvalidInput(
                    f"checkpoint {found.id!r} belongs to run {found.execution_id!r}, from which this one was forked; "
                    f"delete it there: `wtb delete {found.execution_id}@{found.id}`"
                )
            uow.checkpoints.delete([found.id])
            body = CheckpointDeleted(checkpoint=found.id, name=found.name, count=1, by=by or self._user)
            uow.events.append(Event.of(body, stream=execution_id, at=self._clock.now()))
            uow.commit()
        return found

    def delete_run(self, execution_id: ExecutionId, *, by: str | None = None) -> None:
        """Delete an idle run with its checkpoints; its forks and its events stay whole.

        If the run's own row is damaged, we cannot tell whether a process is running it; if one is, that process stops.
        """
        execution = self._undriven(execution_id)
        with self._storage.unit_of_work() as uow:
            if execution is not None:
                stepped = execution.stepped(self._clock.now())
                uow.executions.save(stepped)  # raises Conflict if another process has resumed it meanwhile
            for fork, origin in _forks_without(uow, execution_id):
                uow.branches.fork_from(fork.id, origin.id)
            uow.checkpoints.delete_run(execution_id)
            uow.executions.delete(execution_id)
            workflow = None if execution is None else execution.workflow_name
            body = ExecutionDeleted(workflow=workflow, by=by or self._user)
            uow.events.append(Event.of(body, stream=execution_id, at=self._clock.now()))
            uow.commit()
        self._workspaces.discard_all(execution_id)

    def _undriven(self, execution_id: ExecutionId) -> Execution | None:
        """Return an idle run; None if its row is damaged."""
        with self._storage.unit_of_work(readonly=True) as uow:
            try:
                execution = uow.executions.get(execution_id)
            except DamagedData:
                return None
        check_still(execution, (*STILL, ExecutionStatus.PENDING, ExecutionStatus.ROLLING_BACK))
        self._leases.check_free(execution)
        return execution


def check_still(execution: Execution, allowed: Sequence[ExecutionStatus]) -> None:
    """Raise InvalidTransition, with advice, unless the run has one of these statuses."""
    if execution.status in allowed:
        return
    check_not_rolling_back(execution)
    todo = "resume" if execution.status is ExecutionStatus.PENDING else "pause"
    raise InvalidTransition(f"run {execution.id!r} is {execution.status}; {todo} it first: `wtb {todo} {execution.id}`")


def resolved(uow: UnitOfWork, execution_id: ExecutionId, target: str | int) -> tuple[ExecutionHistory, Checkpoint]:
    """Return the checkpoint that a person means, and the end of the history that was read to find it.

    If the checkpoint is inside a node, that part of the history holds the whole node.
    """
    length = _TAIL
    while True:
        history = uow.checkpoints.load_tail(execution_id, length)
        try:
            found = history.resolve(target)
            if history.complete or not _began_before(history, found):
                return history, found
        except CheckpointNotFound:
            if history.complete:
                raise
        length = _steps_back(history, target) or length * 8


def _began_before(history: ExecutionHistory, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is inside a node that began before the part that was read."""
    known = {each.id for each in history.checkpoints}
    inputs = [run.input_id for run in history.node_runs if run.id == checkpoint.node_run_id]
    return checkpoint.is_inside and not known.issuperset(inputs)


def _steps_back(history: ExecutionHistory, target: str | int) -> int:
    """Return how many steps back a target is, if it is a step number; else 0."""
    text, last = str(target), history.lineage()[-1].step
    is_behind = text.isdecimal() and len(text) < 19 and int(text) <= last - len(history.checkpoints)
    return last - int(text) + 1 if is_behind else 0


_TAIL = 64
"""How many checkpoints are read first: people mostly mean one near the end."""


def _fork_point(uow: UnitOfWork, execution: Execution, target: str | int | None, *, from_start: bool) -> Checkpoint:
    """Return where a fork starts: the head, the beginning, or the target; an id is looked up directly."""
    if from_start and target is not None:
        raise InvalidInput("a fork with another input starts at the beginning; leave out the target or the input")
    wanted: str | int | None = 0 if from_start else target
    if wanted is None:
        wanted = uow.branches.get(execution.branch_id).head_id
    try:
        point = uow.checkpoints.get(CheckpointId(str(wanted)))
    except CheckpointNotFound:
        point = None
    if point is None or point.execution_id != execution.id:
        _, point = resolved(uow, execution.id, str(wanted))
    if not point.restore_point:
        raise InvalidInput(f"checkpoint {point.id!r} is not a restore point; `wtb history` lists the checkpoints")
    return point


def _forks_without(uow: UnitOfWork, execution_id: ExecutionId) -> Iterator[tuple[Branch, Checkpoint]]:
    """Yield the forks of a run to be deleted, each with the last checkpoint before it that belongs to another run."""
    forks = uow.branches.list_forks(_own_ids(uow, execution_id))
    if not forks:
        return  # a run with damaged node runs can still be deleted
    history = uow.checkpoints.load_history(execution_id)
    stay: dict[ExecutionId, bool] = {execution_id: False}
    for fork in forks:
        for checkpoint in reversed(history.lineage_of(fork.forked_from_id)):
            run_id = checkpoint.execution_id
            if run_id not in stay:
                stay[run_id] = bool(uow.branches.list_branches(run_id))
            if stay[run_id] and fork.execution_id != execution_id:
                yield fork, checkpoint
                break


def _own_ids(uow: UnitOfWork, execution_id: ExecutionId) -> list[CheckpointId]:
    try:
        return [checkpoint.id for checkpoint in uow.checkpoints.each_info(execution_id)]
    except DamagedData:  # one is missing; the history still has the others
        history = uow.checkpoints.load_history(execution_id)
    return [checkpoint.id for checkpoint in history.checkpoints if checkpoint.execution_id == execution_id]
