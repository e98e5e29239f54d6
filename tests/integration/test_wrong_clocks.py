"""A clock that is set back in the middle of a run does not change what a rollback takes back, nor its order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.application.runs.leases import LEASE
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.bench import Bench
from wtb.domain.checkpoint import NodeStatus
from wtb.domain.errors import Conflict
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.integrity import FaultKind
from wtb.flow import Workflow
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.testing.fakes import FakeClock

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Bench]:
    """A bench over each storage in turn, whose clock is ours."""
    url = {"memory": "memory://", "sqlite": None}.get(request.param)
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))
    with Bench(url, folder=tmp_path / "wtb") as opened:
        assert opened.services.clock is clock
        yield opened


class Seats:
    """Reservations, and the order in which they were taken back."""

    def __init__(self) -> None:
        self.reserved: list[str] = []
        self.undone: list[str] = []

        @wtb.tool(name="reserve", reverse=self.cancel)
        def reserve(seat: str) -> str:
            self.reserved.append(seat)
            return seat

        self.reserve = reserve

    def cancel(self, call: Any) -> None:
        self.undone.append(call.arguments["seat"])


def test_calls_behind_a_checkpoint_in_a_node_are_taken_back_though_the_clock_was_set_back(
    bench: Bench, clock: FakeClock
) -> None:
    seats = Seats()

    def book(state: Any, ctx: Any) -> None:
        ctx.tool(seats.reserve, seat="before")
        ctx.checkpoint("mid")
        clock.advance(-HOUR)
        ctx.tool(seats.reserve, seat="after")

    flow = Workflow("booking")
    flow.add_node("book", book, start=True)
    run = bench.run(flow, {})
    run.rollback("mid")
    assert seats.undone == ["after"]
    run = run.resume()
    assert (run.status, seats.reserved) == (ExecutionStatus.COMPLETED, ["before", "after", "after"])
    run.rollback(0)
    assert seats.undone == ["after", "after", "before"]


def test_a_call_before_a_checkpoint_is_kept_though_the_clock_was_set_back(bench: Bench, clock: FakeClock) -> None:
    seats = Seats()

    def book(state: Any, ctx: Any) -> None:
        ctx.tool(seats.reserve, seat="before")
        clock.advance(-HOUR)
        ctx.checkpoint("mid")
        ctx.tool(seats.reserve, seat="after")

    flow = Workflow("booking")
    flow.add_node("book", book, start=True)
    run = bench.run(flow, {})
    run.rollback("mid")
    assert (seats.undone, run.resume().status) == (["after"], ExecutionStatus.COMPLETED)
    assert seats.reserved == ["before", "after", "after"]


def test_calls_of_several_nodes_are_taken_back_last_first_though_the_clock_was_set_back(
    bench: Bench, clock: FakeClock
) -> None:
    seats = Seats()

    def booking(name: str) -> Any:
        def book(state: Any, ctx: Any) -> None:
            ctx.tool(seats.reserve, seat=f"{name}-1")
            clock.advance(-HOUR)
            ctx.tool(seats.reserve, seat=f"{name}-2")

        return book

    flow = Workflow("booking")
    flow.add_node("first", booking("first"), start=True)
    flow.add_node("second", booking("second"))
    flow.edge("first", "second")
    run = bench.run(flow, {})
    run.rollback(0)
    assert seats.undone == ["second-2", "second-1", "first-2", "first-1"]


def test_calls_of_siblings_are_taken_back_last_first_when_another_process_finished_the_step_with_a_slow_clock(
    bench: Bench, clock: FakeClock
) -> None:
    seats, tries = Seats(), list[int]()

    def left(state: Any, ctx: Any) -> None:
        ctx.tool(seats.reserve, seat="left")

    def right(state: Any, ctx: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")
        ctx.tool(seats.reserve, seat="right")

    flow = Workflow("booking")
    flow.add_node("begin", lambda state: {}, start=True)
    for name, function in (("left", left), ("right", right)):
        flow.add_node(name, function)
        flow.edge("begin", name)
    run = bench.run(flow, {})
    assert (run.status, seats.reserved) == (ExecutionStatus.FAILED, ["left"])
    clock.advance(-HOUR)
    run = run.resume()
    assert (run.status, seats.reserved) == (ExecutionStatus.COMPLETED, ["left", "right"])
    run.rollback(0)
    assert seats.undone == ["right", "left"]


def test_rollbacks_are_redone_last_first_though_the_clock_was_set_back(bench: Bench, clock: FakeClock) -> None:
    flow = Workflow("counting")
    flow.add_node("count", lambda state: {"n": state["n"] + 1}, start=True)
    flow.edge("count", "count", when="n < 5")
    flow.edge("count", wtb.END, otherwise=True)
    run = bench.run(flow, {"n": 0})
    run.rollback(4)
    clock.advance(-HOUR)
    run.rollback(2)
    run.redo()
    assert run.state == {"n": 4}
    run.redo()
    assert run.state == {"n": 5}


def test_a_fork_names_the_calls_after_its_checkpoint_though_the_clock_was_set_back(
    bench: Bench, clock: FakeClock
) -> None:
    seats = Seats()

    def book(state: Any, ctx: Any) -> None:
        ctx.tool(seats.reserve, seat="before")
        ctx.checkpoint("mid")
        clock.advance(-HOUR)
        ctx.tool(seats.reserve, seat="after")

    flow = Workflow("booking")
    flow.add_node("book", book, start=True)
    flow.add_node("more", lambda state, ctx: {"seat": ctx.tool(seats.reserve, seat="more")})
    flow.edge("book", "more")
    run = bench.run(flow, {})
    for target, expected in (
        ("mid", ["after", "more"]),
        ("book", ["more"]),
        ("more", []),
        (0, ["before", "after", "more"]),
    ):
        found = bench.services.run_editor.effects_after(run.id, run.history.resolve(target))
        assert [call.arguments["seat"] for call in found] == expected


def test_a_fork_names_a_call_once_that_a_later_attempt_took_over(bench: Bench, clock: FakeClock) -> None:
    seats = Seats()

    def book(state: Any, ctx: Any) -> None:
        ctx.tool(seats.reserve, seat="before")
        ctx.checkpoint("mid")
        clock.advance(-HOUR)
        ctx.tool(seats.reserve, seat="after")

    flow = Workflow("booking")
    flow.add_node("book", book, start=True)
    run = bench.run(flow, {})
    run.rollback("mid")
    run = run.resume()
    found = bench.services.run_editor.effects_after(run.id, run.history.resolve(0))
    assert sorted(call.arguments["seat"] for call in found) == ["after", "before"]
    found = bench.services.run_editor.effects_after(run.id, run.history.resolve("mid"))
    assert [call.arguments["seat"] for call in found] == ["after"]


def test_a_difference_shows_the_calls_between_two_checkpoints_though_the_clock_was_set_back(
    bench: Bench, clock: FakeClock
) -> None:
    seats = Seats()

    def book(state: Any, ctx: Any) -> None:
        ctx.tool(seats.reserve, seat="one")
        ctx.checkpoint("first")
        clock.advance(-HOUR)
        ctx.tool(seats.reserve, seat="two")
        clock.advance(-HOUR)
        ctx.checkpoint("second")
        ctx.tool(seats.reserve, seat="three")

    flow = Workflow("booking")
    flow.add_node("book", book, start=True)
    run = bench.run(flow, {})
    expected: dict[tuple[Any, Any], list[str]] = {
        (0, "first"): ["one"],
        ("first", "second"): ["two"],
        ("second", None): ["three"],
    }
    for (old, new), seats_between in expected.items():
        assert [each.call.arguments["seat"] for each in run.diff(old, new).calls] == seats_between


class StoppedClock(FakeClock):
    """A clock that has stopped."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("storage", ["memory", "sqlite", "postgres"])
