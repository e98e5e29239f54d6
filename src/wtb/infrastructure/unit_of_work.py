"""The shared base of all units of work: begin, commit, send events to the bus, undo uncommitted changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from wtb.domain.errors import InvalidInput
from wtb.domain.events import RecordedEvent
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import Clock, Codec, EventBus
from wtb.infrastructure.checkpoints.cache import ManifestCache
from wtb.infrastructure.checkpoints.encoder import DeltaEncoder
from wtb.infrastructure.checkpoints.rows import CheckpointRows
from wtb.infrastructure.checkpoints.store import DeltaCheckpointStore, HistorySources
from wtb.infrastructure.files.commits import DeltaFileCommits, FileCommitRows, TreeCache

Value = TypeVar("Value")


class lazy(Generic[Value]):  # noqa: N801  used as a decorator
    """A property that is computed once; `functools.cached_property` without its lock, which costs as much as it saves.

    A unit of work belongs to one thread.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, owner: Any, kind: type) -> Value:
        made = owner.__dict__[self._name] = self._make(owner)
        return made


class ClosableTransaction(Protocol):
    """One transaction; closing it undoes uncommitted changes."""

    def commit(self) -> None: ...
    def close(self) -> None: ...


class AppendedEvents(Protocol):
    """An event log that remembers what this transaction added."""

    appended: list[RecordedEvent]


class StorageParts:
    """The parts that every storage has: codec, clock, bus, and the manifests that its units of work share."""

    def __init__(self, *, codec: Codec, clock: Clock, bus: EventBus) -> None:
        self.codec = codec
        self.clock = clock
        self.bus = bus
        self._manifests = ManifestCache()
        self._trees = TreeCache()
        self._encoder = DeltaEncoder(codec)

    def checkpoint_store(self, rows: CheckpointRows, sources: Callable[[], HistorySources]) -> DeltaCheckpointStore:
        """Return the checkpoint store over these rows."""
        return DeltaCheckpointStore(
            rows,
            cache=self._manifests,
            encoder=self._encoder,
            codec=self.codec,
            clock=self.clock,
            sources=sources,
        )

    def file_commits(self, rows: FileCommitRows, blobs: CheckpointRows) -> DeltaFileCommits:
        """Return the repository of file commits over these rows; small contents are blobs, like values."""
        return DeltaFileCommits(rows, blobs, cache=self._trees, codec=self.codec, clock=self.clock)


class TransactionalUnitOfWork(ABC):
    """Begins on entry, and undoes on exit unless committed; the bus gets events only after the commit."""

    def __init__(self, bus: EventBus, *, readonly: bool) -> None:
        self._bus = bus
        self._readonly = readonly
        self._transaction: ClosableTransaction | None = None
        self._ended = False

    @abstractmethod
    def _begin(self, *, readonly: bool) -> ClosableTransaction:
        """Begin a transaction and put the repositories over it."""

    def __enter__(self) -> Self:
        if self._transaction is not None:
            raise InvalidInput("a unit of work can be used only once; get another one from the storage")
        self._transaction = self._begin(readonly=self._readonly)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        if self._transaction is not None:
            if self._readonly and kind is None:
                self._keep_learned()
            self._transaction.close()

    def _keep_learned(self) -> None:
        """Let the repositories that were used share what they cached."""
        for repository in ("checkpoints", "files", "events"):
            used = self.__dict__.get(repository)
            if used is not None:
                used.keep_learned()

    def rebuild_keyframe(self, checkpoint_id: CheckpointId) -> None:
        """Rewrite the keyframe of a checkpoint, if the checkpoint exists."""
        self._checkpoint_store().rebuild_keyframe(checkpoint_id)

    @abstractmethod
    def _checkpoint_store(self) -> DeltaCheckpointStore:
        """Return the checkpoints of this transaction."""

    def commit(self) -> None:
        if self._transaction is None:
            raise InvalidInput("enter the unit of work with `with` first; there is nothing to commit yet")
        if self._readonly:
            raise InvalidInput("this unit of work is read-only; to write, open one without readonly=True")
        if self._ended:  # another unit may use its connection by now
            raise InvalidInput("this unit of work has ended; ask the storage for another")
        self._transaction.commit()
        self._ended = True
        self._keep_learned()
        self._transaction.close()
        log: AppendedEvents | None = self.__dict__.get("events")
        if log is not None and log.appended:
            self._bus.publish(log.appended)
