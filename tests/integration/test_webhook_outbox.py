"""Events reach webhooks: each at least once, signed; failures are tried again, and dead letters can be sent again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.webhook_receiver import Answer, Handler, Received, WebhookReceiver, accept, is_signed
from wtb.application.server import webhook_outbox
from wtb.application.server.background_jobs import JobRun
from wtb.application.server.webhook_outbox import WebhookOutbox
from wtb.application.server.webhooks import Webhooks
from wtb.domain.errors import CursorGone, InvalidInput, WebhookNotFound
from wtb.domain.event_catalogue import BackgroundCompleted, ExecutionCancelled, ExecutionDegraded
from wtb.domain.events import Event, EventType, RecordedEvent
from wtb.domain.feed import FeedCursor
from wtb.domain.ports import Storage
from wtb.domain.secrets import Masker
from wtb.domain.webhooks import MOST_ATTEMPTS, DeliveryStatus, Webhook
from wtb.infrastructure.webhook_sender import PinnedSender
from wtb.testing.fakes import FakeClock, SequentialIds


class Office:
    """Webhooks over a storage, and the outbox that sends to them."""

    def __init__(self, storage: Storage, *, to_private: bool = True, timeout_s: float = 5.0) -> None:
        self.storage = storage
        self.clock = FakeClock()
        sender = PinnedSender(to_private=to_private, timeout_s=timeout_s)
        self.webhooks = Webhooks(storage, self.clock, SequentialIds(), sender)
        self.outbox = WebhookOutbox(storage, self.clock, sender, Masker(), spread=lambda: 0.0, poll_s=0.01)

    def tell(self, count: int = 1, stream: str = "run") -> list[int]:
        """Record events, and return their positions."""
        with self.storage.unit_of_work() as uow:
            body = ExecutionDegraded(error="the disk is slow, token=abc12345")
            found = uow.events.append(*(Event.of(body, stream=stream, at=self.clock.now()) for _ in range(count)))
            positions = [event.position for event in found]
            uow.commit()
        return positions

    @contextmanager
    def sending(self) -> Iterator[JobRun]:
        run = JobRun()
        thread = threading.Thread(target=self.outbox.run, args=(run,))
        thread.start()
        try:
            yield run
        finally:
            run.stopped.set()
            thread.join()

    def statuses(self, webhook: Webhook) -> list[str]:
        return [each.status.value for each in self.webhooks.list_deliveries(webhook.id)]

    def events(self, type: EventType) -> tuple[RecordedEvent, ...]:
        with self.storage.unit_of_work(readonly=True) as uow:
            return uow.events.list_events(types=[type])


@pytest.fixture
def office(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setattr(webhook_outbox, "_LONGEST_REST_S", 0.01)
    return Office(storage)


def hanging(hold: threading.Event) -> Answer:
    """Return an answer that does not come before it may."""

    def hang(handler: Handler, received: Received) -> None:
        hold.wait(30)

    return hang


def until(is_so: Callable[[], object], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def test_a_webhook_gets_events_in_order_signed_and_only_from_its_creation_on(office: Office) -> None:
    office.tell()
    with WebhookReceiver() as receiver:
        webhook = office.webhooks.create(receiver.url, by="alice")
        positions = office.tell(150)
        with office.sending() as run:
            found = receiver.wait_for(lambda got: len(got) >= 150)
            until(lambda: run.figures["delivered"] == 150)
    assert receiver.positions == positions
    assert all(is_signed(each, webhook.secret) for each in found)
    assert len({each.headers["webhook-id"] for each in found}) == 150
    assert found[0].data["type"] == "execution.degraded"
    assert found[0].data["stream"] == "run"
    assert set(office.statuses(webhook)) == {"delivered"}
    assert webhook.secret not in repr(webhook)


def test_only_the_types_that_a_webhook_names_are_sent(office: Office) -> None:
    with WebhookReceiver() as receiver:
        office.webhooks.create(receiver.url, ["execution.cancelled", "background.completed"], by="alice")
        office.tell(3)
        with office.storage.unit_of_work() as uow:
            for body in (ExecutionCancelled(by="bob"), BackgroundCompleted(job="doctor", duration_s=0.1)):
                uow.events.append(Event.of(body, at=office.clock.now()))
            uow.commit()
        with office.sending():
            found = receiver.wait_for(lambda got: len(got) >= 2)
    assert [each.data["type"] for each in found] == ["execution.cancelled", "background.completed"]


def test_a_failed_event_is_tried_again_while_others_go_on(office: Office) -> None:
    refused: list[int] = []

    def refuse_once(handler: Handler, received: Received) -> None:
        if not refused:
            refused.append(received.data["position"])
            handler.reply(503)
        else:
            accept(handler, received)

    with WebhookReceiver(refuse_once) as receiver:
        webhook = office.webhooks.create(receiver.url, by="alice")
        first, *others = office.tell(3)
        with office.sending():
            until(lambda: office.statuses(webhook) == ["delivered", "delivered", "pending"])
            assert receiver.positions == [first, *others]
            pending = office.webhooks.list_deliveries(webhook.id, status=DeliveryStatus.PENDING)[0]
            assert (pending.position, pending.attempts, pending.error) == (first, 1, "it answered 503")
            make_due(office, webhook)
            until(lambda: set(office.statuses(webhook)) == {"delivered"})
    assert receiver.positions == [first, *others, first]
    ids = [each.headers["webhook-id"] for each in receiver.received]
    assert ids[0] == ids[-1]


def make_due(office: Office, webhook: Webhook, **changes: int) -> None:
    """Let the time of the next attempts come: on Postgres the time is the database's own."""
    with office.storage.unit_of_work() as uow:
        past = uow.now() - timedelta(days=1)
        for each in uow.deliveries.list_deliveries(webhook.id, status=DeliveryStatus.PENDING, limit=100):
            uow.deliveries.save(replace(each, next_at=past, **changes))  # type: ignore[arg-type]  # the number of attempts
        uow.commit()