def test_a_redo_takes_up_what_its_rollback_left_though_all_ended_at_one_moment(
    storage: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.bootstrap.SystemClock", StoppedClock)
    url = {"memory": "memory://", "sqlite": None}.get(storage)
    if storage == "postgres":
        url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))

    def fail(state: Any) -> None:
        raise OSError("never")

    flow = Workflow("failing")
    flow.add_node("a", lambda state: {}, start=True)
    flow.add_node("b", fail)
    flow.edge("a", "b")
    with Bench(url, folder=tmp_path / "wtb") as bench:
        run = bench.run(flow, {})
        run.rollback("a")
        run = run.resume()
        run.rollback("a")
        run.redo()
        statuses = [each.status for each in run.history.node_runs if each.node == "b"]
        assert statuses == [NodeStatus.SKIPPED, NodeStatus.STARTED]


def test_a_node_that_begins_afresh_takes_back_the_calls_of_siblings_last_first(bench: Bench) -> None:
    seats, turns, fails = Seats(), [threading.Event() for _ in range(3)], list[str]()

    def booking(name: str, mine: Sequence[int]) -> Any:
        def book(state: Any, ctx: Any) -> None:
            for turn in mine:
                assert turn == 0 or fails or turns[turn - 1].wait(60)
                ctx.tool(seats.reserve, seat=f"{name}-{turn}")
                turns[turn].set()
            assert turns[2].wait(60)
            if len(fails) < 2:
                fails.append(name)
                raise OSError("not yet")

        return book

    flow = Workflow("booking")
    flow.add_node("begin", lambda state: {}, start=True)
    for name, mine in (("left", (0, 2)), ("right", (1,))):
        flow.add_node(name, booking(name, mine))
        flow.edge("begin", name)
    run = bench.run(flow, {})
    assert seats.reserved == ["left-0", "right-1", "left-2"]
    assert run.resume(rerun_node=True).status is ExecutionStatus.COMPLETED
    assert seats.undone == ["left-2", "right-1", "left-0"]


