"""Limits of callers: requests in a minute, failed attempts to sign in, and feeds that are open at the same time."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable

from wtb.domain.access import digest_of
from wtb.domain.errors import TooManyRequests

FAILED_SIGN_INS_PER_MINUTE = 20

_RETRY_FEED_S = 10

_MOST = 10_000
"""How many callers or addresses are remembered, so that nobody can fill the memory of the server."""


class RateLimit:
    """A bucket for each key: full at first, emptied by one a request, and filled again evenly over a minute."""

    def __init__(self, per_minute: int, monotonic: Callable[[], float]) -> None:
        self._size = per_minute
        self._per_second = per_minute / 60
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: str, what: str) -> None:
        """Count one, or raise TooManyRequests, which names what there is too much of."""
        with self._lock:
            left = self._left(key)
            self._refuse_if_empty(left, what)
            self._buckets.pop(key, None)  # so that the first of the dictionary is the one that was used least recently
            self._buckets[key] = (self._monotonic(), left - 1)
            if len(self._buckets) > _MOST:
                del self._buckets[next(iter(self._buckets))]

    def check(self, key: str, what: str) -> None:
        """Count nothing, and raise TooManyRequests if `take` would."""
        with self._lock:
            self._refuse_if_empty(self._left(key), what)

    def _left(self, key: str) -> float:
        now = self._monotonic()
        at, left = self._buckets.get(key, (now, float(self._size)))
        return min(self._size, left + (now - at) * self._per_second)

    def _refuse_if_empty(self, left: float, what: str) -> None:
        if left < 1:
            raise TooManyRequests(f"too many {what}", math.ceil((1 - left) / self._per_second))


class OpenFeeds:
    """Counts the feeds that each caller follows. Used on the event loop of the server only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()

    def open(self, name: str) -> None:
        """Count one more feed of a caller, or raise TooManyRequests."""
        if self._counts[name] >= self._most:
            raise TooManyRequests(
                f"{name!r} follows {self._most} feeds already, the most that server.feeds_per_caller allows; close one",
                _RETRY_FEED_S,
            )
        self._counts[name] += 1

    def close(self, name: str) -> None:
        """Count one feed less."""
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]


class Regulars:
    """The secrets that were valid here before: somebody else's failures at the same address do not lock them out."""

    def __init__(self) -> None:
        self._digests: dict[bytes, None] = {}

    def knows(self, secret: str) -> bool:
        return digest_of(secret) in self._digests

    def remember(self, secret: str) -> None:
        if len(self._digests) >= _MOST:
            self._digests.clear()
        self._digests[digest_of(secret)] = None
