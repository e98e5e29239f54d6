"""MemoryEventFeed: events by position, since writers take turns."""

from __future__ import annotations

from wtb.domain.feed import EVERY_EVENT, START, EventFilter, FeedCursor, FeedPage
from wtb.domain.ports import Codec
from wtb.infrastructure.event_chain import EventRow
from wtb.infrastructure.fed_events import FedEvents
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryEventFeed:
    """The feed as one transaction sees it."""

    def __init__(self, transaction: MemoryTransaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def read(self, after: FeedCursor, *, wanted: EventFilter = EVERY_EVENT, limit: int = 500) -> FeedPage:
        stored = self._find(after.position)
        after.check(None if stored is None or after.xid else stored.hash)
        found = FedEvents(self._codec)
        for position in range(after.position + 1, self._last() + 1):
            row = self._find(position)
            if row is not None:
                found.add(row, FeedCursor.after(position, row.hash), wanted)
            if found.rows == limit:
                return found.page(FeedCursor.after(position, row.hash) if row else after, is_last=False)
        return found.page(self.end(), is_last=True)

    def end(self) -> FeedCursor:
        row = self._find(self._last())
        return START if row is None else FeedCursor.after(row.position, row.hash)

    def find_hold(self) -> None:
        """Return None: whatever is committed can be read."""

    def rank_restored(self) -> int:
        return 0

    def _last(self) -> int:
        return self._transaction.find("counters", "position") or 0

    def _find(self, position: int) -> EventRow | None:
        return self._transaction.find("events", position)
