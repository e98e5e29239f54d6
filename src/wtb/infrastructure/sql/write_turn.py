"""WriteTurn: lets the writers of a SQLite database take turns, threads and processes alike, without long sleeps."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress

_LONGEST_S = 0.1
_PAUSE_S = 0.000_05


class WriteTurn:
    """The right to write next.

    If two processes want to write, SQLite lets one of them sleep for 1 ms, then for 2, 5 and 10 ms, while most
    transactions take a third of a millisecond. So writers first lock the folder of the database and look for this lock
    more often. SQLite alone protects the data: whoever does not get a turn in time writes without one.
    """

    def __init__(self, folder: str, *, longest_s: float = _LONGEST_S) -> None:
        self._folder = folder
        self._longest_s = longest_s
        self._thread = threading.Lock()
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Wait for the turn; return False if others keep it for too long, or the folder cannot be locked."""
        end = time.monotonic() + self._longest_s
        if not self._thread.acquire(timeout=self._longest_s):
            return False
        try:
            while not self._lock():
                if time.monotonic() > end:
                    self._thread.release()
                    return False
                time.sleep(_PAUSE_S)
        except OSError:  # some network file systems lock no folders
            self._thread.release()
            return False
        except BaseException:
            self._thread.release()
            raise
        return True

    def _lock(self) -> bool:
        if self._descriptor is None:
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let the next writer have its turn."""
        assert self._descriptor is not None
        try:
            # Not left to closing: a forked process may have a copy of the descriptor.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self._thread.release()

    def close(self) -> None:
        """Close the folder, unless a thread still writes; it is opened again if somebody takes a turn."""
        if self._thread.acquire(timeout=self._longest_s):
            try:
                if self._descriptor is not None:
                    with suppress(OSError):
                        os.close(self._descriptor)
                    self._descriptor = None
            finally:
                self._thread.release()
