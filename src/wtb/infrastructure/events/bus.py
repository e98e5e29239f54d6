"""QueueEventBus: every handler has its own queue and thread, so that a slow one does not delay the others.

One lock guards the queues, the counters and the history; no handler and no log call runs under it. It is
reentrant because a finaliser or a signal handler may publish while this thread already holds it.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.events import EventType, RecordedEvent
from wtb.domain.secrets import masked_logger

_log = masked_logger(__name__)

Handler = Callable[[RecordedEvent], Any]
"""A function, sync or async; what it returns is ignored."""


class QueueEventBus:
    """The event bus of a process, with the latest events in memory.

    `close` waits for handlers at most `close_timeout_s`: a hanging handler must not keep the program from ending.
    """

    def __init__(self, *, queue_size: int = 1_000, history_size: int = 1_000, close_timeout_s: float = 30.0) -> None:
        if queue_size < 1 or history_size < 0 or close_timeout_s < 0:
            raise InvalidInput(
                "an event bus needs queue_size of at least 1, and history_size and close_timeout_s not below 0; "
                f"got {queue_size}, {history_size} and {close_timeout_s}"
            )
        self.queue_size = queue_size
        self.lock = threading.RLock()
        self.settled = threading.Condition(self.lock)
        self._close_timeout_s = close_timeout_s
        self._history: deque[RecordedEvent] = deque(maxlen=history_size)
        # Replaced, never changed: an iteration sees one state of it.
        self._subscriptions: tuple[QueueSubscription, ...] = ()
        self._closed = False

    def publish(self, events: Sequence[RecordedEvent]) -> None:
        with self.lock:
            if self._closed:
                return
            self._history.extend(events)
            too_slow = [subscription for subscription in self._subscriptions if subscription.offer(events)]
        for subscription in too_slow:
            subscription.log_overflow()

    def subscribe(self, handler: Handler, *, types: Collection[EventType] = ()) -> QueueSubscription:
        subscription = QueueSubscription(self, handler, frozenset(types))
        subscription.start()  # start it first: `close` may wait for the thread of every subscription in the list
        with self.lock:
            if self._closed:
                subscription.end()
            else:
                self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def history(
        self, *, stream: str | None = None, types: Collection[EventType] = (), limit: int = 1000
    ) -> tuple[RecordedEvent, ...]:
        with self.lock:
            latest_first = tuple(reversed(self._history))
        wanted = frozenset(types)
        fitting = (
            event
            for event in latest_first
            if (stream is None or event.stream == stream) and (not wanted or event.type in wanted)
        )
        return tuple(itertools.islice(fitting, max(limit, 0)))[::-1]

    def flush(self, timeout_s: float) -> bool:
        with self.lock:
            goals = [(subscription, subscription.accepted) for subscription in self._subscriptions]
            return self.settled.wait_for(lambda: all(s.has_settled(count) for s, count in goals), timeout_s)

    def close(self) -> None:
        with self.lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription.end()
        # Two handlers that close the bus and wait for each other's threads would wait for ever.
        if not any(subscription.is_current_thread() for subscription in self._subscriptions):
            self._join()

    def _join(self) -> None:
        deadline = time.monotonic() + self._close_timeout_s
        for subscription in self._subscriptions:
            if not subscription.join(max(0.0, deadline - time.monotonic())):
                subscription.log_unfinished(self._close_timeout_s)

    def remove(self, subscription: QueueSubscription) -> None:
        """Forget a cancelled subscription; called under the lock."""
        self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)


class QueueSubscription:
    """One handler with its queue and its thread. The bus uses the methods that are not in the port."""

    def __init__(self, bus: QueueEventBus, handler: Handler, types: frozenset[EventType]) -> None:
        self._bus = bus
        self._handler = handler
        self._name = getattr(handler, "__qualname__", type(handler).__qualname__)
        self._types = types
        self._arrived = threading.Condition(bus.lock)
        self._thread = threading.Thread(target=self._deliver, name=f"wtb-events-{self._name}", daemon=True)
        self._queue: deque[RecordedEvent] = deque()
        self._ending = False
        self._cancelled = False
        self._overflowing = False
        self._done = 0
        self._dropped = 0
        self._failures = 0
        self.accepted = 0

    @property
    def dropped(self) -> int:
        return self._dropped

    @property
    def failures(self) -> int:
        return self._failures

    def cancel(self) -> None:
        """Stop delivery and discard queued events; the handler finishes its current event."""
        with self._bus.lock:
            self._cancelled = True
            self._queue.clear()
            self._bus.remove(self)
            self._bus.settled.notify_all()
            self.end()

    def start(self) -> None:
        self._thread.start()

    def offer(self, events: Sequence[RecordedEvent]) -> bool:
        """Queue the events that fit and drop the rest; return whether dropping began. Called under the lock."""
        wanted = [event for event in events if event.type in self._types] if self._types else events
        fitting = wanted[: self._bus.queue_size - len(self._queue)]
        self._queue.extend(fitting)
        self.accepted += len(fitting)
        if fitting:
            self._arrived.notify()
        return self._drop(len(wanted) - len(fitting))

    def _drop(self, count: int) -> bool:
        began = count > 0 and not self._overflowing
        self._overflowing |= began
        self._dropped += count
        return began

    def end(self) -> None:
        """Let the thread end after the last queued event. Called under the lock."""
        self._ending = True
        self._arrived.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; False if that takes longer than `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def is_current_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def has_settled(self, count: int) -> bool:
        """Whether the first `count` accepted events are handled, or will never be."""
        return self._cancelled or self._done >= count

    def log_overflow(self) -> None:
        _log.warning(
            "event handler %s is too slow: its queue of %d events is full, so it misses events until it has caught up",
            self._name,
            self._bus.queue_size,
        )

    def log_unfinished(self, timeout_s: float) -> None:
        _log.warning(
            "event handler %s did not finish within %g s of closing; %d events did not reach it",
            self._name,
            timeout_s,
            len(self._queue),
        )

    def _deliver(self) -> None:
        runner = asyncio.Runner()  # not entered: `run` makes a loop only if a handler returns a coroutine
        try:
            self._deliver_in(runner)
        finally:
            runner.close()

    def _deliver_in(self, runner: asyncio.Runner) -> None:
        while (event := self._next()) is not None:
            try:
                returned = self._handler(event)
                if inspect.isawaitable(returned):
                    runner.run(_awaited(returned))
            # Catch CancelledError and sys.exit(), too: otherwise the thread ends, and the handler gets no more events.
            except BaseException:  # noqa: BLE001
                _log.exception("event handler %s failed on %s at position %d", self._name, event.type, event.position)
                self._failures += 1
            self._settle()

    def _next(self) -> RecordedEvent | None:
        """Wait for an event; None when there will be no more."""
        with self._bus.lock:
            self._arrived.wait_for(lambda: self._queue or self._ending)
            return self._queue.popleft() if self._queue else None

    def _settle(self) -> None:
        with self._bus.lock:
            self._done += 1
            self._bus.settled.notify_all()
            caught_up = self._overflowing and not self._queue
            self._overflowing &= not caught_up
        if caught_up:
            _log.info("event handler %s has caught up; %d events were dropped so far", self._name, self._dropped)


async def _awaited(returned: Awaitable[Any]) -> None:
    await returned
