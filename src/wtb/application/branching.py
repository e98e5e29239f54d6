"""Branching: new runs from any checkpoint, checkpoints with names, and the end of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.application.leases import Leases
from wtb.application.recorder import MAIN, Recorder
from wtb.application.recovery import is_open
from wtb.application.workspaces import Workspaces
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import InvalidInput, InvalidTransition
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Clock, Owners, Storage
from wtb.domain.state import State, StateDelta
from wtb.domain.tools import ToolCall

STILL = (ExecutionStatus.PAUSED, ExecutionStatus.FAILED, ExecutionStatus.COMPLETED, ExecutionStatus.CANCELLED)
"""A run that has begun and that nobody drives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A new run that goes on from a checkpoint of another, and what that one did to the world after it."""

    execution: Execution
    checkpoint: Checkpoint
    effects: tuple[ToolCall, ...]


class Branching:
    """Forks and names; what is there already stays as it is."""

    def __init__(
        self, storage: Storage, clock: Clock, owners: Owners, recorder: Recorder, workspaces: Workspaces
    ) -> None:
        self._leases = Leases(storage, clock, owners)
        self._storage = storage
        self._clock = clock
        self._recorder = recorder
        self._workspaces = workspaces

    def fork(
        self,
        execution_id: ExecutionId,
        target: str | int | None = None,
        *,
        run_id: str | None = None,
        name: str = MAIN,
        update: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
        created_by: str | None = None,
    ) -> Forked:
        """Begin a new run at a checkpoint of this one, which stays as it is; it costs the same whatever its state.

        Without a target it is the last checkpoint, also of a run that is being run. `update` overwrites keys of the
        state first; `input` begins from the start, with another input.
        """
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
            history = uow.checkpoints.load_history(execution_id)
            point = _fork_point(history, target, from_start=input is not None)
            calls = uow.tool_calls.list_calls(execution_id)
            state = None if input is None else uow.checkpoints.load(point.id).state
        change = StateDelta.setting(update or {})
        if input is not None and state is not None:
            change = StateDelta.between(state, State({**input})).compose(change)
        if change and point.is_inside:
            raise InvalidInput(
                f"checkpoint {point.id!r} is in the middle of node {point.node!r}, which has begun with the state as "
                "it is; fork it without update, or from before the node"
            )
        forked = self._recorder.fork_run(
            execution, point, name=name, execution_id=run_id, change=change, created_by=created_by
        )
        return Forked(execution=forked.execution, checkpoint=point, effects=_effects_after(history, point, calls))

    def checkpoint(
        self, execution_id: ExecutionId, name: str, description: str = "", *, created_by: str | None = None
    ) -> Checkpoint:
        """Make a checkpoint with a name where a run stands that nobody drives."""
        at = self._recorder.load(execution_id)
        check_still(at.execution, STILL)
        with self._storage.unit_of_work(readonly=True) as uow:
            history = uow.checkpoints.load_history(execution_id)
        begun = [run for run in history.node_runs if is_open(run, at)]
        if len(begun) > 1:
            raise InvalidInput(
                f"run {execution_id!r} is in the middle of a parallel step ({', '.join(run.node for run in begun)}); "
                "resume it, and name a checkpoint where the step has ended"
            )
        facts = {"name": name, "description": description, "created_by": created_by}
        return self._recorder.name_head(at, begun[0] if begun else None, **facts)

    def delete_checkpoint(self, execution_id: ExecutionId, target: str | int) -> Checkpoint:
        """Delete one checkpoint; everything that builds on it stays whole."""
        with self._storage.unit_of_work() as uow:
            execution = uow.executions.get(execution_id)
            found = uow.checkpoints.load_history(execution_id).resolve(target)
            if found.execution_id != execution_id:
                raise InvalidInput(
                    f"checkpoint {found.id!r} belongs to run {found.execution_id!r}, which {execution_id!r} was forked "
                    f"from; delete it there: `wtb delete {found.execution_id} {found.id}`"
                )
            if execution.status is ExecutionStatus.ROLLING_BACK:
                check_still(execution, STILL)  # continuing or abandoning may need it
            uow.checkpoints.delete([found.id])
            data = {"checkpoint": found.id, "name": found.name, "count": 1}
            now = self._clock.now()
            uow.events.append(Event(type=EventType.CHECKPOINT_DELETED, stream=execution_id, at=now, data=data))
            uow.commit()
        return found

    def delete_run(self, execution_id: ExecutionId) -> None:
        """Delete a run that nobody drives, with its checkpoints; forks of it and the audit trail stay whole."""
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
        check_still(execution, (*STILL, ExecutionStatus.PENDING, ExecutionStatus.ROLLING_BACK))
        self._leases.check_free(execution)
        with self._storage.unit_of_work() as uow:
            uow.executions.save(execution.stepped(self._clock.now()))  # a Conflict when somebody took it up meanwhile
            uow.checkpoints.delete_run(execution_id)
            uow.executions.delete(execution_id)
            data = {"workflow": execution.workflow_name}
            now = self._clock.now()
            uow.events.append(Event(type=EventType.EXECUTION_DELETED, stream=execution_id, at=now, data=data))
            uow.commit()
        self._workspaces.discard_all(execution_id)


def check_still(execution: Execution, allowed: Sequence[ExecutionStatus]) -> None:
    """Raise InvalidTransition, saying what to do, unless a run stands still in one of these ways."""
    if execution.status in allowed:
        return
    if execution.status is ExecutionStatus.ROLLING_BACK:
        raise InvalidTransition(
            f"run {execution.id!r} is in the middle of a rollback; finish it with `wtb rollback {execution.id} "
            "--continue`, or give it up with `--abandon`"
        )
    todo = "resume" if execution.status is ExecutionStatus.PENDING else "pause"
    raise InvalidTransition(f"run {execution.id!r} is {execution.status}; {todo} it first: `wtb {todo} {execution.id}`")


def _fork_point(history: ExecutionHistory, target: str | int | None, *, from_start: bool) -> Checkpoint:
    if from_start:
        if target is not None:
            raise InvalidInput("a fork with another input begins at the start; leave out the target, or the input")
        return history.lineage()[0]
    if target is None:
        latest = history.latest()
        assert latest is not None
        return latest
    point = history.resolve(target)
    if not point.restore_point:
        raise InvalidInput(f"checkpoint {point.id!r} is no restore point; `wtb history` shows those there are")
    return point


def _effects_after(history: ExecutionHistory, point: Checkpoint, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return what the forked run did to the world behind the point; a fork does not take it back."""
    before = {checkpoint.id for checkpoint in history.lineage_of(point.id)}
    behind = {run.id for run in history.node_runs if run.last_id not in before}
    return tuple(call for call in calls if call.node_run_id in behind and call.may_have_happened)
