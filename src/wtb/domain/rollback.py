"""Rollback: what going back would undo, and the journal of one that is under way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeBoundary, NodeRun
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Branch
from wtb.domain.files import TreeDelta
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.tools import CallKind, CallStatus, Effects, Tool, ToolCall
from wtb.domain.values import evolve


class Direction(StrEnum):
    """Back to an earlier checkpoint, or forward again to where a rollback came from."""

    ROLLBACK = "rollback"
    REDO = "redo"


class RollbackStatus(StrEnum):
    """How far a rollback has come; one that failed waits to be continued or abandoned."""

    STARTED = "started"
    FAILED = "failed"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, kw_only=True)
class CallKey:
    """Which recorded call is meant."""

    node_run_id: NodeRunId
    identity: str


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """The journal of one rollback, or of its redo: from which head to which target, and which calls it takes back.

    `calls` are in the order in which they are dealt with. `safety_id` is the checkpoint that was made before, of
    the run as it was.
    """

    id: str
    execution_id: ExecutionId
    branch_id: BranchId
    direction: Direction
    head_id: CheckpointId
    target_id: CheckpointId
    safety_id: CheckpointId
    calls: tuple[CallKey, ...] = ()
    status: RollbackStatus = RollbackStatus.STARTED
    error: str | None = None
    created_by: str | None = None
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has yet to be continued or abandoned."""
        return self.status in (RollbackStatus.STARTED, RollbackStatus.FAILED)

    def progress(self, calls: Sequence[ToolCall]) -> tuple[tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        """Return which of its calls are dealt with and which are left, each in order, given those of the execution."""
        settled = (CallStatus.REVERSED, CallStatus.FAILED) if self.direction is Direction.ROLLBACK else _AGAIN
        own = chosen(calls, self.calls)
        done = tuple(call for call in own if call.status in settled)
        return done, tuple(call for call in own if call.status not in settled)

    def ended(self, status: RollbackStatus, now: datetime, error: str | None = None) -> Rollback:
        """Return the journal as it ended, or as it waits."""
        return evolve(self, status=status, error=error, ended_at=None if status is RollbackStatus.FAILED else now)


_AGAIN = (CallStatus.SUCCEEDED,)


class CannotUndo(InvalidInput):
    """Calls that would have to be undone and cannot be; with `allow_irreversible` they stay as they are."""


@dataclass(frozen=True, kw_only=True)
class RollbackPlan:
    """What a rollback would do, newest first: the whole of it, and nothing else.

    `irreversible` are calls that happened, or may have, and that nobody can take back; `kept` are calls that stay:
    because another branch builds on them, or because tools were to be left alone.
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
            "reverse": [_told(call) for call in self.reverse],
            "irreversible": [_told(call) for call in self.irreversible],
            "kept": [_told(call) for call in self.kept],
            "files": {"put": sorted(self.files.put), "removed": sorted(self.files.removed)},
        }


def _told(call: ToolCall) -> dict[str, Any]:
    return {"tool": call.tool, "call": call.identity, "status": call.status.value, "at": call.started_at.isoformat()}


def plan_rollback(
    history: ExecutionHistory,
    target: Checkpoint,
    calls: Sequence[ToolCall],
    *,
    undone: Undone,
    find_tool: Callable[[str], Tool | None],
    files: TreeDelta,
    forks: Collection[Branch] = (),
    tools: bool = True,
    reverse_shared: bool = False,
) -> RollbackPlan:
    """Return what going back to a checkpoint of the active lineage does.

    `calls` are those of the runs that are undone, `forks` the branches, of whichever execution, that left the lineage
    behind the target.
    """
    shared = _shared_runs(history, undone.checkpoints, forks)
    reverse: list[ToolCall] = []
    irreversible: list[ToolCall] = []
    kept: list[ToolCall] = []
    for call in _newest_first(calls):
        if not _happened_behind(call, target):
            continue
        if not tools or (call.node_run_id in shared and not reverse_shared):
            kept.append(call)
        else:
            (reverse if _can_reverse(call, find_tool(call.tool)) else irreversible).append(call)
    return RollbackPlan(
        target=target,
        nodes=tuple(reversed([node for node in history.boundaries() if node.node_run_id in undone.runs])),
        checkpoints=len(undone.checkpoints),
        reverse=tuple(reverse),
        irreversible=tuple(irreversible),
        kept=tuple(kept),
        files=files,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What lies behind a target: checkpoints, and the runs that ended there, have not ended, or go on through it."""

    checkpoints: tuple[Checkpoint, ...]
    runs: Mapping[NodeRunId, NodeRun]


def undone_by(history: ExecutionHistory, target: Checkpoint) -> Undone:
    """Return what lies behind a target, or raise InvalidInput when the run cannot go back to it."""
    if not target.restore_point:
        raise InvalidInput(f"checkpoint {target.id!r} is no restore point; `wtb history` shows those there are")
    line = history.lineage()
    place = next((place for place in range(len(line) - 1, -1, -1) if line[place].id == target.id), None)
    if place is None:
        raise InvalidInput(
            f"checkpoint {target.id!r} is not on the way to where the run stands now; "
            f"fork it: `wtb fork {target.execution_id} {target.id}`"
        )
    behind = line[place + 1 :]
    ids = {checkpoint.id for checkpoint in behind}
    head_id = history.branch().head_id
    runs = {}
    for run in history.node_runs:
        if run.execution_id != history.execution_id:
            continue  # an execution takes back its own calls only
        is_open = run.last_id is None and run.input_id == head_id and run.branch_id == history.active_branch_id
        if run.last_id in ids or is_open or (run.id == target.node_run_id and run.last_id != target.id):
            runs[run.id] = run
    return Undone(checkpoints=behind, runs=runs)


def _shared_runs(history: ExecutionHistory, undone: Sequence[Checkpoint], forks: Collection[Branch]) -> set[NodeRunId]:
    """Return the runs that ended at or before a checkpoint which another branch left from."""
    left_from = {branch.forked_from_id for branch in forks if branch.id != history.active_branch_id}
    shared: set[CheckpointId] = set()
    is_shared = False
    for checkpoint in reversed(undone):
        is_shared = is_shared or checkpoint.id in left_from
        if is_shared:
            shared.add(checkpoint.id)
    return {run.id for run in history.node_runs if run.last_id in shared}


def _newest_first(calls: Sequence[ToolCall]) -> list[ToolCall]:
    return sorted(calls, key=lambda call: (call.started_at, call.node_run_id, call.sequence), reverse=True)


def _happened_behind(call: ToolCall, target: Checkpoint) -> bool:
    """Whether the call changed the world, or may have, and is not part of what the target holds."""
    if call.kind is not CallKind.TOOL or call.effects is not Effects.EXTERNAL:
        return False
    if call.status not in _IN_EFFECT:
        return False
    inside = call.node_run_id == target.node_run_id and call.ended_at is not None
    return not (inside and call.ended_at is not None and call.ended_at <= target.created_at)


_IN_EFFECT = (CallStatus.SUCCEEDED, CallStatus.INTENDED, CallStatus.REVERSING, CallStatus.REDOING)


def _can_reverse(call: ToolCall, tool: Tool | None) -> bool:
    if tool is None or tool.reverse is None:
        return False
    return call.status is not CallStatus.INTENDED or tool.confirm is not None or tool.spec.reverse_in_doubt


def keys_of(calls: Sequence[ToolCall]) -> tuple[CallKey, ...]:
    """Return which calls these are."""
    return tuple(CallKey(node_run_id=call.node_run_id, identity=call.identity) for call in calls)


def chosen(calls: Sequence[ToolCall], keys: Sequence[CallKey]) -> list[ToolCall]:
    """Return the calls that the keys mean, in the order of the keys."""
    by_key: Mapping[CallKey, ToolCall] = {
        CallKey(node_run_id=call.node_run_id, identity=call.identity): call for call in calls
    }
    return [by_key[key] for key in keys]
