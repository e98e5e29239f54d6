"""Every object store keeps the contract."""

from pathlib import Path

import pytest

from wtb.domain.ports import ObjectStore
from wtb.infrastructure.files.blocks import BlockedObjects
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.system import SystemClock
from wtb.testing.object_store import ObjectStoreContract


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
