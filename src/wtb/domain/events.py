"""Events: what happened, in the order it was committed; all event types are listed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from wtb.domain.errors import InvalidInput

SYSTEM_STREAM = "system"
"""The stream of events that belong to no execution and no batch."""


class EventType(StrEnum):
    """Every event, named noun first."""

    EXECUTION_CREATED = "execution.created"
    EXECUTION_STARTED = "execution.started"
    EXECUTION_PAUSED = "execution.paused"
    EXECUTION_RESUMED = "execution.resumed"
    EXECUTION_COMPLETED = "execution.completed"
    EXECUTION_FAILED = "execution.failed"
    EXECUTION_CANCELLED = "execution.cancelled"
    EXECUTION_ABANDONED = "execution.abandoned"
    EXECUTION_DEGRADED = "execution.degraded"
    EXECUTION_DELETED = "execution.deleted"
    NODE_STARTED = "node.started"
    NODE_COMPLETED = "node.completed"
    NODE_FAILED = "node.failed"
    NODE_RETRIED = "node.retried"
    NODE_SKIPPED = "node.skipped"
    NODE_REPLACED = "node.replaced"
    NODE_INSIDE = "node.inside"
    CHECKPOINT_CREATED = "checkpoint.created"
    CHECKPOINT_RESTORED = "checkpoint.restored"
    CHECKPOINT_DELETED = "checkpoint.deleted"
    CHECKPOINT_FAILED = "checkpoint.failed"
    BRANCH_CREATED = "branch.created"
    ROLLBACK_STARTED = "rollback.started"
    ROLLBACK_COMPLETED = "rollback.completed"
    ROLLBACK_FAILED = "rollback.failed"
    TOOL_STARTED = "tool.started"
    TOOL_COMPLETED = "tool.completed"
    TOOL_FAILED = "tool.failed"
    TOOL_REVERSED = "tool.reversed"
    TOOL_AWAITED = "tool.awaited"
    BATCH_STARTED = "batch.started"
    BATCH_COMPLETED = "batch.completed"
    BATCH_FAILED = "batch.failed"
    BATCH_CANCELLED = "batch.cancelled"
    EVALUATION_COMPLETED = "evaluation.completed"
    EVALUATION_FAILED = "evaluation.failed"
    ENVIRONMENT_CREATED = "environment.created"
    ENVIRONMENT_REMOVED = "environment.removed"
    ENVIRONMENT_FAILED = "environment.failed"


class Severity(StrEnum):
    """How much an event matters to somebody who skims."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_WARNINGS = frozenset(
    {EventType.EXECUTION_DEGRADED, EventType.EXECUTION_ABANDONED, EventType.NODE_RETRIED, EventType.TOOL_AWAITED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact. `stream` is the id of the execution or batch that it belongs to; `data` is plain JSON."""

    type: EventType
    stream: str = SYSTEM_STREAM
    at: datetime
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise InvalidInput(f"event {self.type}: its time must carry a time zone")

    @property
    def severity(self) -> Severity:
        """Follows from the type."""
        if self.type.endswith(".failed"):
            return Severity.ERROR
        return Severity.WARNING if self.type in _WARNINGS else Severity.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent(Event):
    """A stored event. `position` orders the whole log, `sequence` one stream; `hash` chains the stream."""

    position: int
    sequence: int
    hash: bytes
