"""Disk: the tables of a database as somebody with a hex editor sees them, and bits to flip in them."""

from __future__ import annotations

import random
from typing import Any

import sqlalchemy as sa

from wtb.domain.ports import Storage
from wtb.infrastructure.checkpoints.cache import ManifestCache
from wtb.infrastructure.checkpoints.rows import CheckpointRow
from wtb.infrastructure.sql.unit_of_work import SqlStorage

NOT_HASHED = {"size_bytes", "deleted"}
"""What storing a checkpoint cost, and whether it was deleted since: neither is what it says."""


class Disk:
    """The tables, as somebody with a hex editor would see them; every reader after a change is a cold one."""

    def __init__(self, storage: Storage) -> None:
        assert isinstance(storage, SqlStorage)
        self._storage = storage

    @property
    def keeps_any_bytes(self) -> bool:
        """Whether a text can be made invalid; Postgres does not let one in."""
        return self._storage.database.dialect == "sqlite"

    def rows(self, table: sa.Table, **where: Any) -> list[sa.Row[Any]]:
        with self._storage.database.engine.connect() as connection:
            return list(connection.execute(sa.select(table).filter_by(**where)).all())

    def change(self, statement: sa.Executable) -> None:
        with self._storage.database.engine.begin() as connection:
            result = connection.execute(statement)
            assert not isinstance(statement, sa.Update | sa.Delete) or result.rowcount == 1
        self._storage._manifests = ManifestCache()

    def set(self, table: sa.Table, key: str, value: Any, /, **columns: Any) -> None:
        self.change(sa.update(table).where(table.c[key] == value).values(**columns))

    def remove(self, table: sa.Table, key: str, value: Any) -> None:
        self.change(sa.delete(table).where(table.c[key] == value))


def flipped(value: Any, chance: random.Random, *, any_bytes: bool) -> Any:
    """The value with one bit changed."""
    if isinstance(value, int):
        return value ^ 1 << chance.randrange(30)
    data = bytearray(value.encode() if isinstance(value, str) else value)
    # The lowest bit of an ASCII letter gives another one.
    data[chance.randrange(len(data))] ^= 1 << (chance.randrange(8) if any_bytes or isinstance(value, bytes) else 0)
    if isinstance(value, bytes):
        return bytes(data)
    return sa.cast(sa.literal(bytes(data), sa.LargeBinary), sa.Text) if any_bytes else data.decode()


HASHED = [field for field in CheckpointRow._fields if field not in NOT_HASHED]
