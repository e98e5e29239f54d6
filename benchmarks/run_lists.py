"""Lists of runs: a page over 100,000 runs against one over 1,000, and the last page against the first.

Half of the runs are of batches, and the newest are, so that a list without batches has to skip them. What is compared
alternates, and the bars hold for ratios of medians. On SQLite and on Postgres, as the settings of a server use them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.report import Figure, measure
from tests.services import PostgresServer
from wtb.application.queries.cursors import position_cursor
from wtb.application.queries.service import Queries
from wtb.bootstrap import Services, bootstrap
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.ids import BranchId, ExecutionId, WorkflowId
from wtb.domain.job_origin import JobOrigin
from wtb.domain.run_filters import RunFilters
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.settings import Settings

MANY, FEW, LIMIT, TURNS, BAR = 100_000, 1_000, 50, 60, 1.5
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STATUSES = tuple(ExecutionStatus)
FILTERS: dict[str, RunFilters] = {
    "all": {},
    "without batches": {"without_batches": True},
    "of one person": {"created_by": "ann"},
    "failed": {"statuses": [ExecutionStatus.FAILED]},
    "of one workflow": {"workflow": "flow-3"},
}


@dataclass(frozen=True)
class Store:
    """A store with so many runs."""

    queries: Queries
    count: int

    def page(self, filters: RunFilters, cursor: str | None = None) -> int:
        """Read a page and return how many runs it has."""
        return len(self.queries.run_page(cursor=cursor, limit=LIMIT, **filters).rows)

    @property
    def last(self) -> str:
        """The cursor of the oldest full page, whatever the filter."""
        return position_cursor(BEGIN + timedelta(seconds=self.count // 50), "z")


def fill(services: Services, count: int) -> Store:
    """Store runs: the newer half are of a batch."""
    workflow = WorkflowId("w")
    for begin in range(0, count, 5_000):
        with services.storage.unit_of_work() as uow:
            for number in range(begin, min(begin + 5_000, count)):
                uow.executions.add(_execution(number, count, workflow))
            uow.commit()
    return Store(services.queries, count)


def _execution(number: int, count: int, workflow: WorkflowId) -> Execution:
    at = BEGIN + timedelta(seconds=number)
    job = JobOrigin(batch_id="batch", combination="baseline", case_id=f"c{number}", repeat=0)
    return Execution(
        id=ExecutionId(f"run-{number:07}"),
        workflow_id=workflow,
        workflow_name=f"flow-{number % 10}",
        status=STATUSES[number % 7] if number % 7 != 1 else ExecutionStatus.COMPLETED,
        branch_id=BranchId("b"),
        metadata=job.to_data() if number >= count // 2 else {},
        created_by="ann" if number % 4 else "bob",
        created_at=at,
        updated_at=at,
    )


def ratio(first: Callable[[], int], second: Callable[[], int]) -> tuple[float, float]:
    """Return how many times as long the first takes as the second, and the milliseconds of the first."""
    took: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS):
        for side, call in sorted(enumerate((first, second)), reverse=bool(turn % 2)):
            began = time.perf_counter()
            assert call() == LIMIT
            took[side].append(time.perf_counter() - began)
    return median(took[0]) / median(took[1]), 1_000 * median(took[0])


@contextmanager
def stores(database: str) -> Iterator[tuple[Store, Store]]:
    """Give a store of many runs and one of few."""
    with tempfile.TemporaryDirectory() as folder:
        if database == "sqlite":
            with (
                bootstrap(Settings(folder=Path(folder) / "a")) as many,
                bootstrap(Settings(folder=Path(folder) / "b")) as few,
            ):
                yield fill(many, MANY), fill(few, FEW)
            return
        with PostgresServer(fsync=False) as server:
            settings = [Settings(url=_migrated(server, name), folder=Path(folder) / name) for name in ("m", "f")]
            with bootstrap(settings[0]) as many, bootstrap(settings[1]) as few:
                found = fill(many, MANY), fill(few, FEW)
                for services in (many, few):
                    with services.storage.database.engine.begin() as connection:  # type: ignore[union-attr]
                        connection.exec_driver_sql("ANALYZE wtb_executions")  # what autovacuum does in a minute
                yield found


def _migrated(server: PostgresServer, name: str) -> str:
    url = server.create_database(name)
    database = PostgresDatabase(url, pool_size=1)
    schema.upgrade(database)
    database.close()
    return url


def lists(database: str) -> list[Figure]:
    """Measure all filters on one database."""
    figures = []
    with stores(database) as (many, few):
        for name, filters in FILTERS.items():
            grown, ms = ratio(partial(many.page, filters), partial(few.page, filters))
            last, _ = ratio(partial(many.page, filters, many.last), partial(many.page, filters))
            detail = f"{ms:.2f} ms for {LIMIT} runs"
            title = f"{database}, runs: {name}"
            figures.append(Figure(name=f"{title}; 100,000 / 1,000", value=grown, unit="×", bar=BAR, detail=detail))
            figures.append(Figure(name=f"{title}; last page / first", value=last, unit="×", bar=BAR))
        began = time.perf_counter()
        many.queries.run_page(limit=1, with_counts=True)
        taken = 1_000 * (time.perf_counter() - began)
        figures.append(Figure(name=f"{database}, counts of 100,000 runs", value=taken, unit="ms"))
    return figures


if __name__ == "__main__":
    measure(
        "Lists of runs",
        Path("build/benchmarks/run_lists.json"),
        [("sqlite", lambda: lists("sqlite")), ("postgres", lambda: lists("postgres"))],
    )
