"""Outage: a circuit breaker. While the database is away, one thread asks whether it is back, and the others wait."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from wtb.domain.errors import DatabaseAway

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Outage:
    """Whether the database is away, since when, and who asks for it.

    The time counts from the first failure, not for each thread: who comes later waits only for the rest. When it has
    passed, everybody fails after one try until the database answers again.
    """

    def __init__(
        self,
        where: str,
        timeout_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._where = where
        self._timeout_s = timeout_s
        self._now = now
        self._sleep = sleep
        self._jitter = jitter
        self._asking = threading.Lock()
        self._changing = threading.Lock()
        self._since: float | None = None
        self._asked_at = float("-inf")
        self._reason = ""

    @property
    def is_on(self) -> bool:
        """Whether the database is away, as far as is known."""
        return self._since is not None

    def report(self, error: Exception) -> None:
        """Take note that the database did not answer."""
        with self._changing:
            self._reason = str(error)
            if self._since is None:
                self._since = self._now()
                if self._timeout_s:
                    _log.warning("WTB keeps trying for %g s: %s", self._timeout_s, error)

    def wait(self, ask: Callable[[], Exception | None]) -> None:
        """Return when the database answers, which is at once if it is not away; raise DatabaseAway after too long.

        `ask` asks the database whether it is there, and returns the error if it is not.
        """
        if not self.is_on:
            return
        came_at = self._now()
        with self._asking:
            pause_s = _FIRST_PAUSE_S
            while (left_s := self._left_s()) is not None:  # None: another thread found that it is back
                if left_s > 0 or self._asked_at < came_at:  # otherwise another thread has just asked
                    if self._is_back(ask):
                        return
                    left_s = self._left_s() or 0.0
                if left_s <= 0:
                    raise self._too_long()
                self._sleep(min(left_s, pause_s * (0.5 + self._jitter() / 2)))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _left_s(self) -> float | None:
        since = self._since
        return None if since is None else since + self._timeout_s - self._now()

    def _is_back(self, ask: Callable[[], Exception | None]) -> bool:
        error = ask()
        with self._changing:
            self._asked_at = self._now()
            if error is not None:
                self._reason = str(error)
                return False
            since, self._since = self._since, None
        if since is not None and self._timeout_s:
            _log.warning("%s answers again after %.1f s", self._where, self._now() - since)
        return True

    def _too_long(self) -> DatabaseAway:
        reason = self._reason if self._reason.endswith("?") else f"{self._reason}."
        waited = f" It has not answered for {self._timeout_s:g} s." if self._timeout_s else ""
        return DatabaseAway(
            f"{reason}{waited} Everything stored before is intact: when the database is back, do the same again"
        )
