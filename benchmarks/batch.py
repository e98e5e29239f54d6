"""Batches: what a node run costs that is executed and one that is shared; many jobs on SQLite; what sharing saves.

Nodes that do nothing show the overhead; the speed-up is that of nodes which all take the same time, waiting (as for
a model's answer) or computing, in a batch whose every way gives another result: three nodes with three variants each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import wtb
from benchmarks.report import Figure, Part, measure, timed
from wtb.application.batches.attempt import Progress

TURNS = 5
CASES = 20
THREADS = 8
JOBS = 10_000
EARLY = 2_000


def spin(seconds: float) -> None:
    """Compute for so long, holding Python's lock."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def chain(work: Callable[[], object], nodes: str = "abc", variants: int = 2) -> wtb.Workflow:
    """Return a chain of nodes that each append a letter of their own, so that every way gives another result."""
    flow = wtb.Workflow("chain")

    def make(letter: str) -> Callable[..., Any]:
        def node(state: Mapping[str, Any]) -> dict[str, Any]:
            work()
            return {"way": state["way"] + letter}

        return node

    for position, name in enumerate(nodes):
        flow.add_node(name, make(name), start=position == 0)
        for number in range(variants):
            flow.add_variant(name, f"{name}{number}", make(f"{name}{number}"))
    for one, other in pairwise(nodes):
        flow.edge(one, other)
    return flow


def cases(number: int) -> list[dict[str, Any]]:
    return [{"id": f"c{each}", "input": {"way": ""}} for each in range(number)]


def run(bench: wtb.Bench, flow: wtb.Workflow, name: str, number: int, **options: Any) -> tuple[wtb.BatchResult, float]:
    """Run a batch; return it with the seconds that it took."""
    test = wtb.BatchTest(flow, name=name, cases=cases(number), evaluators=[wtb.Steps()], **options)
    began = time.perf_counter()
    return bench.batch(test), time.perf_counter() - began


def computed(*args: Any, **options: Any) -> tuple[wtb.BatchResult, float]:
    """Run a batch; return it with the seconds of the processor that it took, which others do not lengthen."""
    began = time.process_time()
    return run(*args, **options)[0], time.process_time() - began


def overhead(folder: Path) -> list[Figure]:
    """Run 27 combinations of nodes that do nothing, on one thread: without sharing, with it, and with all to take."""
    alone_us, shared_us, taken_us = [], [], []
    flow = chain(lambda: None)
    way = {"way": ""}
    calls = [node.function for node in flow.definition().nodes if node.function is not None]
    bare_us = median(timed(lambda: [call(way) for call in calls * 1_000]) for _ in range(TURNS)) * 1e6 / 3_000
    for turn in range(TURNS):
        with wtb.Bench(folder=Path(tempfile.mkdtemp(dir=folder))) as bench:
            run(bench, flow, f"warm {turn}", 1, workers=1)
            alone, alone_s = computed(bench, flow, "alone", CASES, workers=1, share=False)
            shared, shared_s = computed(bench, flow, "shared", CASES, workers=1, seed=turn + 1)
            again, again_s = computed(bench, flow, "again", CASES, workers=1, seed=turn + 1)
        executed, taken = shared.sharing["executed"], shared.sharing["shared"]
        assert (executed, taken, alone.sharing["shared"]) == (39 * CASES, 42 * CASES, 0)
        assert again.sharing["executed"] == 0
        runs = alone.sharing["executed"]
        alone_us.append(alone_s / runs * 1e6)
        taken_us.append(again_s / runs * 1e6)
        shared_us.append((shared_s - again_s * taken / runs) / executed * 1e6)
    without, with_, taken_ = median(alone_us), median(shared_us), median(taken_us)
    return [
        Figure(
            name="processor time of a node run without sharing, its part of the job included",
            value=without,
            unit="µs",
            detail=f"the bare function takes {bare_us:.2f} µs; a job is created, run, scored and kept every three",
            raw={"bare_us": bare_us},
        ),
        Figure(
            name="node run that is executed, and kept for others ÷ without sharing",
            value=with_ / without,
            unit="×",
            bar=1.5,
            detail=f"{with_:.0f} and {without:.0f} µs; a bar of our own",
            raw={"executed_us": with_, "without_us": without},
        ),
        Figure(
            name="node run that is taken from another ÷ without sharing",
            value=taken_ / without,
            unit="×",
            bar=1.2,
            detail=f"{taken_:.0f} and {without:.0f} µs; a bar of our own",
            raw={"taken_us": taken_, "without_us": without},
        ),
    ]


