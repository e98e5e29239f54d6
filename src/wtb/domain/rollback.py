"""Rollback: what going back would undo, and the journal of a rollback in progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeBoundary, NodeStatus
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Branch
from wtb.domain.files import TreeDelta
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.tools import CallKind, CallStatus, Effects, Tool, ToolCall
from wtb.domain.values import evolve

HEADS = "wtb.heads"
"""The key under which a LangGraph thread's safety checkpoint stores the head of each branch."""


class RollbackDirection(StrEnum):
    """Back to an earlier checkpoint, or forward to where a rollback started.

    `take_back` only undoes external calls: the run stays where it is, with its status and its state.
    """

    ROLLBACK = "rollback"
    REDO = "redo"
    TAKE_BACK = "take_back"


class RollbackStatus(StrEnum):
    """The status of a rollback; a failed one waits to be continued or abandoned."""

    STARTED = "started"
    FAILED = "failed"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, kw_only=True)
class CallKey:
    """The key of a recorded call."""

    node_run_id: NodeRunId
    identity: str


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """The journal of one rollback or redo: its head, its target, and the calls that it undoes or repeats.

    `calls` are in the order in which they are handled. `safety_id` is the checkpoint that saved the run's position
    before it began.
    """

    id: str
    execution_id: ExecutionId
    branch_id: BranchId
    direction: RollbackDirection
    head_id: CheckpointId
    target_id: CheckpointId
    safety_id: CheckpointId
    calls: tuple[CallKey, ...] = ()
    status: RollbackStatus = RollbackStatus.STARTED
    error: str | None = None
    created_by: str | None = None
    created_at: datetime
    ended_at: datetime | None = None
    number: int | None = None
    """Its number among the run's rollbacks, independent of the clock; older records have none."""

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key that puts the journals of a run in the order in which they started."""
        return (-1 if self.number is None else self.number, self.created_at, self.id)

    @property
    def is_open(self) -> bool:
        """Whether it still has to be continued or abandoned."""
        return self.status in (RollbackStatus.STARTED, RollbackStatus.FAILED)

    def progress(self, calls: Sequence[ToolCall]) -> tuple[tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        """Return the calls that it has handled and those that are left, in order, given the calls of the run."""
        settled = _AGAIN if self.direction is RollbackDirection.REDO else (CallStatus.REVERSED, CallStatus.FAILED)
        own = chosen(calls, self.calls)
        done = tuple(call for call in own if call.status in settled)
        return done, tuple(call for call in own if call.status not in settled)

    def ended(self, status: RollbackStatus, now: datetime, error: str | None = None) -> Rollback:
        """Return the journal with the status in which it ended or waits."""
        return evolve(self, status=status, error=error, ended_at=None if status is RollbackStatus.FAILED else now)


_AGAIN = (CallStatus.SUCCEEDED,)


def redoable(journals: Sequence[Rollback]) -> Rollback | None:
    """Return the rollback that a redo reverses: the last completed one that no redo has reversed yet."""
    return next(reversed(standing(journals)), None)


def standing(journals: Sequence[Rollback]) -> list[Rollback]:
    """Return the completed rollbacks that no redo has reversed."""
    carried_out: list[Rollback] = []
    for journal in journals:
        if journal.status is not RollbackStatus.COMPLETED:
            continue
        if journal.direction is RollbackDirection.ROLLBACK:
            carried_out.append(journal)
        elif journal.direction is RollbackDirection.REDO:
            carried_out.pop()
    return carried_out


class CannotUndo(InvalidInput):
    """Calls that would have to be undone cannot be; with `allow_irreversible` they stay in effect."""


@dataclass(frozen=True, kw_only=True)
class RollbackPlan:
    """All that a rollback would do, newest first.

    `reverse` holds the calls to undo. `irreversible` holds calls that happened, or may have, and cannot be undone.
    `kept` holds calls that stay because another branch builds on them, or because you asked to keep tool calls.
    """

    target: Checkpoint
    nodes: tuple[NodeBoundary, ...]
    checkpoints: int
    reverse: tuple[ToolCall, ...]
    irreversible: tuple[ToolCall, ...]
    kept: tuple[ToolCall, ...]
    files: TreeDelta

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON."""
        return {
            "target": {"checkpoint": self.target.id, "step": self.target.step, "node": self.target.node},
            "nodes": [f"{node.node}#{node.visit}" for node in self.nodes],
            "checkpoints": self.checkpoints,
            "reverse": [_call_data(call) for call in self.reverse],
            "irreversible": [_call_data(call) for call in self.irreversible],
            "kept": [_call_data(call) for call in self.kept],
            "files": {"put": sorted(self.files.put), "removed": sorted(self.files.removed)},
        }


