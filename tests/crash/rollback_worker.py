"""Takes one run back, forward and apart and deletes parts of it, and is killed doing so.

Started once, it forks a child for every job, as `engine_worker.py` does, with the same points: before and after every
commit, every effect of a tool and of its reversal, and every step in the file system.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wtb
from tests.crash import engine_worker as engine
from wtb.application.runs.reversals import ReversalInDoubt
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.domain.errors import CheckpointNotFound, ExecutionNotFound
from wtb.domain.execution import ExecutionStatus
from wtb.domain.tools import ToolCall
from wtb.testing.fakes import CrashPoints

flow = wtb.Workflow("travelling")


def taken_back(call: ToolCall) -> None:
    """Undo what was done."""
    engine.effect("world", f"-{call.arguments['text']}")


def is_in_effect(text: str) -> bool:
    """Say whether something was done and not undone."""
    log = engine.lines("world")
    return log.count(f"+{text}") > log.count(f"-{text}")


def happened(call: ToolCall) -> str | None:
    """Answer for a call whose fate is unknown."""
    return "done" if is_in_effect(call.arguments["text"]) else None


@wtb.tool(reverse=taken_back)
def opened(text: str) -> str:
    """Do something that can be undone; whether it happened somebody must find out."""
    engine.effect("world", f"+{text}")
    return "done"


@wtb.tool(reverse=taken_back, confirm=happened)
def booked(text: str) -> str:
    """Do something that can be undone, and asked about."""
    engine.effect("world", f"+{text}")
    return "done"


def work(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Change every kind of file, and the world in between."""
    number = state.get("n", 0) + 1
    name = f"{ctx.run.execution_id}-{ctx.run.node}-{number}"
    folder: Path = ctx.workspace
    ctx.tool(opened, text=f"{name}-one")
    (folder / f"file-{number}").write_bytes(f"{name} ".encode() * 3_000)
    (folder / "same").write_text(name)
    (folder / "same").chmod(0o600 if number % 2 else 0o755)
    (folder / f"folder-{number}").mkdir()
    (folder / f"folder-{number}" / "link").symlink_to(f"../file-{number}")
    ctx.tool(booked, text=f"{name}-two")
    if (folder / f"file-{number - 1}").exists():
        (folder / f"file-{number - 1}").rename(folder / f"folder-{number}" / "moved")
    return {"n": number, "log": name}


def member(state: Mapping[str, Any], ctx: Any) -> None:
    """Do something beside another."""
    ctx.tool(opened, text=f"{ctx.run.execution_id}-{ctx.run.node}-{state['n']}")
    (ctx.workspace / f"{ctx.run.node}-{state['n']}").touch()


flow.reducer("log", wtb.append)
for node in ("a", "b", "c"):
    flow.add_node(node, work, start=node == "a")
for node in ("left", "right"):
    flow.add_node(node, member)
    flow.edge("a", node)
flow.edge(["left", "right"], "b")
flow.edge("b", "c")


def begin(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Run to the end, with a checkpoint at every call."""
    bench.run(flow, {}, run_id=job["run"], fine_grained=True)


def rollback(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Go back, or see that it was done."""
    run = bench.get(job["run"])
    if run.waiting is None or not run.waiting.reason.startswith("rolled back"):
        run.rollback(job["target"])


def redo(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Go forward again, or see that it was done."""
    run = bench.get(job["run"])
    if run.waiting is not None and run.waiting.reason.startswith("rolled back"):
        run.redo()


def fork(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Begin another run with another state, unless it is there."""
    try:
        bench.get(f"fork-of-{job['run']}")
    except ExecutionNotFound:
        bench.get(job["run"]).fork(job["target"], update={"forked": True}, run_id=f"fork-of-{job['run']}")


def delete_checkpoint(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Delete a checkpoint, unless it is gone."""
    try:
        bench.get(job["run"]).delete("left")
    except CheckpointNotFound:
        return


def delete_run(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Delete the run, unless it is gone."""
    try:
        bench.get(job["run"]).delete()
    except ExecutionNotFound:
        return


def finish(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Finish what is half done, or give it up; say the truth about a call when that is asked."""
    run = bench.get(job["run"])
    if run.status is not ExecutionStatus.ROLLING_BACK:
        return
    go = run.abandon_rollback if job["gives_up"] else run.continue_rollback
    try:
        go()
    except (RollbackFailed, ReversalInDoubt):
        go(in_doubt=truth(bench, job["run"]))


def truth(bench: wtb.Bench, run: str) -> str:
    """Say whether what was being done to a call was done."""
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        calls = uow.tool_calls.list_calls(run)  # type: ignore[arg-type]
    [call] = [call for call in calls if call.status in ("reversing", "redoing")]
    return "done" if is_in_effect(call.arguments["text"]) == (call.status == "redoing") else "again"


def race(bench: wtb.Bench, job: Mapping[str, Any]) -> None:
    """Do something that others do at the same time; whoever is refused says so."""
    run = bench.get(job["run"])
    name = job["name"]
    deeds: dict[str, Any] = {
        "rollback": lambda: run.rollback(job["target"], shared="reverse"),
        "redo": run.redo,
        "fork": lambda: run.fork(job["target"], run_id=name),
        "name": lambda: run.checkpoint(name),
        "delete": lambda: run.delete(job["target"]),
        "resume": lambda: bench.resume(run.id, flow, break_after=["a", "left", "b"]),
    }
    deeds[job["deed"]]()


VERBS = {each.__name__: each for each in (begin, rollback, redo, fork, delete_checkpoint, delete_run, finish, race)}


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the job says; the points that are passed count from when the bench is open."""
    engine.effects = Path(job["effects"])
    engine.effects.mkdir(exist_ok=True)
    with wtb.Bench(job["url"], folder=job["folder"]) as bench:
        name, passing = job["die_at"] or ("", 0)
        engine.points = CrashPoints(lambda: os.kill(os.getpid(), signal.SIGKILL), at=name, passing=passing)
        engine.watch()
        VERBS[job["verb"]](bench, job)
        passed = dict(engine.points.passed)
        try:
            status = bench.get(job["run"]).status.value
        except ExecutionNotFound:
            status = "gone"
    return {"status": status, "passed": passed, "error": None}


def serve() -> None:
    """Fork a child for every job."""
    engine.run = run
    engine.serve()
