"""The contract of EventFeed: a subclass gives the fixtures `storage`, and `tamper` (see wtb.testing.damage)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from threading import Barrier, Event

import pytest

from wtb.domain.errors import CursorGone
from wtb.domain.events import EventType, RecordedEvent, Severity
from wtb.domain.feed import EVERY_EVENT, START, EventFilter, FedEvent, FeedCursor, FeedPage
from wtb.domain.ports import Clock, Ids, Storage
from wtb.testing.damage import Tamper
from wtb.testing.stories import Story, StoryFixtures

WAIT_S = 30.0


class EventFeedContract(StoryFixtures):
    """What every feed does."""

    def test_a_new_feed_is_empty_and_ends_where_it_starts(self, storage: Storage) -> None:
        page = _read(storage, START)
        assert (page.events, page.cursor, page.is_last) == ((), START, True)
        assert _end(storage) == START

    def test_every_event_is_read_once_in_order_by_pages_of_any_size(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        other = Story(storage, ids, clock)
        log = [event for number in range(7) for event in _append(storage, (story, other)[number % 2], number % 3)]
        for limit in (1, 2, 3, len(log), 100):
            assert [fed.event for fed in _each(storage, limit=limit)] == log

    def test_every_event_has_the_cursor_from_which_a_reader_goes_on(self, storage: Storage, story: Story) -> None:
        log = _append(storage, story, 5)
        for index, fed in enumerate(_each(storage)):
            kept = FeedCursor.parse(str(fed.cursor))
            assert [after.event for after in _each(storage, kept)] == log[index + 1 :]

    def test_cursors_sort_like_the_events(self, storage: Storage, story: Story) -> None:
        for _ in range(4):
            _append(storage, story, 2)
        cursors = [START, *(fed.cursor for fed in _each(storage))]
        assert all(one.order < other.order for one, other in pairwise(cursors))
        assert cursors[-1] == _end(storage)

    def test_whoever_begins_now_gets_only_what_comes(self, storage: Storage, story: Story) -> None:
        _append(storage, story, 3)
        now = _end(storage)
        assert _read(storage, now).events == ()
        later = _append(storage, story, 2)
        assert [fed.event for fed in _each(storage, now)] == later

    def test_events_of_an_open_or_undone_unit_are_not_in_the_feed(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            tuple(uow.events.append(story.new_event()))
            assert _read(storage, START).events == ()
        log = _append(storage, story, 1)
        assert [fed.event for fed in _each(storage)] == log

    def test_filters_are_combined_and_the_cursor_passes_what_does_not_fit(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        other = Story(storage, ids, clock)
        types = (EventType.NODE_SKIPPED, EventType.NODE_FAILED, EventType.NODE_RETRIED)
        with storage.unit_of_work() as uow:
            log = tuple(uow.events.append(*[each.new_event(type) for each in (story, other) for type in types]))
            uow.commit()
        end = _end(storage)
        for wanted, fitting in (
            (EventFilter.of(streams=[story.id]), log[:3]),
            (EventFilter.of(streams=[story.id, other.id]), log),
            (EventFilter.of([EventType.NODE_FAILED]), (log[1], log[4])),
            (EventFilter.of((), [Severity.ERROR, Severity.WARNING], [other.id]), log[4:]),
            (EventFilter.of([EventType.NODE_FAILED], [Severity.INFO]), ()),
            (EventFilter.of(streams=["no-such-stream"]), ()),
        ):
            page = _read(storage, START, wanted)
            assert tuple(fed.event for fed in page.events) == fitting
            assert (page.cursor, page.is_last) == (end, True)
            assert tuple(fed.event for fed in _each(storage, wanted=wanted, limit=1)) == fitting
            assert all(wanted.fits(event) == (event in fitting) for event in log)

    def test_a_cursor_that_does_not_fit_what_is_stored_is_gone(self, storage: Storage, story: Story) -> None:
        _append(storage, story, 2)
        fed = next(_each(storage))
        for change in (
            {"hash": bytes(8)},
            {"position": fed.cursor.position + 100},
            {"xid": fed.cursor.xid + 1},
            {"source": "00"},
        ):
            with pytest.raises(CursorGone, match="start"):
                _read(storage, replace(fed.cursor, **change))

    @pytest.mark.parametrize("text", ["", "x", "ü", "MC4w", "*" * 500, "LS0"])
    def test_a_text_that_is_no_cursor_is_gone(self, text: str) -> None:
        with pytest.raises(CursorGone, match="cursor"):
            FeedCursor.parse(text)

    def test_a_damaged_event_is_passed_over_and_named(self, storage: Storage, story: Story, tamper: Tamper) -> None:
        with storage.unit_of_work() as uow:
            uow.events.append(story.new_event(data={"x": "0ld-value"}))
            uow.commit()
        [sound] = _append(storage, story, 1)
        tamper(b"0ld-value", b"n3w-value")
        page = _read(storage, START)
        assert [fed.event for fed in page.events] == [sound]
        assert story.id in page.damaged[0]
        assert _read(storage, START, limit=1).cursor != START

    def test_nothing_holds_a_feed_at_rest_and_nothing_was_restored(self, storage: Storage, story: Story) -> None:
        _append(storage, story, 1)
        with storage.unit_of_work() as uow:
            assert uow.feed.rank_restored() == 0
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.feed.find_hold() is None

    def test_a_reader_beside_writers_misses_nothing_and_gets_nothing_twice(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        stories = [story, *(Story(storage, ids, clock) for _ in range(2))]
        meet, done = Barrier(4), Event()

        def write(writer: int) -> list[RecordedEvent]:
            meet.wait(WAIT_S)
            return [
                event
                for number in range(12)
                for event in _append(storage, stories[(writer + number) % 3], 1 + number % 3)
            ]

        def follow() -> list[RecordedEvent]:
            cursor, seen, is_last = START, list[RecordedEvent](), False
            meet.wait(WAIT_S)
            while not (is_last and done.is_set()):
                is_last = done.is_set()  # one more page after the last commit
                page = _read(storage, cursor, limit=5)
                seen += [fed.event for fed in page.events]
                cursor, is_last = page.cursor, is_last and page.is_last
            return seen

        with ThreadPoolExecutor(4) as pool:
            reader = pool.submit(follow)
            written = [event for events in pool.map(write, range(3)) for event in events]
            done.set()
            seen = reader.result(WAIT_S)
        assert sorted(event.position for event in seen) == sorted(event.position for event in written)
        for each in stories:
            own = [event.sequence for event in seen if event.stream == each.id]
            assert own == list(range(1, len(own) + 1))


def _append(storage: Storage, story: Story, count: int) -> list[RecordedEvent]:
    with storage.unit_of_work() as uow:
        recorded = list(uow.events.append(*[story.new_event() for _ in range(count)]))
        uow.commit()
    return recorded


def _read(storage: Storage, after: FeedCursor, wanted: EventFilter = EVERY_EVENT, limit: int = 500) -> FeedPage:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.feed.read(after, wanted=wanted, limit=limit)


def _each(
    storage: Storage, after: FeedCursor = START, wanted: EventFilter = EVERY_EVENT, limit: int = 500
) -> Iterator[FedEvent]:
    is_last = False
    while not is_last:
        page = _read(storage, after, wanted, limit)
        assert len(page.events) <= limit
        yield from page.events
        after, is_last = page.cursor, page.is_last


def _end(storage: Storage) -> FeedCursor:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.feed.end()
