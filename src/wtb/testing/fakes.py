"""Fakes that make a run repeatable: a clock that is set, ids that count."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from wtb.domain.ids import uuid7


class FakeClock:
    """A clock that moves one millisecond a look, and otherwise only when told."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            self._now += timedelta(milliseconds=1)
            return self._now

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        with self._lock:
            self._now += by


class SequentialIds:
    """Ids that count from one; they sort, and two sources with different seeds never meet."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = 0
        self._lock = threading.Lock()

    def new(self) -> str:
        with self._lock:
            self._count += 1
            return uuid7(self._count >> 12, self._count & 0xFFF, self._seed)
