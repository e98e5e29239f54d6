"""Checkpoint: one immutable point of a run. NodeRun and NodeBoundary: the work of a node between two points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Failure
from wtb.domain.figures import Figures
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.state import State
from wtb.domain.values import evolve


class Trigger(StrEnum):
    """The reason why a checkpoint was made."""

    START = "start"
    NODE_END = "node_end"
    TOOL_START = "tool_start"
    TOOL_END = "tool_end"
    LLM_CALL = "llm_call"
    DECISION = "decision"
    HANDOFF = "handoff"
    PAUSE = "pause"
    USER_REQUEST = "user_request"


class Kind(StrEnum):
    """Who a checkpoint is for, which decides how long it is kept."""

    AUTO = "auto"
    MANUAL = "manual"
    SYSTEM = "system"
    CONFLICT = "conflict"


@dataclass(frozen=True, kw_only=True)
class CheckpointDraft:
    """A checkpoint before it is stored; the store adds the state's hash, the chain and the size.

    `node`, `visit` and `node_run_id` are empty for checkpoints that belong to no single node, such as the
    start, or the barrier of a parallel superstep. `joins` lists the nodes that have arrived at each waiting join.
    """

    id: CheckpointId
    execution_id: ExecutionId
    branch_id: BranchId
    parent_id: CheckpointId | None
    step: int
    node: str | None = None
    visit: int | None = None
    node_run_id: NodeRunId | None = None
    trigger: Trigger = Trigger.NODE_END
    kind: Kind = Kind.AUTO
    name: str | None = None
    description: str = ""
    next_nodes: tuple[str, ...] = ()
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    file_commit: str | None = None
    agent: str | None = None
    restore_point: bool = True
    created_by: str | None = None
    """Who made it. In a LangGraph thread it is the `run_id`, which LangGraph uses to delete checkpoints."""
    created_at: datetime

    def __post_init__(self) -> None:
        if self.created_at.tzinfo is None:
            raise InvalidInput(f"checkpoint {self.id!r}: created_at must carry a time zone")


@dataclass(frozen=True, kw_only=True)
class Checkpoint(CheckpointDraft):
    """A stored checkpoint without its state, as lists and histories hold it.

    `hash` covers this record, the state's content and the parent's hash; `size_bytes` is what storing it cost. A
    deleted checkpoint stays as a tombstone, so that the chain through it can still be followed.
    """

    state_hash: bytes
    parent_hash: bytes
    hash: bytes
    size_bytes: int
    deleted: bool = False

    @property
    def is_inside(self) -> bool:
        """Whether it was made in the middle of a node."""
        return self.node_run_id is not None and self.trigger is not Trigger.NODE_END


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A checkpoint with its state and the updates that nodes returned in that step (before reducers).

    `memory` is the data that the engine keeps with the step besides the state; None if it kept none.
    """

    checkpoint: Checkpoint
    state: State
    returned: Mapping[str, Mapping[str, Any]]
    memory: Mapping[str, Any] | None = None


class NodeStatus(StrEnum):
    """How far one visit of a node has come."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class NodeRun:
    """One start of a node; a retry or a recovery after a crash is another attempt of the same node run.

    In a parallel superstep, `pending` is the result that waits for the barrier. `figures` is None if they are not
    known: the run has only begun, or it was recorded before node runs kept figures.
    """

    id: NodeRunId
    execution_id: ExecutionId
    branch_id: BranchId
    node: str
    visit: int
    attempt: int = 1
    status: NodeStatus = NodeStatus.STARTED
    input_id: CheckpointId | None
    first_id: CheckpointId | None = None
    last_id: CheckpointId | None = None
    checkpoint_count: int = 0
    tool_count: int = 0
    failure: Failure | None = None
    pending: Mapping[str, Any] | None = None
    figures: Figures | None = None
    started_at: datetime
    ended_at: datetime | None = None

    def reached(self, checkpoint_id: CheckpointId) -> NodeRun:
        """Return the run after one more checkpoint of its own."""
        return evolve(
            self,
            first_id=self.first_id or checkpoint_id,
            last_id=checkpoint_id,
            checkpoint_count=self.checkpoint_count + 1,
        )

    def finished(self, returned: Mapping[str, Any], now: datetime) -> NodeRun:
        """Return the run with a result that waits for the barrier of its superstep."""
        return evolve(self, status=NodeStatus.COMPLETED, pending=returned, ended_at=now)

    def completed(self, checkpoint_id: CheckpointId, now: datetime) -> NodeRun:
        """Return the run as completed, with its last checkpoint."""
        return evolve(
            self,
            status=NodeStatus.COMPLETED,
            first_id=self.first_id or checkpoint_id,
            last_id=checkpoint_id,
            checkpoint_count=self.checkpoint_count + 1,
            pending=None,
            ended_at=self.ended_at or now,
        )

    def missed(self, checkpoint_id: CheckpointId, now: datetime) -> NodeRun:
        """Return the run as completed without its own checkpoint: a later step's checkpoint has its changes."""
        return evolve(
            self, status=NodeStatus.COMPLETED, last_id=checkpoint_id, pending=None, ended_at=self.ended_at or now
        )

    def measured(self, figures: Figures) -> NodeRun:
        """Return the run with its figures."""
        return evolve(self, figures=figures)

    def called_tool(self) -> NodeRun:
        """Return the run after one more tool call."""
        return evolve(self, tool_count=self.tool_count + 1)

    def tried_again(self, since: datetime | None = None) -> NodeRun:
        """Return the run at its next attempt; `since` restarts its time, to leave out a time when nothing ran it."""
        started_at = since or self.started_at
        return evolve(
            self,
            attempt=self.attempt + 1,
            status=NodeStatus.STARTED,
            failure=None,
            started_at=started_at,
            ended_at=None,
        )

    def ended(self, status: NodeStatus, now: datetime, failure: Failure | None = None) -> NodeRun:
        """Return the run with the status in which it ended."""
        return evolve(self, status=status, ended_at=now, failure=failure)

    def boundary(self) -> NodeBoundary:
        """Return the boundary that this run records for itself: its row in the projection."""
        return self.bounded(self.first_id, self.last_id, self.checkpoint_count)

    def bounded(self, first_id: CheckpointId | None, last_id: CheckpointId | None, count: int) -> NodeBoundary:
        """Return the boundary of this run between two checkpoints."""
        return NodeBoundary(
            node_run_id=self.id,
            branch_id=self.branch_id,
            node=self.node,
            visit=self.visit,
            status=self.status,
            first_id=first_id,
            last_id=last_id,
            checkpoint_count=count,
            tool_count=self.tool_count,
            started_at=self.started_at,
            ended_at=self.ended_at,
            error=None if self.failure is None else f"{self.failure.type}: {self.failure.message}",
        )


@dataclass(frozen=True, kw_only=True)
class NodeBoundary:
    """Where one visit of a node begins and ends in the line of checkpoints."""

    node_run_id: NodeRunId
    branch_id: BranchId
    node: str
    visit: int
    status: NodeStatus
    first_id: CheckpointId | None
    last_id: CheckpointId | None
    checkpoint_count: int
    tool_count: int
    started_at: datetime
    ended_at: datetime | None
    error: str | None

    @property
    def duration(self) -> timedelta | None:
        """How long the visit took; None while it runs."""
        return None if self.ended_at is None else self.ended_at - self.started_at
