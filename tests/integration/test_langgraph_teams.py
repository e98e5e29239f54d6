"""Agents inside agents, as supervisors, swarms and deep agents are built: their tools are recorded, and may ask."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

import wtb
import wtb.langgraph as wtb_langgraph
from tests.langgraph_graphs import calls, graph_of, row

GIVEN = {"messages": [("user", "go")]}


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


class Said(TypedDict):
    said: str


class Agent:
    """An agent that sends something, and then has two tools at a time that ask; it knows what it has sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @tool
        def send(text: str) -> str:
            """Send."""
            self.sent.append(text)
            return f"sent {text}"

        @tool
        def ask(text: str) -> str:
            """Ask."""
            return f"{interrupt(text)} {interrupt(f'{text}, sure?')}"

        asks = [{"type": "tool_call", "name": "ask", "args": {"text": text}, "id": text} for text in ("a", "b")]
        nodes = {
            "send": calls("send", text="mail"),
            "sending": ToolNode([send]),
            "ask": lambda state: {"messages": [AIMessage("", id="asks", tool_calls=asks)]},
            "asking": ToolNode([ask]),
            "end": lambda state: {"messages": [AIMessage("; ".join(each.content for each in state["messages"][-2:]))]},
        }
        graph = graph_of(MessagesState, nodes, [*row("send", "sending", "ask")[:-1], ("asking", "end")])
        graph.add_conditional_edges("ask", lambda state: [Send("asking", [call]) for call in asks], ["asking"])
        self.graph = graph.compile()


def as_subgraph(agent: Agent) -> StateGraph[Any]:
    return graph_of(MessagesState, {"work": agent.graph}, row("work"))


def in_a_function(agent: Agent) -> StateGraph[Any]:
    nodes = {"work": lambda state: {"messages": agent.graph.invoke(state)["messages"]}}
    return graph_of(MessagesState, nodes, row("work"))


def in_a_tool(agent: Agent) -> StateGraph[Any]:
    @tool
    def delegate(text: str) -> str:
        """Let the agent do it."""
        return str(agent.graph.invoke({"messages": [("user", text)]})["messages"][-1].content)

    nodes = {"model": calls("delegate", text="do it"), "tools": ToolNode([delegate])}
    return graph_of(MessagesState, nodes, row("model", "tools"))


@pytest.mark.parametrize("build", [as_subgraph, in_a_function, in_a_tool])
def test_tools_of_an_agent_inside_may_ask_and_those_before_it_are_not_called_again(
    bench: wtb.Bench, build: Callable[[Agent], StateGraph[Any]]
) -> None:
    agent = Agent()
    run = bench.run(build(agent), GIVEN)
    asked: list[str] = []
    while run.waiting is not None and len(asked) < 5:
        assert run.waiting.question is not None
        asked.append(run.waiting.question["question"])
        run.resume(answer=f"({asked[-1]})")
    assert sorted(asked) == ["a", "a, sure?", "b", "b, sure?"]
    assert (run.error, agent.sent) == (None, ["mail"])
    assert run.state["messages"][-1].content == "(a) (a, sure?); (b) (b, sure?)"


def test_a_node_and_its_tools_may_ask_as_nodes_of_wtb_do(bench: wtb.Bench) -> None:
    @tool
    def ask(text: str) -> str:
        """Ask."""
        return str(wtb_langgraph.context().ask(text))

    @tool
    async def aask(text: str) -> str:
        """Ask, awaited."""
        return str(wtb_langgraph.context().ask(text))

    def asks(state: Any) -> Any:
        said = [wtb_langgraph.context().ask("mine"), interrupt("LangGraph's"), wtb_langgraph.context().ask("mine")]
        return {"messages": [AIMessage(" ".join(said), id="said")]}

    nodes = {"a": asks, "b": calls("ask", text="b"), "c": ToolNode([ask]), "d": calls("aask", text="d")}
    graph = graph_of(MessagesState, {**nodes, "e": ToolNode([aask])}, row(*nodes, "e"))
    run = bench.run(graph, GIVEN)
    for answer in "12345":
        run.resume(answer=answer)
    assert (run.waiting, run.error) == (None, None)
    assert [each.content for each in run.state["messages"] if each.content][1:] == ["1 2 3", "4", "5"]


@pytest.mark.parametrize("ask", [interrupt, lambda text: wtb_langgraph.context().ask(text)], ids=["interrupt", "ctx"])
def test_tools_that_run_beside_one_that_asks_are_waited_for(bench: wtb.Bench, ask: Callable[[str], Any]) -> None:
    sent: list[str] = []
    begun = threading.Semaphore(0)

    @tool
    async def asks(text: str) -> str:
        """Ask, once the others have begun."""
        await asyncio.to_thread(lambda: [begun.acquire() for _ in range(2)])
        begun.release(2)
        return str(ask(text))

    @tool
    async def awaited(text: str) -> str:
        """Send."""
        begun.release()
        await asyncio.sleep(0.1)
        sent.append(text)
        return text

    @tool
    def called(text: str) -> str:
        """Send from a thread."""
        begun.release()
        time.sleep(0.1)
        sent.append(text)
        return text

    tools = [asks, awaited, called]
    made = [{"type": "tool_call", "name": each.name, "args": {"text": each.name}, "id": each.name} for each in tools]
    nodes = {"model": lambda state: {"messages": [AIMessage("", id="m", tool_calls=made)]}, "tools": ToolNode(tools)}
    run = bench.run(graph_of(MessagesState, nodes, row(*nodes)), GIVEN)
    assert sorted(sent) == ["awaited", "called"]
    run.resume(answer="yes")
    assert (run.waiting, run.error, sorted(sent)) == (None, None, ["awaited", "called"])


