"""Opens the storage that the settings name: the database, the record of calls beside it, and the place of files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from wtb.domain.errors import InvalidInput, StorageUnavailable
from wtb.domain.ports import NO_TELEMETRY, CallAnchor, Clock, Codec, EventBus, ObjectStore, Telemetry
from wtb.infrastructure.files.blocks import SMALL_OBJECTS, BlockedObjects
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.files.remote_contents import RemoteContents
from wtb.infrastructure.no_anchor import NoAnchor
from wtb.settings import Settings

# Loading SQLAlchemy takes a third of a command's start-up time, so it is imported where it is used.
if TYPE_CHECKING:
    from wtb.infrastructure.memory.unit_of_work import MemoryStorage
    from wtb.infrastructure.sql.database import Database
    from wtb.infrastructure.sql.sqlite import SqliteDatabase
    from wtb.infrastructure.sql.unit_of_work import SqlStorage

DATABASE_FILE = "wtb.db"
_OWN_FOLDERS = frozenset({"objects", "workspaces", "indexes", "environments", "outside"})
"""What WTB keeps in its folder beside a database, also if the database is a Postgres."""
_ADDRESSES = "use memory://, sqlite:///path or postgresql://user@host/database"


def open_storage(
    settings: Settings, codec: Codec, clock: Clock, bus: EventBus, telemetry: Telemetry, *, is_worker: bool
) -> MemoryStorage | SqlStorage:
    """Open the storage. A database in the folder of the bench is upgraded; any other one must have the right tables."""
    if settings.url == "memory://":
        from wtb.infrastructure.memory.unit_of_work import MemoryStorage

        return MemoryStorage(codec=codec, clock=clock, bus=bus)
    from wtb.infrastructure.sql import schema
    from wtb.infrastructure.sql.unit_of_work import SqlStorage

    database = open_database(settings, telemetry, is_expected=is_worker)
    try:
        if settings.url is None and schema.current(database) != schema.HEAD:
            schema.upgrade(database)
        schema.check(database)
    except BaseException:
        database.close()
        raise
    return SqlStorage(database, codec=codec, clock=clock, bus=bus, telemetry=telemetry)


def open_anchor(storage: MemoryStorage | SqlStorage) -> CallAnchor:
    """Return the second record of external calls: a file beside the database, if the database is a file."""
    database = getattr(storage, "database", None)
    if database is None or database.dialect != "sqlite":
        return NoAnchor()
    from wtb.infrastructure.sql.anchor import SqliteAnchor

    anchor = SqliteAnchor(database)
    try:
        anchor.open()
    except BaseException:
        anchor.close()
        storage.close()
        raise
    return anchor


def open_objects(settings: Settings, clock: Clock, storage: MemoryStorage | SqlStorage) -> ObjectStore:
    """Return an object store that is as durable as the database; Postgres flushes every commit to disk."""
    if settings.url == "memory://":
        return BlockedObjects(MemoryObjectStore(clock))
    if settings.objects is None or settings.objects.startswith("folder://"):
        flushed = settings.sqlite_synchronous == "FULL" or (settings.url or "").startswith("postgres")
        return BlockedObjects(LocalObjectStore(settings.objects_folder, durable=flushed))
    from wtb.infrastructure.sql.objects import SqlObjectStore
    from wtb.infrastructure.sql.unit_of_work import SqlStorage

    assert isinstance(storage, SqlStorage)
    try:
        remote = None if settings.objects == "database" else RemoteContents(settings.objects)
    except BaseException:
        storage.close()
        raise
    return BlockedObjects(SqlObjectStore(storage.database, clock, remote), SMALL_OBJECTS)


def open_database(settings: Settings, telemetry: Telemetry = NO_TELEMETRY, *, is_expected: bool = False) -> Database:
    """Open the database of the settings, whatever its schema version; storage in memory has none.

    `is_expected` waits for a Postgres that is away; otherwise one that was never there is an error at once.
    """
    if settings.url is None:
        return _sqlite(settings, private_folder(settings.folder) / DATABASE_FILE)
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(settings.url)
    except (ArgumentError, ValueError) as error:
        masked = re.sub(r"(?<=:)[^:@/]+(?=@)", "***", settings.url)
        raise InvalidInput(f"{masked!r} is no database address; {_ADDRESSES}") from error
    match url.get_backend_name(), url.database:
        case "sqlite", str() as path if path != ":memory:" and not url.query:
            return _sqlite(settings, Path(path))
        case "postgresql", _:
            from wtb.infrastructure.sql.postgres import PostgresDatabase

            return PostgresDatabase(
                settings.url,
                pool_size=settings.pool_size,
                outage_timeout_s=settings.outage_timeout_s,
                is_expected=is_expected,
                telemetry=telemetry,
            )
    raise InvalidInput(f"{url.render_as_string()} cannot be used; {_ADDRESSES}")


def _sqlite(settings: Settings, path: Path) -> SqliteDatabase:
    from wtb.infrastructure.sql.sqlite import SqliteDatabase

    try:
        path.touch(mode=0o600)  # SQLite gives its other files the same mode
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be written: {error.strerror}; choose another folder") from error
    return SqliteDatabase(path, synchronous=settings.sqlite_synchronous, busy_timeout_s=settings.busy_timeout_s)


def _check_own(folder: Path) -> None:
    """Refuse a folder that holds other things, such as a home or /tmp: WTB would lock out everybody else."""
    names = {entry.name for entry in folder.iterdir()}
    if DATABASE_FILE not in names and not names <= _OWN_FOLDERS:
        raise InvalidInput(f"{folder} holds other files and is open to others; name a folder for wtb alone")


def private_folder(folder: Path) -> Path:
    """Return the folder of the store, which only its owner may open; make it if it is not there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077 and folder.stat().st_uid == os.geteuid():
            _check_own(folder)
            folder.chmod(0o700)
    except OSError as error:
        raise StorageUnavailable(
            f"{folder} cannot be used: {error.strerror}; set WTB_FOLDER to another folder"
        ) from error
    return folder
