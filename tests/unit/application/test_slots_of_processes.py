"""Limits between processes: slots of those that are gone come back, all get their share, and all share a breaker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

import wtb
from wtb.application.limits import LEASE, MARK_LEASE, HeldSlot, Limits
from wtb.bootstrap import Services, bootstrap
from wtb.domain.errors import StorageUnavailable
from wtb.domain.limit_slots import LimitSlot
from wtb.domain.limits import CallEnd, Limit
from wtb.domain.ports import UnitOfWork
from wtb.infrastructure.memory.repositories import MemoryEventLog
from wtb.settings import Settings
from wtb.testing.fakes import FakeClock


class Processes:
    """Processes by name, some of which have ended; those of other machines cannot be seen."""

    def __init__(self, me: str, gone: set[str]) -> None:
        self._me = me
        self._gone = gone

    def me(self) -> str:
        return self._me

    def is_gone(self, owner: str) -> bool | None:
        return None if owner.startswith("far") else owner in self._gone


class NoSlot(Exception):
    """There was no slot at the first look."""


def give_up() -> None:
    raise NoSlot


class Office:
    """Several processes that share one store."""

    def __init__(self, services: Services, clock: FakeClock) -> None:
        self.storage = services.storage
        self.clock = clock
        self.gone: set[str] = set()
        self._services = services
        self._limits: dict[str, Limits] = {}

    def limits(self, process: str) -> Limits:
        known = Processes(process, self.gone)
        made = Limits(self.storage, self.clock, self._services.ids, known, self._services.masker)
        return self._limits.setdefault(process, made)

    def take(self, process: str, limit: Limit) -> HeldSlot:
        return self.limits(process).take("batch", "openai", limit, give_up)

    def end(self, process: str, held: HeldSlot, end: CallEnd = CallEnd.SUCCEEDED) -> None:
        self.limits(process).end(held, end, TimeoutError("too slow"))

    def slots(self) -> list[LimitSlot]:
        with self.storage.unit_of_work(readonly=True) as uow:
            return list(uow.limits.list_slots("batch", "openai"))

    def holders(self) -> list[str]:
        return sorted(slot.owner for slot in self.slots() if not slot.waiting)

    def events(self) -> list[str]:
        with self.storage.unit_of_work(readonly=True) as uow:
            return [event.type.value for event in uow.events.list_events(stream="batch")]

    def close(self) -> None:
        for each in self._limits.values():
            each.close()


@pytest.fixture
def office() -> Iterator[Office]:
    clock = FakeClock()
    with bootstrap(Settings(url="memory://"), clock=clock) as services:
        office = Office(services, clock)
        yield office
        office.close()


ONE = Limit(1)


def test_a_slot_is_held_until_it_is_given_back(office: Office) -> None:
    held = office.take("a", ONE)
    with pytest.raises(NoSlot):
        office.take("b", ONE)
    office.end("a", held)
    office.take("b", ONE)
    assert office.holders() == ["b"]


def test_the_slot_of_a_process_that_has_ended_comes_back_at_once(office: Office) -> None:
    office.take("a", ONE)
    office.gone.add("a")
    office.take("b", ONE)
    assert office.holders() == ["b"]


def test_the_slot_of_a_silent_process_elsewhere_comes_back_after_its_lease(office: Office) -> None:
    office.take("far", ONE)
    office.clock.advance(LEASE - timedelta(seconds=1))
    with pytest.raises(NoSlot):
        office.take("b", ONE)
    office.clock.advance(timedelta(seconds=1))
    office.take("b", ONE)
    assert office.holders() == ["b"]


def test_a_call_that_takes_longer_than_the_lease_keeps_its_slot(office: Office) -> None:
    held = office.take("far", ONE)
    office.clock.advance(LEASE - timedelta(seconds=1))
    office.limits("far")._renew([held.slot.id])
    office.clock.advance(timedelta(seconds=30))
    with pytest.raises(NoSlot):
        office.take("b", ONE)


def test_a_process_that_waits_gets_the_next_slot_before_the_one_that_had_the_last(office: Office) -> None:
    held = office.take("a", ONE)
    with pytest.raises(NoSlot):
        office.take("b", ONE)
    office.end("a", held)
    with pytest.raises(NoSlot):
        office.take("a", ONE)
    office.take("b", ONE)


def test_a_process_that_waited_and_is_gone_holds_up_nobody_for_long(office: Office) -> None:
    held = office.take("a", ONE)
    with pytest.raises(NoSlot):
        office.take("b", ONE)
    office.end("a", held)
    office.clock.advance(MARK_LEASE)
    office.take("a", ONE)
    assert office.holders() == ["a"]


def test_marks_of_processes_that_no_longer_wait_are_removed(office: Office) -> None:
    held = office.take("a", ONE)
    with pytest.raises(NoSlot):
        office.take("b", ONE)
    assert [slot.waiting for slot in office.slots() if slot.owner == "b"] == [1]
    office.end("a", held)
    office.end("b", office.take("b", ONE))
    assert office.slots() == []


def test_all_processes_share_a_width_that_adapts(office: Office) -> None:
    limit = Limit(8, adaptive=True, start=4)
    office.end("a", office.take("a", limit), CallEnd.OVERLOADED)
    held = [office.take("b", limit), office.take("b", limit)]
    with pytest.raises(NoSlot):
        office.take("b", limit)
    for each in held:
        office.end("b", each)
    assert office.events() == ["limit.changed"]


def test_a_breaker_opens_for_all_processes_and_one_call_is_tried(office: Office) -> None:
    limit = Limit(8, break_after=2, cool_down_s=30)
    for process in "ab":
        office.end(process, office.take(process, limit), CallEnd.OVERLOADED)
    with pytest.raises(wtb.CircuitOpen):
        office.take("c", limit)
    office.clock.advance(timedelta(seconds=30))
    trial = office.take("c", limit)
    with pytest.raises(wtb.CircuitOpen):
        office.take("a", limit)
    office.end("c", trial)
    office.take("a", limit)
    assert office.events() == ["breaker.opened", "breaker.closed"]


def test_a_service_that_stays_away_opens_its_breaker_once(office: Office) -> None:
    limit = Limit(8, break_after=1, cool_down_s=30)
    for _ in range(5):
        office.end("a", office.take("a", limit), CallEnd.OVERLOADED)
        office.clock.advance(timedelta(seconds=30))
    assert office.events() == ["breaker.opened"]


def test_a_slot_that_cannot_be_given_back_expires_and_the_call_keeps_its_result(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = office.take("far", ONE)
    with monkeypatch.context() as broken:
        broken.setattr(type(office.storage), "unit_of_work", _away)
        office.end("far", held)
    assert "could not be given back, and expires" in caplog.text
    office.clock.advance(LEASE)
    office.take("b", ONE)


def test_a_call_whose_end_cannot_be_stored_still_gives_its_slot_back(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit(1, break_after=1)
    held = office.take("a", limit)
    with monkeypatch.context() as broken:
        broken.setattr(MemoryEventLog, "append", _away)
        office.end("a", held, CallEnd.OVERLOADED)
    assert office.slots() == []


def _away(*args: object, **options: object) -> UnitOfWork:
    raise StorageUnavailable("the database is away")


def test_what_waits_further_back_in_line_gives_up_when_its_check_says_so(office: Office) -> None:
    checks: list[str] = []

    def check(then: Callable[[], None]) -> Callable[[], None]:
        def look() -> None:
            checks.append("looked")
            if len(checks) > 3:
                then()

        return look

    office.take("a", ONE)
    with pytest.raises(NoSlot):
        office.limits("a").take("batch", "openai", ONE, check(give_up))
    assert len(checks) == 4
