"""Graphs and types that the tests of LangGraph share; types are rebuilt by the module that they lie in."""

from __future__ import annotations

import dataclasses
import operator
import time as pause
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any, TypedDict
from uuid import UUID

import numpy as np
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: list[int]


class Customer(BaseModel):
    name: str
    tags: dict[str, int]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    count: Annotated[int, operator.add]


def every_type() -> dict[str, Any]:
    """Return values of every type that LangGraph's serialiser keeps, and of plain ones."""
    return {
        "text": "a ü 😀",
        "number": 12,
        "float": -0.5,
        "truth": True,
        "nothing": None,
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"ab"),
        "list": [1, "a", None, [2.5, {"k": [True]}]],
        "mapping": {"a": {"b": [1, 2]}, "c": None},
        "numbered": {1: "one", 2: "two"},
        "pair": (1, ("a", 2)),
        "set": {"x"},
        "enum": Colour.RED,
        "point": Point(1, [2, 3]),
        "points": [Point(1, []), {"plain": 1}, "text", Colour.RED],
        "customer": Customer(name="ann", tags={"a": 1}),
        "moment": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "time": time(3, 4, 5),
        "span": timedelta(days=1, seconds=2),
        "uuid": UUID(int=7),
        "decimal": Decimal("1.50"),
        "path": PurePosixPath("/a/b").parts,
        "message": HumanMessage("hi", id="1"),
        "messages": [
            HumanMessage("hi", id="1"),
            AIMessage("", id="2", tool_calls=[{"name": "find", "args": {"q": "x"}, "id": "c"}]),
            ToolMessage("found", tool_call_id="c", id="3"),
        ],
        "array": np.arange(6).reshape(2, 3),
    }


def chat_graph(
    *, fail_in: str | None = None, ran: list[str] | None = None, fails_when: Callable[[], bool] = lambda: True
) -> StateGraph[Any]:
    """Return ask → (left, right) → end, where nodes note that they ran and one of them may fail, when it is time."""

    def node(name: str) -> Any:
        def run(state: Chat) -> dict[str, Any]:
            if ran is not None:
                ran.append(name)
            if name == fail_in:
                while not fails_when():
                    pause.sleep(0.001)
                raise RuntimeError(f"{name} failed")
            return {"messages": [AIMessage(name, id=f"{name}-{len(state['messages'])}")], "count": 1}

        return run

    graph = StateGraph(Chat)
    for name in ("ask", "left", "right", "end"):
        graph.add_node(name, node(name))
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "left")
    graph.add_edge("ask", "right")
    graph.add_edge(["left", "right"], "end")
    graph.add_edge("end", END)
    return graph


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    topic: str


Edges = list[tuple[str, str]]


def says(*words: Any) -> Any:
    return lambda state: {"log": list(words)}


def graph_of(schema: Any, nodes: Mapping[str, Any], edges: Edges, **schemas: Any) -> StateGraph[Any]:
    """Return a graph; a node is what runs, or that with options of `add_node`."""
    graph: StateGraph[Any] = StateGraph(schema, **schemas)
    for name, node in nodes.items():
        function, options = node if isinstance(node, tuple) else (node, {})
        graph.add_node(name, function, **options)
    for before, after in edges:
        graph.add_edge(before, after)
    return graph


def row(*names: str) -> Edges:
    return list(zip([START, *names], [*names, END], strict=True))


def calls(*names: str, **arguments: Any) -> Any:
    """Return a node that calls tools, each with the same arguments."""
    asked = [{"name": name, "args": arguments, "id": f"{name}-call"} for name in names]
    return lambda state: {"messages": [AIMessage("", id="calls", tool_calls=asked)]}


class Verdict(BaseModel):
    text: str
    sure: float


class Judged(TypedDict, total=False):
    question: str
    verdict: Verdict
    pair: tuple[str, Verdict]


def judge(state: Judged) -> Judged:
    verdict = Verdict(text="yes", sure=0.75)
    return {"verdict": verdict, "pair": ("a", verdict)}


def judging() -> Any:
    graph: StateGraph[Any] = StateGraph(Judged)
    graph.add_node("judge", judge)
    graph.add_edge(START, "judge")
    return graph
