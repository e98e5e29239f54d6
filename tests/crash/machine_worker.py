"""Runs, resumes or rolls back one workflow in a process of its own: under a wrong clock, or in another container.

    python -m tests.crash.machine_worker VERB HOME [URL]

`HOME/world` holds a line for every reservation that was made (+) or taken back (-), in order. `HOME/clock` is what
libfaketime reads the time from. The process writes one line of JSON: how the run stands, or why it may not be touched.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import wtb
from wtb.domain.errors import Conflict

RUN = "booking"
JUMPS_S = (-3_600, 86_400, -7_200, 60, -86_400)
"""How far the clock is from the right one, one jump after the other."""
POLL_S = 0.02
PATIENCE_S = 90.0

home = Path()
flow = wtb.Workflow(RUN)


def world() -> list[str]:
    """Return what was done to the world, in order."""
    path = home / "world"
    return path.read_text().splitlines() if path.exists() else []


def write(line: str) -> None:
    """Append a line in one system call: it happened or it did not."""
    descriptor = os.open(home / "world", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def jump(number: int) -> None:
    """Set the clock, if it is a false one, and see that it was set."""
    clock = home / "clock"
    if not clock.exists():
        return
    offset_s, before = JUMPS_S[number % len(JUMPS_S)], time.time()
    draft = home / "clock.new"
    draft.write_text(f"{offset_s:+d}\n")
    draft.replace(clock)
    assert abs(time.time() - before) > 30, "libfaketime does not follow the file"


def cancel(call: Any) -> None:
    write(f"-{call.arguments['seat']}")


@wtb.tool(name="reserve on a machine", reverse=cancel)
def reserve(seat: str) -> str:
    """Reserve a seat."""
    write(f"+{seat}")
    return seat


@wtb.tool(name="linger on a machine", idempotent=True)
def linger(name: str) -> str:
    """Be in a call until `HOME/go` is there; a second call would be seen in the world."""
    write(f"+{name}")
    wait_for((home / "go").exists)
    return name


def wait_for(is_there: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not is_there():
        assert time.monotonic() - began < PATIENCE_S, "nobody came"
        time.sleep(POLL_S)


@flow.node(start=True)
def first(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Reserve, with the clock set back and forward in between, and a checkpoint in the middle."""
    ctx.tool(reserve, seat="a")
    jump(0)
    ctx.checkpoint("mid")
    ctx.tool(reserve, seat="b")
    jump(1)
    ctx.tool(reserve, seat="c")
    return {"seats": 3}


@flow.node()
def left(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Beside `right`: both under a clock that jumps."""
    jump(2)
    ctx.tool(reserve, seat="left")
    return {"left": True}


@flow.node()
def right(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Beside `left`."""
    ctx.tool(reserve, seat="right")
    return {"right": True}


@flow.node()
def last(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Stay in a call, then reserve under a clock that was set back by a day."""
    ctx.tool(linger, name="linger")
    jump(3)
    ctx.tool(reserve, seat="d")
    jump(4)
    ctx.tool(reserve, seat="e")
    return {"last": True}


flow.edge("first", "left")
flow.edge("first", "right")
flow.edge(["left", "right"], "last")


def run(bench: wtb.Bench) -> wtb.Run:
    return bench.run(flow, {}, run_id=RUN)


def resume(bench: wtb.Bench) -> wtb.Run:
    return bench.resume(RUN, flow)


def roll_back(bench: wtb.Bench) -> wtb.Run:
    found = wtb.Run(bench, bench.get(RUN).id, flow)
    found.rollback("mid", allow_irreversible=True)
    (home / "at_mid").write_text("\n".join(world()))
    found.rollback(0, allow_irreversible=True)
    return found


def run_and_roll_back(bench: wtb.Bench) -> wtb.Run:
    run(bench)
    return roll_back(bench)


VERBS: Mapping[str, Callable[[wtb.Bench], wtb.Run]] = {
    "run": run,
    "resume": resume,
    "roll_back": roll_back,
    "run_and_roll_back": run_and_roll_back,
}


def main(verb: str, folder: str, url: str | None = None) -> dict[str, Any]:
    """Do as the verb says; return how the run stands, or the refusal."""
    global home  # noqa: PLW0603  the tools of a workflow are functions of its module
    home = Path(folder)
    with wtb.Bench(url, folder=home / "wtb") as bench:
        me = {"owner": bench.services.owners.me(), "time": time.time()}
        try:
            found = VERBS[verb](bench)
        except Conflict as refusal:
            return {"refused": str(refusal), **me}
        error = None if found.error is None else found.error.traceback or found.error.message
        return {"status": found.status, "error": error, **me, "time": time.time()}


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(main(*sys.argv[1:]))}\n")
