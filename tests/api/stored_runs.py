"""Runs and batches that the tests of reading routes look at; they are really run, in threads of the test."""

from __future__ import annotations

from typing import Any

import wtb
from wtb.bench import Bench
from wtb.settings import Settings


@wtb.tool(effects="none", name="api_look")
def look(api_key: str, place: str) -> dict[str, Any]:
    return {"seen": place, "n": 1 << 60}


@wtb.tool(effects="external", name="api_send")
def send(text: str) -> str:
    return "sent"


def writing(times: int = 3) -> wtb.Workflow:
    """Return a workflow that writes a file, calls tools and uses tokens at each of its steps."""
    flow = wtb.Workflow("writing", version="7")

    @flow.node(start=True)
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        n = state.get("n", 0) + 1
        ctx.tool(look, api_key="sk-secret", place="here")
        if n == 1:
            ctx.tool(send, text="hello")
        ctx.usage(input_tokens=10, output_tokens=1, cost_usd=0.25, model="m")
        (ctx.workspace / f"{n}.txt").write_text(f"line {n}\n")
        (ctx.workspace / "page.html").write_text(f"<script>alert({n})</script>\n")
        return {"n": n, "when": (1, 2), "bad": float("nan"), "password": "hunter2", "docs": [{"title": f"d{n}"}]}

    @flow.variant("write", "short")
    def short(state: Any, ctx: Any) -> dict[str, Any]:
        return {"n": times}

    flow.edge("write", "write", when=f"n < {times}")
    flow.edge("write", wtb.END, otherwise=True)
    return flow


def asking() -> wtb.Workflow:
    """Return a workflow that asks a person."""
    flow = wtb.Workflow("asking")

    @flow.node(start=True)
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        return {"answer": ctx.ask("Which one?")}

    flow.edge("ask", wtb.END)
    return flow


def failing() -> wtb.Workflow:
    """Return a workflow that fails."""
    flow = wtb.Workflow("failing")

    @flow.node(start=True)
    def fail(state: Any) -> dict[str, Any]:
        raise ValueError("no \ud800 luck")

    flow.edge("fail", wtb.END)
    return flow


def opened(settings: Settings) -> Bench:
    """Return a bench over the store of the server."""
    return Bench(settings.url, folder=settings.folder, user="tester")