def test_a_dead_letter_is_told_looked_at_and_sent_again(office: Office) -> None:
    with WebhookReceiver(lambda handler, received: handler.reply(500, b"token=abc12345678")) as receiver:
        webhook = office.webhooks.create(receiver.url, by="alice")
        (position,) = office.tell()
        with office.sending():
            until(lambda: _attempts(office, webhook) == 1)
            make_due(office, webhook, attempts=MOST_ATTEMPTS - 1)
            until(lambda: office.statuses(webhook) == ["dead"])
            (dead,) = office.webhooks.list_deliveries(webhook.id, status=DeliveryStatus.DEAD)
            assert dead.attempts == MOST_ATTEMPTS
            (told,) = office.events(EventType.WEBHOOK_FAILED)
            assert told.data["position"] == position
            assert "abc12345678" not in str(told.data)
            sent = len(receiver.received)
            receiver.answer_with(accept)
            office.webhooks.retry(webhook.id, position, by="bob")
            until(lambda: office.statuses(webhook) == ["delivered"])
    assert len(receiver.received) == sent + 1
    (retried,) = office.events(EventType.WEBHOOK_RETRIED)
    assert retried.data == {"webhook": webhook.id, "position": position, "by": "bob"}


def _attempts(office: Office, webhook: Webhook) -> int:
    return max((each.attempts for each in office.webhooks.list_deliveries(webhook.id)), default=0)


def test_a_deleted_webhook_gets_nothing_more(office: Office) -> None:
    with WebhookReceiver() as receiver, WebhookReceiver() as other:
        webhook = office.webhooks.create(receiver.url, by="alice")
        office.webhooks.create(other.url, by="alice")
        office.tell()
        with office.sending():
            receiver.wait_for(lambda got: len(got) == 1)
            office.webhooks.delete(webhook.id, by="bob")
            office.tell(3)
            other.wait_for(lambda got: len(got) == 4)
    assert len(receiver.received) == 1
    assert office.events(EventType.WEBHOOK_DELETED)[0].data["by"] == "bob"
    with pytest.raises(WebhookNotFound):
        office.webhooks.list_deliveries(webhook.id)


