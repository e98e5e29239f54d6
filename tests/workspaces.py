"""What the tests of workspaces share: a service over real folders, and a plain description of what lies in one."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wtb.application.workspaces import Workspaces
from wtb.domain.ports import ObjectStore, Storage
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.files.folders import LocalFolders
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.files.store import LocalFolderStore
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.sqlite import SqliteDatabase
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.system import SystemClock

Description = dict[str, tuple[Any, ...]]
"""By path: (mode, content) of a file, (mode,) of a folder, ("->", target) of a link."""


class NoBus(QueueEventBus):
    """A bus without a thread: a test that forks must not have one."""

    def __init__(self) -> None:
        """Start nothing."""

    def publish(self, events: Any) -> None:
        """Tell nobody."""

    def close(self) -> None:
        """Nothing runs."""


def memory_storage() -> MemoryStorage:
    return MemoryStorage(codec=MsgpackCodec(), clock=SystemClock(), bus=NoBus())


def sqlite_storage(path: Path) -> SqlStorage:
    """Open a database file, made when absent."""
    database = SqliteDatabase(path, synchronous="NORMAL", busy_timeout_s=30)
    if schema.current(database) is None:
        schema.upgrade(database)
    return SqlStorage(database, codec=MsgpackCodec(), clock=SystemClock(), bus=NoBus())


def workspaces_in(home: Path, storage: Storage | None = None, objects: ObjectStore | None = None) -> Workspaces:
    """Return a service with its objects, indexes and workspaces in this folder, and commits in memory."""
    objects = objects or LocalObjectStore(home / "objects", durable=False)
    store = LocalFolderStore(home / "workspaces")
    return Workspaces(storage or memory_storage(), LocalFolders(objects, home / "indexes", store), store)


def described(folder: Path) -> Description:
    """Return everything in a folder, read with nothing of wtb's."""
    found: Description = {}
    for path in sorted(folder.iterdir()):
        name = path.name
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = ("->", str(path.readlink()))
        elif path.is_dir():
            found[name] = (mode,)
            found |= {f"{name}/{below}": value for below, value in described(path).items()}
        elif path.is_file():
            found[name] = (mode, path.read_bytes())
        else:
            found[name] = ("special",)
    return found


def write(folder: Path, content: Mapping[str, bytes | str | None]) -> None:
    """Write files (bytes), links (text) and folders (None), with the folders that they lie in."""
    for path, value in content.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if value is None:
            place.mkdir(exist_ok=True)
        elif isinstance(value, str):
            place.symlink_to(value)
        else:
            place.write_bytes(value)
