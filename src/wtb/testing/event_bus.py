"""The contract of EventBus: a subclass gives a fixture `bus` with a fresh one, and closes it afterwards."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from wtb.domain.events import EventType, RecordedEvent
from wtb.domain.ports import EventBus, Subscription

WAIT_S = 30.0
"""How long a test waits for what must happen: a failure, never a pass, takes that long."""


def recorded(position: int, *, type: EventType = EventType.NODE_COMPLETED, stream: str = "run") -> RecordedEvent:
    """Return an event as a store would hand it over."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return RecordedEvent(type=type, stream=stream, at=at, position=position, sequence=position, hash=bytes(32))


class BlockedHandler:
    """A handler that stops at its first event until it is opened, and remembers what it got."""

    def __init__(self) -> None:
        self.got: list[RecordedEvent] = []
        self.entered = threading.Event()
        self._opened = threading.Event()

    def __call__(self, event: RecordedEvent) -> None:
        self.entered.set()
        assert self._opened.wait(WAIT_S)
        self.got.append(event)

    def open(self) -> None:
        """Let the handler go on."""
        self._opened.set()


class EventBusContract:
    """What every event bus does."""

    def test_a_handler_gets_all_events_in_order(self, bus: EventBus) -> None:
        got: list[RecordedEvent] = []
        bus.subscribe(got.append)
        events = [recorded(position) for position in range(50)]
        for event in events[:40]:
            bus.publish([event])
        bus.publish(events[40:])
        assert bus.flush(WAIT_S)
        assert got == events

    def test_a_handler_gets_only_the_types_it_asked_for(self, bus: EventBus) -> None:
        got: list[RecordedEvent] = []
        bus.subscribe(got.append, types=[EventType.NODE_FAILED, EventType.NODE_SKIPPED])
        started, completed, failed = (
            recorded(1, type=EventType.NODE_SKIPPED),
            recorded(2, type=EventType.NODE_COMPLETED),
            recorded(3, type=EventType.NODE_FAILED),
        )
        bus.publish([started, completed, failed])
        assert bus.flush(WAIT_S)
        assert got == [started, failed]

    def test_an_async_handler_is_awaited_for_each_event_in_one_loop(self, bus: EventBus) -> None:
        got: list[RecordedEvent] = []
        loops: set[asyncio.AbstractEventLoop] = set()

        async def handle(event: RecordedEvent) -> None:
            await asyncio.sleep(0)
            loops.add(asyncio.get_running_loop())
            got.append(event)

        events = [recorded(position) for position in range(3)]
        subscription = bus.subscribe(handle)
        bus.publish(events)
        assert bus.flush(WAIT_S)
        assert (got, len(loops), subscription.failures) == (events, 1, 0)

    def test_an_async_handler_that_fails_is_counted_and_gets_the_next_event(self, bus: EventBus) -> None:
        got: list[int] = []

        async def handle(event: RecordedEvent) -> None:
            if event.position == 1:
                raise asyncio.CancelledError
            got.append(event.position)

        subscription = bus.subscribe(handle)
        bus.publish([recorded(1), recorded(2)])
        assert bus.flush(WAIT_S)
        assert (got, subscription.failures) == ([2], 1)

    def test_events_from_before_the_subscription_are_not_delivered(self, bus: EventBus) -> None:
        got: list[RecordedEvent] = []
        bus.publish([recorded(1)])
        bus.subscribe(got.append)
        bus.publish([recorded(2)])
        assert bus.flush(WAIT_S)
        assert got == [recorded(2)]

    def test_a_handler_that_hangs_delays_neither_publishers_nor_other_handlers(self, bus: EventBus) -> None:
        slow, quick = BlockedHandler(), queue.SimpleQueue[RecordedEvent]()
        bus.subscribe(slow)
        bus.subscribe(quick.put)
        bus.publish([recorded(1)])
        assert slow.entered.wait(WAIT_S)
        bus.publish([recorded(2)])
        assert [quick.get(timeout=WAIT_S), quick.get(timeout=WAIT_S)] == [recorded(1), recorded(2)]
        assert slow.got == []
        slow.open()
        assert bus.flush(WAIT_S)
        assert slow.got == [recorded(1), recorded(2)]

    def test_a_handler_that_raises_is_counted_and_goes_on_getting_events(self, bus: EventBus) -> None:
        got: list[RecordedEvent] = []

        def fails_first(event: RecordedEvent) -> None:
            got.append(event)
            if event.position < 2:
                raise LookupError("no")

        subscription = bus.subscribe(fails_first)
        bus.publish([recorded(0), recorded(1), recorded(2)])
        assert bus.flush(WAIT_S)
        assert got == [recorded(0), recorded(1), recorded(2)]
        assert (subscription.failures, subscription.dropped) == (2, 0)

    def test_a_cancelled_handler_gets_nothing_more(self, bus: EventBus) -> None:
        gate = BlockedHandler()
        subscription = bus.subscribe(gate)
        bus.publish([recorded(1), recorded(2)])
        assert gate.entered.wait(WAIT_S)
        subscription.cancel()
        subscription.cancel()
        bus.publish([recorded(3)])
        gate.open()
        bus.close()
        assert gate.got in ([], [recorded(1)])  # the first was being handled and may still be

    def test_a_handler_may_cancel_itself(self, bus: EventBus) -> None:
        got: list[RecordedEvent] = []

        def once(event: RecordedEvent) -> None:
            got.append(event)
            subscriptions.get(timeout=WAIT_S).cancel()

        subscriptions = queue.SimpleQueue[Subscription]()
        subscriptions.put(bus.subscribe(once))
        bus.publish([recorded(1), recorded(2)])
        assert bus.flush(WAIT_S)
        bus.publish([recorded(3)])
        bus.close()
        assert got == [recorded(1)]

    def test_a_handler_may_publish(self, bus: EventBus) -> None:
        got = queue.SimpleQueue[RecordedEvent]()

        def echo(event: RecordedEvent) -> None:
            got.put(event)
            if event.position < 3:
                bus.publish([recorded(event.position + 1)])

        bus.subscribe(echo)
        bus.publish([recorded(1)])
        assert [got.get(timeout=WAIT_S) for _ in range(3)] == [recorded(1), recorded(2), recorded(3)]

    def test_history_is_filtered_and_oldest_first(self, bus: EventBus) -> None:
        a1, a2 = recorded(1, stream="a"), recorded(2, stream="a", type=EventType.NODE_FAILED)
        b3, b4 = recorded(3, stream="b"), recorded(4, stream="b", type=EventType.NODE_FAILED)
        bus.publish([a1, a2, b3])
        bus.publish([b4])
        assert bus.history() == (a1, a2, b3, b4)
        assert bus.history(stream="a") == (a1, a2)
        assert bus.history(types=[EventType.NODE_FAILED]) == (a2, b4)
        assert bus.history(stream="b", types=[EventType.NODE_FAILED]) == (b4,)
        assert bus.history(limit=2) == (b3, b4)
        assert bus.history(types=[EventType.NODE_FAILED], limit=1) == (b4,)
        assert bus.history(limit=0) == ()

    def test_history_remembers_at_most_the_last_thousand(self, bus: EventBus) -> None:
        bus.publish([recorded(position) for position in range(1_200)])
        assert [event.position for event in bus.history(limit=5_000)] == list(range(200, 1_200))

    def test_flush_says_when_the_time_was_not_enough(self, bus: EventBus) -> None:
        gate = BlockedHandler()
        bus.subscribe(gate)
        assert bus.flush(0.0)
        bus.publish([recorded(1)])
        assert not bus.flush(0.0)
        gate.open()
        assert bus.flush(WAIT_S)
        assert gate.got == [recorded(1)]

    def test_close_delivers_what_is_queued_and_then_nothing(self, bus: EventBus) -> None:
        gate = BlockedHandler()
        bus.subscribe(gate)
        events = [recorded(position) for position in range(20)]
        bus.publish(events)
        assert gate.entered.wait(WAIT_S)
        gate.open()
        bus.close()
        assert gate.got == events
        bus.publish([recorded(99)])
        bus.close()
        assert gate.got == events
        assert bus.history() == tuple(events)

    def test_a_subscription_after_close_is_harmless(self, bus: EventBus) -> None:
        got: list[RecordedEvent] = []
        bus.close()
        subscription = bus.subscribe(got.append)
        bus.publish([recorded(1)])
        assert bus.flush(WAIT_S)
        subscription.cancel()
        assert got == []

    def test_handlers_may_close_the_bus(self, bus: EventBus) -> None:
        both = threading.Barrier(2)
        done = queue.SimpleQueue[int]()

        def closer(event: RecordedEvent) -> None:
            both.wait(WAIT_S)  # both are inside their handlers: neither may wait for the other
            bus.close()
            done.put(event.position)

        bus.subscribe(closer)
        bus.subscribe(closer)
        bus.publish([recorded(1)])
        assert [done.get(timeout=WAIT_S), done.get(timeout=WAIT_S)] == [1, 1]

    def test_events_published_by_many_threads_reach_every_handler_in_one_order(self, bus: EventBus) -> None:
        first, second = list[RecordedEvent](), list[RecordedEvent]()
        bus.subscribe(first.append)
        bus.subscribe(second.append)

        def publish(number: int) -> None:
            for position in range(50):
                bus.publish([recorded(position, stream=str(number))])

        in_threads(publish)
        assert bus.flush(WAIT_S)
        assert first == second == list(bus.history())
        for number in range(8):
            assert [event.position for event in first if event.stream == str(number)] == list(range(50))


def in_threads(work: Callable[[int], None], count: int = 8) -> None:
    """Do the work in several threads that start at the same moment, and wait for all of them."""
    barrier = threading.Barrier(count)

    def body(number: int) -> None:
        barrier.wait(WAIT_S)
        work(number)

    threads = [threading.Thread(target=body, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