def observing() -> list[Figure]:
    """Run trivial jobs with and without an observer, in processes that take turns; the fastest of each counts."""
    taken_us: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(TURNS):
        for node, observer in product(("nothing", "reading"), ("blind", "real")):
            command = [sys.executable, "-m", "benchmarks.observing", node, observer]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            taken_us[node, observer].append(float(done.stdout))
    names = {"nothing": "do nothing", "reading": "each read a file and a variable"}
    return [
        Figure(
            name=f"job of three nodes that {words}: observed ÷ not observed, processor time",
            value=min(taken_us[node, "real"]) / min(taken_us[node, "blind"]),
            unit="×",
            bar=1.05,
            detail=f"{min(taken_us[node, 'real']):.0f} and {min(taken_us[node, 'blind']):.0f} µs",
            raw={observer: min(taken_us[node, observer]) for observer in ("blind", "real")},
        )
        for node, words in names.items()
    ]


def resident_mb() -> float:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def many_jobs(folder: Path) -> list[Figure]:
    """Run 10,000 jobs on eight threads; look at the memory and the time after 2,000 of them and at the end."""
    held_mb: dict[int, float] = {}
    at_s: dict[int, float] = {}

    def told(progress: Progress) -> None:
        done = progress.completed
        if done in (1, EARLY, JOBS - EARLY, JOBS) and done not in held_mb:
            held_mb[done], at_s[done] = resident_mb(), time.perf_counter()

    flow = chain(lambda: None, "ab", 1)
    number = JOBS // 4
    with wtb.Bench(folder=Path(tempfile.mkdtemp(dir=folder))) as bench:
        test = wtb.BatchTest(flow, cases=cases(number), evaluators=[wtb.Steps()], workers=THREADS)
        began = time.perf_counter()
        result = bench.batch(test, on_progress=told)
        seconds = time.perf_counter() - began
        assert (result.status, result.sharing["executed"]) == ("completed", 6 * number)
    early_s, late_s = at_s[EARLY] - at_s[1], at_s[JOBS] - at_s[JOBS - EARLY]
    return [
        Figure(
            name=f"{JOBS:,} jobs of two nodes, SQLite, {THREADS} threads",
            value=JOBS / seconds,
            unit="jobs/s",
            detail=f"{seconds:.1f} s; {6 * number:,} node runs executed, {2 * number:,} shared",
            raw={"seconds": seconds},
        ),
        Figure(
            name=f"memory that jobs {EARLY:,} to {JOBS:,} add",
            value=held_mb[JOBS] - held_mb[EARLY],
            unit="MB",
            bar=20,
            detail=f"{held_mb[EARLY]:.0f} and {held_mb[JOBS]:.0f} MB held; a bar of our own",
            raw={"early_mb": held_mb[EARLY], "end_mb": held_mb[JOBS]},
        ),
        Figure(
            name=f"the last {EARLY:,} jobs ÷ the first",
            value=late_s / early_s,
            unit="×",
            bar=1.25,
            detail=f"{late_s:.2f} and {early_s:.2f} s; a bar of our own",
            raw={"late_s": late_s, "early_s": early_s},
        ),
    ]


def speed_up(folder: Path, label: str, work: Callable[[], object], bar: float | None) -> list[Figure]:
    """Run 3 × 3 × 3 combinations of nodes that all take the same time, with sharing and without, in turns."""
    flow = chain(work)
    with_s, without_s = [], []
    for turn in range(3):
        with wtb.Bench(folder=Path(tempfile.mkdtemp(dir=folder))) as bench:
            run(bench, chain(lambda: None), "warm", 1, workers=1)
            shared, seconds = run(bench, flow, "shared", 1, workers=1, seed=turn + 1)
            with_s.append(seconds)
            without_s.append(run(bench, flow, "alone", 1, workers=1, share=False)[1])
        assert shared.sharing["executed"] == 39
    with_, without = median(with_s), median(without_s)
    return [
        Figure(
            name=f"3 × 3 × 3, nodes that {label}: with sharing ÷ without",
            value=with_ / without,
            unit="×",
            bar=bar,
            detail=f"{without / with_:.2f} times as fast, at best 81 ÷ 39 = 2.08 ({with_:.2f} and {without:.2f} s)",
            raw={"with_s": with_, "without_s": without},
        )
    ]


def main() -> None:
    """Measure everything."""
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name:
        folder = Path(name)
        parts: list[Part] = [
            ("overhead", partial(overhead, folder)),
            ("observing", observing),
            (f"{JOBS:,} jobs", partial(many_jobs, folder)),
            ("waiting 50 ms", partial(speed_up, folder, "wait 50 ms", partial(time.sleep, 0.05), round(1 / 1.9, 3))),
            ("waiting 5 ms", partial(speed_up, folder, "wait 5 ms", partial(time.sleep, 0.005), None)),
            ("computing 5 ms", partial(speed_up, folder, "compute 5 ms", partial(spin, 0.005), None)),
        ]
        measure("Batches", Path("build/benchmarks/batch.json"), parts)


if __name__ == "__main__":
    main()
