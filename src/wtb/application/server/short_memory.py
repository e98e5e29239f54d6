"""ShortMemory: what the database said a moment ago, so that not every request asks it again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")

FRESH_S = 0.9
"""How long an answer is used: what another process revokes is refused within a second."""

_MOST = 10_000


class ShortMemory(Generic[Value]):
    """Values by key, each for less than a second. Only what was found is kept: guessing does not fill it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._values: dict[bytes, tuple[float, Value]] = {}
        self._forgotten = 0

    def find(self, key: bytes, look_up: Callable[[], Value | None]) -> Value | None:
        """Return what is remembered, or look it up."""
        now = self._monotonic()
        remembered = self._values.get(key)
        if remembered is not None and now - remembered[0] < FRESH_S:
            return remembered[1]
        forgotten = self._forgotten
        found = look_up()
        with self._lock:
            if forgotten != self._forgotten:  # what was looked up may be older than the change
                return found
            if len(self._values) >= _MOST:
                self._values.clear()
            if found is None:
                self._values.pop(key, None)
            else:
                self._values[key] = (now, found)
        return found

    def forget(self) -> None:
        """Look everything up again."""
        with self._lock:
            self._forgotten += 1
            self._values.clear()
