"""What people write in the nodes of a graph: WTB makes of it what LangGraph does, or says what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import MessagesState
from langgraph.prebuilt import ToolNode

import wtb
from tests.integration.test_langgraph_shapes import graph_of, row


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
