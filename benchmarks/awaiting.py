"""Awaited runs: how long the caller's event loop stands still while a run of 200 steps goes on.

A task of the caller's sleeps for a millisecond again and again. A stall is what it wakes up too late. Rounds with a
run take turns with rounds of the same length in which nothing runs, since the machine itself has stalls.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import wtb
from benchmarks.report import Figure, measure

STEPS, ROUNDS = 200, 9
TICK_S = 0.001
BAR_MS = 50.0


def looping(payload: int) -> wtb.Workflow:
    """Return a workflow of 200 steps; each makes a call that is recorded, and keeps a text of this length."""
    flow = wtb.Workflow("looping")

    async def work(state: Mapping[str, Any], ctx: wtb.Context) -> dict[str, Any]:
        await ctx.astep("think", asyncio.sleep, 0)
        ctx.emit({"step": state["n"]})
        return {"n": state["n"] + 1, "text": str(state["n"]) * payload}

    flow.add_node("work", work, start=True)
    flow.edge("work", "work", when=f"n < {STEPS}")
    flow.edge("work", wtb.END, otherwise=True)
    return flow


async def stalls_ms(work: Callable[[], Awaitable[object]]) -> list[float]:
    """Return what a task woke up too late while the work went on."""
    found: list[float] = []

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            found.append((time.perf_counter() - began - TICK_S) * 1e3)

    ticking = asyncio.create_task(tick())
    await work()
    ticking.cancel()
    return found


async def rounds(bench: wtb.Bench, payload: int) -> tuple[list[float], list[float], float]:
    """Return the longest stall of each round, with a run and idle, and the median time of a run."""
    running, idle, took = [], [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        running.append(max(await stalls_ms(lambda: bench.arun(looping(payload), {"n": 0, "text": ""}))))
        took.append(time.perf_counter() - began)
        idle.append(max(await stalls_ms(lambda: asyncio.sleep(took[-1]))))
    return running, idle, median(took)


def stall(folder: Path, name: str, payload: int) -> list[Figure]:
    """Measure one size of state on SQLite."""
    with wtb.Bench(folder=Path(tempfile.mkdtemp(dir=folder)) / "wtb") as bench:
        running, idle, took_s = asyncio.run(rounds(bench, payload))
    return [
        Figure(
            name=f"longest stall of the caller's loop, {STEPS} steps, {name}",
            value=median(running),
            unit="ms",
            bar=BAR_MS,
            detail=f"median of {ROUNDS} runs of {took_s:.2g} s; worst run {max(running):.3g} ms; "
            f"idle: median {median(idle):.3g} ms, worst {max(idle):.3g} ms",
            raw={"worst": max(running), "idle": median(idle), "worst_idle": max(idle)},
        )
    ]


def main() -> None:
    """Measure and show."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        parts = [
            ("small state", lambda: stall(folder, "small state", 1)),
            ("text of 300 kB", lambda: stall(folder, "300 kB a step", 100_000)),
        ]
        measure("Awaited runs", Path("build/benchmarks/awaiting.json"), parts)


if __name__ == "__main__":
    main()
