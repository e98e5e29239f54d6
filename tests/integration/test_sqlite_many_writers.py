"""Many writers: processes and threads that write to one database lose nothing and are never told that it is locked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.race import GUN, Racer, finished, racing
from tests.integration.writer import SHARED, WORKFLOW
from tests.run_writer import RunWriter
from wtb.bootstrap import Services, bootstrap
from wtb.domain.events import EventType
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId
from wtb.infrastructure.sql import schema
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database

PROCESSES, THREADS, STEPS = 3, 2, 8
WRITERS = [f"w{process}-{thread}" for process in range(PROCESSES) for thread in range(THREADS)]
TOTAL = len(WRITERS) * STEPS

WRITE = f"""
import sys
from tests.integration.writer import main
{GUN}
main(*sys.argv[1:])
"""


@pytest.fixture(params=["sqlite", "postgres", "pgbouncer"])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Services]:
    """A database of each kind with the shared run in it, at zero."""
    url = f"sqlite:///{tmp_path}/own.db"
    if request.param != "sqlite":
        url = request.getfixturevalue(f"{request.param}_url")
    _upgrade(url)
    with bootstrap(Settings(url=url)) as services:
        recorder = RunWriter(services.storage, services.clock, services.ids)
        recorder.start(WORKFLOW, {"number": 0, "names": []}, execution_id=SHARED)
        yield services


def _upgrade(url: str) -> None:
    database = open_database(Settings(url=url))
    schema.upgrade(database)
    database.close()


def history(services: Services, execution_id: ExecutionId) -> ExecutionHistory:
    with services.storage.unit_of_work(readonly=True) as uow:
        return uow.checkpoints.load_history(execution_id)


def read_while_they_write(services: Services, racers: list[Racer]) -> int:
    """Read the shared run over and over until all have ended; return how many different heads were seen."""
    seen: set[str] = set()
    while any(racer.poll() is None for racer in racers):
        found = history(services, SHARED)
        head = found.latest()
        assert head is not None
        assert len(found.lineage()) == head.step + 1
        assert len(found.boundaries()) == head.step
        seen.add(head.id)
    return len(seen)


def check_shared(services: Services) -> None:
    found = history(services, SHARED)
    head = found.latest()
    assert head is not None
    assert head.step == TOTAL
    assert found.path() == tuple(("add", visit) for visit in range(1, TOTAL + 1))
    with services.storage.unit_of_work(readonly=True) as uow:
        state = uow.checkpoints.load(head.id).state
    assert state["number"] == TOTAL
    assert sorted(state["names"]) == sorted(WRITERS * STEPS)


def check_own(services: Services, name: str) -> None:
    head = history(services, ExecutionId(name)).latest()
    assert head is not None
    with services.storage.unit_of_work(readonly=True) as uow:
        assert uow.checkpoints.load(head.id).state["items"] == [f"{name} {step}" for step in range(STEPS)]


def check_events(services: Services) -> None:
    with services.storage.unit_of_work(readonly=True) as uow:
        for stream in (SHARED, *WRITERS):
            steps = TOTAL if stream == SHARED else STEPS
            events = uow.events.list_events(stream=stream)
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert [event.type for event in events].count(EventType.NODE_COMPLETED) == steps


def test_processes_and_threads_that_write_at_once_lose_nothing(services: Services) -> None:
    url = services.settings.url or ""
    starts = [[url, f"w{process}", str(THREADS), str(STEPS)] for process in range(PROCESSES)]
    with racing(WRITE, starts) as racers:
        heads_seen = read_while_they_write(services, racers)
        for racer in racers:
            finished(racer)
    check_shared(services)
    for name in WRITERS:
        check_own(services, name)
    check_events(services)
    assert heads_seen > 1
