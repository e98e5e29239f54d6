"""Time travel: rollback, fork and comparison with 10 MB of state and 10,000 checkpoints, and a prune of 100,000.

SQLite, NORMAL; medians. Beside the rollback, what the bare statement that moves a head costs in the same run: the rest
is what it takes to know what is undone.
"""

from __future__ import annotations

import multiprocessing
import re
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks.report import Figure, show, timed
from tests.run_writer import RunWriter
from wtb.application.runs.steps import Ending, Position
from wtb.bench import Bench
from wtb.domain.checkpoint import NodeRun
from wtb.domain.execution import ExecutionStatus, Pause
from wtb.domain.state import StateDelta
from wtb.domain.tools import CallKind, CallStatus, Effects, ToolCall
from wtb.runs import Run

CHECKPOINTS = 10_000
PRUNED = 100_000
KEYS, VALUE_BYTES = 100, 100_000
TURNS = 20
WORKFLOW: dict[str, Any] = {"name": "flow", "version": "1", "nodes": [], "edges": [], "reducers": {}}


def recorded(
    bench: Bench,
    checkpoints: int,
    state: dict[str, Any],
    run_id: str,
    called: Callable[[Bench, Position, NodeRun], None] = lambda bench, at, run: None,
) -> Run:
    """Return a paused run of that many steps, of which each changes one key."""
    services = bench.services
    recorder = RunWriter(services.storage, services.clock, services.ids)
    at = recorder.start(WORKFLOW, {**state, "n": 0}, execution_id=run_id, next_nodes=("work",))
    for step in range(1, checkpoints + 1):
        run = recorder.node_run(at, "work", step)
        called(bench, at, run)
        at = recorder.complete(at, run, StateDelta.setting({"n": step}), next_nodes=("work",))
    recorder.end(at, Ending(status=ExecutionStatus.PAUSED, pause=Pause(reason="measured")))
    return bench.get(run_id)


def with_a_call(bench: Bench, at: Position, run: NodeRun) -> None:
    """Record a call of a tool that a rollback leaves alone: the plan must look at it all the same."""
    now = bench.services.clock.now()
    call = ToolCall(
        execution_id=at.execution.id,
        node_run_id=run.id,
        identity="tool",
        sequence=1,
        kind=CallKind.TOOL,
        tool="tool",
        effects=Effects.NONE,
        arguments={"n": run.visit},
        status=CallStatus.SUCCEEDED,
        started_at=now,
        ended_at=now,
    )
    with bench.services.storage.unit_of_work() as uow:
        uow.tool_calls.save(call)
        uow.commit()


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
        calling = recorded(bench, CHECKPOINTS, {}, "calling", with_a_call)
        middle = run.checkpoints[CHECKPOINTS // 2].id
        near = f"10 MB, {CHECKPOINTS:,} checkpoints, ten steps back"
        dry = milliseconds(lambda: run.rollback(CHECKPOINTS - 10, dry_run=True))
        with_calls = milliseconds(lambda: calling.rollback(CHECKPOINTS - 10, dry_run=True))
        differing = milliseconds(lambda: run.diff(CHECKPOINTS - 1, CHECKPOINTS))
        far = milliseconds(lambda: run.rollback(10, dry_run=True), 3)
        small_middle = small.checkpoints[50].id
        fork, flat = milliseconds(lambda: run.fork(middle)), milliseconds(lambda: small.fork(small_middle))
        back = median(timed(run.rollback, CHECKPOINTS - 10 * (turn + 1)) for turn in range(TURNS)) * 1e3
        detail = f"one bare UPDATE and commit: {bare:.0f} µs"
        figures += [
            Figure(name=f"rollback of state alone: {near}", value=back, unit="ms", bar=5, detail=detail),
            Figure(name=f"dry run: {near}", value=dry, unit="ms", bar=5),
            Figure(name="the same of a run with a call of a tool in each step", value=with_calls, unit="ms"),
            Figure(
                name=f"diff of two states of 10 MB that differ in one key of {KEYS}", value=differing, unit="ms", bar=10
            ),
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


def memory_mb(which: str) -> float:
    """Return what this process takes (VmRSS), or took at most (VmHWM)."""
    found = re.search(rf"{which}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def pruned(folder: Path) -> tuple[float, float, int]:
    """Prune in a process of its own; return the seconds, the memory beyond that of the idle process, and how many."""
    with Bench(folder=folder) as bench:
        bench.get("long")
        idle, began = memory_mb("VmRSS"), perf_counter()
        count = sum(sum(run.counts.values()) for run in bench.services.retention.prune())
        return perf_counter() - began, memory_mb("VmHWM") - idle, count


def pruning(folder: Path) -> list[Figure]:
    """Prune one long run."""
    with Bench(folder=folder / "long") as bench:
        recorded(bench, PRUNED, {}, "long")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, memory, count = pool.apply(pruned, (folder / "long",))
    name = f"prune of {count:,} checkpoints of one run"
    return [
        Figure(name=name, value=seconds, unit="s", detail="for information"),
        Figure(name=f"{name}: memory beyond the idle process", value=memory, unit="MB", bar=100),
    ]


def main() -> None:
    """Measure everything; say what is being measured meanwhile."""
    console = Console()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name, console.status("rollback and fork"):
        figures += moving(Path(name))
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name, console.status("prune"):
        figures += pruning(Path(name))
    show("Time travel", figures, Path("build/benchmarks/time_travel.json"))


if __name__ == "__main__":
    main()
