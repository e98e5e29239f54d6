"""Machines that share a database may differ in time: the database's clock decides whether a lease has run out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wtb.application.node_cache import AttemptRef, Busy, NodeCache, SharedFailure
from wtb.application.runs.leases import LEASE
from wtb.bench import Bench
from wtb.domain.execution import ExecutionStatus, Failure
from wtb.domain.integrity import FaultKind
from wtb.flow import Workflow
from wtb.runs import Run
from wtb.testing.fakes import FakeClock

DAY = timedelta(days=1)
KEY = b"a node with its input"


@pytest.fixture(params=[DAY, -DAY], ids=["a day ahead", "a day behind"])
def clock(request: pytest.FixtureRequest) -> FakeClock:
    """The clock of this machine, which is wrong."""
    return FakeClock(datetime.now(UTC) + request.param)


@pytest.fixture
def bench(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Bench]:
    monkeypatch.setattr("wtb.bootstrap.SystemClock", lambda: clock)
    url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))
    with Bench(url, folder=tmp_path / "wtb") as opened:
        yield opened


class Elsewhere:
    """The name of a process on another machine; nobody sees from one machine to the other."""

    def __init__(self, name: str) -> None:
        self._name = name

    def me(self) -> str:
        return self._name

    def is_gone(self, owner: str) -> bool | None:
        return False if owner == self._name else None


def run_elsewhere(bench: Bench, since: timedelta) -> Run:
    """Return a run whose process, on another machine, was last heard of this long ago."""
    flow = Workflow("counting")
    flow.add_node("count", lambda state: {"n": 1}, start=True)
    run = bench.create(flow, {})
    with bench.services.storage.unit_of_work() as uow:
        now = uow.now() - since
        execution = uow.executions.get(run.id).moved_to(ExecutionStatus.RUNNING, now)
        uow.executions.save(execution.owned("elsewhere/7/1", now, LEASE))
        uow.commit()
    return run


def abandoned(bench: Bench) -> list[str]:
    return [fault.what for fault in bench.services.integrity.check().faults if fault.kind is FaultKind.ABANDONED_RUN]


def test_a_live_run_of_another_machine_is_neither_called_abandoned_nor_paused_by_a_repair(bench: Bench) -> None:
    run = run_elsewhere(bench, timedelta())
    assert (abandoned(bench), bench.neglect(run.execution)) == ([], None)
    bench.services.integrity.repair()
    run.pause()  # a request, which its process finds
    assert run.status is ExecutionStatus.RUNNING


def test_a_run_whose_machine_is_silent_is_called_abandoned(bench: Bench) -> None:
    run = run_elsewhere(bench, timedelta(hours=2))
    assert abandoned(bench) == [run.id]
    assert bench.neglect(run.execution) is not None


def caches(bench: Bench, clock: FakeClock) -> tuple[NodeCache, NodeCache]:
    """Return the cache of this machine, whose clock is wrong, and of another, whose clock is right."""
    storage, right = bench.services.storage, FakeClock(datetime.now(UTC))
    return NodeCache(storage, clock, Elsewhere("here/1/1")), NodeCache(storage, right, Elsewhere("there/1/1"))


def claim(cache: NodeCache, go: AttemptRef) -> Any:
    return cache.claim(KEY, go, {}, lambda result: True)


def a_go(bench: Bench, id: str) -> AttemptRef:
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        return AttemptRef(id=id, began_at=uow.now())


def test_a_node_that_another_machine_is_making_is_not_made_a_second_time(bench: Bench, clock: FakeClock) -> None:
    for maker, other in (caches(bench, clock), caches(bench, clock)[::-1]):
        go = a_go(bench, "one")
        assert claim(maker, go) is None
        assert isinstance(claim(other, a_go(bench, "two")), Busy)
        maker.release(KEY)


def test_a_claim_goes_on_being_kept_when_the_clock_is_set_back(bench: Bench, clock: FakeClock) -> None:
    maker, _ = caches(bench, clock)
    assert claim(maker, a_go(bench, "one")) is None

    def expires_at() -> datetime:
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            found = uow.cache.find(KEY)
        assert found is not None
        return found.expires_at

    before = expires_at()
    clock.advance(-timedelta(hours=1))
    maker.keep_claims()
    assert expires_at() > before


def test_a_failure_counts_in_a_go_that_began_before_it_and_in_no_later_one(bench: Bench, clock: FakeClock) -> None:
    for maker, other in (caches(bench, clock), caches(bench, clock)[::-1]):
        during = a_go(bench, "during")
        own = a_go(bench, "own")
        assert claim(maker, own) is None
        maker.settle_now(KEY, own, SharedFailure(failure=Failure(type="OSError", message="no")))
        assert isinstance(claim(other, during), SharedFailure)
        assert claim(other, a_go(bench, "later")) is None
        other.release(KEY)
