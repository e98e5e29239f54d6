"""Reading: returns our checkpoints as LangGraph's tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, get_checkpoint_id

from wtb.domain.checkpoint import Snapshot
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import Storage, UnitOfWork
from wtb.infrastructure.langgraph.pending_writes import PendingWrite
from wtb.infrastructure.langgraph.saver.records import Record, has_record, joined_input, langgraph_id
from wtb.infrastructure.langgraph.saver.threads import Thread, all_threads
from wtb.infrastructure.langgraph.values import ChannelValues

_PAGE = 200
"""The number of checkpoints that are read together; data that they share is decoded once."""


class _Candidate(NamedTuple):
    id: str
    thread: Thread
    row_id: CheckpointId


class StoredCheckpoint(NamedTuple):
    """A checkpoint of a thread with its record, and what tasks wrote after it."""

    thread_id: str
    snapshot: Snapshot
    record: Record
    writes: Sequence[PendingWrite]


class CheckpointReader:
    """Reads from the store, in read-only transactions."""

    def __init__(self, storage: Storage, values: ChannelValues) -> None:
        self._storage = storage
        self._values = values

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint by its id; without an id, the current one of the namespace."""
        found = self.find(config)
        return None if found is None else self._tuple(config["configurable"]["thread_id"], found)

    def find(self, config: RunnableConfig) -> StoredCheckpoint | None:
        """Return a checkpoint as it is stored, by its id; without an id, the current one of the namespace."""
        place = config["configurable"]
        namespace = place.get("checkpoint_ns", "")
        with self._storage.unit_of_work(readonly=True) as uow:
            thread = Thread.find(uow, str(place["thread_id"]))
            if thread is None:
                return None
            snapshot = self._snapshot(uow, thread, namespace, get_checkpoint_id(config))
            if snapshot is None:
                return None
            writes = thread.writes(uow, [snapshot.checkpoint.id]).get(snapshot.checkpoint.id, [])
        record = Record.of(snapshot, self._values)
        return None if record is None else StoredCheckpoint(thread.id, snapshot, record, writes)

    def _snapshot(self, uow: UnitOfWork, thread: Thread, namespace: str, checkpoint_id: str | None) -> Snapshot | None:
        if checkpoint_id:
            row = thread.find_row(uow, namespace, checkpoint_id)
            row_id = None if row is None else row.id
        else:
            row_id = thread.standing(uow, namespace, self._values)
        while row_id is not None:
            snapshot = next(uow.checkpoints.load_many([row_id]), None)
            if snapshot is None or has_record(snapshot):
                return snapshot
            row_id = (
                snapshot.checkpoint.parent_id
            )  # made by a person, or to secure a rollback: LangGraph sees the one before
        return None

    def tuples(
        self,
        config: RunnableConfig | None,
        *,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""
        for found in self.each(config, filter=filter, before=before, limit=limit):
            yield self._tuple(found.thread_id, found)

    def each(
        self,
        config: RunnableConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[StoredCheckpoint]:
        """Yield checkpoints as they are stored, newest first."""
        place = {} if config is None else config["configurable"]
        with self._storage.unit_of_work(readonly=True) as uow:
            threads = [*all_threads(uow)] if config is None else [Thread.find(uow, str(place["thread_id"]))]
            end = None if before is None else get_checkpoint_id(before)
            found = [
                candidate
                for thread in threads
                if thread is not None
                for candidate in _candidates(uow, thread, place)
                if end is None or candidate.id < end
            ]
        found.sort(key=lambda candidate: candidate.id, reverse=True)
        size = _PAGE if limit is None or filter else max(min(limit, _PAGE), 1)
        pages = (self._page(found[start : start + size], filter or {}) for start in range(0, len(found), size))
        yield from islice(chain.from_iterable(pages), None if limit is None else max(limit, 0))

    def delta_history(self, config: RunnableConfig, channels: Sequence[str]) -> dict[str, Any]:
        """Return the data to rebuild delta channels: the last stored value before a checkpoint, and the writes since.

        One pass over the ancestors follows every channel back to its value.
        """
        place = config["configurable"]
        writes: dict[str, list[tuple[str, str, Any]]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        with self._storage.unit_of_work(readonly=True) as uow:
            thread = Thread.find(uow, str(place["thread_id"]))
            line = () if thread is None else self._ancestors(uow, thread, place)
            for start in range(0, len(line), _PAGE):
                page = line[start : start + _PAGE]
                own = thread.writes(uow, page) if thread is not None else {}
                for snapshot in uow.checkpoints.load_many(page):
                    open_channels = [channel for channel in channels if channel not in seeds]
                    for write in reversed(own.get(snapshot.checkpoint.id, ())):
                        if write.channel in open_channels:
                            value = self._values.restore(write.value)
                            writes[write.channel].append((write.task_id, write.channel, value))
                    for channel in open_channels:
                        if channel in snapshot.state:
                            seeds[channel] = self._values.restore(snapshot.state[channel])
                if len(seeds) == len(channels):
                    break
        return {
            channel: {"writes": found[::-1], **({"seed": seeds[channel]} if channel in seeds else {})}
            for channel, found in writes.items()
        }

    def _ancestors(self, uow: UnitOfWork, thread: Thread, place: Mapping[str, Any]) -> Sequence[CheckpointId]:
        """Return the ancestors of a checkpoint, nearest first."""
        rows = {row.id: row for row, _ in thread.rows(uow)}
        snapshot = self._snapshot(uow, thread, place.get("checkpoint_ns", ""), place.get("checkpoint_id"))
        line: list[CheckpointId] = []
        at = None if snapshot is None else snapshot.checkpoint.parent_id
        while at is not None and at in rows:
            line.append(at)
            at = rows[at].parent_id
        return line

    def _page(self, found: Sequence[_Candidate], wanted: Mapping[str, Any]) -> Iterator[StoredCheckpoint]:
        """Read some checkpoints, of any threads, and yield them in their order."""
        with self._storage.unit_of_work(readonly=True) as uow:
            row_ids = [candidate.row_id for candidate in found]
            threads = {candidate.thread.id: candidate.thread for candidate in found}
            writes = {id: thread.writes(uow, row_ids) for id, thread in threads.items()}
            snapshots = uow.checkpoints.load_many(row_ids)
        rest = iter(found)
        for snapshot in snapshots:
            candidate = next(each for each in rest if each.row_id == snapshot.checkpoint.id)  # others are gone
            record = Record.of(snapshot, self._values)
            if record is not None and all(record.metadata.get(key) == value for key, value in wanted.items()):
                own = writes[candidate.thread.id].get(candidate.row_id, [])
                yield StoredCheckpoint(candidate.thread.id, snapshot, record, own)

    def _tuple(self, thread_id: Any, found: StoredCheckpoint) -> CheckpointTuple:
        record, restore = found.record, self._values.restore
        checkpoint: Any = {
            **record.more,
            "id": record.id,
            "channel_values": joined_input(
                {**{channel: restore(value) for channel, value in found.snapshot.state.items()}, **record.routing}
            ),
            "channel_versions": record.versions,
            "versions_seen": record.seen,
        }
        return CheckpointTuple(
            config=_config(thread_id, record.namespace, record.id),
            checkpoint=checkpoint,
            metadata=record.metadata,  # type: ignore[arg-type]
            parent_config=None if not record.parent_id else _config(thread_id, record.namespace, record.parent_id),
            pending_writes=[(write.task_id, write.channel, restore(write.value)) for write in found.writes],
        )


def _config(thread_id: Any, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def _candidates(uow: UnitOfWork, thread: Thread, place: Mapping[str, Any]) -> Iterator[_Candidate]:
    wanted, checkpoint_id = place.get("checkpoint_ns"), place.get("checkpoint_id")
    for row, namespace in thread.rows(uow):
        id = langgraph_id(row.id)
        if wanted in (None, namespace) and (not checkpoint_id or id == checkpoint_id):
            yield _Candidate(id, thread, row.id)