def test_a_lease_far_in_the_future_is_named_by_doctor_and_taken_over_only_when_told_to(bench: Bench) -> None:
    flow = Workflow("counting")
    flow.add_node("count", lambda state: {"n": 1}, start=True)
    runs = [bench.create(flow, {}) for _ in range(2)]
    for run, ahead in zip(runs, (365 * 24 * HOUR, 0 * HOUR), strict=True):
        with bench.services.storage.unit_of_work() as uow:
            running = uow.executions.get(run.id).moved_to(ExecutionStatus.RUNNING, bench.services.clock.now())
            uow.executions.save(running.owned("elsewhere/7/1", uow.now() + ahead, LEASE))
            uow.commit()
    (fault,) = [fault for fault in bench.services.integrity.check().faults if fault.kind is FaultKind.LEASE]
    assert (fault.what, fault.remedy) == (runs[0].id, None)
    assert f"wtb resume {runs[0].id} --take-over" in fault.problem
    with pytest.raises(Conflict, match="longer than any lease lasts: a clock is or was wrong"):
        bench.resume(runs[0].id, flow)
    with pytest.raises(Conflict, match="is being run by elsewhere/7/1"):
        bench.resume(runs[1].id, flow, take_over=True)  # a lease as any other is not taken
    taken = bench.resume(runs[0].id, flow, take_over=True)
    assert taken.status is ExecutionStatus.COMPLETED
    (event,) = taken.events(types=[EventType.EXECUTION_ABANDONED])
    assert "by a wrong clock; somebody said to take over" in event.data["reason"]


class Bookings:
    """A reservation whose cancellation fails while `is_broken`."""

    def __init__(self) -> None:
        self.is_broken = True
        self.undone: list[str] = []
        self.reserve = wtb.tool(name="reserve", reverse=self.cancel)(lambda seat: seat)

    def cancel(self, call: Any) -> None:
        if self.is_broken:
            raise OSError("the hotel does not answer")
        self.undone.append(call.arguments["seat"])


def half_rolled_back(bench: Bench, bookings: Bookings) -> wtb.Run:
    """Return a run that waits in the middle of a rollback, under a lease of another machine until next year."""
    flow = Workflow("booking")
    flow.add_node("book", lambda state, ctx: {"seat": ctx.tool(bookings.reserve, seat="one")}, start=True)
    run = bench.run(flow, {})
    with pytest.raises(RollbackFailed):
        run.rollback(0)
    bookings.is_broken = False
    with bench.services.storage.unit_of_work() as uow:
        execution = uow.executions.get(run.id).stepped(bench.services.clock.now())
        uow.executions.save(execution.owned("elsewhere/7/1", uow.now() + 365 * 24 * HOUR, LEASE))
        uow.commit()
    return run


def test_a_half_done_rollback_under_a_lease_far_in_the_future_goes_on_only_when_told_to(bench: Bench) -> None:
    bookings = Bookings()
    run = half_rolled_back(bench, bookings)
    typed = f"wtb rollback {run.id} --continue --take-over"
    (fault,) = [fault for fault in bench.services.integrity.check().faults if fault.kind is FaultKind.LEASE]
    assert typed in fault.problem
    with pytest.raises(Conflict, match=f"take the run over with `{typed}`"):
        run.continue_rollback()
    with pytest.raises(Conflict, match="longer than any lease lasts"):
        run.abandon_rollback()
    assert bookings.undone == []
    run.continue_rollback(take_over=True)
    assert (run.status, bookings.undone) == (ExecutionStatus.PAUSED, ["one"])
    (event,) = run.events(types=[EventType.EXECUTION_ABANDONED])
    assert "by a wrong clock; somebody said to take over" in event.data["reason"]


def test_a_half_done_rollback_under_a_lease_far_in_the_future_is_given_up_when_told_to(bench: Bench) -> None:
    bookings = Bookings()
    run = half_rolled_back(bench, bookings)
    run.abandon_rollback(take_over=True)
    assert (run.status, bookings.undone) == (ExecutionStatus.PAUSED, [])
    assert run.resume().status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("bench", ["sqlite", "postgres"], indirect=True)
def test_recorded_calls_are_read_after_a_downgrade_to_a_schema_without_steps(bench: Bench) -> None:
    storage = bench.services.storage
    assert isinstance(storage, SqlStorage)
    seats = Seats()
    flow = Workflow("booking")
    flow.add_node("book", lambda state, ctx: {"seat": ctx.tool(seats.reserve, seat="one")}, start=True)
    run = bench.run(flow, {})
    before = run.calls
    assert [(call.started_step, call.started_number, call.ended_step) for call in before] == [(1, 1, 1)]
    schema.downgrade(storage.database, "0010")
    schema.upgrade(storage.database)
    after = bench.get(run.id).calls
    unplaced = [replace(call, started_step=None, started_number=None, ended_step=None) for call in before]
    assert list(after) == unplaced
    assert bench.services.integrity.check().faults == ()
    run.rollback(0)
    assert seats.undone == ["one"]
