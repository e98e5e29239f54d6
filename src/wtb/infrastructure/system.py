"""The clock, the ids and the user of this machine."""

from __future__ import annotations

import getpass
import os
import threading
import time
from datetime import UTC, datetime

from wtb.domain.ids import uuid7


class SystemClock:
    """The time of the operating system."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def login_name() -> str:
    """Return the name of the user who runs this process; `unknown` if the system knows none, as in some containers."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # no entry for this user id, and no variable names one
        return _UNKNOWN
    return "".join(char if char.isprintable() else "?" for char in name.strip())[:_NAME] or _UNKNOWN


_UNKNOWN = "unknown"
_NAME = 200


class _LastId:
    """The time and counter of this process's last id, shared by all sources of ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        with self._lock:
            self._last = max(time.time_ns() // 1_000_000 << 12, self._last + 1)
            return self._last

    def renew_lock(self) -> None:
        """Give a forked process a free lock, because a thread of its parent may have held the old one."""
        self._lock = threading.Lock()


_LAST_ID = _LastId()
os.register_at_fork(after_in_child=_LAST_ID.renew_lock)


class Uuid7Ids:
    """Ids that sort by time; within one millisecond, and when the clock is set back, by a counter.

    All sources of a process share the counter: ids of a second bench sort after earlier ids of the first.
    """

    def new(self) -> str:
        last = _LAST_ID.next()
        return uuid7(last >> 12, last & 0xFFF, int.from_bytes(os.urandom(8), "big"))
