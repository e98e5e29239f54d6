"""Tells short runs with a fork, a line that was left and files; prunes and sweeps them, and is killed doing so.

Started once, it forks a child for every job, as `engine_worker.py` does, with the same points and those of the object
store: before and after every commit and every removal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wtb
from tests.crash import engine_worker as engine
from wtb.application.upkeep import retention
from wtb.infrastructure.files import confined, store
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.files.store import LocalFolderStore
from wtb.infrastructure.upkeep import ledger
from wtb.testing.fakes import CrashPoints

KEPT = 2
SETTINGS: dict[str, Any] = {"retention": {"keep_last": KEPT, "keep_workspaces_days": 0}, "sweep_grace_s": 0}
"""Little is kept, and what nothing refers to goes at once: nobody else is at work."""

flow = wtb.Workflow("growing")
flow.reducer("items", wtb.append)


@flow.node(start=True)
def grow(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Change values and files of every size."""
    number = state["n"] + 1
    text = f"{ctx.run.execution_id} {number} "
    (ctx.workspace / "large").write_text(text * 900)
    (ctx.workspace / "small").write_text(text)
    (ctx.workspace / f"file-{number % 3}").write_text(text * (500 if number % 2 else 1))
    return {"n": number, "items": text * 90, "value": {"text": text * 40}}


flow.edge("grow", "grow", when="n < 9")


def tell(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Run, leave the end of it, go on, and fork the middle: something of everything that may go and that must stay."""
    run = bench.run(flow, {"n": 0}, run_id=job["run"])
    run.rollback("grow#6")
    fork = run.fork("grow#4", run_id=f"fork-of-{run.id}")
    for each in (fork, run):
        bench.resume(each.id, flow)


def prune(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Delete what may go."""
    assert [each.problem for each in bench.services.retention.prune() if each.problem] == []


def collect(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Remove workspaces."""
    assert [each.kept for each in bench.services.collection.collect() if each.kept] == []


def sweep(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Collect what nothing refers to."""
    bench.services.retention.sweep()


VERBS = {each.__name__: each for each in (tell, prune, collect, sweep)}


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the job says, in many small transactions; the points that are passed count once the bench is open."""
    engine.effects = Path(job["effects"])
    engine.effects.mkdir(exist_ok=True)
    retention.BATCH = 3
    ledger.batches.__defaults__ = (4,)
    with wtb.Bench(job["url"], folder=job["folder"], **SETTINGS) as bench:
        name, passing = job["die_at"] or ("", 0)
        engine.points = CrashPoints(lambda: os.kill(os.getpid(), signal.SIGKILL), at=name, passing=passing)
        engine.watch()
        VERBS[job["verb"]](bench, job)
        return {"passed": dict(engine.points.passed), "error": None}


def serve() -> None:
    """Fork a child for every job."""
    engine.run = run
    engine.FILE_STEPS = (
        *engine.FILE_STEPS,
        (LocalObjectStore, "delete"),
        (LocalObjectStore, "discard_unfinished"),
        (LocalFolderStore, "rename"),
        (LocalFolderStore, "remove"),
        (LocalFolderStore, "write_note"),
        (store, "remove_folder"),
        (confined, "_emptied"),
    )
    engine.serve()
