"""The composition root: settings in, services out. The one file that names concrete classes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from wtb.domain.errors import InvalidInput, StorageUnavailable
from wtb.domain.ports import Clock, Codec, Conditions, EventBus, Ids, Storage
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.conditions.cel import CelConditions
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.database import Database, PostgresDatabase, SqliteDatabase
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.system import SystemClock, Uuid7Ids
from wtb.settings import Settings, load_settings


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything that was put together; close it, or use it with `with`."""

    settings: Settings
    clock: Clock
    ids: Ids
    codec: Codec
    conditions: Conditions
    bus: EventBus
    storage: Storage

    def close(self) -> None:
        """Deliver what is queued and give back connections."""
        self.bus.close()
        self.storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def bootstrap(settings: Settings | None = None, *, clock: Clock | None = None, ids: Ids | None = None) -> Services:
    """Put everything together as the settings say."""
    settings = settings or load_settings()
    clock = clock or SystemClock()
    codec = MsgpackCodec()
    bus = QueueEventBus()
    return Services(
        settings=settings,
        clock=clock,
        ids=ids or Uuid7Ids(),
        codec=codec,
        conditions=CelConditions(),
        bus=bus,
        storage=_storage(settings, codec, clock, bus),
    )


def _storage(settings: Settings, codec: Codec, clock: Clock, bus: EventBus) -> Storage:
    if settings.url == "memory://":
        return MemoryStorage(codec=codec, clock=clock, bus=bus)
    database = open_database(settings)
    try:
        if settings.url is None and schema.current(database) != schema.HEAD:
            schema.upgrade(database)
        schema.check(database)
    except BaseException:
        database.close()
        raise
    return SqlStorage(database, codec=codec, clock=clock, bus=bus)


def open_database(settings: Settings) -> Database:
    """Open the database that the settings name, whatever its schema; memory has none."""
    if settings.url is None:
        return _sqlite(settings, _private_folder(settings.folder) / "wtb.db")
    try:
        url = make_url(settings.url)
    except ArgumentError as error:
        raise InvalidInput(f"{settings.url!r} is no database address; {_ADDRESSES}") from error
    match url.get_backend_name(), url.database:
        case "sqlite", str() as path if path != ":memory:":
            return _sqlite(settings, Path(path))
        case "postgresql", _:
            return PostgresDatabase(settings.url, pool_size=settings.pool_size)
    raise InvalidInput(f"{url.render_as_string()} cannot be used; {_ADDRESSES}")


_ADDRESSES = "use memory://, sqlite:///path or postgresql://user@host/database"


def _sqlite(settings: Settings, path: Path) -> SqliteDatabase:
    try:
        path.touch(mode=0o600)  # SQLite gives its other files the same mode
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be written: {error.strerror}; choose another folder") from error
    return SqliteDatabase(path, synchronous=settings.sqlite_synchronous, busy_timeout_s=settings.busy_timeout_s)


def _private_folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077 and folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
    except OSError as error:
        raise StorageUnavailable(f"{folder} cannot be used: {error.strerror}; choose another folder") from error
    return folder
