"""Damaged pages of the SQLite file: doctor names the tables, and nobody reads for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.sealed_rows import Kept, kept_rows
from wtb.application.upkeep.listing import legible_executions
from wtb.domain.errors import DamagedData
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Storage

pytestmark = pytest.mark.parametrize("storage", ["sqlite"], indirect=True)


@pytest.fixture
def kept(storage: Storage) -> Kept:
    return kept_rows(storage)


def settled_file(kept: Kept, path: Path) -> bytearray:
    """Return the content of the database file when nothing is left in its log."""
    kept.storage.close()
    with kept.storage.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return bytearray(path.read_bytes())


def test_a_damaged_page_of_the_database_is_named(kept: Kept, tmp_path: Path) -> None:
    path = tmp_path / "wtb.db"
    content = settled_file(kept, path)
    pages = [page for page in range(0, len(content), 4096) if content[page] == 10]  # the leaves of indexes
    places = [content.find(b"running", page, page + 4096) for page in pages]
    (place,) = [place for place in places if place >= 0]
    content[place] ^= 1
    path.write_bytes(content)
    (fault,) = kept.faults()
    assert (fault.kind, fault.what) == (FaultKind.DATABASE, "wtb_executions")
    assert "wtb_executions_status" in fault.problem


def test_tables_that_cannot_be_read_at_all_are_named_and_lists_end(kept: Kept, tmp_path: Path) -> None:
    path = tmp_path / "wtb.db"
    content = settled_file(kept, path)
    with kept.storage.database.engine.connect() as connection:
        statement = "SELECT name, rootpage FROM sqlite_master WHERE name IN ('wtb_executions', 'wtb_rollbacks')"
        roots = dict(tuple(row) for row in connection.exec_driver_sql(statement))
    for root in roots.values():
        content[(root - 1) * 4096] ^= 0x40
    path.write_bytes(content)
    assert [fault.what for fault in kept.faults()] == ["wtb_executions", "wtb_rollbacks", ""]
    with pytest.raises(DamagedData, match="malformed"):
        legible_executions(kept.storage)
