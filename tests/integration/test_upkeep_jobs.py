"""What servers do in the background to a store: light checks, rollbacks that were left, and what expires."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from wtb.application.server.background_jobs import JobRun
from wtb.application.server.upkeep_jobs import UpkeepJobs
from wtb.application.upkeep.abandoned_runs import AbandonedRuns
from wtb.application.upkeep.light_check import LightCheck
from wtb.bench import Bench
from wtb.domain.errors import DamagedData
from wtb.domain.event_catalogue import ExecutionDegraded
from wtb.domain.events import Event, EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import FaultKind
from wtb.domain.webhooks import Delivery, DeliveryStatus, WebhookId
from wtb.flow import Workflow


@pytest.fixture
def bench(sqlite_folder: Path) -> Iterator[Bench]:
    with Bench(folder=sqlite_folder, user="alice") as bench:
        yield bench


@pytest.fixture
def jobs(bench: Bench) -> UpkeepJobs:
    services = bench.services
    abandoned = AbandonedRuns(services.storage, services.clock, services.owners)
    return UpkeepJobs(
        services.storage, services.retention, services.collection, abandoned, LightCheck(services.storage)
    )


def flow() -> Workflow:
    made = Workflow("short")
    made.add_node("work", lambda state: {"text": "long " * 1_000 + str(state["n"])}, start=True)
    return made


def tell(bench: Bench, count: int) -> None:
    with bench.services.storage.unit_of_work() as uow:
        event = Event.of(ExecutionDegraded(error="slow"), stream="run", at=bench.services.clock.now())
        uow.events.append(*[event] * count)
        uow.commit()


def damage(bench: Bench, statement: str) -> None:
    with closing(sqlite3.connect(bench.services.settings.folder / "wtb.db")) as connection:
        assert connection.execute(statement).rowcount > 0
        connection.commit()


def test_a_light_check_looks_at_everything_once_and_then_begins_anew(bench: Bench) -> None:
    for n in range(25):
        bench.run(flow(), {"n": n})
    tell(bench, 1_200)
    check = LightCheck(bench.services.storage)
    report = check.check({}, seconds=30)
    assert (report.runs, report.is_complete, report.place, report.faults) == (25, True, {}, [])
    assert report.events >= 1_200


def test_a_light_check_goes_on_where_its_time_was_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        bench.run(flow(), {"n": n})
    tell(bench, 1_200)
    place: dict[str, Any] = {}
    seen = rounds = 0
    while True:
        stops = iter([False, True, True, True])
        report = LightCheck(bench.services.storage).check(place, seconds=30, is_stopped=lambda: next(stops))  # noqa: B023  used in this round only
        place, seen, rounds = report.place, seen + report.events, rounds + 1
        if report.is_complete or rounds > 20:
            break
    assert rounds > 3
    assert seen == len(bench.services.queries.event_page(limit=10_000).events)


def test_a_light_check_names_damaged_events_runs_and_states_and_goes_on(bench: Bench) -> None:
    first, second, third = (bench.run(flow(), {"n": n}) for n in range(3))
    damage(bench, f"UPDATE wtb_events SET data = '{{}}' WHERE stream = '{first.id}' AND type = 'execution.completed'")
    damage(bench, f"UPDATE wtb_executions SET workflow_name = 'other' WHERE id = '{second.id}'")
    damage(bench, "UPDATE wtb_blobs SET data = zeroblob(length(data))")
    with Bench(folder=bench.services.settings.folder) as another:  # this one remembers what it has verified
        report = LightCheck(another.services.storage).check({}, seconds=30)
    assert report.is_complete
    kinds = [fault.kind for fault in report.faults]
    assert kinds.count(FaultKind.EVENT) == 1
    assert {run for fault in report.faults for run in fault.runs} >= {first.id, third.id}
    assert any(second.id in fault.problem for fault in report.faults)


def test_the_job_fails_with_the_first_fault_and_remembers_all_of_the_round(bench: Bench, jobs: UpkeepJobs) -> None:
    run = bench.run(flow(), {"n": 1})
    quiet = JobRun()
    jobs.verify(quiet)
    assert quiet.notes == {"place": {}, "faults": [], "rounds": 1}
    damage(bench, f"UPDATE wtb_events SET data = '{{}}' WHERE stream = '{run.id}' AND type = 'execution.completed'")
    noticed = JobRun(notes=dict(quiet.notes))
    with pytest.raises(DamagedData, match="`wtb doctor` shows everything"):
        jobs.verify(noticed)
    assert (noticed.figures["faults"], len(noticed.notes["faults"]), noticed.notes["rounds"]) == (1, 1, 2)


def test_a_rollback_that_was_left_is_told_once_and_not_touched(bench: Bench, jobs: UpkeepJobs) -> None:
    run = bench.run(flow(), {"n": 1})
    storage, clock = bench.services.storage, bench.services.clock
    with storage.unit_of_work() as uow:
        then = clock.now() - timedelta(hours=3)
        execution = uow.executions.get(ExecutionId(run.id))
        left = execution.moved_to(ExecutionStatus.ROLLING_BACK, then).owned("elsewhere/1/1", then, timedelta(0))
        uow.executions.save(left)
        uow.commit()
    counts = []
    for _ in range(2):
        job = JobRun()
        jobs.pause_abandoned(job)
        counts.append(job.figures["abandoned"])
    assert counts == [1, 0]
    with storage.unit_of_work(readonly=True) as uow:
        assert uow.executions.get(ExecutionId(run.id)).status is ExecutionStatus.ROLLING_BACK
        (told,) = uow.events.list_events(types=[EventType.EXECUTION_ABANDONED])
    assert told.data["by"] == "background job abandoned_runs"
    assert "--continue" in told.data["reason"]


def test_what_expires_is_deleted_and_nothing_else(bench: Bench, jobs: UpkeepJobs) -> None:
    now, hook = bench.services.clock.now(), WebhookId("1")
    pending = Delivery(webhook_id=hook, position=1, type="x", next_at=now, created_at=now - timedelta(days=90))
    ended = replace(pending, status=DeliveryStatus.DELIVERED, next_at=None)
    dead = replace(ended, status=DeliveryStatus.DEAD)
    with bench.services.storage.unit_of_work() as uow:
        uow.deliveries.add(
            pending,
            replace(ended, position=2, ended_at=now - timedelta(days=2)),
            replace(ended, position=3, ended_at=now - timedelta(hours=2)),
            replace(dead, position=4, ended_at=now - timedelta(days=2)),
            replace(dead, position=5, ended_at=now - timedelta(days=40)),
        )
        uow.commit()
    run = JobRun()
    jobs.drop_expired(run)
    assert run.figures["deliveries"] == 2
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        assert [each.position for each in uow.deliveries.list_deliveries(hook, limit=10)] == [4, 3, 1]


def test_pruning_in_the_background_counts_and_stops_when_it_is_told(bench: Bench, jobs: UpkeepJobs) -> None:
    for n in range(3):
        bench.run(flow(), {"n": n})
    whole = JobRun()
    jobs.prune(whole)
    jobs.collect(whole)
    assert whole.figures["checkpoints"] == 0, "the rules keep everything that is new"
    stopped = JobRun()
    stopped.stopped.set()
    jobs.prune(stopped)
    assert "blobs" not in stopped.figures, "a stopped run does not begin to sweep"
