"""WaitingClients: the clients that wait for room on an environment server, in the order in which they came."""

from __future__ import annotations

import time
from collections.abc import Callable

_ASKS_AGAIN_WITHIN_S = 10.0
"""A client asks again every two seconds; one that does not has given up."""


class WaitingClients:
    """Whoever has waited longest comes first. The server calls it under its lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_at: dict[str, float] = {}

    def count_before(self, client: str) -> int:
        """Return how many other clients have waited longer."""
        waiting = self._waiting()
        return waiting.index(client) if client in waiting else len(waiting)

    def has_others(self, client: str) -> bool:
        """Whether other clients wait."""
        return any(each != client for each in self._waiting())

    def add(self, client: str) -> None:
        """Let a client wait. One that waits already keeps its place."""
        self._asked_at[client] = self._clock()

    def remove(self, client: str) -> None:
        """Let a client wait no more."""
        self._asked_at.pop(client, None)

    def _waiting(self) -> list[str]:
        now = self._clock()
        gone = [each for each, asked_at in self._asked_at.items() if now - asked_at > _ASKS_AGAIN_WITHIN_S]
        for each in gone:
            del self._asked_at[each]
        return list(self._asked_at)
