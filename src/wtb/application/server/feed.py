"""LiveFeed: follows the feed of events for all clients of a server, with one thread that reads each event once.

A client that begins in the past reads pages from the store, at its own pace, until it has caught up. Then it joins the
others: the thread puts new events into its queue. Both are places in one order, so joining leaves no gap, and what
is in a page and in the queue is taken once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from wtb.domain.errors import CursorGone, ReaderTooSlow, ServerStopping, WTBError
from wtb.domain.feed import EVERY_EVENT, EventFilter, FedEvent, FeedCursor, FeedHold, FeedPage
from wtb.domain.ports import EventBus, Storage, Subscription
from wtb.domain.secrets import masked_logger

_PAGE = 500
_QUEUE = 10_000
_QUICK_S, _IDLE_S = 0.05, 0.25
"""How long the thread waits between two looks while events come, and at most while none come."""
_RETRY_S = 1.0
_WARN_AFTER = timedelta(seconds=60)

_log = masked_logger(__name__)


class FeedStatus(NamedTuple):
    """How the feed of a server is."""

    clients: int
    """Those that have caught up."""
    dropped: int
    """Clients that were dropped since the server started because they were too slow."""
    damaged: tuple[str, ...]
    """The latest events that were passed over because they do not match their hash."""
    hold: FeedHold | None


class LiveFeed:
    """The feed of one server. The thread runs while somebody follows."""

    def __init__(self, storage: Storage, bus: EventBus, *, queue_size: int = _QUEUE, page_size: int = _PAGE) -> None:
        self._storage = storage
        self._bus = bus
        self._queue_size = queue_size
        self.page_size = page_size
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._clients: tuple[FeedClient, ...] = ()  # replaced, never changed
        self._cursor: FeedCursor | None = None
        """How far the thread has read; None while nobody follows."""
        self._thread: threading.Thread | None = None
        self._subscription: Subscription | None = None
        self._is_closed = False
        self._dropped = 0
        self._damaged: deque[str] = deque(maxlen=20)

    def open(self) -> None:
        """Let clients read events that were restored from a dump of another cluster; called when a server starts."""
        with self._storage.unit_of_work() as uow:
            count = uow.feed.rank_restored()
            uow.commit()
        if count:
            _log.warning("%d events come from a dump of another cluster; they were put at the end of the feed", count)

    def end(self) -> FeedCursor:
        """Return the place after the last event."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.feed.end()

    def read(self, after: FeedCursor, wanted: EventFilter = EVERY_EVENT, limit: int | None = None) -> FeedPage:
        """Return one page of the stored events."""
        with self._storage.unit_of_work(readonly=True) as uow:
            page = uow.feed.read(after, wanted=wanted, limit=limit or self.page_size)
        self._note_damage(page)
        return page

    def follow(self, since: FeedCursor, wanted: EventFilter, wake: Callable[[], None]) -> FeedClient:
        """Return a client that begins at a place; `wake` is called, from any thread, when it has something to take."""
        return FeedClient(self, since, wanted, wake)

    def status(self) -> FeedStatus:
        """Return how the feed is."""
        with self._storage.unit_of_work(readonly=True) as uow:
            hold = uow.feed.find_hold()
        return FeedStatus(len(self._clients), self._dropped, tuple(self._damaged), hold)

    def close(self) -> None:
        """End all clients and the thread."""
        with self._lock:
            self._is_closed = True
            clients, self._clients = self._clients, ()
            for client in clients:
                client.end(ServerStopping("the server is stopping; connect again from your last cursor"))
            thread, subscription = self._thread, self._subscription
        for client in clients:
            client.wake()
        if subscription is not None:
            subscription.cancel()
        self._woken.set()
        if thread is not None:
            thread.join(30)

    # For clients

    def join(self, client: FeedClient, at: FeedCursor) -> FeedCursor:
        """Begin to fill the queue of a client, and return the place from which on it is filled.

        The client stands at `at`. If nobody else follows, the thread begins there.
        """
        with self._lock:
            if self._is_closed:
                raise ServerStopping("the server is stopping; connect again from your last cursor")
            if self._cursor is None:
                self._cursor = at
            self._clients = (*self._clients, client)
            if self._thread is None:
                self._subscription = self._bus.subscribe(lambda _event: self._woken.set())
                self._thread = threading.Thread(target=self._run, name="wtb-feed", daemon=True)
                self._thread.start()
            self._woken.set()
            return self._cursor

    def leave(self, client: FeedClient) -> None:
        """Forget a client."""
        with self._lock:
            self._clients = tuple(other for other in self._clients if other is not client)
            if not self._clients:
                self._cursor = None

    def take(self, client: FeedClient) -> tuple[list[FedEvent], FeedCursor | None]:
        """Empty the queue of a client; return it, and how far the thread has read."""
        with self._lock:
            events = list(client.queue)
            client.queue.clear()
            return events, self._cursor

    # The thread

    def _run(self) -> None:
        pause_s, warned_at = _QUICK_S, time.monotonic()
        while True:
            self._woken.clear()
            if self._is_closed:
                return
            found = self._look()
            if found:  # what is committed meanwhile comes with the next page
                pause_s = _QUICK_S
                time.sleep(0 if found == self.page_size else _QUICK_S)
            else:
                pause_s = _RETRY_S if found is None else min(pause_s * 1.5, _IDLE_S)
                self._woken.wait(None if self._cursor is None else pause_s)
            if time.monotonic() - warned_at > _WARN_AFTER.total_seconds():
                warned_at = time.monotonic()
                self._warn()

    def _look(self) -> int | None:
        """Hand out the next page; return how many events it had, or None if the store did not answer."""
        cursor = self._cursor
        if cursor is None:
            return 0
        try:
            with self._storage.unit_of_work(readonly=True) as uow:
                page = uow.feed.read(cursor, limit=self.page_size)
        except CursorGone as error:
            self._end_all(error)
            return 0
        except WTBError as error:
            _log.warning("the feed of events waits for the store: %s", error)
            return None
        except Exception:  # noqa: BLE001  one that nobody expected must not end the feed for good
            _log.exception("the feed of events could not be read")
            return None
        self._note_damage(page)
        self._hand_out(cursor, page)
        return len(page.events)

    def _hand_out(self, before: FeedCursor, page: FeedPage) -> None:
        with self._lock:
            if self._cursor is not before:  # everybody left meanwhile, and perhaps another came
                return
            self._cursor = page.cursor
            clients = self._clients if page.events else ()
            slow = [client for client in clients if not client.offer(page.events, self._queue_size)]
            if slow:
                self._dropped += len(slow)
                self._clients = tuple(client for client in self._clients if client not in slow)
                self._cursor = self._cursor if self._clients else None
        for client in clients:
            client.wake()

    def _end_all(self, error: WTBError) -> None:
        with self._lock:
            clients, self._clients, self._cursor = self._clients, (), None
            for client in clients:
                client.end(error)
        for client in clients:
            client.wake()

    def _note_damage(self, page: FeedPage) -> None:
        for fault in page.damaged:
            if fault not in self._damaged:
                self._damaged.append(fault)
                _log.error("the feed passes over an event: %s", fault)

    def _warn(self) -> None:
        try:
            hold = self.status().hold
        except WTBError:
            return
        if hold is not None and hold.age > _WARN_AFTER:
            _log.warning(
                "events wait since a transaction of process %s (%s, database %s) is open for %d s: %s",
                hold.pid,
                hold.name or "without a name",
                hold.database,
                hold.age.total_seconds(),
                hold.state,
            )


