"""Views of threads: what a LangGraph server answers about them. Each becomes plain JSON by `to_data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class ThreadStatus(StrEnum):
    """The status of a thread, in LangGraph's words."""

    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    """A node comes next; perhaps it asks something."""
    ERROR = "error"
    """A node has failed; the next run tries it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlace:
    """Where a checkpoint is; without an id, the current one."""

    thread_id: str
    namespace: str = ""
    id: str | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the place as LangGraph's clients read it."""
        return {
            "thread_id": self.thread_id,
            "checkpoint_ns": self.namespace,
            "checkpoint_id": self.id,
            "checkpoint_map": None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTask:
    """A node that is due at a checkpoint, and how far it came."""

    id: str
    name: str
    path: Sequence[Any]
    error: str | None = None
    interrupts: Sequence[Mapping[str, Any]] = ()
    result: Mapping[str, Any] | None = None
    checkpoint: CheckpointPlace | None = None
    """The current checkpoint of the subgraph that the node runs."""
    state: ThreadState | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the task as LangGraph's clients read it."""
        return {
            "id": self.id,
            "name": self.name,
            "path": list(self.path),
            "error": self.error,
            "interrupts": [dict(each) for each in self.interrupts],
            "result": self.result,
            "checkpoint": None if self.checkpoint is None else self.checkpoint.to_data(),
            "state": None if self.state is None else self.state.to_data(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """A checkpoint of a thread: its values, and what comes next."""

    place: CheckpointPlace
    values: Mapping[str, Any] = field(default_factory=dict)
    next: Sequence[str] = ()
    tasks: Sequence[ThreadTask] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: str | None = None
    parent: CheckpointPlace | None = None

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        """What its tasks ask."""
        return [dict(each) for task in self.tasks for each in task.interrupts]

    @property
    def status(self) -> ThreadStatus:
        """The status of a thread that stands here and that nothing runs."""
        if self.interrupts:
            return ThreadStatus.INTERRUPTED
        if any(task.error for task in self.tasks):
            return ThreadStatus.ERROR
        return ThreadStatus.INTERRUPTED if self.next else ThreadStatus.IDLE

    def to_data(self) -> dict[str, Any]:
        """Return the state as LangGraph's clients read it."""
        return {
            "values": dict(self.values),
            "next": list(self.next),
            "tasks": [task.to_data() for task in self.tasks],
            "checkpoint": None if self.place.id is None else self.place.to_data(),
            "metadata": dict(self.metadata),
            "created_at": self.created_at,
            "parent_checkpoint": None if self.parent is None else self.parent.to_data(),
            "interrupts": self.interrupts,
            # Older clients read these two.
            "checkpoint_id": self.place.id,
            "parent_checkpoint_id": None if self.parent is None else self.parent.id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadView:
    """A thread with its current state."""

    id: str
    metadata: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    is_busy: bool
    state: ThreadState

    @property
    def status(self) -> ThreadStatus:
        """Its status."""
        return ThreadStatus.BUSY if self.is_busy else self.state.status

    def to_data(self) -> dict[str, Any]:
        """Return the thread as LangGraph's clients read it."""
        return {
            "thread_id": self.id,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "metadata": dict(self.metadata),
            "status": self.status.value,
            "config": {},
            "values": dict(self.state.values) or None,
            "interrupts": {task.id: list(task.interrupts) for task in self.state.tasks if task.interrupts},
        }
