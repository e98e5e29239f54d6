"""WebhookOutbox: the background job that carries events to webhooks, each of them at least once.

The log of events is the outbox. Each webhook has a cursor in it; one transaction moves the cursor and notes a delivery
for each event that the webhook wants. A delivery is marked after its request, so a server that is killed in between
sends it again, and none is lost.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from wtb.application.server.background_jobs import JobPlan, JobRun
from wtb.domain.errors import CursorGone, StorageError, WebhookNotFound, WTBError
from wtb.domain.event_catalogue import WebhookFailed
from wtb.domain.events import Event, RecordedEvent
from wtb.domain.feed import START, EventFilter, FeedCursor, FeedPage
from wtb.domain.ports import Clock, SentRequest, Storage, WebhookSender
from wtb.domain.secrets import Masker
from wtb.domain.webhooks import Delivery, DeliveryStatus, Webhook, WebhookId, message, signed_headers

SHIFT_S = 3_600.0
"""How long one run of the job lasts; then it tells what it sent, and any server may take it."""
POLL_S = 1.0
"""How often new events are looked for."""
AT_ONCE = 8
"""How many webhooks are sent to at a time; each of them gets one event after the other."""
PAGE = 100
"""How many events are noted for a webhook in one transaction, or read to be sent."""
PAGES = 10
"""How many pages are sent to one webhook before others have their turn."""
MOST_PENDING = 1_000
"""How many deliveries to one webhook are noted ahead; further events wait in the log."""
_LONGEST_REST_S = 60.0
_LAST_MOMENT_S = 2.0
"""How long the end of a run waits for requests that were just ended."""


class WebhookOutbox:
    """Sends to all webhooks, several at a time; to one of them, event by event.

    After a failure a webhook rests a few seconds, so that one which is away is not asked for every event. The failed
    event is tried again later, and those after it go on: their order is attempted, not promised.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        sender: WebhookSender,
        masker: Masker,
        *,
        spread: Callable[[], float] = random.random,
        poll_s: float = POLL_S,
        shift_s: float = SHIFT_S,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._sender = sender
        self._masker = masker
        self._spread = spread
        self._poll_s = poll_s
        self._shift_s = shift_s

    def plan(self, seconds: float | None) -> JobPlan:
        """Return the job; while there are no webhooks, it looks again after so many seconds."""
        return JobPlan(
            name="webhooks",
            summary="Send events to webhooks.",
            every=None if seconds is None else timedelta(seconds=seconds),
            work=self.run,
            is_standing=True,
        )

    def run(self, run: JobRun) -> None:
        """Send until the run is stopped, an hour has passed, or there are no webhooks."""
        shift, until = _Shift(), time.monotonic() + self._shift_s
        try:
            while not run.stopped.is_set() and time.monotonic() < until:
                if not self._look(run, shift):
                    return
                shift.raise_problem()
                run.stopped.wait(self._poll_s)
        finally:
            shift.has_ended.set()
            self._sender.abort()
            shift.join(_LAST_MOMENT_S)

    def _look(self, run: JobRun, shift: _Shift) -> bool:
        """Begin to send to every webhook that is neither served nor resting; return whether there are any."""
        with self._storage.unit_of_work(readonly=True) as uow:
            webhooks = uow.webhooks.list_webhooks()
        for webhook in sorted(webhooks, key=lambda webhook: shift.served_at(webhook.id)):
            shift.begin(webhook.id, partial(self._serve, webhook.id, run, shift))
        return bool(webhooks)

    def _serve(self, webhook_id: WebhookId, run: JobRun, shift: _Shift) -> None:
        """Note what is new for a webhook, and send what is due: some pages, up to the first failure."""
        with suppress(WebhookNotFound):  # deleted meanwhile: nothing more is sent
            for _ in range(PAGES):
                self.note(webhook_id)
                with self._storage.unit_of_work(readonly=True) as uow:
                    due = uow.deliveries.list_due(webhook_id, uow.now(), limit=PAGE)
                for delivery in due:
                    if shift.has_ended.is_set() or not self._deliver(delivery, run, shift):
                        return
                if len(due) < PAGE:
                    return

    def note(self, webhook_id: WebhookId) -> int:
        """Note a delivery for each new event that a webhook wants, and return how many."""
        with self._storage.unit_of_work(readonly=True) as uow:
            webhook = uow.webhooks.get(webhook_id)
            if uow.deliveries.count_pending(webhook_id) >= MOST_PENDING:
                return 0
            after = START if webhook.cursor is None else FeedCursor.parse(webhook.cursor)
            try:
                page, problem = uow.feed.read(after, wanted=EventFilter.of(webhook.wanted), limit=PAGE), None
            except CursorGone as error:
                page, problem = FeedPage(events=(), cursor=uow.feed.end(), is_last=True), error
        if page.cursor == after or not self._move(webhook, page):
            return 0
        if problem is not None:
            raise CursorGone(f"webhook {webhook_id} goes on with the next event: {problem}") from problem
        return len(page.events)

    def _move(self, webhook: Webhook, page: FeedPage) -> bool:
        """Store the deliveries and the cursor in one transaction, unless another server was faster."""
        with self._storage.unit_of_work() as uow:
            now = uow.now()
            if not uow.webhooks.move(webhook.id, str(page.cursor), since=webhook.cursor):
                return False
            uow.deliveries.add(*(_noted(webhook, fed.event, now) for fed in page.events))
            uow.commit()
        return True

    def _deliver(self, delivery: Delivery, run: JobRun, shift: _Shift) -> bool:
        """Send one event and store what became of it; return whether it was accepted."""
        webhook, event, problem = self._read(delivery)
        sent = SentRequest(None, problem) if event is None else self._send(webhook, event)
        if not sent.is_accepted and shift.has_ended.is_set():
            return False  # the request was ended with the run: that is no failed attempt
        with self._storage.unit_of_work() as uow:
            now = uow.now()
            error = self._masker.text(sent.problem or "")
            after = delivery.delivered(now) if sent.is_accepted else delivery.failed(now, error, self._spread())
            uow.deliveries.save(after)
            if after.status is DeliveryStatus.DEAD:
                told = WebhookFailed(
                    webhook=webhook.id, position=after.position, attempts=after.attempts, error=after.error or ""
                )
                uow.events.append(Event.of(told, at=self._clock.now()))
            uow.commit()
        run.count(**{"delivered" if sent.is_accepted else "dead" if after.ended_at else "failed": 1})
        shift.note(webhook.id, failed=not sent.is_accepted)
        return sent.is_accepted

    def _read(self, delivery: Delivery) -> tuple[Webhook, RecordedEvent | None, str | None]:
        with self._storage.unit_of_work(readonly=True) as uow:
            webhook = uow.webhooks.get(delivery.webhook_id)
            at = delivery.position
            try:
                found = uow.events.list_events(after=at - 1, before=at + 1, limit=1)
            except StorageError as error:
                return webhook, None, str(error)
        return (webhook, found[0], None) if found else (webhook, None, f"event {at} is no longer there")

    def _send(self, webhook: Webhook, event: RecordedEvent) -> SentRequest:
        body = message(event)
        id = f"{webhook.id}_{event.position}"  # the same at each attempt: receivers know by it what they have had
        return self._sender.send(webhook.url, signed_headers(webhook.secret, id, self._clock.now(), body), body)


