"""A pytest plugin that gives LangGraph's own tests our Saver as their checkpointer.

It takes the place of their conftest.py, which wants Postgres and Redis in Docker. Only tests that take a checkpointer
are run.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from langgraph.cache.base import BaseCache
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from psycopg import sql
from pytest_mock import MockerFixture

from wtb.infrastructure.sql.tables import metadata
from wtb.langgraph import Saver

NO_DOCKER = True
"""Some tests ask their conftest for this."""
sys.modules["tests.conftest"] = sys.modules[__name__]

_FIXTURES = {"sync_checkpointer", "async_checkpointer"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Leave out tests that take no checkpointer."""
    others = [item for item in items if not _FIXTURES & set(item.fixturenames)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if _FIXTURES & set(item.fixturenames)]


class _Cipher:
    """Encrypts with a key stream, differently each time; enough for a test that only has to read it again."""

    _numbers = itertools.count()

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        nonce = next(self._numbers).to_bytes(8, "big")
        return "stream", nonce + _combined(plaintext, nonce)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return _combined(ciphertext[8:], ciphertext[:8])


def _combined(data: bytes, nonce: bytes) -> bytes:
    blocks = (blake2b(nonce + n.to_bytes(8, "big")).digest() for n in range(len(data) // 64 + 1))
    stream = b"".join(blocks)[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def _saver(folder: Path) -> Saver:
    match os.environ["WTB_SUITE_STORAGE"]:
        case "memory":
            return Saver("memory://")
        case "sqlite":
            return Saver(folder=folder)
        case "sqlite-encrypted":
            return Saver(folder=folder, serde=EncryptedSerializer(_Cipher(), JsonPlusSerializer()))
        case _:
            url = os.environ["WTB_SUITE_URL"]
            with psycopg.connect(url) as connection:
                connection.execute(sql.SQL("; ".join(f"DELETE FROM {table}" for table in metadata.tables)))
            return Saver(url, folder=folder)


@pytest.fixture
def sync_checkpointer(tmp_path: Path) -> Iterator[Saver]:
    with _saver(tmp_path / "wtb") as saver:
        yield saver


@pytest.fixture
def async_checkpointer(tmp_path: Path) -> Iterator[Saver]:
    with _saver(tmp_path / "wtb") as saver:
        yield saver


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sqlite", "memory"])
def cache(request: pytest.FixtureRequest) -> BaseCache[Any]:
    return SqliteCache(path=":memory:") if request.param == "sqlite" else InMemoryCache()


@pytest.fixture
def sync_store() -> BaseStore:
    return InMemoryStore()


@pytest.fixture
def async_store() -> BaseStore:
    return InMemoryStore()


@pytest.fixture
def deterministic_uuids(mocker: MockerFixture) -> Any:
    numbered = (UUID(f"00000000-0000-4000-8000-{number:012}", version=4) for number in range(10_000))
    return mocker.patch("uuid.uuid4", side_effect=numbered)
