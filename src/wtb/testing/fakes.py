"""Fakes that make a run repeatable: a clock that is set, ids that count, and ends at a chosen place."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
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


class CrashPoints:
    """Named places that a program passes: it ends at a chosen passing of one of them, and all are counted.

    `end` is how it ends: by a kill of the process, or by raising what nothing catches. `passed` of a run that ends
    nowhere is the list of all the places where it could.
    """

    def __init__(self, end: Callable[[], object], *, at: str = "", passing: int = 1) -> None:
        self.passed: Counter[str] = Counter()
        self._end = end
        self._at = (at, passing)
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """Pass a place, unless this is where it ends."""
        with self._lock:
            self.passed[name] += 1
            is_the_end = (name, self.passed[name]) == self._at
        if is_the_end:
            self._end()
