"""Many trivial jobs on Ray, in a Postgres behind PgBouncer: how quick they are, and what they take.

WTB_BENCH_RAY_JOBS is the number of jobs (10,000). Processor time is that of the process that runs the batch, and of
the workers with their start; Ray's own processes and Postgres are not part of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg

import wtb
from benchmarks.ray_jobs import TRIVIAL
from benchmarks.report import Figure
from tests.services import PgBouncer, PostgresServer
from wtb.batches import load_batch
from wtb.infrastructure.runners.ray_cluster import RayCluster
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase

JOBS = int(os.environ.get("WTB_BENCH_RAY_JOBS", "10000"))
WORKERS = 2
POOL_SIZE = 5
"""How many connections to Postgres PgBouncer makes."""
DATABASE = "many_jobs"
STORED = "SELECT count(*), count(DISTINCT number) FROM wtb_batch_jobs WHERE status = 'completed'"


class Watcher(threading.Thread):
    """Looks at the connections and the workers once a second while a batch runs."""

    def __init__(self, bouncer: PgBouncer) -> None:
        super().__init__(daemon=True)
        self._bouncer = bouncer
        self._over = threading.Event()
        self.most_clients = self.most_servers = 0
        self.worker_s: dict[int, float] = {}
        """The processor time of each worker, by process."""
        self.own_s = 0.0
        """The processor time that looking takes."""

    def run(self) -> None:
        while not self._over.wait(1):
            clients, servers = self._bouncer.connections(DATABASE)
            self.most_clients = max(self.most_clients, clients)
            self.most_servers = max(self.most_servers, servers)
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if (process / "cmdline").read_bytes().startswith(b"ray::RayWorker"):
                        self.worker_s[int(process.name)] = _processor_s(process)
            self.own_s = time.thread_time()

    def end(self) -> None:
        self._over.set()
        self.join()


def _processor_s(process: Path) -> float:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def many_on_ray(folder: Path) -> list[Figure]:
    """Run the jobs on two workers; return how long a job takes, and its processor time."""
    file = folder / "many.py"
    file.write_text(f"JOBS = {JOBS}\n{TRIVIAL.replace('workers=1', f'workers={WORKERS}')}")
    cluster = RayCluster(WORKERS, None, folder)
    try:
        with PostgresServer(fsync=False) as server, PgBouncer(server, pool_size=POOL_SIZE) as bouncer:
            return _measured(folder, file, server, bouncer)
    finally:
        cluster.close()


def _measured(folder: Path, file: Path, server: PostgresServer, bouncer: PgBouncer) -> list[Figure]:
    url = server.create_database(DATABASE)
    database = PostgresDatabase(url, pool_size=1)
    schema.upgrade(database)
    database.close()
    watcher = Watcher(bouncer)
    watcher.start()
    try:
        with wtb.Bench(bouncer.url(DATABASE), folder=folder / "many") as bench:
            began_s = time.process_time()
            result = bench.batch(load_batch(str(file)), runner="ray")
            driver_s = time.process_time() - began_s - watcher.own_s
            workers = Counter(job.worker for job in result.results)
            started = min(job.started for job in result.results if job.started is not None)
            ended = max(job.ended for job in result.results if job.ended is not None)
    finally:
        watcher.end()
    with psycopg.connect(url) as connection:
        stored = connection.execute(STORED).fetchone()
    assert stored == (JOBS, JOBS), f"{JOBS:,} jobs, stored {stored}"
    took_s = (ended - started).total_seconds()
    worker_s = sum(watcher.worker_s.get(int(pid), 0.0) for pid in workers if pid is not None)
    return [
        Figure(
            name=f"{JOBS:,} trivial jobs on {WORKERS} workers of Ray, Postgres through PgBouncer",
            value=took_s * 1e3 / JOBS,
            unit="ms a job",
            detail=f"{JOBS / took_s:,.0f} jobs a second; at most {watcher.most_clients} connections to PgBouncer and "
            f"{watcher.most_servers} to Postgres; {JOBS:,} results stored, each once",
            raw={"took_s": took_s, "clients": watcher.most_clients, "servers": watcher.most_servers},
        ),
        Figure(
            name="processor time of these jobs: the driver and the workers",
            value=(driver_s + worker_s) * 1e3 / JOBS,
            unit="ms a job",
            detail=f"driver {driver_s * 1e3 / JOBS:.2f} ms, workers {worker_s * 1e3 / JOBS:.2f} ms with their start",
            raw={"driver_s": driver_s, "worker_s": worker_s},
        ),
    ]
