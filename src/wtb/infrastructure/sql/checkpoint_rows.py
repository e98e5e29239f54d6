"""SqlCheckpointRows: checkpoint rows, keyframes and blobs in tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from wtb.domain.errors import AlreadyExists, CheckpointNotFound
from wtb.infrastructure.checkpoints.rows import ChainLink, CheckpointRow, ParentRow
from wtb.infrastructure.sql.database import Transaction

_FIELDS = ", ".join(CheckpointRow._fields)
_MARKS = ", ".join("?" * (len(CheckpointRow._fields) + 1))

_INSERT = f"INSERT INTO wtb_checkpoints ({_FIELDS}, payload) VALUES ({_MARKS}) ON CONFLICT DO NOTHING"
_INSERT_AFTER = (
    f"INSERT INTO wtb_checkpoints ({_FIELDS}, payload) SELECT {_MARKS} "
    "WHERE EXISTS (SELECT 1 FROM wtb_checkpoints WHERE id = ? AND deleted = 0) ON CONFLICT DO NOTHING"
)
_BYTES = ("state_hash", "returned_hash", "parent_hash", "hash", "payload")
_NUMBERS = ("step", "visit", "restore_point", "created_at_us", "size_bytes", "format", "deleted")
_TYPED_MARKS = ", ".join(
    f"?::{'bytea' if field in _BYTES else 'bigint' if field in _NUMBERS else 'text'}"
    for field in (*CheckpointRow._fields, "payload")
)
_INSERT_AFTER_LOCKED = (
    f"INSERT INTO wtb_checkpoints ({_FIELDS}, payload) SELECT {_TYPED_MARKS} "
    "WHERE EXISTS (SELECT 1 FROM wtb_checkpoints WHERE id = ? AND deleted = 0 FOR SHARE) ON CONFLICT DO NOTHING"
)
_PARENT = "SELECT hash, state_hash, branch_id, deleted FROM wtb_checkpoints WHERE id = ?"
_FIND = f"SELECT {_FIELDS}, payload FROM wtb_checkpoints WHERE id = ?"
_FIND_MANY = f"SELECT {_FIELDS}, payload FROM wtb_checkpoints WHERE id IN (??)"
_LIST = f"SELECT {_FIELDS} FROM wtb_checkpoints WHERE execution_id = ? ORDER BY step, id"
_PAGE = (
    f"SELECT {_FIELDS} FROM wtb_checkpoints WHERE execution_id = ? AND step >= ? AND (step, id) > (?, ?) "
    "ORDER BY step, id LIMIT 500"
)
_STEP = CheckpointRow._fields.index("step")
_CHILDREN = f"SELECT {_FIELDS} FROM wtb_checkpoints WHERE parent_id IN (??)"
_HEADS = "SELECT head_id, execution_id FROM wtb_branches WHERE execution_id <> ? AND head_id IN (??)"

_DROP_WRITES = (
    "DELETE FROM wtb_pending_writes WHERE (execution_id, checkpoint_id) IN "
    "(SELECT execution_id, id FROM wtb_checkpoints WHERE id IN (??))"
)
_ANCESTORS = f"""
WITH RECURSIVE line (line_id, line_parent) AS (
    SELECT id, parent_id FROM wtb_checkpoints WHERE id = ?
    UNION ALL
    SELECT c.id, c.parent_id FROM line JOIN wtb_checkpoints c ON c.id = line.line_parent
)
SELECT {_FIELDS} FROM line JOIN wtb_checkpoints ON id = line_id
"""

_LAST = f"""
WITH RECURSIVE line (line_id, line_parent, depth) AS (
    SELECT id, parent_id, 1 FROM wtb_checkpoints WHERE id = ?
    UNION ALL
    SELECT c.id, c.parent_id, line.depth + 1 FROM line JOIN wtb_checkpoints c ON c.id = line.line_parent
    WHERE line.depth < ?
)
SELECT {_FIELDS} FROM line JOIN wtb_checkpoints ON id = line_id ORDER BY depth
"""

_CHAIN = """
WITH RECURSIVE line (id, parent_id, payload, keyframe, depth) AS (
    SELECT c.id, c.parent_id, c.payload, k.payload, 0
    FROM wtb_checkpoints c LEFT JOIN wtb_keyframes k ON k.checkpoint_id = c.id
    WHERE c.id = ?
    UNION ALL
    SELECT c.id, c.parent_id, c.payload, k.payload, line.depth + 1
    FROM line JOIN wtb_checkpoints c ON c.id = line.parent_id LEFT JOIN wtb_keyframes k ON k.checkpoint_id = c.id
    WHERE line.keyframe IS NULL
)
SELECT id, parent_id, payload, keyframe FROM line ORDER BY depth DESC
"""

_PUT_KEYFRAME = """
INSERT INTO wtb_keyframes (checkpoint_id, payload) VALUES (?, ?)
ON CONFLICT (checkpoint_id) DO UPDATE SET payload = excluded.payload
"""
_PUT_BLOB = """
INSERT INTO wtb_blobs (address, data, touched_at_us) VALUES (?, ?, ?)
ON CONFLICT (address) DO UPDATE SET touched_at_us = excluded.touched_at_us
"""
_PUT_BLOB_AGAIN = f"{_PUT_BLOB.rstrip()}, data = excluded.data"
"""Also repairs a damaged blob. In SQLite this is quicker than keeping the old data; in Postgres it is not."""


class SqlCheckpointRows:
    """Rows inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def find_parent(self, checkpoint_id: str) -> ParentRow | None:
        suffix = self._transaction.database.lock_suffix
        row = self._transaction.row(_PARENT + suffix, (checkpoint_id,))
        return None if row is None else ParentRow(*row)

    checks_parent = True

    def insert(self, row: CheckpointRow, payload: bytes) -> None:
        statement: str = _INSERT
        values: tuple[Any, ...] = (*row, payload)
        if row.parent_id is not None:
            is_locked = bool(self._transaction.database.lock_suffix)
            statement, values = _INSERT_AFTER_LOCKED if is_locked else _INSERT_AFTER, (*values, row.parent_id)
        if self._transaction.change(statement, values) == 0:
            parent = None if row.parent_id is None else self.find_parent(row.parent_id)
            if row.parent_id is not None and (parent is None or parent.deleted):
                raise CheckpointNotFound(row.parent_id)
            label = f"id {row.id!r}" if row.name is None else f"id {row.id!r} or name {row.name!r}"
            raise AlreadyExists(f"run {row.execution_id!r} already has a checkpoint with {label}; choose another")

    def find(self, checkpoint_id: str) -> tuple[CheckpointRow, bytes] | None:
        found = self._transaction.row(_FIND, (checkpoint_id,))
        return None if found is None else (CheckpointRow(*found[:-1]), found[-1])

    def find_many(self, checkpoint_ids: Collection[str]) -> list[tuple[CheckpointRow, bytes]]:
        found = self._transaction.run_in(_FIND_MANY, checkpoint_ids)
        return [(CheckpointRow(*row[:-1]), row[-1]) for row in found]

    def list_rows(self, execution_id: str) -> list[CheckpointRow]:
        return [CheckpointRow(*row) for row in self._transaction.rows(_LIST, (execution_id,))]

    def each_row(self, execution_id: str) -> Iterator[CheckpointRow]:
        after: tuple[int, str] = (-(1 << 63), "")
        while rows := self._transaction.rows(_PAGE, (execution_id, after[0], *after)):
            yield from (CheckpointRow(*row) for row in rows)
            after = (rows[-1][_STEP], rows[-1][0])

    def list_ancestors(self, checkpoint_id: str) -> list[CheckpointRow]:
        return [CheckpointRow(*row) for row in self._transaction.rows(_ANCESTORS, (checkpoint_id,))]

    def list_last(self, checkpoint_id: str, length: int) -> list[CheckpointRow]:
        return [CheckpointRow(*row) for row in self._transaction.rows(_LAST, (checkpoint_id, length))]

    def chain(self, checkpoint_id: str) -> list[ChainLink]:
        return [ChainLink(*row) for row in self._transaction.rows(_CHAIN, (checkpoint_id,))]

    def has_keyframe(self, checkpoint_id: str) -> bool:
        statement = "SELECT 1 FROM wtb_keyframes WHERE checkpoint_id = ?"
        return self._transaction.row(statement, (checkpoint_id,)) is not None

    def put_keyframe(self, checkpoint_id: str, payload: bytes) -> None:
        self._transaction.run(_PUT_KEYFRAME, (checkpoint_id, payload))

    def put_blobs(self, blobs: Mapping[bytes, bytes], now_us: int) -> None:
        statement = _PUT_BLOB_AGAIN if self._transaction.database.dialect == "sqlite" else _PUT_BLOB
        for address, data in sorted(blobs.items()):  # in a fixed order, or two writers could deadlock
            self._transaction.run(statement, (address, data, now_us))

    def touch_blobs(self, addresses: Collection[bytes], now_us: int) -> int:
        statement = "UPDATE wtb_blobs SET touched_at_us = ? WHERE address IN (??)"
        return self._transaction.change_in(statement, sorted(addresses), now_us)

    def get_blobs(self, addresses: Collection[bytes]) -> dict[bytes, bytes]:
        return dict(self._transaction.run_in("SELECT address, data FROM wtb_blobs WHERE address IN (??)", addresses))

    def heads_among(self, checkpoint_ids: Collection[str], *, outside: str = "") -> list[tuple[str, str]]:
        statement = _HEADS + self._transaction.database.lock_suffix
        return [(head, execution) for head, execution in self._transaction.run_in(statement, checkpoint_ids, outside)]

    def children_of(self, checkpoint_ids: Collection[str]) -> list[CheckpointRow]:
        statement = _CHILDREN + self._transaction.database.lock_suffix
        return [CheckpointRow(*row) for row in self._transaction.run_in(statement, checkpoint_ids)]

    def condemn(self, checkpoint_ids: Collection[str]) -> set[str]:
        statement = "UPDATE wtb_checkpoints SET deleted = 1 WHERE deleted = 0 AND id IN (??) RETURNING id"
        return {checkpoint_id for (checkpoint_id,) in self._transaction.run_in(statement, sorted(checkpoint_ids))}

    def revive(self, checkpoint_ids: Collection[str]) -> None:
        self._transaction.change_in("UPDATE wtb_checkpoints SET deleted = 0 WHERE id IN (??)", sorted(checkpoint_ids))

    def bury(self, checkpoint_ids: Collection[str]) -> None:
        self._transaction.change_in("DELETE FROM wtb_keyframes WHERE checkpoint_id IN (??)", checkpoint_ids)
        self._transaction.change_in(_DROP_WRITES, checkpoint_ids)
        self._transaction.change_in("UPDATE wtb_checkpoints SET payload = ? WHERE id IN (??)", checkpoint_ids, b"")

    def remove(self, checkpoint_ids: Collection[str]) -> None:
        self._transaction.change_in("DELETE FROM wtb_keyframes WHERE checkpoint_id IN (??)", checkpoint_ids)
        self._transaction.change_in("DELETE FROM wtb_checkpoints WHERE id IN (??)", checkpoint_ids)
