"""Runs or resumes one workflow that uses every kind of tool, files and a parallel superstep, and is killed doing so.

Started once, it forks a child for every job (a line of JSON) that it reads: a fork begins without the second that
Python needs to import everything, and has no connection that was opened before. Lines that it writes:

    said {…}        what a child that was not killed has to say
    ended CODE      the child is gone
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import tests.crash.preloaded  # noqa: F401
import wtb
from wtb.domain.errors import ExecutionNotFound
from wtb.domain.execution import ExecutionStatus
from wtb.domain.tools import ToolCall
from wtb.infrastructure.files import folders
from wtb.infrastructure.files.confined import ConfinedFolder
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.files.scanner import Scanner
from wtb.infrastructure.files.swap import Swap
from wtb.infrastructure.unit_of_work import TransactionalUnitOfWork
from wtb.testing.fakes import CrashPoints

ROUNDS = 2
FILE_STEPS: tuple[tuple[Any, str], ...] = (
    (folders, "stage"),
    (folders, "clear"),
    (folders, "save_index"),
    (Swap, "run"),
    (Swap, "_set_modes"),
    (ConfinedFolder, "move"),
    (ConfinedFolder, "make_folder"),
    (ConfinedFolder, "create_file"),
    (ConfinedFolder, "remove_all"),
    (Scanner, "run"),
    (LocalObjectStore, "_rename"),
    (LocalObjectStore, "sync"),
)

flow = wtb.Workflow("crashing")
points = CrashPoints(lambda: None)
effects = Path()
"""Where this run leaves what it did to the world: a file for each kind of tool."""


def say(line: str) -> None:
    """Write a line at once and whole."""
    os.write(1, f"{line}\n".encode())


def lines(name: str) -> list[str]:
    """Return what was written to a file of effects."""
    path = effects / name
    return path.read_text().splitlines() if path.exists() else []


def write(name: str, line: str) -> None:
    """Append a line in one system call, as a message that is sent: it happened or it did not."""
    descriptor = os.open(effects / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def effect(name: str, line: str) -> None:
    """Do something to the world; the process may end right before and right after it."""
    points.reach(f"before effect of {name}")
    write(name, line)
    points.reach(f"after effect of {name}")


def happened(call: ToolCall) -> bool | None:
    """Say whether a call whose fate is unknown was made."""
    return True if call.arguments["text"] in lines("confirmed") else None


@wtb.tool(confirm=happened)
def confirmed(text: str) -> bool:
    """Send something that can be asked about afterwards."""
    effect("confirmed", text)
    return True


@wtb.tool(idempotent=True)
def keyed(text: str, *, idempotency_key: str) -> bool:
    """Send something to a receiver that knows its keys."""
    if idempotency_key not in {line.split()[0] for line in lines("keyed")}:
        effect("keyed", f"{idempotency_key} {text}")
    return True


def taken_back(call: ToolCall) -> None:
    """Undo a reservation, if it was made."""
    text = call.arguments["text"]
    if lines("reserved").count(f"+{text}") > lines("reserved").count(f"-{text}"):
        effect("reserved", f"-{text}")


@wtb.tool(reverse=taken_back, reverse_in_doubt=True)
def reserved(text: str) -> bool:
    """Do something that can be undone, also when nobody knows whether it was done."""
    effect("reserved", f"+{text}")
    return True


@wtb.tool
def plain(text: str) -> None:
    """Send something that nobody can ask about, repeat or undo."""
    effect("plain", text)


@wtb.tool(effects="workspace")
def noted(folder: str, text: str) -> bool:
    """Write into the workspace."""
    points.reach("before effect of noted")
    append(Path(folder) / "noted", text)
    points.reach("after effect of noted")
    return True


def measured() -> str:
    """Give another result every time."""
    points.reach("within a step")
    return secrets.token_hex(4)


def large(visit: str) -> bytes:
    """Return more than is kept in the database, and other than any other run's: the object store has work too."""
    return f"{effects} {visit} ".encode() * 500


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(f"{text}\n")


def begin(node: str, state: Mapping[str, Any], ctx: Any) -> tuple[str, Path]:
    """Leave a trace of this start and a file that must not outlive it; return the name of the visit and the file."""
    visit = f"{node}-{len(state.get(node, ())) + 1}"
    write("trace", f"began {visit}")
    scratch: Path = ctx.workspace / f"scratch-{node}"
    scratch.write_text("half done")
    return visit, scratch


