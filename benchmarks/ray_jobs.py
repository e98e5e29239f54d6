"""What Ray adds to a job: the same trivial jobs on one worker of Ray and on one thread, in the same database."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import wtb
from benchmarks.report import Figure
from wtb.batches import load_batch
from wtb.infrastructure.runners.ray_cluster import RayCluster

TURNS = 3
JOBS = 300
TRIVIAL = """
import wtb

flow = wtb.Workflow("trivial")


@flow.node(start=True)
def answer(state):
    return {"answer": state["number"]}


cases = [{"id": str(number), "input": {"number": number}} for number in range(JOBS)]
batch = wtb.BatchTest(flow, cases=cases, evaluators=["steps"], workers=1, share=False)
"""


def job_ms(bench: wtb.Bench, file: Path, runner: str, turn: int) -> float:
    """Run the batch; return the milliseconds a job, from the start of the first to the end of the last."""
    result = bench.batch(load_batch(str(file)), runner=runner, name=f"{runner} {turn}")
    assert result.status == "completed"
    started = [job.started for job in result.results if job.started is not None]
    ended = [job.ended for job in result.results if job.ended is not None]
    return (max(ended) - min(started)).total_seconds() * 1e3 / JOBS


def on_ray(folder: Path) -> list[Figure]:
    """A trivial job on Ray less the same job on a thread."""
    file = folder / "trivial.py"
    file.write_text(f"JOBS = {JOBS}\n{TRIVIAL}")
    cluster = RayCluster(1, None, folder)
    try:
        with wtb.Bench(folder=folder / "ray_jobs") as bench:
            found = [[job_ms(bench, file, each, turn) for each in ("threads", "ray")] for turn in range(TURNS)]
    finally:
        cluster.close()
    more = median(ray - threads for threads, ray in found)
    threads, ray = (median(times) for times in zip(*found, strict=True))
    return [
        Figure(
            name=f"{JOBS} trivial jobs: a job on Ray less the same job on a thread",
            value=more,
            unit="ms",
            bar=3.0,
            detail=f"Ray {ray:.2f} ms, a thread {threads:.2f} ms",
            raw={"ray_ms": ray, "threads_ms": threads},
        )
    ]
