"""Scale: processes against threads, what Ray adds to a job, many jobs on Ray, a trivial job against Inspect AI.

Every figure is measured in turns, one way right after the other, so that what else the machine does meets both. The
time that worker processes take to start is part of their figures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.inspect_jobs import against_inspect
from benchmarks.many_ray_jobs import many_on_ray
from benchmarks.ray_jobs import on_ray
from benchmarks.report import Figure, Part, measure

ROOT = Path(__file__).parents[1]
TURNS = int(os.environ.get("WTB_BENCH_TURNS", "3"))
JOBS = int(os.environ.get("WTB_BENCH_JOBS", "1000"))
COMPUTING = """
import time

import wtb

flow = wtb.Workflow("computing")


def compute(state):
    until = time.thread_time() + 0.02
    total = 0
    while time.thread_time() < until:
        total += sum(range(1_000))
    return {"answer": state["number"]}


for position, name in enumerate("abc"):
    flow.add_node(name, compute, start=position == 0)
flow.edge("a", "b")
flow.edge("b", "c")
cases = [{"id": str(number), "input": {"number": number}} for number in range(JOBS)]
batch = wtb.BatchTest(flow, cases=cases, evaluators=["steps"])
"""


class Took(NamedTuple):
    """What a batch took: seconds, and the node runs that it executed."""

    seconds: float
    executed: int


def run(folder: Path, file: Path | str, *options: str) -> Took:
    """Run a batch anew, as a command in a folder of its own; return what it took."""
    shutil.rmtree(folder / ".wtb", ignore_errors=True)
    command = [sys.executable, "-P", "-m", "wtb", "batch", "run", str(file), "--json", *options]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=True)
    took_s = time.perf_counter() - began
    result = json.loads(done.stdout)
    assert result["status"] == "completed"
    return Took(took_s, result["node_runs"]["executed"])


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which Python keeps compiled files, as it does for users.

    Else every worker would compile WTB again, which takes as long as everything else that it does to start.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def in_turns(folder: Path, file: Path | str, *ways: Sequence[str]) -> list[Took]:
    """Return what each way to run a batch took: the median seconds, and the most node runs."""
    run(folder, file, *ways[-1])  # compiles everything
    found = [[run(folder, file, *way) for way in ways] for _ in range(TURNS)]
    together = zip(*found, strict=True)
    return [Took(median(took.seconds for took in way), max(took.executed for took in way)) for way in together]


def computing(folder: Path) -> list[Figure]:
    """Jobs of three nodes that compute 20 ms each: two processes against one thread."""
    (folder / "computing.py").write_text(f"JOBS = {JOBS}\n{COMPUTING}")
    ways = ("--workers", "1"), ("--runner", "processes", "--workers", "2")
    one, two = (took.seconds for took in in_turns(folder, "computing.py", *ways))
    return [
        Figure(
            name=f"{JOBS:,} jobs of three nodes that compute 20 ms: two processes, as a share of one thread's time",
            value=two / one,
            unit="×",
            bar=1 / 1.8,
            detail=f"{one / two:.2f} times as quick: {two:.1f} s, one thread {one:.1f} s",
            raw={"one_thread_s": one, "two_processes_s": two},
        )
    ]


def demo(folder: Path) -> list[Figure]:
    """The support example, 3,600 jobs: two processes against threads, each with its own default of workers."""
    file = ROOT / "examples" / "support_qa" / "batch.py"
    one_worker = run(folder, file, "--workers", "1").executed
    in_threads, in_processes = in_turns(folder, file, (), ("--runner", "processes"))
    threads, processes = in_threads.seconds, in_processes.seconds
    return [
        Figure(
            name="node runs that two processes execute and one worker does not: shared work runs once",
            value=in_processes.executed - one_worker,
            unit="",
            bar=0,
            detail=f"{one_worker:,} by one, {in_threads.executed:,} in threads, {in_processes.executed:,} in processes",
        ),
        Figure(
            name="the support example: processes, as a share of the time of threads",
            value=processes / threads,
            unit="×",
            bar=1 / 1.6,
            detail=f"{threads / processes:.2f} times as quick: {processes:.1f} s, threads {threads:.1f} s",
            raw={"threads_s": threads, "processes_s": processes},
        ),
    ]


def main() -> None:
    """Measure everything, or the parts whose names are arguments."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: list[Part] = [
            ("jobs that compute", lambda: computing(folder)),
            ("the support example", lambda: demo(folder)),
            ("jobs on Ray", lambda: on_ray(folder)),
            ("many jobs on Ray", lambda: many_on_ray(folder)),
            ("Inspect AI", against_inspect),
        ]
        wanted = [part for part in parts if not sys.argv[1:] or part[0] in sys.argv[1:]]
        measure(f"Scale, {os.cpu_count()} cores", Path("build/benchmarks/scale.json"), wanted)


if __name__ == "__main__":
    main()
