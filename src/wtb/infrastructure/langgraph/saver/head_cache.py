"""HeadCache: the last checkpoints of threads, as this process stored them, for the next put to build on."""

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
class KnownCheckpoint:
    """A stored checkpoint, with everything that the next one is compared with; empty when nothing is stored."""

    row_id: CheckpointId | None = None
    branch_id: BranchId | None = None
    step: int = -1
    versions: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    routing: Mapping[str, Any] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    state: State | None = None
    """The stored state, when the checkpoint was read; lists that this process stored are in `lists`."""
    lists: dict[str, TrackedList | None] = field(default_factory=dict)
    touched_at: datetime | None = None
    """When the last activity of the thread was stored."""
    is_finished: bool = False
    """Whether the graph of the thread had finished there."""
    is_head: bool = True
    """Whether its branch ends here, as far as this process knows: the transaction checks it."""

    @classmethod
    def of(cls, snapshot: Snapshot, record: Record) -> KnownCheckpoint:
        """Return a checkpoint that was read from the store."""
        row = snapshot.checkpoint
        return cls(
            row_id=row.id,
            branch_id=row.branch_id,
            step=row.step,
            versions=record.versions,
            seen=record.seen,
            visits=record.visits,
            routing=record.routing,
            keys=frozenset(snapshot.state),
            state=snapshot.state,
            is_finished=not record.namespace and record.is_finished,
        )

    def tracked(self, channel: str) -> TrackedList | None:
        """Return the list that a channel holds; None when it holds none."""
        if channel in self.lists:
            return self.lists[channel]
        held = None if self.state is None or channel not in self.keys else self.state[channel]
        return TrackedList(map(encoded, held)) if type(held) is list else None


class HeadCache:
    """The last checkpoints that this process stored; the put that follows one takes it out.

    The cache saves time only: what is missing here is read from the store.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._heads: OrderedDict[Place, KnownCheckpoint] = OrderedDict()
        self._coming: set[Place] = set()
        self._active: dict[str, BranchId] = {}
        self._lock = threading.Lock()

    def take(self, place: Place) -> KnownCheckpoint | None:
        """Remove a checkpoint and return it."""
        with self._lock:
            return self._heads.pop(place, None)

    def announce(self, place: Place) -> None:
        """Note that a checkpoint is being stored: tasks after it often write before that is done."""
        self._coming.add(place)

    def withdraw(self, place: Place) -> None:
        """Forget the announcement, once the checkpoint is stored or has failed."""
        self._coming.discard(place)

    def row_id(self, place: Place) -> CheckpointId | None:
        """Return the id under which a checkpoint is stored, or is about to be."""
        with self._lock:
            head = self._heads.get(place)
            if head is not None:
                return head.row_id
            return CheckpointId(place.checkpoint_id) if place in self._coming else None

    def keep(self, place: Place, head: KnownCheckpoint) -> None:
        """Add a checkpoint; the oldest one goes when there are too many."""
        with self._lock:
            self._heads[place] = head
            if not place.namespace and head.branch_id is not None:
                self._active[place.thread_id] = head.branch_id
            if len(self._heads) > self._size:
                forgotten, _ = self._heads.popitem(last=False)
                self._active.pop(forgotten.thread_id, None)

    def is_active(self, thread_id: str, branch_id: BranchId) -> bool:
        """Whether this process last stored a checkpoint of the thread on this branch."""
        return self._active.get(thread_id) == branch_id

    def forget(self, thread_id: str) -> None:
        """Remove everything about a thread."""
        with self._lock:
            self._active.pop(thread_id, None)
            for place in [place for place in self._heads if place.thread_id == thread_id]:
                del self._heads[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """The arguments of one call of `put`."""

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