def _call_data(call: ToolCall) -> dict[str, Any]:
    return {"tool": call.tool, "call": call.identity, "status": call.status.value, "at": call.started_at.isoformat()}


def plan_rollback(
    history: ExecutionHistory,
    target: Checkpoint,
    calls: Sequence[ToolCall],
    *,
    find_tool: Callable[[str], Tool | None],
    files: TreeDelta,
    forks: Collection[Branch] = (),
    tools: bool = True,
    reverse_shared: bool = False,
) -> RollbackPlan:
    """Return what a rollback to a checkpoint of the active line would undo.

    `calls` are the calls of the execution. `forks` are the branches, of any execution, that have the target in their
    lineage.
    """
    check_target(history, target)
    line = history.lineage()
    cut = line.index(target) + 1
    undone = {checkpoint.id for checkpoint in line[cut:]}
    now, then = _Reach(history, line, open_at=history.branch()), _Reach(history, line[:cut])
    shared = _Reach(history, _lineages(history, forks))
    reverse: list[ToolCall] = []
    irreversible: list[ToolCall] = []
    kept: list[ToolCall] = []
    for call in _newest_first(calls):
        if not _is_in_effect(call) or history.is_inherited(call) or call not in now or call in then:
            continue
        if not tools or (call in shared and not reverse_shared):
            kept.append(call)
        else:
            (reverse if can_reverse(call, find_tool(call.tool)) else irreversible).append(call)
    return RollbackPlan(
        target=target,
        nodes=tuple(node for node in reversed(history.boundaries()) if node.last_id is None or node.last_id in undone),
        checkpoints=len(undone),
        reverse=tuple(reverse),
        irreversible=tuple(irreversible),
        kept=tuple(kept),
        files=files,
    )


def calls_left(calls: Sequence[ToolCall], journals: Sequence[Rollback]) -> list[ToolCall]:
    """Return the external calls of a run that are in effect and may be taken back, newest first.

    If a person abandoned taking calls back, those calls are kept, so they are left out.
    """
    given_up = [
        journal
        for journal in journals
        if journal.direction is RollbackDirection.TAKE_BACK and journal.status is RollbackStatus.ABANDONED
    ]
    kept = {key for journal in given_up for key in journal.calls}
    return [call for call in _newest_first(calls) if _is_in_effect(call) and keys_of([call])[0] not in kept]


def in_order_of_undoing(calls: Sequence[ToolCall], find_tool: Callable[[str], Tool | None]) -> list[ToolCall]:
    """Return the calls with irreversible ones last, so that these do not keep the others from being undone."""
    return sorted(calls, key=lambda call: not can_reverse(call, find_tool(call.tool)))


def check_target(history: ExecutionHistory, target: Checkpoint) -> None:
    """Raise InvalidInput unless the run can go back to this checkpoint."""
    if not target.restore_point:
        raise InvalidInput(f"checkpoint {target.id!r} is not a restore point; `wtb history` lists the checkpoints")
    if target not in history.lineage():
        raise InvalidInput(
            f"checkpoint {target.id!r} is not on the line to the current position of the run; "
            f"fork it: `wtb fork {target.execution_id} {target.id}`"
        )


