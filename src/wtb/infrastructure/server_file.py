"""ServerFile: the file of a running server. It keeps a second one off a SQLite database, and says where the first is.

The server holds a lock on the file as long as its process lives, so that one that was killed is in nobody's way.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from wtb.domain.errors import Conflict, StorageUnavailable

_PATIENCE_S = 1.0
"""Whoever only looks at the file holds a lock too, for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """Where a server is."""

    url: str
    pid: int
    is_private: bool
    """Whether only this machine reaches it, so that it takes links."""


class ServerFile:
    """The file of one server; use it with `with`, or close it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def lock(self) -> None:
        """Hold the file, or raise Conflict and say where the server is that holds it."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StorageUnavailable(f"{self._path} cannot be written: {error.strerror}") from error
        if not _lock(descriptor, fcntl.LOCK_EX, _PATIENCE_S):
            os.close(descriptor)
            found = self.find()
            where = "" if found is None else f" at {found.url} (process {found.pid})"
            raise Conflict(
                f"another server{where} serves this database; `wtb serve --link` prints a link for it. A SQLite file "
                "has one server at a time; several can share Postgres"
            )
        self._descriptor = descriptor

    def write(self, server: RunningServer) -> None:
        """Say where this server is."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(asdict(server)).encode(), 0)

    def find(self) -> RunningServer | None:
        """Return the server that holds the file now; None if no living one does."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            if _lock(descriptor, fcntl.LOCK_SH, 0):
                return None
            return RunningServer(**json.loads(os.pread(descriptor, 10_000, 0)))
        except (ValueError, TypeError):  # it has only just begun
            return None
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let the next server in."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int, kind: int, patience_s: float) -> bool:
    """Return whether the lock was taken; closing the file gives it back."""
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        else:
            return True
