"""Awaited runs: how long the caller's event loop stands still while a run of 200 steps goes on.

A task of the caller's sleeps for a millisecond again and again. A stall is what it wakes up too late. Rounds with a
run take turns with rounds of the same length in which nothing runs, since the machine itself has stalls. The processor
time of the loop's thread between two ticks does not depend on who else uses the machine.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import wtb
from benchmarks.report import Figure, measure

STEPS, ROUNDS = 200, 7
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


@dataclass
class Round:
    """The longest stall of a round, and the most processor time of the loop's thread between two ticks."""

    stall_ms: float = 0.0
    cpu_ms: float = 0.0
    took_s: float = 0.0


async def watched(work: Callable[[], Awaitable[object]]) -> Round:
    """Do the work while a task looks how late it wakes up."""
    found = Round()

    async def tick() -> None:
        while True:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK_S)
            found.stall_ms = max(found.stall_ms, (time.perf_counter() - began - TICK_S) * 1e3)
            found.cpu_ms = max(found.cpu_ms, (time.thread_time() - used) * 1e3)

    ticking = asyncio.create_task(tick())
    began = time.perf_counter()
    await work()
    found.took_s = time.perf_counter() - began
    ticking.cancel()
    return found


async def rounds(bench: wtb.Bench, payload: int) -> tuple[list[Round], list[Round]]:
    """Return rounds with a run, and idle ones of the same length."""
    running, idle = [], []
    for _ in range(ROUNDS):
        running.append(await watched(lambda: bench.arun(looping(payload), {"n": 0, "text": ""})))
        idle.append(await watched(lambda: asyncio.sleep(running[-1].took_s)))
    return running, idle


def stall(folder: Path, name: str, payload: int) -> list[Figure]:
    """Measure one size of state on SQLite."""
    with wtb.Bench(folder=Path(tempfile.mkdtemp(dir=folder)) / "wtb") as bench:
        running, idle = asyncio.run(rounds(bench, payload))
    stalls, idles = [each.stall_ms for each in running], [each.stall_ms for each in idle]
    took_s = median(each.took_s for each in running)
    return [
        Figure(
            name=f"longest stall of the caller's loop, {STEPS} steps, {name}",
            value=median(stalls),
            unit="ms",
            bar=BAR_MS,
            detail=f"median of {ROUNDS} runs of {took_s:.2g} s; worst run {max(stalls):.3g} ms; "
            f"idle: median {median(idles):.3g} ms, worst {max(idles):.3g} ms",
            raw={"worst": max(stalls), "idle": median(idles), "worst_idle": max(idles)},
        ),
        Figure(
            name="most processor time of the loop's thread between two ticks",
            value=max(each.cpu_ms for each in running),
            unit="ms",
            bar=BAR_MS,
            detail=f"worst of {ROUNDS} runs; idle: {max(each.cpu_ms for each in idle):.3g} ms",
        ),
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
