"""MemoryPendingWriteRepository: what tasks wrote after a checkpoint, in dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from wtb.domain.checkpoint import PendingWrite
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Codec
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryPendingWriteRepository:
    """Writes inside one transaction, each beside its encoded value: nobody else can change what is kept."""

    def __init__(self, transaction: MemoryTransaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def add(self, writes: Sequence[PendingWrite]) -> None:
        for write in writes:
            if write.number < 0 or self._transaction.find("pending_writes", _key(write)) is None:
                data, _ = self._codec.encode(write.value, f"writes.{write.channel}")
                self._put(write._replace(value=None), data)

    def _put(self, write: PendingWrite, data: bytes) -> None:
        self._transaction.put("pending_writes", _key(write), (write, data))

    def list_writes(
        self, execution_ids: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId] | None = None
    ) -> tuple[PendingWrite, ...]:
        found = (stored for id in execution_ids for stored in self._stored(id, checkpoint_ids))
        writes = (write._replace(value=self._codec.decode(data)) for write, data in found)
        return tuple(sorted(writes, key=lambda write: (write.path, write.task_id, write.number)))

    def _stored(
        self, execution_id: ExecutionId, checkpoint_ids: Collection[CheckpointId] | None
    ) -> Iterator[tuple[PendingWrite, bytes]]:
        if checkpoint_ids is None:
            yield from self._transaction.group("pending_writes", 0, execution_id)
        for checkpoint_id in checkpoint_ids or ():
            yield from self._transaction.group("pending_writes", 1, (execution_id, checkpoint_id))

    def copy(
        self, sources: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId], execution_id: ExecutionId
    ) -> None:
        for source in sources:
            for write, data in list(self._stored(source, checkpoint_ids)):
                copy = write._replace(execution_id=execution_id)
                if self._transaction.find("pending_writes", _key(copy)) is None:
                    self._put(copy, data)

    def delete(self, execution_id: ExecutionId, checkpoint_ids: Collection[CheckpointId] | None = None) -> None:
        for write, _ in list(self._stored(execution_id, checkpoint_ids)):
            self._transaction.drop("pending_writes", _key(write))


def _key(write: PendingWrite) -> tuple[str, str, str, int]:
    return write.execution_id, write.checkpoint_id, write.task_id, write.number