class _Shift:
    """The threads of one run, and which webhooks rest after failures."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()
        self._lock = threading.Lock()
        self._threads: dict[WebhookId, threading.Thread] = {}
        self._failures: dict[WebhookId, tuple[int, float]] = {}
        self._served_at: dict[WebhookId, float] = {}
        self._problem: WTBError | None = None

    def served_at(self, webhook_id: WebhookId) -> float:
        """Return when a webhook was served last: whoever has waited longest comes first."""
        return self._served_at.get(webhook_id, 0.0)

    def begin(self, webhook_id: WebhookId, work: Callable[[], None]) -> None:
        """Start to serve a webhook, unless it is served, it rests, or enough others are served."""
        with self._lock:
            _, until = self._failures.get(webhook_id, (0, 0.0))
            if webhook_id in self._threads or len(self._threads) >= AT_ONCE or time.monotonic() < until:
                return
            thread = threading.Thread(target=self._run, args=(webhook_id, work), name="wtb-webhook", daemon=True)
            self._threads[webhook_id] = thread
            self._served_at[webhook_id] = time.monotonic()
            thread.start()

    def _run(self, webhook_id: WebhookId, work: Callable[[], None]) -> None:
        try:
            work()
        except WTBError as error:  # the database: the run ends with it, and a later one goes on
            self._problem = error
        finally:
            with self._lock:
                self._threads.pop(webhook_id, None)

    def note(self, webhook_id: WebhookId, *, failed: bool) -> None:
        """Let a webhook rest after a failure: longer each time, until it accepts something."""
        with self._lock:
            times = self._failures.get(webhook_id, (0, 0.0))[0] + 1 if failed else 0
            rest_s = min(2.0 ** (times - 1), _LONGEST_REST_S) if failed else 0.0
            self._failures[webhook_id] = times, time.monotonic() + rest_s

    def raise_problem(self) -> None:
        """Raise what ended one of the threads."""
        if self._problem is not None:
            raise self._problem

    def join(self, timeout_s: float) -> None:
        """Wait for the threads."""
        until = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0.0))


def _noted(webhook: Webhook, event: RecordedEvent, now: datetime) -> Delivery:
    return Delivery(webhook_id=webhook.id, position=event.position, type=event.type.value, next_at=now, created_at=now)
