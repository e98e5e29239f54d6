"""One of several processes behind one PgBouncer: `python pooled_client.py URL FOLDER THREADS RUNS`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import wtb

VISITS = 4


def main(url: str, folder: str, threads: int, runs: int) -> None:
    """Run a workflow again and again in each thread, say how many runs completed, and stay connected until told."""
    flow = wtb.Workflow("pooled")

    @flow.node(start=True)
    def count(state: Mapping[str, int]) -> dict[str, int]:
        return {"number": state["number"] + 1}

    flow.edge("count", "count", when=f"number < {VISITS}")
    flow.edge("count", wtb.END, otherwise=True)
    with wtb.Bench(url, folder=folder, pool_size=threads) as bench, ThreadPoolExecutor(threads) as pool:
        sys.stdin.readline()
        done = list(pool.map(lambda _: bench.run(flow, {"number": 0}), range(threads * runs)))
        completed = sum(run.status == "completed" and run.state["number"] == VISITS for run in done)
        sys.stdout.write(f"{completed}\n")
        sys.stdout.flush()
        sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
