"""SqlPendingWriteRepository: the writes of tasks after a checkpoint; large values are blobs, like those of states."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

from wtb.domain.errors import DamagedData
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Codec
from wtb.infrastructure.checkpoints.manifest import INLINE_APPEND_BYTES
from wtb.infrastructure.langgraph.pending_writes import PendingWrite
from wtb.infrastructure.sql.checkpoint_rows import SqlCheckpointRows
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.seals import RowSeal
from wtb.infrastructure.timestamps import from_us, to_us

WRITE_SEAL = RowSeal(
    kind=FaultKind.PENDING_WRITE,
    table="wtb_pending_writes",
    key=("checkpoint_id", "task_id", "idx"),
    rest=("path", "channel", "data", "address", "created_at_us"),
)
"""Does not cover the execution: a fork copies rows unchanged, including the seal."""
_FIELDS = f"execution_id, {WRITE_SEAL.covered}, seal"
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP = "ON CONFLICT DO NOTHING"
_REPLACE = (
    "ON CONFLICT (execution_id, checkpoint_id, task_id, idx) DO UPDATE SET path = excluded.path, "
    "channel = excluded.channel, data = excluded.data, address = excluded.address, "
    "created_at_us = excluded.created_at_us, seal = excluded.seal"
)
_COPY = (
    f"INSERT INTO wtb_pending_writes ({_FIELDS}) SELECT ?, {_FIELDS.partition(', ')[2]} FROM wtb_pending_writes "
    f"WHERE execution_id = ? AND checkpoint_id IN (??) {_KEEP}"
)


@lru_cache(maxsize=256)
def _insert_statement(count: int, on_conflict: str) -> str:
    return f"INSERT INTO wtb_pending_writes ({_FIELDS}) VALUES {', '.join([_ROW] * count)} {on_conflict}"


class SqlPendingWriteRepository:
    """Writes inside one transaction."""

    def __init__(self, transaction: Transaction, codec: Codec, rows: SqlCheckpointRows) -> None:
        self._transaction = transaction
        self._codec = codec
        self._rows = rows

    def add(self, writes: Sequence[PendingWrite]) -> None:
        final = [write for write in writes if write.number >= 0]
        blobs: dict[bytes, bytes] = {}
        if final:
            self._insert(final, _KEEP, blobs)
        if len(final) < len(writes):
            # Postgres refuses to change a row twice in one statement. LangGraph passes every answer that a task got so
            # far, all under one number: the last one includes the earlier ones.
            last = {write[:4]: write for write in writes if write.number < 0}
            self._insert([*last.values()], _REPLACE, blobs)
        if blobs:
            self._rows.put_blobs(blobs, to_us(writes[0].created_at))

    def _insert(self, writes: Sequence[PendingWrite], on_conflict: str, blobs: dict[bytes, bytes]) -> None:
        values: list[Any] = []
        for write in writes:
            data, address = self._codec.encode(write.value, f"writes.{write.channel}")[0], b""
            if len(data) > INLINE_APPEND_BYTES:
                address = self._codec.digest(data)
                blobs[address], data = data, b""
            row = (*write[:6], data, address, to_us(write.created_at))
            values += (*row, WRITE_SEAL.of(row[1:]))
        self._transaction.run(_insert_statement(len(writes), on_conflict), values)

    def list_writes(
        self, execution_ids: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId] | None = None
    ) -> tuple[PendingWrite, ...]:
        rows = [row for execution_id in execution_ids for row in self._select(execution_id, checkpoint_ids)]
        addresses = {bytes(row[7]) for row in rows if row[7]}
        blobs = self._rows.get_blobs(addresses) if addresses else {}
        return tuple(sorted((self._write(row, blobs) for row in rows), key=_order))

    def _select(self, execution_id: str, checkpoint_ids: Collection[str] | None) -> Iterator[Any]:
        statement = f"SELECT {_FIELDS} FROM wtb_pending_writes WHERE execution_id = ?"
        if checkpoint_ids is None:
            yield from self._transaction.rows(statement, (execution_id,))
        else:
            yield from self._transaction.run_in(f"{statement} AND checkpoint_id IN (??)", checkpoint_ids, execution_id)

    def _write(self, row: Any, blobs: dict[bytes, bytes]) -> PendingWrite:
        WRITE_SEAL.check(row[1:9], row[9])
        data = blobs.get(bytes(row[7]), b"") if row[7] else row[6]
        if row[7] and self._codec.digest(data) != bytes(row[7]):
            raise DamagedData(f"what task {row[2]!r} wrote after checkpoint {row[1]!r} is damaged or missing")
        return PendingWrite(
            execution_id=ExecutionId(row[0]),
            checkpoint_id=CheckpointId(row[1]),
            task_id=row[2],
            number=row[3],
            path=row[4],
            channel=row[5],
            value=self._codec.decode(data),
            created_at=from_us(row[8]),
        )

    def copy(
        self, sources: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId], execution_id: ExecutionId
    ) -> None:
        for source in sources:
            self._transaction.change_in(_COPY, checkpoint_ids, execution_id, source)

    def delete(self, execution_id: ExecutionId, checkpoint_ids: Collection[CheckpointId] | None = None) -> None:
        statement = "DELETE FROM wtb_pending_writes WHERE execution_id = ?"
        if checkpoint_ids is None:
            self._transaction.run(statement, (execution_id,))
        else:
            self._transaction.change_in(f"{statement} AND checkpoint_id IN (??)", checkpoint_ids, execution_id)


def _order(write: PendingWrite) -> tuple[str, str, int]:
    return write.path, write.task_id, write.number
