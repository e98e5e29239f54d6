"""Workers and drivers that lose the database or each other: nobody waits for ever for what they had begun."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wtb
from tests.cutting_proxy import CuttingProxy
from tests.services import PostgresServer
from wtb.batches import load_batch
from wtb.bootstrap import bootstrap
from wtb.domain.errors import DatabaseAway
from wtb.domain.job_attempt import WorkerName
from wtb.domain.ports import Measure
from wtb.domain.runner import Assignment, JobLost, RunJob, RunnerReport
from wtb.infrastructure.codecs.types import REGISTERED
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.telemetry import MemoryTelemetry
from wtb.worker import join, reported

SHARED = """
import wtb
from wtb.domain.errors import DatabaseAway

flow = wtb.Workflow("shared")


@flow.node(start=True)
def fetch(state):
    raise DatabaseAway("the database is away")


batch = wtb.BatchTest(flow, cases=[{"id": "one", "input": {}}], evaluators=["steps"], runner="processes", workers=1)
"""


class WorkerHere:
    """A runner whose one worker is this process."""

    def __init__(self, bench: wtb.Bench) -> None:
        self._bench = bench

    def assign(self, assignment: Assignment) -> None:
        self._assignment = assignment

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        self._report = report
        self._worker = join(self._bench.services, self._assignment)

    def submit(self, number: int) -> None:
        self._report(reported(self._worker, number))

    def close(self) -> None:
        """Nothing to end."""


@pytest.fixture
def shared(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[wtb.BatchTest]:
    monkeypatch.setattr(REGISTERED, "_by_name", {})
    monkeypatch.setattr(REGISTERED, "_names", {})
    (empty_folder / "shared.py").write_text(SHARED)
    yield load_batch("shared.py:batch")
    sys.modules.pop("shared", None)


def test_a_worker_that_loses_the_database_gives_up_what_others_wait_for(
    shared: wtb.BatchTest, empty_folder: Path
) -> None:
    with wtb.Bench() as bench, pytest.raises(DatabaseAway):
        bench.services.batches.run(shared.plan(), WorkerHere(bench), stop=threading.Event())
    with sqlite3.connect(next(empty_folder.rglob("*.db"))) as database:
        assert database.execute("SELECT status FROM wtb_node_cache").fetchall() == []
    database.close()


class WorkerLostWithTheDatabase:
    """A runner whose worker is killed at the moment when the database goes away."""

    def __init__(self, proxy: CuttingProxy) -> None:
        self._proxy = proxy

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        self._report = report

    def submit(self, number: int) -> None:
        self._proxy.refuse()
        self._report(JobLost(number, "pc-1:2/34/5", "was ended by signal SIGKILL"))

    def close(self) -> None:
        """Nothing to end."""


def test_a_driver_that_loses_a_worker_and_the_database_stops_and_the_job_stays_as_it_was(
    postgres: PostgresServer, migrated_database: str, tmp_path: Path
) -> None:
    flow = wtb.Workflow("greeting")
    flow.add_node("greet", lambda state: {"said": "hello"}, start=True)
    test = wtb.BatchTest(flow, cases=[{"id": "one", "input": {}}], evaluators=["steps"])
    with (
        CuttingProxy(postgres.port) as proxy,
        wtb.Bench(proxy.url(postgres.url(migrated_database)), folder=tmp_path, outage_timeout_s=0.2) as bench,
    ):
        with pytest.raises(DatabaseAway):
            bench.services.batches.run(test.plan(), WorkerLostWithTheDatabase(proxy), stop=threading.Event())
        proxy.allow()
        assert bench.get_batch("greeting").status == "paused"
        result = bench.batch(test)
        assert result.status == "completed"
        assert [attempt.end for attempt in result.results[0].attempts] == ["completed"]


GREETING = """
import wtb

flow = wtb.Workflow("hello")
flow.add_node("greet", lambda state: {"said": "hello"}, start=True)
batch = wtb.BatchTest(flow, cases=[{"id": "one", "input": {}}], evaluators=["steps"], runner="processes", workers=1)
"""


def test_the_connections_of_a_worker_are_known_to_the_driver_until_the_worker_ends(
    postgres: PostgresServer, migrated_database: str, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REGISTERED, "_by_name", {})
    monkeypatch.setattr(REGISTERED, "_names", {})
    (empty_folder / "hello.py").write_text(GREETING)
    telemetry, seen = MemoryTelemetry(), list[int]()
    with wtb.Bench(postgres.url(migrated_database)) as bench:
        settings = bench.services.settings
        bench.services.close()
        bench.services = bootstrap(settings, telemetry=telemetry)
        me = WorkerName(ProcessOwners().me()).label

        def workers() -> list[int]:
            return [value for name, value in telemetry.levels(Measure.CONNECTIONS).items() if name != me]

        result = bench.batch(load_batch("hello.py:batch"), on_progress=lambda _: seen.extend(workers()))
        assert result.status == "completed"
        assert max(seen) > 0
        assert workers() == [0]
        assert {name: found.count for name, found in telemetry.by_name(Measure.WORKERS).items()} == {"processes": 0}
    sys.modules.pop("hello", None)