class FeedClient:
    """One reader of a live feed; used by one thread at a time, while the feed's thread fills its queue."""

    def __init__(self, feed: LiveFeed, since: FeedCursor, wanted: EventFilter, wake: Callable[[], None]) -> None:
        self._feed = feed
        self._wanted = wanted
        self.wake = wake
        self.cursor = since
        """How far the client has taken events."""
        self.queue: deque[FedEvent] = deque()
        """Filled under the feed's lock."""
        self._joined_at: FeedCursor | None = None
        self._ended: WTBError | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the next events are read from the store, so that `take` may wait for it."""
        return self._joined_at is None or self.cursor.order < self._joined_at.order

    def take(self) -> list[FedEvent]:
        """Return the next events, perhaps none; raise the reason if the client was dropped or the feed has ended."""
        if self.is_behind:
            return self._catch_up()
        events, read_to = self._feed.take(self)
        if not events and self._ended is not None:
            raise self._ended
        fresh = [fed for fed in events if fed.cursor.order > self.cursor.order]
        if fresh:
            self.cursor = fresh[-1].cursor
        if read_to is not None and self._ended is None and read_to.order > self.cursor.order:
            self.cursor = read_to
        return fresh

    def _catch_up(self) -> list[FedEvent]:
        page = self._feed.read(self.cursor, self._wanted)
        self.cursor = page.cursor
        if page.is_last and self._joined_at is None:
            self._joined_at = self._feed.join(self, self.cursor)
        return list(page.events)

    def offer(self, events: tuple[FedEvent, ...], most: int) -> bool:
        """Queue the events that fit; if there are too many, end this client and return False. Under the feed's lock."""
        wanted = events if self._wanted == EVERY_EVENT else [fed for fed in events if self._wanted.fits(fed.event)]
        if len(self.queue) + len(wanted) > most:
            self.queue.clear()
            self.end(
                ReaderTooSlow(f"{most} events wait to be read; connect again, from your last cursor, and read faster")
            )
            return False
        self.queue.extend(wanted)
        return True

    def end(self, reason: WTBError) -> None:
        """Give no more events than those that wait. Under the feed's lock."""
        self._ended = reason

    def close(self) -> None:
        """Stop following."""
        self._feed.leave(self)
