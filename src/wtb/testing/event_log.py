"""The contract of EventLog: a subclass gives the fixtures `storage`, and `tamper` (see wtb.testing.damage)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone
from threading import Barrier
from typing import Any

import pytest

from wtb.domain.errors import DamagedData, InvalidInput
from wtb.domain.events import Event, EventType, RecordedEvent, Severity
from wtb.domain.ports import Clock, Ids, Storage
from wtb.testing.damage import Tamper
from wtb.testing.stories import Story, StoryFixtures

WAIT_S = 30.0


class EventLogContract(StoryFixtures):
    """What every event log does."""

    def test_what_is_recorded_is_what_is_listed(self, storage: Storage, story: Story) -> None:
        data = {"node": "work", "visit": 2, "nested": [1.5, None, True, {"ü\x00\ud800": ""}]}
        recorded = _append(storage, story.new_event(data=data), story.new_event(EventType.TOOL_FAILED))
        assert _list(storage) == list(recorded)
        assert recorded[0].data == data

    def test_recording_nothing_is_allowed(self, storage: Storage) -> None:
        assert _append(storage) == ()
        assert _list(storage) == []

    def test_a_time_is_a_moment_whatever_its_zone(self, storage: Storage, story: Story) -> None:
        at = story.execution.created_at.replace(microsecond=999_999).astimezone(timezone(timedelta(hours=9)))
        _append(storage, story.new_event(at=at))
        [listed] = _list(storage)
        assert listed.at == at
        assert listed.at.tzinfo is not None

    def test_positions_grow_over_the_log_and_sequences_count_each_stream(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        other = Story(storage, ids, clock)
        recorded = [
            *_append(storage, story.new_event(), other.new_event(), story.new_event()),
            *_append(storage, other.new_event()),
        ]
        assert [event.sequence for event in recorded] == [1, 1, 2, 2]
        positions = [event.position for event in recorded]
        assert positions == sorted(set(positions))
        assert positions[0] > 0
        assert _list(storage) == recorded

    def test_equal_events_have_different_hashes(self, storage: Storage, story: Story) -> None:
        event = story.new_event()
        hashes = {recorded.hash for recorded in _append(storage, event, event, event)}
        assert len(hashes) == 3

    def test_each_hash_covers_all_that_came_before_it(self, storage: Storage, story: Story) -> None:
        first, other, last = (story.new_event(data={"n": number}) for number in range(3))
        with storage.unit_of_work() as uow:
            as_it_was = tuple(uow.events.append(first, last))
        with storage.unit_of_work() as uow:
            as_it_is = tuple(uow.events.append(other, last))
        assert as_it_was[1].sequence == as_it_is[1].sequence
        assert as_it_was[1].hash != as_it_is[1].hash

    def test_an_undone_unit_leaves_no_trace_in_the_chain(self, storage: Storage, story: Story) -> None:
        events = [story.new_event(data={"n": number}) for number in range(3)]
        with storage.unit_of_work() as uow:
            undone = tuple(uow.events.append(*events))
        recorded = _append(storage, *events)
        assert [event.hash for event in recorded] == [event.hash for event in undone]
        assert _list(storage) == list(recorded)

    @pytest.mark.parametrize(
        "change",
        [{"data": {"n": 2}}, {"type": EventType.NODE_FAILED}, {"stream": "other"}, {"at": timedelta(microseconds=1)}],
        ids=lambda change: next(iter(change)),
    )
    def test_a_hash_covers_every_fact(self, storage: Storage, story: Story, change: dict[str, Any]) -> None:
        facts: dict[str, Any] = {"data": {"n": 1}, "at": story.execution.created_at}
        if "at" in change:
            change = {"at": facts["at"] + change["at"]}
        hashes = set()
        for given in (facts, facts | change):
            with storage.unit_of_work() as uow:
                hashes.add(uow.events.append(story.new_event(**given))[0].hash)
        assert len(hashes) == 2

    def test_filters_are_combined(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        types = (EventType.NODE_SKIPPED, EventType.NODE_FAILED, EventType.NODE_RETRIED)
        log = _append(storage, *[each.new_event(type) for each in (story, other) for type in types])
        assert _list(storage, stream=story.id) == list(log[:3])
        assert _list(storage, types=[EventType.NODE_FAILED]) == [log[1], log[4]]
        assert _list(storage, severities={Severity.ERROR, Severity.WARNING}, stream=other.id) == list(log[4:])
        assert _list(storage, severities=[Severity.INFO], types=[EventType.NODE_FAILED]) == []
        assert _list(storage, stream="no-such-stream") == []

    def test_a_reader_goes_on_from_where_it_was(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        log = _append(storage, *[(story, other)[number % 2].new_event() for number in range(11)])
        read: list[RecordedEvent] = []
        while page := _list(storage, after=read[-1].position if read else 0, limit=4):
            assert len(page) <= 4
            read += page
        assert read == list(log)
        assert _list(storage, stream=story.id, after=log[2].position, limit=2) == [log[4], log[6]]

    def test_a_reader_goes_back_from_the_end(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        log = _append(storage, *[(story, other)[number % 2].new_event() for number in range(11)])
        assert _list(storage, newest=True, limit=3) == list(log[-3:])
        assert _list(storage, newest=True, before=log[8].position, limit=3) == list(log[5:8])
        assert _list(storage, before=log[2].position) == list(log[:2])
        assert _list(storage, stream=other.id, newest=True, before=log[9].position, limit=2) == [log[5], log[7]]

    def test_a_page_of_a_stream_lies_between_two_numbers(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        other = Story(storage, ids, clock)
        log = _append(storage, *[each.new_event() for _ in range(6) for each in (story, other)])
        own = [event for event in log if event.stream == story.id]
        assert _page(storage, story.id) == own
        assert _page(storage, story.id, limit=2) == own[:2]
        assert _page(storage, story.id, after=2, limit=2) == own[2:4]
        assert _page(storage, story.id, after=1, before=4) == own[1:3]
        assert _page(storage, story.id, newest=True, limit=2) == own[4:]
        assert _page(storage, story.id, newest=True, before=5, limit=2) == own[2:4]
        assert _page(storage, story.id, newest=True, after=4, limit=9) == own[4:]
        assert _page(storage, "no-such-stream", newest=True) == []

    def test_numbers_of_a_stream_need_the_stream(self, storage: Storage) -> None:
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(InvalidInput, match="stream"):
            uow.events.list_events(by="sequence")

    def test_a_page_of_a_stream_holds_what_fits_its_filters(self, storage: Storage, story: Story) -> None:
        types = (EventType.NODE_SKIPPED, EventType.NODE_FAILED, EventType.NODE_RETRIED) * 2
        log = _append(storage, *[story.new_event(type) for type in types])
        assert _page(storage, story.id, newest=True, types=[EventType.NODE_SKIPPED], limit=1) == [log[3]]
        assert _page(storage, story.id, severities=[Severity.ERROR, Severity.WARNING], before=5) == [log[1], log[2]]

    def test_a_changed_event_is_found_in_the_page_that_holds_it(
        self, storage: Storage, story: Story, tamper: Tamper
    ) -> None:
        _, second = _append(storage, story.new_event(data={"x": "0ld-value"}), story.new_event())
        tamper(b"0ld-value", b"n3w-value")
        assert _page(storage, story.id, newest=True, limit=1) == [second]
        with pytest.raises(DamagedData, match=f"1.*{story.id}"):
            _page(storage, story.id, newest=True)

    def test_events_of_a_stream_are_counted_by_type(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        other = Story(storage, ids, clock)
        _append(storage, *[each.new_event(EventType.NODE_FAILED) for each in (story, story, other)], story.new_event())
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.events.count_types(story.id) == {EventType.NODE_FAILED: 2, EventType.NODE_COMPLETED: 1}
            assert uow.events.count_types("no-such-stream") == {}

    def test_what_is_done_to_the_data_afterwards_is_not_recorded(self, storage: Storage, story: Story) -> None:
        data = {"items": [1]}
        _append(storage, story.new_event(data=data))
        data["items"].append(2)
        assert _list(storage)[0].data == {"items": [1]}

    @pytest.mark.parametrize("value", [object(), float("nan"), b"bytes", {1, 2}], ids=["object", "nan", "bytes", "set"])
    def test_data_that_is_not_plain_is_refused_by_the_name_of_the_event(
        self, storage: Storage, story: Story, value: Any
    ) -> None:
        good = story.new_event(data={"n": 1})
        with storage.unit_of_work() as uow:
            with pytest.raises(InvalidInput, match=EventType.TOOL_FAILED.replace(".", r"\.")):
                uow.events.append(good, story.new_event(EventType.TOOL_FAILED, data={"x": value}))
            uow.events.append(good)
            uow.commit()
        assert [event.data for event in _list(storage)] == [{"n": 1}]

    def test_a_changed_event_is_found(self, storage: Storage, story: Story, tamper: Tamper) -> None:
        first, second = _append(storage, story.new_event(data={"x": "0ld-value"}), story.new_event())
        tamper(b"0ld-value", b"n3w-value")
        with pytest.raises(DamagedData, match=f"1.*{story.id}"):
            _list(storage)
        assert _list(storage, after=first.position) == [second]

    def test_a_changed_hash_is_found_in_the_event_behind_it_too(
        self, storage: Storage, story: Story, tamper: Tamper
    ) -> None:
        first, second, third = _append(storage, *[story.new_event() for _ in range(3)])
        tamper(first.hash, bytes(32))
        for position in (0, first.position):
            with pytest.raises(DamagedData, match=story.id):
                _list(storage, after=position)
        assert _list(storage, after=second.position) == [third]

    def test_writers_of_one_stream_take_turns(self, storage: Storage, story: Story) -> None:
        meet = Barrier(4)

        def write(writer: int) -> None:
            meet.wait(WAIT_S)
            for number in range(10):
                _append(storage, story.new_event(data={"writer": writer, "number": number}))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        log = _list(storage)
        assert [event.sequence for event in log] == list(range(1, 41))
        for writer in range(4):
            own = [event.data["number"] for event in log if event.data["writer"] == writer]
            assert own == list(range(10))


def _append(storage: Storage, *events: Event) -> tuple[RecordedEvent, ...]:
    with storage.unit_of_work() as uow:
        recorded = tuple(uow.events.append(*events))
        uow.commit()
    return recorded


def _list(storage: Storage, **filters: Any) -> list[RecordedEvent]:
    with storage.unit_of_work(readonly=True) as uow:
        listed: Sequence[RecordedEvent] = uow.events.list_events(**filters)
    return list(listed)


def _page(storage: Storage, stream: str, **bounds: Any) -> list[RecordedEvent]:
    with storage.unit_of_work(readonly=True) as uow:
        return list(uow.events.list_events(stream=stream, by="sequence", **bounds))