def test_a_receiver_that_hangs_delays_no_other(storage: Storage) -> None:
    office, hold = Office(storage, timeout_s=30), threading.Event()
    with WebhookReceiver(hanging(hold)) as stuck, WebhookReceiver() as quick:
        office.webhooks.create(stuck.url, by="alice")
        office.webhooks.create(quick.url, by="alice")
        office.tell(2)
        with office.sending():
            stuck.wait_for(lambda got: len(got) == 1)
            quick.wait_for(lambda got: len(got) == 2)
            office.tell(1)
            quick.wait_for(lambda got: len(got) == 3)
            began = time.monotonic()
        assert time.monotonic() - began < 3, "a request under way does not hold up the end"
        hold.set()


def test_so_many_webhooks_are_sent_to_at_a_time_and_the_others_have_their_turn(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_outbox, "AT_ONCE", 1)
    monkeypatch.setattr(webhook_outbox, "PAGE", 1)
    monkeypatch.setattr(webhook_outbox, "PAGES", 1)
    under_way, most, order, lock = 0, 0, [], threading.Lock()

    def note(handler: Handler, received: Received) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            order.append(handler.path)
        time.sleep(0.02)
        with lock:
            under_way -= 1
        accept(handler, received)

    with WebhookReceiver(note) as receiver:
        for name in ("a", "b", "c"):
            office.webhooks.create(f"http://127.0.0.1:{receiver.port}/{name}", by="alice")
        office.tell(4)
        with office.sending():
            receiver.wait_for(lambda got: len(got) == 12)
    assert most == 1
    assert sorted(order[:3]) == ["/a", "/b", "/c"]


def test_an_interrupted_request_is_no_failed_attempt_and_is_sent_again(storage: Storage) -> None:
    office, hold = Office(storage, timeout_s=30), threading.Event()
    with WebhookReceiver(hanging(hold)) as receiver:
        webhook = office.webhooks.create(receiver.url, by="alice")
        office.tell()
        with office.sending():
            receiver.wait_for(lambda got: len(got) == 1)
        assert _attempts(office, webhook) == 0
        hold.set()
        receiver.answer_with(accept)
        with office.sending():
            until(lambda: office.statuses(webhook) == ["delivered"])


def test_without_the_setting_no_webhook_leads_to_a_private_address(storage: Storage) -> None:
    office = Office(storage, to_private=False)
    for url in ("http://example.org/", "https://127.0.0.1/", "https://localhost/", "https://[::ffff:10.0.0.1]/"):
        with pytest.raises(InvalidInput):
            office.webhooks.create(url, by="alice")
    assert office.webhooks.list_webhooks() == ()


def test_what_was_allowed_once_is_refused_when_the_setting_is_gone(storage: Storage) -> None:
    with WebhookReceiver() as receiver:
        webhook = Office(storage).webhooks.create(receiver.url, by="alice")
        strict = Office(storage, to_private=False)
        strict.tell()
        with strict.sending():
            until(lambda: _attempts(strict, webhook) == 1)
        assert receiver.received == []


def test_events_wait_in_the_log_while_too_many_are_pending(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_outbox, "MOST_PENDING", 5)
    monkeypatch.setattr(webhook_outbox, "PAGE", 3)
    webhook = office.webhooks.create("http://127.0.0.1:9/", by="alice")
    office.tell(20)
    assert [office.outbox.note(webhook.id) for _ in range(4)] == [3, 3, 0, 0]


def test_a_cursor_that_no_longer_fits_is_told_and_the_webhook_goes_on(office: Office) -> None:
    webhook = office.webhooks.create("http://127.0.0.1:9/", by="alice")
    office.tell()
    with office.storage.unit_of_work() as uow:
        uow.webhooks.move(webhook.id, str(FeedCursor.after(7_000, b"another")), since=webhook.cursor)
        uow.commit()
    with pytest.raises(CursorGone, match="goes on with the next event"):
        office.outbox.note(webhook.id)
    office.tell()
    assert office.outbox.note(webhook.id) == 1


def test_a_test_request_is_signed_and_says_what_became_of_it(office: Office) -> None:
    with WebhookReceiver() as receiver:
        webhook = office.webhooks.create(receiver.url, by="alice")
        assert office.webhooks.test(webhook.id).is_accepted
        (got,) = receiver.received
    assert got.data["type"] == "webhook.test"
    assert is_signed(got, webhook.secret)
    assert not office.webhooks.test(webhook.id).is_accepted
