"""LiveFeed: clients catch up from the store and join the tail, without a gap and without a double."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from wtb.application.server.feed import FeedClient, LiveFeed
from wtb.domain.errors import CursorGone, ReaderTooSlow, ServerStopping
from wtb.domain.events import Event, EventType
from wtb.domain.feed import EVERY_EVENT, START, EventFilter, FedEvent, FeedCursor
from wtb.domain.ports import EventBus, Storage

WAIT_S = 30.0


@pytest.fixture
def feed(storage: Storage, bus: EventBus) -> Iterator[LiveFeed]:
    feed = LiveFeed(storage, bus, page_size=7)
    yield feed
    feed.close()


def record(storage: Storage, stream: str, count: int, type: EventType = EventType.NODE_LOGGED) -> None:
    with storage.unit_of_work() as uow:
        uow.events.append(*[Event(type=type, stream=stream, at=datetime.now(UTC)) for _ in range(count)])
        uow.commit()


class Reader:
    """Takes events in the test's own thread, and waits for them."""

    def __init__(self, feed: LiveFeed, since: FeedCursor = START, wanted: EventFilter = EVERY_EVENT) -> None:
        self._woken = threading.Event()
        self.client: FeedClient = feed.follow(since, wanted, self._woken.set)
        self.seen: list[FedEvent] = []

    def take(self, count: int) -> list[int]:
        """Take at least so many events; return the positions of all so far."""
        end = time.monotonic() + WAIT_S
        while len(self.seen) < count:
            assert time.monotonic() < end
            self._woken.clear()
            if not self.step() and not self.client.is_behind:
                self._woken.wait(1)
        return [fed.event.position for fed in self.seen]

    def step(self) -> list[FedEvent]:
        taken = self.client.take()
        self.seen += taken
        return taken

    def catch_up(self) -> None:
        while self.client.is_behind:
            self.step()


def positions(storage: Storage) -> list[int]:
    with storage.unit_of_work(readonly=True) as uow:
        return [fed.event.position for fed in uow.feed.read(START, limit=100_000).events]


def test_a_client_gets_the_past_and_then_what_comes(feed: LiveFeed, storage: Storage) -> None:
    record(storage, "a", 20)
    reader = Reader(feed)
    assert reader.take(20) == positions(storage)
    record(storage, "b", 3)
    assert reader.take(23) == positions(storage)
    assert reader.client.cursor == feed.end()


def test_clients_that_come_and_go_while_others_write_miss_nothing(feed: LiveFeed, storage: Storage) -> None:
    choose = random.Random(7)
    done = threading.Event()

    def write(stream: str) -> None:
        for number in range(40):
            record(storage, stream, 1 + number % 4)

    writers = [threading.Thread(target=write, args=(stream,)) for stream in "abc"]
    results: list[list[int]] = []

    def follow(seed: int) -> None:
        mine, cursor, choice = list[int](), START, random.Random(seed)
        while True:
            finished = done.is_set()
            reader = Reader(feed, FeedCursor.parse(str(cursor)))
            for _ in range(choice.randint(1, 30)):
                reader.step()
                time.sleep(choice.random() / 500)
            if finished:
                reader.catch_up()
                while reader.client.cursor != feed.end():
                    reader.step()
            reader.client.close()
            mine += [fed.event.position for fed in reader.seen]
            cursor = reader.seen[-1].cursor if reader.seen else cursor
            if finished:
                results.append(mine)
                return

    readers = [threading.Thread(target=follow, args=(choose.random(),)) for _ in range(4)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join(WAIT_S)
    done.set()
    for thread in readers:
        thread.join(WAIT_S)
    assert len(results) == 4
    assert all(result == positions(storage) for result in results)


def test_a_filtered_client_gets_what_fits_and_its_cursor_passes_the_rest(feed: LiveFeed, storage: Storage) -> None:
    wanted = EventFilter.of([EventType.NODE_FAILED], streams=["a"])
    reader = Reader(feed, wanted=wanted)
    reader.catch_up()
    record(storage, "a", 5)
    record(storage, "b", 5, EventType.NODE_FAILED)
    record(storage, "a", 1, EventType.NODE_FAILED)
    record(storage, "b", 1)
    assert [fed.event.stream for fed in reader.seen] == []
    reader.take(1)
    assert [(fed.event.stream, fed.event.type) for fed in reader.seen] == [("a", EventType.NODE_FAILED)]
    end = time.monotonic() + WAIT_S
    while reader.client.cursor != feed.end() and time.monotonic() < end:
        assert reader.step() == []
        time.sleep(0.01)
    assert reader.client.cursor == feed.end()


def test_a_slow_client_is_dropped_with_a_reason_and_can_come_again(storage: Storage, bus: EventBus) -> None:
    feed = LiveFeed(storage, bus, queue_size=50, page_size=20)
    slow, quick = Reader(feed), Reader(feed)
    slow.catch_up()
    quick.catch_up()
    record(storage, "a", 1)
    slow.take(1)
    for number in range(60):
        record(storage, "a", 1)
        quick.take(2 + number)
    with pytest.raises(ReaderTooSlow, match="from your last cursor"):
        slow.take(100)
    assert feed.status().dropped == 1
    again = Reader(feed, slow.client.cursor)
    again.take(60)
    assert [fed.event.position for fed in slow.seen + again.seen] == positions(storage)
    feed.close()


def test_closing_tells_every_client(feed: LiveFeed, storage: Storage) -> None:
    reader = Reader(feed)
    reader.catch_up()
    feed.close()
    with pytest.raises(ServerStopping):
        reader.take(1)
    with pytest.raises(ServerStopping):
        Reader(feed).take(1)


def test_a_cursor_of_another_store_is_gone(feed: LiveFeed, storage: Storage) -> None:
    record(storage, "a", 1)
    with pytest.raises(CursorGone):
        Reader(feed, FeedCursor.after(1, b"another!")).take(1)


def test_nobody_polls_while_nobody_follows(feed: LiveFeed, storage: Storage) -> None:
    reader = Reader(feed)
    reader.catch_up()
    reader.client.close()
    assert feed.status().clients == 0
    record(storage, "a", 3)
    again = Reader(feed, reader.client.cursor)
    assert again.take(3) == positions(storage)
