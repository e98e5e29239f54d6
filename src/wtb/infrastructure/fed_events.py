"""FedEvents: collects the events of one page of the feed, and the damage in it."""

from __future__ import annotations

from wtb.domain.errors import DamagedData
from wtb.domain.feed import EVERY_EVENT, EventFilter, FedEvent, FeedCursor, FeedPage
from wtb.domain.ports import Codec
from wtb.infrastructure.event_chain import EventRow, read_event


class FedEvents:
    """The events of a page, in the making."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._events: list[FedEvent] = []
        self._damaged: list[str] = []

    @property
    def rows(self) -> int:
        """How many rows the page holds so far, with damaged ones."""
        return len(self._events) + len(self._damaged)

    def add(self, row: EventRow, cursor: FeedCursor, wanted: EventFilter = EVERY_EVENT) -> None:
        """Add an event if it fits."""
        try:
            event = read_event(self._codec, row)
        except DamagedData as error:
            self._damaged.append(str(error))
            return
        if wanted.fits(event):
            self._events.append(FedEvent(event=event, cursor=cursor))

    def page(self, cursor: FeedCursor, *, is_last: bool) -> FeedPage:
        """Return the page; `cursor` is where the next one begins."""
        return FeedPage(events=tuple(self._events), cursor=cursor, is_last=is_last, damaged=tuple(self._damaged))
