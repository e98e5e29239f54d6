"""MemoryPendingWriteRepository: the writes of tasks after a checkpoint, in dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Codec
from wtb.infrastructure.langgraph.pending_writes import PendingWrite
from wtb.infrastructure.memory.tables import MemoryTransaction

_Stored = tuple[PendingWrite, bytes]


class MemoryPendingWriteRepository:
    """Writes inside one transaction, each with its encoded value, which cannot change afterwards."""

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

    def _stored(self, execution_id: ExecutionId, checkpoint_ids: Collection[CheckpointId] | None) -> Iterator[_Stored]:
        if checkpoint_ids is None:
            yield from _of_run(self._transaction, execution_id)
        for checkpoint_id in checkpoint_ids or ():
            yield from _after(self._transaction, execution_id, checkpoint_id)

    def copy(
        self, sources: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId], execution_id: ExecutionId
    ) -> None:
        for source in sources:
            for write, data in list(self._stored(source, checkpoint_ids)):
                copy = write._replace(execution_id=execution_id)
                if self._transaction.find("pending_writes", _key(copy)) is None:
                    self._put(copy, data)

    def delete(self, execution_id: ExecutionId, checkpoint_ids: Collection[CheckpointId] | None = None) -> None:
        _drop(self._transaction, self._stored(execution_id, checkpoint_ids))


def drop_writes_of(transaction: MemoryTransaction, execution_id: str) -> None:
    """Drop the writes of an execution, which is deleted."""
    _drop(transaction, _of_run(transaction, execution_id))


def drop_writes_after(transaction: MemoryTransaction, execution_id: str, checkpoint_id: str) -> None:
    """Drop the writes after a checkpoint, which is deleted or which a rollback returns to."""
    _drop(transaction, _after(transaction, execution_id, checkpoint_id))


def _of_run(transaction: MemoryTransaction, execution_id: str) -> Iterator[_Stored]:
    return transaction.group("pending_writes", 0, execution_id)


def _after(transaction: MemoryTransaction, execution_id: str, checkpoint_id: str) -> Iterator[_Stored]:
    return transaction.group("pending_writes", 1, (execution_id, checkpoint_id))


def _drop(transaction: MemoryTransaction, stored: Iterable[_Stored]) -> None:
    for write, _ in list(stored):
        transaction.drop("pending_writes", _key(write))


def _key(write: PendingWrite) -> tuple[str, str, str, int]:
    return write.execution_id, write.checkpoint_id, write.task_id, write.number
