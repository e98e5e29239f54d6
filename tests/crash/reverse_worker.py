"""Runs one batch that calls external tools, or goes on with it, and is killed doing so; served as `engine_worker` is.

Its calls are taken back, or recorded: then each case makes them once.

The points are those of `engine_worker`: before and after every commit, every call of a tool, and every reversal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import wtb
from tests.crash import engine_worker as engine
from tests.integration.booking_office import OFFICE, ask
from wtb.domain.tools import ToolCall
from wtb.testing.fakes import CrashPoints

CASES = 2

flow = wtb.Workflow("killed trip")


def reach(verb: str, room: str) -> int:
    """Ask the office; the process may end right before and right after it."""
    engine.points.reach(f"before {verb}")
    found = ask(verb, room)
    engine.points.reach(f"after {verb}")
    return found


@wtb.tool(
    name="killed_book",
    reverse=lambda call: reach("cancel", call.arguments["room"]),
    confirm=lambda call: "booked" if ask("find", call.arguments["room"]) else None,
)
def book(room: str) -> str:
    """Book a room; the office knows whether it is booked."""
    reach("book", room)
    return "booked"


def release(call: ToolCall) -> None:
    """Release a room that is held, if it is."""
    reach("release", call.arguments["room"])


@wtb.tool(name="killed_hold", idempotent=True, reverse=release, reverse_in_doubt=True)
def hold(room: str, *, idempotency_key: str) -> str:
    """Hold a room; to hold and to release it twice is to do so once."""
    reach("hold", room)
    return "held"


def going(node: str) -> Callable[..., Any]:
    def go(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        run = f"{state['trip'] or ctx.run.execution_id}.{node}"
        return {node: [ctx.tool(book, f"{run}.room"), ctx.tool(hold, f"{run}.table")]}

    return go


flow.add_node("there", going("there"), start=True)
flow.add_node("back", going("back"))
flow.edge("there", "back")


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run what is missing of the batch; another seed means that everything has changed."""
    OFFICE.url = job["office"]
    engine.effects = Path(job["effects"])
    engine.effects.mkdir(exist_ok=True)
    cases = [
        {"id": str(number), "input": {"trip": job["record"] and f"{job['run']}-{number}"}} for number in range(CASES)
    ]
    with wtb.Bench(job["url"], folder=job["folder"]) as bench:
        name, passing = job["die_at"] or ("", 0)
        engine.points = CrashPoints(lambda: os.kill(os.getpid(), signal.SIGKILL), at=name, passing=passing)
        engine.watch()
        result = bench.batch(
            flow,
            name=job["run"],
            cases=cases,
            evaluators=["steps"],
            external="run" if job["record"] else "reverse",
            tools=dict.fromkeys(("killed_book", "killed_hold"), "record") if job["record"] else {},
            repeats=2 if job["record"] else 1,
            share=not job["record"],
            workers=1,
            seed=job["seed"],
        )
        return {"status": result.status, "error": None, "passed": dict(engine.points.passed)}


def serve() -> None:
    """Fork a child for every job."""
    engine.run = run
    engine.serve()
