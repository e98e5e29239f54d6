"""What `engine_worker` runs, as a graph of LangGraph's with LangChain's tools: the same effects, files and state."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph

import wtb.langgraph as wtb_langgraph
from tests.crash import engine_worker as worker
from tests.crash.engine_worker import ROUNDS, append, begin, effect, happened, large, lines, measured, taken_back, write
from wtb.application.tool_registry import TOOLS


class Texts(TypedDict, total=False):
    collect: Annotated[list[str], operator.add]
    left: Annotated[list[str], operator.add]
    right: Annotated[list[str], operator.add]
    join: Annotated[list[str], operator.add]


@tool("confirmed")
def confirmed_tool(text: str) -> bool:
    """Send something that can be asked about afterwards."""
    effect("confirmed", text)
    return True


@tool("keyed")
def keyed_tool(text: str) -> bool:
    """Send something to a receiver that takes it once."""
    if f"key {text}" not in lines("keyed"):
        effect("keyed", f"key {text}")
    return True


@tool("reserved")
def reserved_tool(text: str) -> bool:
    """Do something that can be undone, also when nobody knows whether it was done."""
    effect("reserved", f"+{text}")
    return True


@tool("plain")
def plain_tool(text: str) -> None:
    """Send something that nobody can ask about, repeat or undo."""
    effect("plain", text)


@tool("noted")
def noted_tool(text: str) -> bool:
    """Write into the workspace."""
    worker.points.reach("before effect of noted")
    append(wtb_langgraph.workspace() / "noted", text)
    worker.points.reach("after effect of noted")
    return True


TOOLS._tools.clear()  # those of the workflow that this graph takes the place of
confirmed = wtb_langgraph.recorded(confirmed_tool, confirm=happened)
keyed = wtb_langgraph.recorded(keyed_tool, idempotent=True)
reserved = wtb_langgraph.reversible(reserved_tool, reverse=taken_back, reverse_in_doubt=True)
plain = wtb_langgraph.recorded(plain_tool)
noted = wtb_langgraph.recorded(noted_tool, effects="workspace")


def begun(node: str, state: Texts) -> tuple[str, str, Path]:
    """Begin a visit; return its name, the text that it sends and the file that must not outlive it."""
    context = wtb_langgraph.context()
    visit, scratch = begin(node, state, context)
    return visit, f"{visit}-{context.step('measure', measured)}", scratch


def collect(state: Texts) -> Texts:
    """Alone in its superstep: every kind of tool, small and large files, a recorded result."""
    visit, text, scratch = begun("collect", state)
    folder = wtb_langgraph.workspace()
    append(folder / "log", visit)
    noted.invoke({"text": visit})
    for each in (confirmed, keyed, reserved, plain):
        each.invoke({"text": text})
    (folder / visit).write_bytes(large(visit))
    scratch.unlink()
    return {"collect": [text]}


def left(state: Texts) -> Texts:
    """A member of a parallel superstep."""
    visit, text, scratch = begun("left", state)
    for each in (confirmed, keyed, reserved):
        each.invoke({"text": text})
    append(wtb_langgraph.workspace() / "left", visit)
    scratch.unlink()
    return {"left": [text]}


async def right(state: Texts) -> Texts:
    """The other member, async, with calls at the same time."""
    visit, text, scratch = begun("right", state)
    await asyncio.gather(*(each.ainvoke({"text": text}) for each in (confirmed, keyed, reserved)))
    append(wtb_langgraph.workspace() / "right", visit)
    scratch.unlink()
    return {"right": [text]}


def join(state: Texts) -> Texts:
    """Look at what the members made together."""
    visit, scratch = begin("join", state, wtb_langgraph.context())
    scratch.unlink()
    names = sorted(path.name for path in wtb_langgraph.workspace().iterdir())
    write("trace", f"found {' '.join(names)}")
    return {"join": [visit]}


def again(state: Any) -> str:
    return "collect" if len(state["join"]) < ROUNDS else END


graph: StateGraph[Any] = StateGraph(Texts)
for function in (collect, left, right, join):
    graph.add_node(function.__name__, function)
graph.add_edge(START, "collect")
graph.add_edge("collect", "left")
graph.add_edge("collect", "right")
graph.add_edge(["left", "right"], "join")
graph.add_conditional_edges("join", again, ["collect", END])


def serve() -> None:
    """Serve jobs as `engine_worker` does, with the graph in place of its workflow."""
    worker.flow = wtb_langgraph.workflow(graph)
    worker.serve()
