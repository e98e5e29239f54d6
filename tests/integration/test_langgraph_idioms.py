"""What people write in the nodes of a graph: WTB makes of it what LangGraph does, or says what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import MessagesState, StateGraph
from langgraph.graph.message import push_message
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from pydantic import BaseModel

import wtb
from tests.integration.test_langgraph_shapes import Log, graph_of, row


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


def calls(*names: str, **arguments: Any) -> Any:
    """Return a node that calls tools, each with the same arguments."""
    asked = [{"name": name, "args": arguments, "id": f"{name}-call"} for name in names]
    return lambda state: {"messages": [AIMessage("", id="calls", tool_calls=asked)]}


def test_a_tool_may_give_an_artifact_beside_its_content(bench: wtb.Bench) -> None:
    @tool(response_format="content_and_artifact")
    def search(text: str) -> tuple[str, list[str]]:
        """Search."""
        return f"found {text}", [text]

    nodes = {"model": calls("search", text="x"), "tools": ToolNode([search])}
    run = bench.run(graph_of(MessagesState, nodes, row("model", "tools")), {"messages": ["go"]})
    assert run.error is None
    assert (run.state["messages"][-1].content, run.state["messages"][-1].artifact) == ("found x", ["x"])


class Form(BaseModel):
    count: int = 0
    name: str | None = None


def returns_models() -> StateGraph[Any]:
    nodes = {
        "a": lambda state: {"name": "ann"},
        "b": lambda state: Form(count=5),
        "c": lambda state: Command(update=state),
    }
    return graph_of(Form, nodes, row("a", "b", "c"))


def returns_pairs() -> StateGraph[Any]:
    several: Command[Any] = Command(update=[("log", [1]), ("log", [2]), ("topic", "t")])
    return graph_of(Log, {"a": lambda state: several, "b": lambda state: [several, {"log": [3]}]}, row("a", "b"))


def pushes() -> StateGraph[Any]:
    def node(state: Any) -> Any:
        push_message(AIMessage("pushed", id="p"))
        return {"messages": [AIMessage("returned", id="r")]}

    def pushes_only(state: Any) -> None:
        push_message(AIMessage("pushed again", id="p"))

    return graph_of(MessagesState, {"a": node, "b": pushes_only}, row("a", "b"))


@pytest.mark.parametrize(
    ("build", "given"),
    [(returns_models, {"count": 1}), (returns_pairs, {"log": []}), (pushes, {"messages": [HumanMessage("h", id="h")]})],
)
def test_what_a_node_returns_is_stored_as_langgraph_understands_it(
    bench: wtb.Bench, build: Callable[[], StateGraph[Any]], given: dict[str, Any]
) -> None:
    run = bench.run(build(), given)
    assert run.error is None
    assert run.state == build().compile().invoke(given)
    assert run.replay().same
