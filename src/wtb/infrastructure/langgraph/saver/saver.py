"""StoreSaver: a LangGraph checkpointer over our storage."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import RESUME

from wtb.domain.errors import InvalidInput
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.infrastructure.langgraph.pending_writes import PendingWrite, pending_writes_of
from wtb.infrastructure.langgraph.saver.head_cache import HeadCache, Put
from wtb.infrastructure.langgraph.saver.reading import CheckpointReader
from wtb.infrastructure.langgraph.saver.records import langgraph_id, row_ids
from wtb.infrastructure.langgraph.saver.threads import Thread, all_threads
from wtb.infrastructure.langgraph.saver.upkeep import ThreadUpkeep, all_but_latest, made_by
from wtb.infrastructure.langgraph.saver.write_buffer import Place, WriteBuffer
from wtb.infrastructure.langgraph.saver.writing import CheckpointWriter
from wtb.infrastructure.langgraph.values import ChannelValues

Result = TypeVar("Result")

_DIGITS = 8
"""Digits of the number in a version: versions are compared as text, and no thread has 100 million of them."""

_CHANCE = random.Random()
os.register_at_fork(after_in_child=_CHANCE.seed)


def _token() -> str:
    """Return the random part of a version; asking the system for each one would take ten times as long."""
    return f"{_CHANCE.getrandbits(24):06x}"


class StoreSaver(BaseCheckpointSaver[str]):
    """Stores LangGraph threads as executions; the module `records` says how. Safe for several threads and processes.

    Each call is one transaction, and has stored everything when it returns.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        clock: Clock,
        ids: Ids,
        serde: SerializerProtocol | None = None,
        user: str | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._user = user
        self._heads = HeadCache()
        self._buffer = WriteBuffer()
        self._build_parts()

    def _build_parts(self) -> None:
        values = self._values = ChannelValues(self.serde)
        self._reader = CheckpointReader(self._storage, values)
        self._writer = CheckpointWriter(
            self._storage,
            self._clock,
            self._ids,
            values=values,
            heads=self._heads,
            buffer=self._buffer,
            user=self._user,
        )
        self._upkeep = ThreadUpkeep(self._storage, self._clock, self._ids, self._heads.forget, user=self._user)

    def with_allowlist(self, extra_allowlist: Any) -> StoreSaver:
        """Return a saver over the same storage that may also build these types."""
        clone: Any = super().with_allowlist(extra_allowlist)
        if clone is not self:
            clone._build_parts()
        return clone  # type: ignore[no-any-return]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint by its id; without an id, the current one of the thread."""
        return self._reader.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, or of all threads, newest first."""
        return self._reader.tuples(config, filter=filter, before=before, limit=limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; it becomes the current one of its namespace."""
        put = Put.of(config, checkpoint, metadata, new_versions)
        self._writer.put(put)
        return {
            "configurable": {
                "thread_id": config["configurable"]["thread_id"],
                "checkpoint_ns": put.namespace,
                "checkpoint_id": checkpoint["id"],
            }
        }

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote; the same write is stored once."""
        if not writes:
            return
        place = _place(config)
        stored = [(channel, self._values.store_write(value, f"channel {channel!r}")) for channel, value in writes]
        row_id = self._heads.row_id(place)
        if row_id is None:
            with self._storage.unit_of_work(readonly=True) as uow:
                row_id = _row_id(uow, place)
        now = self._clock.now()
        made = [
            PendingWrite(
                execution_id=ExecutionId(place.thread_id),
                checkpoint_id=row_id,
                task_id=task_id,
                number=WRITES_IDX_MAP.get(channel, position),
                path=task_path,
                channel=channel,
                value=value,
                created_at=now,
            )
            for position, (channel, value) in enumerate(stored)
        ]
        self._buffer.store(place, made, self._store_writes, wait=made[0].number >= 0)

    def _store_writes(self, writes: Sequence[PendingWrite]) -> None:
        with self._storage.unit_of_work() as uow:
            pending_writes_of(uow).add(writes)
            uow.commit()

    def places(self, thread_id: str) -> set[tuple[str, str]]:
        """Return the namespaces and ids of a thread's checkpoints; InvalidInput when a run has its id."""
        with self._storage.unit_of_work(readonly=True) as uow:
            thread = Thread.find(uow, str(thread_id))
            rows = () if thread is None else thread.rows(uow)
            return {(namespace, langgraph_id(row.id)) for row, namespace in rows}

    def answered_since(self, thread_id: str, at: datetime) -> bool:
        """Whether a question at the thread's current checkpoint was answered after this moment."""
        with self._storage.unit_of_work(readonly=True) as uow:
            thread = Thread.find(uow, thread_id)
            head = None if thread is None else thread.head("")
            if thread is None or head is None:
                return False
            writes = thread.writes(uow, [head]).get(head, [])
        return any(write.channel == RESUME and write.created_at >= at for write in writes)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread; its copies keep what they have."""
        self._upkeep.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made, in all threads."""
        if run_ids:
            with self._storage.unit_of_work(readonly=True) as uow:
                threads = [thread.id for thread in all_threads(uow)]
            for thread_id in threads:
                self._upkeep.drop(thread_id, made_by(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread; the cost does not depend on its length."""
        self._upkeep.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads, or all but the current one of each namespace."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"strategy must be keep_latest or delete, not {strategy!r}")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self._upkeep.delete(thread_id)
            else:
                self._upkeep.drop(thread_id, all_but_latest(self._values))

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Return a higher version than this one; no other branch of the thread gets the same."""
        if current is None:
            return f"{1:0{_DIGITS}}.{_token()}"
        if not isinstance(current, str):  # a thread that began with plain numbers
            return int(current) + 1
        number, _, _ = current.partition(".")
        return f"{int(number) + 1:0{len(number)}}.{_token()}"

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, Any]:
        """Return the writes to delta channels since the last stored value of each."""
        return self._reader.delta_history(config, channels) if channels else {}

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, Any]:
        """Do as `get_delta_channel_history`."""
        return await self._aside(partial(self.get_delta_channel_history, config=config, channels=channels))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do as `get_tuple`."""
        return await self._aside(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do as `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await self._aside(next, found, None)) is not None:
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do as `put`."""
        return await self._aside(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do as `put_writes`."""
        await self._aside(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Do as `delete_thread`."""
        await self._aside(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do as `delete_for_runs`."""
        await self._aside(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do as `copy_thread`."""
        await self._aside(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do as `prune`."""
        await self._aside(partial(self.prune, thread_ids, strategy=strategy))

    async def _aside(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function in another thread, because a database may block."""
        return await asyncio.to_thread(function, *args)


def _place(config: RunnableConfig) -> Place:
    place = config["configurable"]
    return Place(str(place["thread_id"]), place.get("checkpoint_ns", ""), str(place["checkpoint_id"]))


def _row_id(uow: UnitOfWork, place: Place) -> CheckpointId:
    thread = Thread.find(uow, place.thread_id)
    row = None if thread is None else thread.find_row(uow, place.namespace, place.checkpoint_id)
    # Writes may come before their checkpoint: LangGraph saves in the background.
    return row_ids(*place)[0] if row is None else row.id
