"""One of several processes behind one PgBouncer: `python pooled_client.py URL FOLDER THREADS`.

It says `running` when each thread is in the middle of a run, each with an open connection, and goes on when it reads a
line. Then it says how many runs completed, and stays connected until it reads another line.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import wtb
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.infrastructure.sql.unit_of_work import SqlStorage

VISITS = 5


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def connect(bench: wtb.Bench, connections: int) -> None:
    """Open as many connections as there are threads: a quick thread would otherwise leave its own to the next one."""
    storage = bench.services.storage
    assert isinstance(storage, SqlStorage)
    assert isinstance(storage.database, PostgresDatabase)
    for connection in [storage.database.connect() for _ in range(connections)]:
        storage.database.give_back(connection)


def main(url: str, folder: str, threads: int) -> None:
    """Run a workflow in each thread, all at the same time."""

    def wait_for_the_others() -> None:
        say("running")
        sys.stdin.readline()

    all_running = threading.Barrier(threads, wait_for_the_others)
    flow = wtb.Workflow("pooled")

    @flow.node(start=True)
    def count(state: Mapping[str, int]) -> dict[str, int]:
        if state["number"] == 1:
            all_running.wait()
        return {"number": state["number"] + 1}

    flow.edge("count", "count", when=f"number < {VISITS}")
    flow.edge("count", wtb.END, otherwise=True)
    with wtb.Bench(url, folder=folder, pool_size=threads) as bench, ThreadPoolExecutor(threads) as pool:
        connect(bench, threads)
        done = list(pool.map(lambda _: bench.run(flow, {"number": 0}), range(threads)))
        say(str(sum(run.status == "completed" and run.state["number"] == VISITS for run in done)))
        sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
