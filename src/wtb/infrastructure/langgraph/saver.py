"""StoreSaver: a LangGraph checkpointer on our store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from secrets import token_hex
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

from wtb.domain.checkpoint import PendingWrite
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Clock, Ids, Storage
from wtb.infrastructure.langgraph.reading import CheckpointReader
from wtb.infrastructure.langgraph.records import row_ids
from wtb.infrastructure.langgraph.threads import Thread
from wtb.infrastructure.langgraph.values import ChannelValues
from wtb.infrastructure.langgraph.writing import CheckpointWriter, Lines, Put

Result = TypeVar("Result")

_DIGITS = 10


class StoreSaver(BaseCheckpointSaver[str]):
    """Keeps threads as executions: see records for what lies where. Safe to use from several threads and processes.

    Everything that returned is stored: each call is one transaction.
    """

    def __init__(self, storage: Storage, *, clock: Clock, ids: Ids, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._lines = Lines()
        self._arrange()

    def _arrange(self) -> None:
        values = self._values = ChannelValues(self.serde)
        self._reader = CheckpointReader(self._storage, values)
        self._writer = CheckpointWriter(self._storage, self._clock, self._ids, values, self._lines)

    def with_allowlist(self, extra_allowlist: Any) -> StoreSaver:
        """Return a saver over the same store that may build these types too."""
        clone: Any = super().with_allowlist(extra_allowlist)
        if clone is not self:
            clone._arrange()
        return clone  # type: ignore[no-any-return]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint by its id; without one, that at which the thread stands."""
        return self._reader.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, or of all, newest first."""
        return self._reader.list(config, filter=filter, before=before, limit=limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint, and let its namespace stand there."""
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
        """Keep what a task wrote, once."""
        if not writes:
            return
        place = config["configurable"]
        thread_id, namespace = str(place["thread_id"]), place.get("checkpoint_ns", "")
        stored = [(channel, self._values.store(value, f"channel {channel!r}")) for channel, value in writes]
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            row_id = self._row_id(uow, thread_id, namespace, str(place["checkpoint_id"]))
            uow.writes.add(
                [
                    PendingWrite(
                        execution_id=ExecutionId(thread_id),
                        checkpoint_id=row_id,
                        task_id=task_id,
                        index=WRITES_IDX_MAP.get(channel, number),
                        path=task_path,
                        channel=channel,
                        value=value,
                        created_at=now,
                    )
                    for number, (channel, value) in enumerate(stored)
                ]
            )
            uow.commit()

    def _row_id(self, uow: Any, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointId:
        known = self._lines.find(thread_id, namespace, checkpoint_id)
        if known is not None and known.row_id is not None:
            return known.row_id
        thread = Thread.find(uow, thread_id)
        row = None if thread is None else thread.find_row(uow, namespace, checkpoint_id)
        # Writes may come before their checkpoint: saves run in the background.
        return row_ids(thread_id, namespace, checkpoint_id)[0] if row is None else row.id

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Return a version above this one that no other line of the thread gives."""
        if current is None:
            return f"{1:0{_DIGITS}}.{token_hex(4)}"
        if not isinstance(current, str):  # of a thread that was begun with plain numbers
            return int(current) + 1
        number, _, _ = current.partition(".")
        return f"{int(number) + 1:0{len(number)}}.{token_hex(4)}"

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

    async def _aside(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function in a thread of its own: a database may let its callers wait."""
        return await asyncio.to_thread(function, *args)
