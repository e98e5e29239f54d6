"""ScratchFolder: a temporary folder of this process. If the process is killed, the next one removes it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "wtb-scratch-"
_LOCK = ".lock"


class ScratchFolder:
    """A folder in the system's folder for temporary files, and beside it a file that its process keeps locked."""

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        self._number, self._lock = _new_lock()
        self.path = _folder_of(self._lock)
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove the folder with everything in it."""
        if self._number is not None:
            _remove(self._lock)
            os.close(self._number)
            self._number = None


def _folder_of(lock: Path) -> Path:
    return lock.with_suffix("")


def _new_lock() -> tuple[int | None, Path]:
    """Return a new locked file. Another process may remove it before it is locked; then try again."""
    while True:
        number, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_LOCK)
        fcntl.flock(number, fcntl.LOCK_EX)
        if Path(name).exists():
            return number, Path(name)
        os.close(number)


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of processes that have ended: nobody holds their locks."""
    for lock in place.glob(f"{_PREFIX}*{_LOCK}"):
        with suppress(OSError), lock.open("r+b") as file:  # it belongs to another user, is in use, or just gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(lock)


def _remove(lock: Path) -> None:
    shutil.rmtree(_folder_of(lock), ignore_errors=True)
    lock.unlink(missing_ok=True)
