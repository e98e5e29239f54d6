"""Runs or resumes one workflow in FOLDER; the parent kills this process at random. Effects go to files there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import wtb
from wtb.domain.errors import ExecutionNotFound
from wtb.domain.tools import ToolCall

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
VISITS = 40

flow = wtb.Workflow("crashing")


def say(line: str) -> None:
    """Tell the parent how far it is."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def lines(name: str) -> list[str]:
    """Return what was written to a file of effects."""
    path = FOLDER / name
    return path.read_text().splitlines() if path.exists() else []


def write(name: str, line: str) -> None:
    """Append a line in one system call, as a message that is sent: it happened or it did not."""
    descriptor = os.open(FOLDER / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def happened(call: ToolCall) -> bool | None:
    """Say whether a call whose fate is unknown was made."""
    return True if call.arguments["text"] in lines("confirmed") else None


@wtb.tool(confirm=happened)
def confirmed(text: str) -> bool:
    """Send something that can be asked about afterwards."""
    write("confirmed", text)
    return True


@wtb.tool(idempotent=True)
def keyed(text: str, *, idempotency_key: str) -> bool:
    """Send something to a receiver that knows its keys."""
    if idempotency_key not in {line.split()[0] for line in lines("keyed")}:
        write("keyed", f"{idempotency_key} {text}")
    return True


@flow.node(start=True)
def work(state: Any, ctx: Any) -> dict[str, Any]:
    """One visit: a workspace effect, two external ones, a recorded result."""
    visit = state["n"] + 1
    with (ctx.workspace / "log").open("a") as log:
        log.write(f"{visit}\n")
    ctx.tool(confirmed, text=f"visit-{visit}")
    ctx.tool(keyed, text=f"visit-{visit}")
    value = ctx.step("measure", os.getpid)
    say(str(visit))
    return {"n": visit, "pids": value}


flow.reducer("pids", wtb.append)
flow.edge("work", "work", when=f"n < {VISITS}")
flow.edge("work", wtb.END, otherwise=True)


def main() -> None:
    """Go on with the run, or begin it."""
    with wtb.Bench(folder=FOLDER / "wtb") as bench:
        try:
            run = bench.get("run")
        except ExecutionNotFound:
            run = bench.create(flow, {"n": 0}, run_id="run")
        run = bench.resume(run.id, flow)
        say(run.status.value)


if __name__ == "__main__":
    main()
