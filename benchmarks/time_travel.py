"""Time travel: rollback, dry run and fork of a run with 10 MB of state and 10,000 checkpoints.

SQLite, NORMAL; medians. Beside each figure, what the bare statement that moves a head costs in the same run: the rest
is what it takes to know what is undone.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks.report import Figure, show, timed
from wtb.application.recorder import Ending, Recorder
from wtb.bench import Bench, Run
from wtb.domain.execution import ExecutionStatus, Pause
from wtb.domain.state import StateDelta

CHECKPOINTS = 10_000
KEYS, VALUE_BYTES = 100, 100_000
TURNS = 20
WORKFLOW: dict[str, Any] = {"name": "flow", "version": "1", "nodes": [], "edges": [], "reducers": {}}


def recorded(bench: Bench, checkpoints: int, state: dict[str, Any], run_id: str) -> Run:
    """Return a paused run of that many steps, of which each changes one key."""
    services = bench.services
    recorder = Recorder(services.storage, services.clock, services.ids)
    at = recorder.start(WORKFLOW, {**state, "n": 0}, execution_id=run_id, next_nodes=("work",))
    for step in range(1, checkpoints + 1):
        run = recorder.node_run(at, "work", step)
        at = recorder.complete(at, run, StateDelta.setting({"n": step}), next_nodes=("work",))
    recorder.end(at, Ending(status=ExecutionStatus.PAUSED, pause=Pause(reason="measured")))
    return bench.get(run_id)


def bare_us(folder: Path) -> float:
    """Return what one UPDATE and its commit cost here."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE heads (id TEXT PRIMARY KEY, head TEXT)")
    connection.execute("INSERT INTO heads VALUES ('main', '')")
    times = []
    for turn in range(200):
        began = perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE heads SET head = ? WHERE id = 'main'", (str(turn),))
        connection.execute("COMMIT")
        times.append(perf_counter() - began)
    connection.close()
    return median(times) * 1e6


def milliseconds(action: Any, turns: int = TURNS) -> float:
    return median(timed(action) for _ in range(turns)) * 1e3


def moving(folder: Path) -> list[Figure]:
    """Roll back, plan and fork near the head and far from it, with a small and a large state."""
    figures: list[Figure] = []
    bare = bare_us(folder)
    with Bench(folder=folder / "wtb") as bench:
        large = {f"key{number}": "x" * VALUE_BYTES for number in range(KEYS)}
        run = recorded(bench, CHECKPOINTS, large, "large")
        small = recorded(bench, 100, {}, "small")
        middle = run.checkpoints[CHECKPOINTS // 2].id
        near = f"10 MB, {CHECKPOINTS:,} checkpoints, ten steps back"
        dry = milliseconds(lambda: run.rollback(CHECKPOINTS - 10, dry_run=True))
        far = milliseconds(lambda: run.rollback(10, dry_run=True), 3)
        small_middle = small.checkpoints[50].id
        fork, flat = milliseconds(lambda: run.fork(middle)), milliseconds(lambda: small.fork(small_middle))
        back = median(timed(run.rollback, CHECKPOINTS - 10 * (turn + 1)) for turn in range(TURNS)) * 1e3
        detail = f"one bare UPDATE and commit: {bare:.0f} µs"
        figures += [
            Figure(name=f"rollback of state alone: {near}", value=back, unit="ms", bar=5, detail=detail),
            Figure(name=f"dry run: {near}", value=dry, unit="ms", bar=5),
            Figure(name=f"dry run: back to step 10 of {CHECKPOINTS:,}", value=far, unit="ms", detail="for information"),
            Figure(name="fork in the middle of that run, by id", value=fork, unit="ms", bar=1),
            Figure(
                name="that fork ÷ one of a run of 100 checkpoints without a state",
                value=fork / flat,
                unit="×",
                detail="flat when near 1",
            ),
        ]
    return figures


def main() -> None:
    """Measure everything; say what is being measured meanwhile."""
    console = Console()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name, console.status("rollback and fork"):
        figures += moving(Path(name))
    show("Time travel", figures, Path("build/benchmarks/time_travel.json"))


if __name__ == "__main__":
    main()
