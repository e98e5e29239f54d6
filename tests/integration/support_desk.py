"""A support desk with tickets, workflows that open them, and what a run of one leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import wtb
from wtb.domain.tools import Tool, ToolCall
from wtb.flow import Workflow
from wtb.runs import Run

_NUMBERS = itertools.count(1)


class Desk:
    """The world outside: tickets that a tool opens and its reverse closes."""

    def __init__(self) -> None:
        self.tickets: list[str] = []
        self.log: list[str] = []
        self.broken = False
        number = next(_NUMBERS)
        self.open: Tool = wtb.tool(name=f"open-{number}", reverse=self.close)(self.opened)
        self.mail: Tool = wtb.tool(name=f"mail-{number}")(self.mailed)
        self.result: Callable[[str], Any] = lambda title: f"#{title}"

    def opened(self, title: str) -> Any:
        self.tickets.append(title)
        self.log.append(f"+{title}")
        return self.result(title)

    def close(self, call: ToolCall) -> None:
        if self.broken:
            raise ConnectionError("the desk is closed")
        self.tickets.remove(call.arguments["title"])
        self.log.append(f"-{call.arguments['title']}")

    def mailed(self, text: str) -> None:
        self.log.append(f"mail {text}")


def support(desk: Desk, *, mail: bool = False, names: str = "abcd") -> Workflow:
    """A chain of nodes of which each opens a ticket, writes a file and adds to the state."""
    flow = Workflow("support")
    flow.reducer("log", wtb.append)

    def make(name: str) -> Any:
        def node(state: Any, ctx: Any) -> dict[str, Any]:
            number = ctx.tool(desk.open, title=name)
            if mail and name == "c":
                ctx.tool(desk.mail, text=name)
            (ctx.workspace / name).write_text(name)
            (ctx.workspace / "all").write_text("".join([*state.get("log", []), name]))
            return {"log": name, name: number}

        return node

    for position, name in enumerate(names):
        flow.add_node(name, make(name), start=position == 0)
    for one, other in itertools.pairwise(names):
        flow.edge(one, other)
    return flow


def files(run: Run) -> dict[str, str]:
    return {path.name: path.read_text() for path in run.workspace.iterdir()}


def world(run: Run, desk: Desk) -> tuple[Any, ...]:
    return run.state, files(run), list(desk.tickets)


AFTER_B = ({"log": ["a", "b"], "a": "#a", "b": "#b"}, {"a": "a", "b": "b", "all": "ab"}, ["a", "b"])
AFTER_D = (
    {"log": ["a", "b", "c", "d"], "a": "#a", "b": "#b", "c": "#c", "d": "#d"},
    {"a": "a", "b": "b", "c": "c", "d": "d", "all": "abcd"},
    ["a", "b", "c", "d"],
)


def fine(desk: Desk) -> Workflow:
    flow = Workflow("fine")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        numbers = []
        for title in ("one", "two", "three"):
            numbers.append(ctx.tool(desk.open, title=title))
            with (ctx.workspace / "log").open("a") as log:
                log.write(f"{title}\n")
        return {"numbers": numbers}

    flow.add_node("node", node, start=True)
    flow.add_node("end", lambda state: {"end": True})
    flow.edge("node", "end")
    return flow
