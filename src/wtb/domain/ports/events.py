"""The log of events, and the bus that hands them to handlers in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from wtb.domain.events import Event, EventType, RecordedEvent, Severity
from wtb.domain.feed import EVERY_EVENT, EventFilter, FeedCursor, FeedHold, FeedPage

EventNumber = Literal["position", "sequence"]
"""The number of an event: its position in the whole log, or its sequence number in its stream."""


class EventLog(Protocol):
    """The append-only record of events, hash-chained in each stream."""

    def append(self, *events: Event) -> Sequence[RecordedEvent]:
        """Record events at the end of their streams; they become visible, and reach the bus, with the commit.

        Look at the returned events before the unit of work ends: their numbers may be read only then.
        """
        ...

    def list_events(
        self,
        *,
        stream: str | None = None,
        types: Collection[EventType] = (),
        severities: Collection[Severity] = (),
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        newest: bool = False,
        by: EventNumber = "position",
    ) -> tuple[RecordedEvent, ...]:
        """Return events that fit all filters, oldest first, verified by their hash.

        `after` and `before` are exclusive bounds. They are positions in the whole log, or with `by="sequence"` numbers
        in the stream, which must then be given. If more events fit than `limit`, the first are returned, or with
        `newest` the last. A page costs as much as it holds, unless a filter leaves out most events; in a stream this
        is true only with `by="sequence"`.
        """
        ...

    def count_types(self, stream: str) -> Mapping[EventType, int]:
        """Return how many events of each type a stream holds; types that it does not hold are left out."""
        ...


class EventFeed(Protocol):
    """All committed events in one order that never changes, for readers in any process.

    Whoever reads on from the cursor that it got last misses no event and gets none twice, whenever the events are
    committed and however often the reader starts again. An event that was committed before another was recorded comes
    before it; so the events of a stream come in the order of their sequence numbers. An event appears as soon as it is
    committed, except on Postgres: there it waits for transactions that write and began before it, because one of them
    may still commit an event that comes earlier. None of them is skipped, however long it takes.
    """

    def read(self, after: FeedCursor, *, wanted: EventFilter = EVERY_EVENT, limit: int = 500) -> FeedPage:
        """Return the next events that fit, at most `limit`; perhaps none although more follow.

        A page costs about as much as it holds, however rare the wanted events are: at most some thousands of others
        are passed over. An event that does not match its hash is passed over too, and named: one damaged event must not
        stop the feed. Raises CursorGone if the event of the cursor is not there, or is another one.
        """
        ...

    def end(self) -> FeedCursor:
        """Return the place after the last event that can be read now."""
        ...

    def find_hold(self) -> FeedHold | None:
        """Return the transaction for which committed events wait; None if none wait."""
        ...

    def rank_restored(self) -> int:
        """Let readers get events that were restored from a dump of another cluster, and return how many waited.

        On Postgres such events may carry numbers that this cluster reaches much later; they get one of now. Other
        events keep their places. Needs a unit that can be committed.
        """
        ...


class Subscription(Protocol):
    """A handler that gets events until it is cancelled."""

    @property
    def dropped(self) -> int:
        """How many events were dropped because this handler was too slow."""
        ...

    @property
    def failures(self) -> int:
        """How often the handler raised."""
        ...

    def cancel(self) -> None:
        """Stop delivery; safe to call twice, and from the handler itself."""
        ...


class EventBus(Protocol):
    """Delivers committed events to handlers in this process.

    Publishing never waits for a handler and never raises because of one. Each handler gets its events in
    order, from a bounded queue; events that do not fit are dropped for that handler, counted and logged.
    """

    def publish(self, events: Sequence[RecordedEvent]) -> None:
        """Deliver events to every handler that asked for their type."""
        ...

    def subscribe(self, handler: Callable[[RecordedEvent], Any], *, types: Collection[EventType] = ()) -> Subscription:
        """Call the handler with every event of these types, or of all types when none is given.

        The coroutine of an async handler is awaited before the next event; all of them run in one loop.
        """
        ...

    def history(
        self, *, stream: str | None = None, types: Collection[EventType] = (), limit: int = 1000
    ) -> tuple[RecordedEvent, ...]:
        """Return the latest events that fit, oldest first; at most the last thousand are remembered."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything published so far is delivered; False if that takes longer than `timeout_s`."""
        ...

    def close(self) -> None:
        """Deliver the queued events, then stop; publishing afterwards does nothing."""
        ...
