"""A run that changes the world in every way a tool can, and kills its process in the middle of a call."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wtb
from wtb.domain.tools import ToolCall

ROUNDS = 60 if os.environ.get("WTB_SOAK") else 5
"""Many of them fill SQLite's log more than once."""
RUN = "order"
PLAIN = "anchored plain"
"""`engine_worker` has a tool called plain, and one process may import both."""

flow = wtb.Workflow("anchored")
effects = Path()
"""Where this run leaves what it did to the world: a file for each kind of tool."""
last_words = ""
"""The effect after which this process ends."""


def lines(name: str) -> list[str]:
    """Return what a kind of tool did to the world."""
    path = effects / name
    return path.read_text().splitlines() if path.exists() else []


def effect(name: str, line: str) -> None:
    """Do something to the world; the process may end right after it."""
    with (effects / name).open("a") as file:
        file.write(f"{line}\n")
    if f"{name} {line}" == last_words:
        os.kill(os.getpid(), signal.SIGKILL)


def happened(call: ToolCall) -> bool | None:
    """Say whether a call whose fate is unknown was made."""
    return True if call.arguments["text"] in lines("confirmed") else None


@wtb.tool(name="anchored confirmed", confirm=happened)
def confirmed(text: str) -> bool:
    """Send something that can be asked about afterwards."""
    effect("confirmed", text)
    return True


@wtb.tool(name="anchored keyed", idempotent=True)
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


@wtb.tool(name="anchored reserved", reverse=taken_back, reverse_in_doubt=True)
def reserved(text: str) -> bool:
    """Do something that can be undone, also when nobody knows whether it was done."""
    effect("reserved", f"+{text}")
    return True


@wtb.tool(name=PLAIN)
def plain(text: str) -> None:
    """Send something that nobody can ask about, repeat or undo."""
    effect("plain", text)


@flow.node(start=True)
def send(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Call every kind of tool."""
    text = f"order-{len(state.get('sent', ())) + 1}"
    for tool in (confirmed, keyed, reserved, plain):
        ctx.tool(tool, text=text)
    return {"sent": text}


@flow.node()
def think(state: Mapping[str, Any]) -> dict[str, Any]:
    """Take a step that calls nothing."""
    return {"thoughts": len(state["sent"])}


flow.reducer("sent", wtb.append)
flow.edge("send", "think")
flow.edge("think", "send", when=f"size(sent) < {ROUNDS}")
flow.edge("think", wtb.END, otherwise=True)


def main(folder: str, where: str, words: str, fine_grained: str) -> None:
    """Run until the effect that this process does not survive."""
    global effects, last_words
    effects, last_words = Path(where), words
    with wtb.Bench(folder=folder) as bench:
        bench.run(flow, {}, run_id=RUN, fine_grained=bool(fine_grained))
    sys.exit("it survived")