@pytest.mark.parametrize("texts", [("same", "same"), ("one", "other")])
def test_what_one_agent_was_told_and_did_is_not_taken_for_what_another_asks_and_does(
    bench: wtb.Bench, texts: tuple[str, str]
) -> None:
    sent: list[str] = []

    @tool
    def ask(text: str) -> str:
        """Ask."""
        return str(interrupt(text))

    @tool
    def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return text

    def sends(state: Any) -> Any:
        return calls("send", text=f"{state['messages'][0].content} {state['messages'][-1].content}")(state)

    nodes = {
        "asks": calls("ask", text="may I?"),
        "asking": ToolNode([ask]),
        "sends": sends,
        "sending": ToolNode([send]),
    }
    agent = graph_of(MessagesState, nodes, row(*nodes)).compile()

    @tool
    def delegate(text: str, number: int) -> str:
        """Let the agent do it."""
        return str(agent.invoke({"messages": [("user", text)]})["messages"][-1].content)

    asked = [
        {"type": "tool_call", "name": "delegate", "args": {"text": text, "number": number}, "id": str(number)}
        for number, text in enumerate(texts)
    ]
    supervisor = {
        "model": lambda state: {"messages": [AIMessage("", id="both", tool_calls=asked)]},
        "tools": ToolNode([delegate]),
    }
    run = bench.run(graph_of(MessagesState, supervisor, row(*supervisor)), GIVEN)
    run.resume(answer="yes")
    run.resume(answer="yes")
    assert (run.waiting, run.error) == (None, None)
    assert sorted(sent) == sorted(f"{text} yes" for text in texts)


def workflow_of(function: Callable[[Any], Any]) -> wtb.Workflow:
    """Return a workflow of WTB's own with one node, whose calls are recorded as it takes ctx."""
    flow = wtb.Workflow("of one")

    @flow.node(start=True)
    def work(state: Any, ctx: wtb.Context) -> Any:
        return function(state)

    return flow


def test_an_agent_with_a_saver_of_its_own_is_answered_by_the_node_that_invokes_it(bench: wtb.Bench) -> None:
    @tool
    def ask(text: str) -> str:
        """Ask."""
        return f"{interrupt(text)} {interrupt(f'{text}, sure?')}"

    nodes = {"model": calls("ask", text="go on"), "tools": ToolNode([ask])}
    agent = graph_of(MessagesState, nodes, row(*nodes)).compile(InMemorySaver())

    def work(state: Any) -> Any:
        thread: Any = {"configurable": {"thread_id": f"{type(state)}"}}
        agent.invoke({"messages": []}, thread)
        agent.invoke(Command(resume="yes"), thread)
        return {"said": agent.invoke(Command(resume="indeed"), thread)["messages"][-1].content}

    for each in (graph_of(Said, {"work": work}, row("work")), workflow_of(work)):
        run = bench.run(each, {"said": ""})
        assert (run.error, run.state["said"]) == (None, "yes indeed")


def test_a_recorded_tool_can_be_called_where_nobody_can_ask(bench: wtb.Bench) -> None:
    @wtb_langgraph.recorded
    @tool
    def send(text: str) -> str:
        """Send."""
        return f"sent {text}"

    def work(state: Any) -> Any:
        return {"said": send.invoke({"text": send.invoke({"text": "it"})}, {"configurable": {"user": "me"}})}

    for each in (graph_of(Said, {"work": work}, row("work")), workflow_of(work)):
        run = bench.run(each, {"said": ""})
        assert (run.error, run.state["said"]) == (None, "sent sent it")
        assert [call.tool for call in run.calls] == ["send", "send"]


def test_a_tool_node_outside_of_a_graph_that_is_run_is_as_it_was(bench: wtb.Bench) -> None:
    agent = Agent()
    bench.run(in_a_function(agent), GIVEN)
    agent.graph.invoke({"messages": [("user", "go")]}, interrupt_before=["asking"])
    assert agent.sent == ["mail", "mail"]

    def work(state: Any) -> Any:
        agent.graph.invoke({"messages": [("user", "go")]}, interrupt_before=["asking"])

    assert bench.run(workflow_of(work), {}).calls == ()
    assert agent.sent == ["mail", "mail", "mail"]


WATCHED = """
from functools import wraps
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
import wtb

execute = ToolNode._execute_tool_sync
ToolNode._execute_tool_sync = wraps(execute)(lambda self, *args: execute(self, *args))

seen = []

@tool
def look(at: str) -> str:
    "Look, and the first time stumble over the second thing."
    seen.append(at)
    if at == "two" and seen.count("two") == 1:
        raise ConnectionError(at)
    return at

graph = StateGraph(MessagesState)
graph.add_node("tools", ToolNode([look], handle_tool_errors=False))
graph.add_edge(START, "tools")
asked = [{"name": "look", "args": {"at": at}, "id": at} for at in ("one", "two")]
with wtb.Bench("memory://") as bench:
    run = bench.run(graph, {"messages": [AIMessage("", tool_calls=asked)]}, run_id="watched")
    run = bench.resume("watched", graph)
    print(run.status, seen.count("one"), seen.count("two"))
"""


def test_tools_are_recorded_also_where_a_library_that_watches_graphs_was_first() -> None:
    """Those that trace calls wrap the same function; a process has it wrapped by us already."""
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=False)
    assert done.stdout == "completed 1 2\n", done.stderr
