"""What QueueEventBus adds to the contract: bounds, logs, and threads that end."""

import logging
import queue
import sys
import threading

import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.events import RecordedEvent
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.testing.event_bus import WAIT_S, BlockedHandler, in_threads, recorded

LOGGER = "wtb.infrastructure.events.bus"


def test_a_failing_handler_is_logged_with_its_traceback_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    bus = QueueEventBus()

    def broken(event: RecordedEvent) -> None:
        raise LookupError(f"no {event.position}")

    subscription = bus.subscribe(broken)
    bus.publish([recorded(7), recorded(8)])
    bus.close()
    assert subscription.failures == 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
    assert "broken" in caplog.messages[0]
    assert "node.completed at position 7" in caplog.messages[0]
    assert "LookupError: no 8" in caplog.text


def test_a_handler_that_exits_does_not_end_its_delivery(caplog: pytest.LogCaptureFixture) -> None:
    bus = QueueEventBus()
    got: list[int] = []

    def leaves(event: RecordedEvent) -> None:
        got.append(event.position)
        sys.exit(1)

    subscription = bus.subscribe(leaves)
    bus.publish([recorded(1), recorded(2)])
    bus.close()
    assert got == [1, 2]
    assert subscription.failures == 2
    assert "SystemExit" in caplog.text


def test_what_does_not_fit_is_dropped_for_the_slow_handler_only() -> None:
    bus = QueueEventBus(queue_size=3)
    gate, quick = BlockedHandler(), queue.SimpleQueue[RecordedEvent]()
    slow = bus.subscribe(gate)
    other = bus.subscribe(quick.put)
    bus.publish([recorded(0)])
    assert gate.entered.wait(WAIT_S)  # one is being handled, so that the queue is empty
    assert quick.get(timeout=WAIT_S) == recorded(0)
    for position in range(1, 9):
        bus.publish([recorded(position)])
        assert quick.get(timeout=WAIT_S) == recorded(position)
    assert (slow.dropped, other.dropped) == (5, 0)
    gate.open()
    bus.close()
    assert [event.position for event in gate.got] == [0, 1, 2, 3]


def test_a_batch_larger_than_the_queue_is_delivered_as_far_as_it_fits() -> None:
    bus = QueueEventBus(queue_size=3)
    gate = BlockedHandler()
    subscription = bus.subscribe(gate)
    bus.publish([recorded(position) for position in range(10)])
    gate.open()
    bus.close()
    assert [event.position for event in gate.got] == [0, 1, 2]
    assert subscription.dropped == 7


def test_drops_are_logged_once_until_the_handler_has_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    bus = QueueEventBus(queue_size=2)
    gate = BlockedHandler()
    bus.subscribe(gate)
    for position in range(20):
        bus.publish([recorded(position)])
    assert levels(caplog) == [logging.WARNING]
    assert "BlockedHandler is too slow: its queue of 2 events is full" in caplog.text
    gate.open()
    assert bus.flush(WAIT_S)
    bus.publish([recorded(position) for position in range(20)])
    bus.close()
    assert sorted(levels(caplog)) == [logging.INFO, logging.INFO, logging.WARNING, logging.WARNING]
    assert "has caught up" in caplog.text


def test_a_log_handler_may_use_the_bus() -> None:
    bus = QueueEventBus(queue_size=1)
    gate, published = BlockedHandler(), threading.Event()

    class Publishes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # From another thread: it would wait for ever if the lock were held while logging.
            in_threads(lambda _: bus.publish([recorded(99)]), count=1)
            published.set()

    handler = Publishes()
    logging.getLogger(LOGGER).addHandler(handler)
    try:
        bus.subscribe(gate)
        bus.publish([recorded(0), recorded(1)])
    finally:
        logging.getLogger(LOGGER).removeHandler(handler)
    assert published.is_set()
    gate.open()
    bus.close()


def test_no_event_is_lost_or_reordered_when_many_threads_publish() -> None:
    bus = QueueEventBus(queue_size=100_000)
    handlers = [list[tuple[str, int]]() for _ in range(4)]
    for got in handlers:
        bus.subscribe(lambda event, got=got: got.append((event.stream, event.position)))  # type: ignore[misc]

    def publish(number: int) -> None:
        for position in range(500):
            bus.publish([recorded(position, stream=str(number))] * 2)

    in_threads(publish)
    bus.close()
    for got in handlers:
        assert got == handlers[0]
        assert len(got) == 8_000
        for number in range(8):
            assert [i for stream, i in got if stream == str(number)] == [i for i in range(500) for _ in range(2)]


def test_subscribing_and_cancelling_while_others_publish_is_safe() -> None:
    bus = QueueEventBus()

    def work(number: int) -> None:
        for position in range(30):
            if number % 2:
                bus.subscribe(lambda event: None).cancel()
            else:
                bus.publish([recorded(position)])

    in_threads(work)
    assert bus.flush(WAIT_S)
    bus.close()
    join_delivery_threads()


def test_close_does_not_wait_for_ever_for_a_handler_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    bus = QueueEventBus(close_timeout_s=0.01)
    gate = BlockedHandler()
    bus.subscribe(gate)
    bus.publish([recorded(1), recorded(2)])
    assert gate.entered.wait(WAIT_S)
    bus.close()
    assert "BlockedHandler did not finish within 0.01 s of closing; 1 events did not reach it" in caplog.text
    gate.open()
    join_delivery_threads()


def test_after_a_handler_closed_the_bus_another_close_waits_for_what_is_queued() -> None:
    bus = QueueEventBus()
    got: list[int] = []

    def closer(event: RecordedEvent) -> None:
        got.append(event.position)
        bus.close()

    bus.subscribe(closer)
    bus.publish([recorded(1), recorded(2)])
    assert bus.flush(WAIT_S)
    bus.close()
    assert got == [1, 2]
    assert delivery_threads() == []


def test_flush_does_not_wait_for_a_cancelled_handler() -> None:
    bus = QueueEventBus()
    gate = BlockedHandler()
    subscription = bus.subscribe(gate)
    bus.publish([recorded(1)])
    assert gate.entered.wait(WAIT_S)
    subscription.cancel()
    assert bus.flush(0.0)
    gate.open()
    bus.close()


@pytest.mark.parametrize("sizes", [{"queue_size": 0}, {"history_size": -1}, {"close_timeout_s": -1.0}])
def test_sizes_that_make_no_sense_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(sizes))):
        QueueEventBus(**sizes)


def test_the_history_has_the_size_it_was_given() -> None:
    bus = QueueEventBus(history_size=2)
    bus.publish([recorded(position) for position in range(5)])
    assert bus.history() == (recorded(3), recorded(4))


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records]


def delivery_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("wtb-events-")]


def join_delivery_threads() -> None:
    for thread in delivery_threads():
        thread.join(WAIT_S)
        assert not thread.is_alive()
