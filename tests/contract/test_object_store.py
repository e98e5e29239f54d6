"""Every object store keeps the contract."""

import itertools
from pathlib import Path

import pytest

from wtb.domain.ports import ObjectStore, Storage
from wtb.infrastructure.files.blocks import BlockedObjects
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.files.remote_contents import RemoteContents
from wtb.infrastructure.sql.objects import SqlObjectStore
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.system import SystemClock
from wtb.testing.object_store import ObjectStoreContract

_numbers = itertools.count()


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def objects(self) -> ObjectStore:
        return MemoryObjectStore(SystemClock())


@pytest.mark.parametrize("durable", [False, True], ids=["NORMAL", "FULL"])
class TestLocalObjectStore(ObjectStoreContract):
    @pytest.fixture
    def objects(self, tmp_path: Path, durable: bool) -> ObjectStore:
        return LocalObjectStore(tmp_path / "not there yet" / "objects", durable=durable)


class TestBlockedObjects(ObjectStoreContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> ObjectStore:
        return BlockedObjects(LocalObjectStore(tmp_path / "objects", durable=False))


def in_rows(storage: Storage, remote: str | None = None) -> SqlObjectStore:
    assert isinstance(storage, SqlStorage)
    return SqlObjectStore(storage.database, SystemClock(), None if remote is None else RemoteContents(remote))


@pytest.mark.parametrize("storage", ["sqlite", "postgres", "pgbouncer"], indirect=True)
class TestSqlObjectStore(ObjectStoreContract):
    @pytest.fixture
    def objects(self, storage: Storage) -> ObjectStore:
        return in_rows(storage)


@pytest.mark.parametrize("storage", ["sqlite", "postgres"], indirect=True)
class TestRemoteObjectsInMemory(ObjectStoreContract):
    @pytest.fixture
    def objects(self, storage: Storage) -> ObjectStore:
        return in_rows(storage, f"memory://objects-{next(_numbers)}")


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
class TestRemoteObjectsInS3(ObjectStoreContract):
    @pytest.fixture
    def objects(self, storage: Storage, s3_url: str) -> ObjectStore:
        return in_rows(storage, s3_url)