class _Reach:
    """The calls that belong to some checkpoints: calls of node runs that completed there, or made before one inside.

    `open_at` adds the calls of node runs that began at the head of a branch and have no result yet.
    """

    def __init__(self, history: ExecutionHistory, checkpoints: Sequence[Checkpoint], open_at: Branch | None = None):
        ids = {checkpoint.id for checkpoint in checkpoints}
        self._whole: set[NodeRunId] = set()
        for run in history.node_runs:
            is_done = run.status is NodeStatus.COMPLETED and run.last_id in ids
            began = (run.branch_id, run.last_id or run.input_id)
            is_open = open_at is not None and began == (open_at.id, open_at.head_id)
            if is_done or (is_open and run.status is not NodeStatus.SKIPPED):
                self._whole.add(run.id)
        self._until: dict[NodeRunId | None, Checkpoint] = {}
        for checkpoint in checkpoints:
            made = history.original(checkpoint)
            known = self._until.get(checkpoint.node_run_id, made)
            self._until[checkpoint.node_run_id] = max(known, made, key=lambda each: each.step)

    def __contains__(self, call: ToolCall) -> bool:
        if call.node_run_id in self._whole:
            return True
        until = self._until.get(call.node_run_id)
        return until is not None and call.had_ended_at(until.step, until.created_at)


def calls_after(history: ExecutionHistory, checkpoint: Checkpoint, calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return the calls that were made after a checkpoint, on any line, in the order of their starts.

    A call that one node run took over from another is listed once.
    """
    behind, made = history.builds_on(checkpoint.id), history.original(checkpoint)
    inputs = {run.id: run.input_id for run in history.node_runs}

    def is_after(call: ToolCall) -> bool:
        if call.node_run_id == made.node_run_id:
            return not call.had_ended_at(made.step, made.created_at)
        return inputs.get(call.node_run_id) in behind

    found = [call for call in calls if is_after(call) and not history.is_inherited(call)]
    return sorted(found, key=lambda call: call.start_order)


def _lineages(history: ExecutionHistory, forks: Collection[Branch]) -> list[Checkpoint]:
    """Return the checkpoints that other branches build on."""
    others = [branch.head_id for branch in history.branches if branch.id != history.active_branch_id]
    ends = {*others, *(branch.forked_from_id for branch in forks)}
    found = {checkpoint.id: checkpoint for end in ends for checkpoint in history.lineage_of(end)}
    return list(found.values())


def _newest_first(calls: Sequence[ToolCall]) -> list[ToolCall]:
    return sorted(calls, key=lambda call: call.start_order, reverse=True)


def _is_in_effect(call: ToolCall) -> bool:
    """Whether the call changed the world, or may have."""
    return call.kind is CallKind.TOOL and call.effects is Effects.EXTERNAL and call.status in _IN_EFFECT


_IN_EFFECT = (CallStatus.SUCCEEDED, CallStatus.INTENDED, CallStatus.REVERSING, CallStatus.REDOING)


def can_reverse(call: ToolCall, tool: Tool | None) -> bool:
    """Whether its tool can undo a call that is in effect, or may be."""
    if tool is None or tool.reverse is None:
        return False
    return call.status is not CallStatus.INTENDED or tool.confirm is not None or tool.spec.reverse_in_doubt


def keys_of(calls: Sequence[ToolCall]) -> tuple[CallKey, ...]:
    """Return the keys of these calls."""
    return tuple(CallKey(node_run_id=call.node_run_id, identity=call.identity) for call in calls)


def chosen(calls: Sequence[ToolCall], keys: Sequence[CallKey]) -> list[ToolCall]:
    """Return the calls with these keys, in the order of the keys."""
    by_key: Mapping[CallKey, ToolCall] = {
        CallKey(node_run_id=call.node_run_id, identity=call.identity): call for call in calls
    }
    return [by_key[key] for key in keys]