@flow.node(start=True)
def collect(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Alone in its superstep: every kind of tool, small and large files, a recorded result."""
    visit, scratch = begin("collect", state, ctx)
    text = f"{visit}-{ctx.step('measure', measured)}"
    append(ctx.workspace / "log", visit)
    ctx.tool(noted, str(ctx.workspace), visit, key="noted")
    for tool in (confirmed, keyed, reserved, plain):
        ctx.tool(tool, text=text)
    (ctx.workspace / visit).write_bytes(large(visit))
    scratch.unlink()
    return {"collect": text}


@flow.node()
def left(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """A member of a parallel superstep."""
    visit, scratch = begin("left", state, ctx)
    text = f"{visit}-{ctx.step('measure', measured)}"
    for tool in (confirmed, keyed, reserved):
        ctx.tool(tool, text=text)
    append(ctx.workspace / "left", visit)
    scratch.unlink()
    return {"left": text}


@flow.node()
async def right(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The other member, async, with calls at the same time."""
    visit, scratch = begin("right", state, ctx)
    text = f"{visit}-{ctx.step('measure', measured)}"
    await asyncio.gather(*(ctx.atool(tool, text=text) for tool in (confirmed, keyed, reserved)))
    append(ctx.workspace / "right", visit)
    scratch.unlink()
    return {"right": text}


@flow.node()
def join(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Look at what the members made together."""
    visit, scratch = begin("join", state, ctx)
    scratch.unlink()
    names = sorted(path.name for path in ctx.workspace.iterdir())
    write("trace", f"found {' '.join(names)}")
    return {"join": visit}


for key in ("collect", "left", "right", "join"):
    flow.reducer(key, wtb.append)
flow.edge("collect", "left")
flow.edge("collect", "right")
flow.edge(["left", "right"], "join")
flow.edge("join", "collect", when=f"size(join) < {ROUNDS}")
flow.edge("join", wtb.END, otherwise=True)


def watch() -> None:
    """Put points before and after every commit and every step in the file system."""
    for owner, name in FILE_STEPS:
        setattr(owner, name, passing(f"{owner.__name__.rpartition('.')[2]}.{name}", getattr(owner, name)))
    commit = TransactionalUnitOfWork.commit

    def watched(uow: TransactionalUnitOfWork) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_name == "commit" and frame.f_back is not None:  # what a subclass makes of it
            frame = frame.f_back
        name = commit_in(frame)
        points.reach(f"before {name}")
        commit(uow)
        for visit in kept_in(frame):
            write("trace", f"kept {visit}")
        points.reach(f"after {name}")

    TransactionalUnitOfWork.commit = watched  # type: ignore[assignment, method-assign]


def passing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def passed(*args: Any, **kwargs: Any) -> Any:
        points.reach(f"before {name}")
        result = function(*args, **kwargs)
        points.reach(f"after {name}")
        return result

    return passed


def commit_in(frame: FrameType) -> str:
    """Return a name for the commit that is made in this frame: the function's, and which call it is about."""
    call = frame.f_locals.get("call") if frame.f_code.co_name == "_write" else None
    return f"commit of {frame.f_code.co_name}" + ("" if call is None else f" {call.tool} {call.status}")


def kept_in(frame: FrameType) -> list[str]:
    """Return the visits whose results are kept by the commit in this frame."""
    match frame.f_code.co_name:
        case "keep_pending":
            runs = [frame.f_locals["run"]]
        case "step":
            runs = frame.f_locals["step"].runs
        case _:
            runs = []
    return [f"{run.node}-{run.visit}" for run in runs]


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Go on with the run, or begin it; return how it stands then."""
    global points, effects  # noqa: PLW0603  the tools of a workflow are functions of its module
    name, passing = job["die_at"] or ("", 0)
    points = CrashPoints(lambda: os.kill(os.getpid(), signal.SIGKILL), at=name, passing=passing)
    effects = Path(job["effects"])
    effects.mkdir(exist_ok=True)
    watch()
    began = time.perf_counter()
    with wtb.Bench(job["url"], folder=job["folder"]) as bench:
        try:
            found = bench.get(job["run"])
        except ExecutionNotFound:
            found = bench.create(flow, {}, run_id=job["run"])
        if found.status is not ExecutionStatus.COMPLETED:  # else the last word was lost with the last kill
            answer = job["answer"] if found.waiting is not None else None
            found = bench.resume(found.id, flow, answer=answer)
        waiting = found.waiting
        return {
            "status": found.status,
            "error": None if found.error is None else found.error.traceback or found.error.message,
            "waiting": None if waiting is None else {"reason": waiting.reason, **(waiting.question or {})},
            "passed": points.passed,
            "seconds": time.perf_counter() - began,
        }


def wait(job: Mapping[str, Any], pid: int) -> None:
    """Let the time pass that a child has."""
    time.sleep(job["kill_after_s"])


def has_ended(pid: int) -> bool:
    """Whether a child is over; it is left for others to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def serve() -> None:
    """Fork a child for every job, kill it when its time is over, and tell how it ended."""
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                say(f"said {json.dumps(run(job))}")
            except BaseException:  # noqa: BLE001  the test shows it
                say(f"said {json.dumps({'status': 'raised', 'error': traceback.format_exc()})}")
            finally:
                os._exit(0)
        if job["kill_after_s"] is not None:
            wait(job, pid)
            os.kill(pid, signal.SIGKILL)  # it is there still, if only as a zombie: nobody else gets its pid
        say(f"ended {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
