"""The clock and the ids of this machine."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime

from wtb.domain.ids import uuid7


class SystemClock:
    """The time that the operating system tells."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class Uuid7Ids:
    """Ids that sort by time; within one millisecond, and when the clock is set back, by a counter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self) -> str:
        with self._lock:
            self._last = max(time.time_ns() // 1_000_000 << 12, self._last + 1)
            last = self._last
        return uuid7(last >> 12, last & 0xFFF, int.from_bytes(os.urandom(8), "big"))
