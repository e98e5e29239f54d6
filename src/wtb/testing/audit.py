"""The contract of AuditTrail: a subclass gives the fixtures `storage`, and `tamper` (see wtb.testing.damage)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from wtb.domain.audit import ALL_TIME, AuditFilter, Period
from wtb.domain.events import EventType, RecordedEvent, Severity
from wtb.domain.feed import EventFilter
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.job_origin import JobOrigin, of_fork
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.tools import CallKind, Effects, ToolCall
from wtb.testing.damage import Tamper
from wtb.testing.stories import Story, StoryFixtures


class AuditTrailContract(StoryFixtures):
    """What every audit trail does."""

    def test_pages_go_from_the_newest_event_to_the_oldest(self, storage: Storage, story: Story) -> None:
        log = [_append(storage, story, by="ada") for _ in range(5)]
        found, before = list[RecordedEvent](), None
        while True:
            with storage.unit_of_work(readonly=True) as uow:
                page = uow.audit.list_events(AuditFilter(), before=before, limit=2)
            assert len(page.events) <= 2
            found += page.events
            before = page.before
            if before is None:
                break
        assert found == log[::-1]

    def test_filters_are_combined(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        start = story.execution.created_at
        log = [
            _append(storage, story, by="ada", at=start),
            _append(storage, story, text='"by":"ada"', at=start),
            _append(storage, other, EventType.TOOL_FAILED, nested={"by": "ada"}, at=start + timedelta(seconds=1)),
            _append(storage, other, EventType.NODE_FAILED, by='ü"\x00', at=start + timedelta(seconds=2)),
        ]
        second = Period(since=start + timedelta(seconds=1), until=start + timedelta(seconds=2))
        for wanted, fitting in (
            (AuditFilter(), log),
            (AuditFilter(is_named=True), [log[0], log[3]]),
            (AuditFilter(by="ada"), [log[0]]),
            (AuditFilter(by='ü"\x00'), [log[3]]),
            (AuditFilter(by="nobody"), []),
            (AuditFilter(period=second), [log[2]]),
            (AuditFilter(wanted=EventFilter.of(streams=[other.id]), is_named=True), [log[3]]),
            (AuditFilter(wanted=EventFilter.of([EventType.TOOL_FAILED])), [log[2]]),
            (AuditFilter(wanted=EventFilter.of((), [Severity.ERROR]), by="ada"), []),
        ):
            with storage.unit_of_work(readonly=True) as uow:
                assert list(uow.audit.list_events(wanted, limit=100).events) == fitting[::-1]

    def test_runs_that_batches_made_are_left_out(self, storage: Storage, story: Story) -> None:
        job = JobOrigin(batch_id="b", combination="c", case_id="1", repeat=0).to_data()
        log = list[RecordedEvent]()
        with storage.unit_of_work() as uow:
            for id, metadata in (("job", job), ("fork", of_fork(job)), ("alone", {})):
                uow.executions.add(story.new_execution(id=ExecutionId(id), metadata=metadata))
                log += uow.events.append(story.new_event(stream=id, data={"by": "ada"}))
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            pages = [uow.audit.list_events(AuditFilter(without_batch_runs=out), limit=10) for out in (False, True)]
        assert [list(page.events) for page in pages] == [log[::-1], log[:0:-1]]

    def test_events_are_counted_by_type_and_by_who_caused_them(self, storage: Storage, story: Story) -> None:
        start = story.execution.created_at
        for number, who in enumerate(("ada", "ada", "bob")):
            _append(storage, story, by=who, at=start + timedelta(seconds=number))
        _append(storage, story, EventType.NODE_FAILED, text='"by":"eve"', at=start + timedelta(seconds=3))
        with storage.unit_of_work(readonly=True) as uow:
            counts, later = uow.audit.count(), uow.audit.count(Period(since=start + timedelta(seconds=2)))
        assert counts.types == {EventType.NODE_COMPLETED: 3, EventType.NODE_FAILED: 1}
        assert counts.severities == {Severity.INFO: 3, Severity.ERROR: 1}
        assert counts.people == {"ada": 2, "bob": 1}
        assert later.people == {"bob": 1}

    def test_the_use_of_tools_is_summed_over_all_runs(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        other = Story(storage, ids, clock)
        start = story.execution.created_at
        with storage.unit_of_work() as uow:
            first = _call(story, "search", "a", start)
            uow.tool_calls.save(first.succeeded(1, start + timedelta(seconds=2)))
            uow.tool_calls.save(_call(other, "search", "a", start).failed("no", start + timedelta(seconds=4)))
            uow.tool_calls.save(_call(other, "search", "b", start))
            uow.tool_calls.save(_call(other, "book", "c", start + timedelta(hours=1)))
            uow.tool_calls.save(_call(other, "a step", "d", start, kind=CallKind.STEP))
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            book, search = uow.audit.tool_use(ALL_TIME)
            assert uow.audit.tool_use(Period(until=start + timedelta(minutes=1))) == (search,)
        assert (search.tool, search.calls, search.failures, search.runs) == ("search", 3, 1, 2)
        assert (search.total, search.longest, search.mean) == (
            timedelta(seconds=6),
            timedelta(seconds=4),
            timedelta(seconds=3),
        )
        assert (book.calls, book.mean) == (1, timedelta())

    def test_a_sound_chain_is_checked_in_pieces(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        for _ in range(3):
            _append(storage, story)
            _append(storage, other)
        for stream, count in ((None, 6), (story.id, 3), ("no-such-stream", 0)):
            checked, after = 0, 0
            while True:
                with storage.unit_of_work(readonly=True) as uow:
                    check = uow.audit.check_chain(stream, after=after, limit=2)
                checked += check.checked
                assert check.faults == ()
                if check.after is None:
                    break
                after = check.after
            assert checked == count

    def test_damage_is_named_and_does_not_hide_the_rest(self, storage: Storage, story: Story, tamper: Tamper) -> None:
        _append(storage, story, x="0ld-value", by="ada")
        sound = _append(storage, story, by="ada")
        tamper(b"0ld-value", b"n3w-value")
        with storage.unit_of_work(readonly=True) as uow:
            for stream in (None, story.id):
                check = uow.audit.check_chain(stream, limit=100)
                assert (check.checked, len(check.faults)) == (2, 1)
                assert story.id in check.faults[0]
            page = uow.audit.list_events(AuditFilter(by="ada"), limit=10)
        assert page.events == (sound,)
        assert story.id in page.faults[0]


def _append(
    storage: Storage,
    story: Story,
    type: EventType = EventType.NODE_COMPLETED,
    at: datetime | None = None,
    **data: Any,
) -> RecordedEvent:
    given = {} if at is None else {"at": at}
    with storage.unit_of_work() as uow:
        recorded = uow.events.append(story.new_event(type, data=data, **given))[0]
        uow.commit()
    return recorded


def _call(story: Story, tool: str, key: str, at: datetime, kind: CallKind = CallKind.TOOL) -> ToolCall:
    return ToolCall(
        execution_id=story.id,
        node_run_id=NodeRunId(f"run-{story.id}"),
        identity=f"{tool}:{key}",
        sequence=1,
        kind=kind,
        tool=tool,
        effects=Effects.EXTERNAL,
        arguments={},
        started_at=at,
    )
