"""A workflow for tests of the page: parallel nodes, a loop, tools, logs, a question, a failure and hostile text."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wtb

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> \u202eright to left\u202c " + "w" * 300
)

State = Mapping[str, Any]
Update = dict[str, Any]

flow = wtb.Workflow("agent", version="1", description="Plans, reads, writes in a loop, asks and publishes")


def take_back(call: Any) -> None:
    """Delete what was published."""
    Path(call.arguments["path"]).unlink(missing_ok=True)


@wtb.tool(effects="external", reverse=take_back)
def publish_page(path: str, text: str) -> str:
    """Write a file outside the workspace."""
    Path(path).write_text(text)
    return f"published {len(text)} characters"


@wtb.tool(effects="external")
def send_mail(to: str) -> str:
    """Do something that nobody can undo."""
    return f"sent to {to}"


@flow.node(start=True)
def plan(state: State, ctx: wtb.Context) -> Update:
    ctx.log(f"planning {state.get('topic', 'nothing')}")
    ctx.usage(model="gpt-4o-mini", input_tokens=120, output_tokens=30, cost_usd=0.0021)
    return {"rounds": 0, "draft": ""}


@flow.node()
def search(state: State, ctx: wtb.Context) -> Update:
    time.sleep(0.03)
    ctx.emit({"found": 3, "of": 3})
    return {"found": ctx.step("search the web", lambda: ["a", "b", state.get("topic", "")])}


@flow.node()
def read(state: State, ctx: wtb.Context) -> Update:
    time.sleep(0.06)
    (ctx.workspace / "notes.txt").write_text("notes")
    return {"notes": "read"}


@flow.node()
def write(state: State, ctx: wtb.Context) -> Update:
    ctx.log.warning("round %s about %s", state["rounds"] + 1, state.get("topic", ""))
    ctx.usage(model="gpt-4o-mini", input_tokens=900, output_tokens=400, cost_usd=0.013)
    return {"draft": state["draft"] + "line\n", "rounds": state["rounds"] + 1}


@flow.node()
def review(state: State, ctx: wtb.Context) -> Update:
    if state.get("fails") and state["rounds"] == 2:
        raise ValueError(f"cannot review this: {state.get('topic', '')}")
    return {"good": state["rounds"] >= int(state.get("needed", 3))}


@flow.node()
def confirm(state: State, ctx: wtb.Context) -> Update:
    if not state.get("asks"):
        return {"go": "yes"}
    return {"go": ctx.ask(f"Publish this about {state.get('topic', '')}?", schema=["yes", "no"])}


@flow.node()
def publish(state: State, ctx: wtb.Context) -> Update:
    ctx.tool(send_mail, to=str(state.get("topic", "")))
    if state.get("path"):
        ctx.tool(publish_page, path=state["path"], text=state["draft"])
    return {"published": True}


@flow.variant("write", "terse")
def write_terse(state: State, ctx: wtb.Context) -> Update:
    return {"draft": "terse", "rounds": state["rounds"] + 1}


flow.edge("plan", "search")
flow.edge("plan", "read")
flow.edge(["search", "read"], "write")
flow.edge("write", "review")
flow.edge("review", "confirm", when="good")
flow.edge("review", "write", otherwise=True)
flow.edge("confirm", "publish", when="go == 'yes'")
flow.edge("confirm", wtb.END, otherwise=True)
flow.edge("publish", wtb.END)

slow = wtb.Workflow("slow", description="Many small steps that take a while")


@slow.node(start=True)
def tick(state: State, ctx: wtb.Context) -> Update:
    time.sleep(float(state.get("pause_s", 0.02)))
    ctx.log(f"tick {state.get('count', 0)}")
    return {"count": state.get("count", 0) + 1}


slow.edge("tick", "tick", when="count < limit")
slow.edge("tick", wtb.END, otherwise=True)
