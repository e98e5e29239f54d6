"""The log of events, and the bus that hands them to handlers in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from wtb.domain.events import Event, EventType, RecordedEvent, Severity

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
