"""Verbs about events: follow them live, or read pages of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from wtb.api.models.events import EventAnswer, EventListAnswer, FeedHealthAnswer
from wtb.client.connection import Connection, path_of
from wtb.client.feed import follow
from wtb.client.requests import Names, each_of, get

PATIENCE_S = 60.0
"""How long a feed waits for its server to come back."""


class EventVerbs(Connection):
    """What a client does with events."""

    async def events(
        self,
        *,
        since: str = "now",
        types: Names = (),
        severities: Names = (),
        run: str | None = None,
        batch: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> AsyncGenerator[EventAnswer]:
        """Follow the events of a server as they happen: `for event in client.events()`. Leave the loop to stop.

        It connects again by itself, and misses no event and gives none twice. Keep `event.cursor`, and a later program
        goes on from there.

        - `since`: a cursor, `start` for all stored events, or `now`.
        - `types`: for example `["node.failed", "batch"]`. A noun stands for all its events.
        - `severities`: `info`, `warning`, `error`.
        - `run`, `batch`: only the events of this one, by its whole id.
        - `patience_s`: how long to wait for a server that is away; then it raises `ServerAway`.

        It raises `CursorGone` if the server's database does not have the event of the cursor.
        """
        filters = {"type": each_of(types), "severity": each_of(severities), "run": run, "batch": batch}
        found = follow(self._sender.transport, since, filters, patience_s)
        try:
            async for event in found:
                yield event
        finally:
            await found.aclose()

    async def read_events(
        self, *, since: str = "start", types: Names = (), severities: Names = (), limit: int = 100
    ) -> EventListAnswer:
        """Return one page of stored events, oldest first. Its `cursor` is the `since` of the next one."""
        query = get(path_of("events"), since=since, type=each_of(types), severity=each_of(severities), limit=limit)
        return await self._ask(EventListAnswer, query)

    async def feed_health(self) -> FeedHealthAnswer:
        """Return how many clients follow, and what holds the feed back."""
        return await self._ask(FeedHealthAnswer, get(path_of("events", "health")))
