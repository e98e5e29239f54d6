"""Lines: what is known of the last checkpoints of threads, and the put that goes on from one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
from langgraph.checkpoint.base import CheckpointMetadata, get_checkpoint_metadata

from wtb.domain.checkpoint import Snapshot
from wtb.domain.ids import BranchId, CheckpointId
from wtb.domain.state import State
from wtb.infrastructure.langgraph.plain_data import encoded
from wtb.infrastructure.langgraph.saver.records import Record
from wtb.infrastructure.langgraph.saver.write_buffer import Place
from wtb.infrastructure.langgraph.tracked_lists import TrackedList


@dataclass(slots=True, kw_only=True)
class Line:
    """The end of a line of checkpoints: what the next one is told apart from."""

    row_id: CheckpointId | None = None
    branch_id: BranchId | None = None
    step: int = -1
    versions: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    inner: Mapping[str, Any] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    state: State | None = None
    """What is stored, when the line was read; lists that were put by this process are tracked instead."""
    lists: dict[str, TrackedList | None] = field(default_factory=dict)
    touched_at: datetime | None = None
    """When the execution was last said to have got on."""
    is_head: bool = True
    """Whether its branch ends here, as far as is known: the transaction finds out."""

    @classmethod
    def of(cls, snapshot: Snapshot, record: Record) -> Line:
        """Return the line that ends with a stored checkpoint."""
        row = snapshot.checkpoint
        return cls(
            row_id=row.id,
            branch_id=row.branch_id,
            step=row.step,
            versions=record.versions,
            seen=record.seen,
            visits=record.visits,
            inner=record.inner,
            keys=frozenset(snapshot.state),
            state=snapshot.state,
        )

    def tracked(self, channel: str) -> TrackedList | None:
        """Return the list that a channel held; None when it held none."""
        if channel in self.lists:
            return self.lists[channel]
        held = None if self.state is None or channel not in self.keys else self.state[channel]
        return TrackedList(map(encoded, held)) if type(held) is list else None


class Lines:
    """The ends that this process has written, by thread, namespace and LangGraph's id; each is taken by who goes on.

    What is missing here is read from the store: this saves reading and encoding again, and decides nothing.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._lines: OrderedDict[Place, Line] = OrderedDict()
        self._coming: set[Place] = set()
        self._active: dict[str, BranchId] = {}
        self._lock = threading.Lock()

    def take(self, place: Place) -> Line | None:
        with self._lock:
            return self._lines.pop(place, None)

    def announce(self, place: Place) -> None:
        """Let it be known that a checkpoint is being put: what tasks write after it often comes before it is stored."""
        self._coming.add(place)

    def withdraw(self, place: Place) -> None:
        """Forget what was announced, once it is kept or has failed."""
        self._coming.discard(place)

    def row_id(self, place: Place) -> CheckpointId | None:
        """Return under which id a checkpoint lies, or is going to."""
        with self._lock:
            line = self._lines.get(place)
            if line is not None:
                return line.row_id
            return CheckpointId(place.checkpoint_id) if place in self._coming else None

    def keep(self, place: Place, line: Line) -> None:
        with self._lock:
            self._lines[place] = line
            if not place.namespace and line.branch_id is not None:
                self._active[place.thread_id] = line.branch_id
            if len(self._lines) > self._size:
                forgotten, _ = self._lines.popitem(last=False)
                self._active.pop(forgotten.thread_id, None)

    def is_active(self, thread_id: str, branch_id: BranchId) -> bool:
        """Whether this process last put the thread on this branch."""
        return self._active.get(thread_id) == branch_id

    def forget(self, thread_id: str) -> None:
        with self._lock:
            self._active.pop(thread_id, None)
            for place in [place for place in self._lines if place.thread_id == thread_id]:
                del self._lines[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One call of `put`."""

    thread_id: str
    namespace: str
    parent: Place | None
    checkpoint: LangGraphCheckpoint
    metadata: CheckpointMetadata
    new_versions: Mapping[str, Any]

    @classmethod
    def of(cls, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]) -> Put:
        place = config["configurable"]
        thread_id, namespace, parent_id = (
            str(place["thread_id"]),
            place.get("checkpoint_ns", ""),
            place.get("checkpoint_id"),
        )
        return cls(
            thread_id=thread_id,
            namespace=namespace,
            parent=Place(thread_id, namespace, parent_id) if parent_id else None,
            checkpoint=checkpoint,
            metadata=get_checkpoint_metadata(config, metadata),
            new_versions=new_versions,
        )

    @property
    def place(self) -> Place:
        return Place(self.thread_id, self.namespace, self.checkpoint["id"])
