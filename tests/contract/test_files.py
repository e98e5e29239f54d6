"""Every storage keeps the contract of file commits."""

from collections.abc import Callable

import pytest

from wtb.domain.ports import Storage
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.testing.file_commits import FileCommitRepositoryContract


class TestFileCommitRepository(FileCommitRepositoryContract):
    @pytest.fixture
    def reopen(self, storage: Storage) -> Callable[[], Storage]:
        """Storages over the same rows, as another process would have them; the fixture `storage` closes the rows."""

        def reopen() -> Storage:
            if isinstance(storage, SqlStorage):
                return SqlStorage(storage.database, codec=storage.codec, clock=storage.clock, bus=storage.bus)
            assert isinstance(storage, MemoryStorage)
            other = MemoryStorage(codec=storage.codec, clock=storage.clock, bus=storage.bus)
            other.tables = storage.tables
            return other

        return reopen
