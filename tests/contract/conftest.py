"""What the contract suites ask for beside a storage: a way to damage it."""

from typing import Any

import pytest

from wtb.domain.ports import Storage
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql.tables import metadata
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.testing.damage import Tamper


@pytest.fixture
def tamper(storage: Storage) -> Tamper:
    """Replaces bytes wherever the storage keeps them."""

    def tamper(old: bytes, new: bytes) -> None:
        if isinstance(storage, MemoryStorage):
            assert _tamper_with_memory(storage, old, new) > 0
        else:
            assert isinstance(storage, SqlStorage)
            assert _tamper_with_database(storage, old, new) > 0

    return tamper


def _tamper_with_memory(storage: MemoryStorage, old: bytes, new: bytes) -> int:
    changed = 0
    for name in ("checkpoints", "keyframes", "blobs", "events", "file_commits"):
        rows = storage.tables.tables[name].rows
        for key, row in rows.items():
            rows[key] = _replaced(row, old, new)
            changed += rows[key] != row
    return changed


def _tamper_with_database(storage: SqlStorage, old: bytes, new: bytes) -> int:
    changed = 0
    with storage.database.engine.begin() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(table.select()).mappings().all():
                values = {name: _replaced(value, old, new) for name, value in row.items()}
                if values != dict(row):
                    same = [column == row[column.name] for column in table.primary_key]
                    connection.execute(table.update().where(*same).values(values))
                    changed += 1
    return changed


def _replaced(value: Any, old: bytes, new: bytes) -> Any:
    if isinstance(value, bytes):
        return value.replace(old, new)
    if isinstance(value, str):
        return value.encode(errors="surrogatepass").replace(old, new).decode(errors="surrogatepass")
    if isinstance(value, tuple):
        parts = [_replaced(part, old, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
