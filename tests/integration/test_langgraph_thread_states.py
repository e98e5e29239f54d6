"""States of threads read from the store alone, compared with what LangGraph computes with the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.langgraph_graphs import Chat
from wtb.bench import Bench
from wtb.domain.secrets import Masker
from wtb.infrastructure.langgraph.clients.plain_json import plain
from wtb.infrastructure.langgraph.clients.thread_states import ThreadStates
from wtb.infrastructure.langgraph.clients.views import CheckpointPlace
from wtb.langgraph import Saver


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def node(name: str) -> Callable[[Any], Any]:
    return lambda state: {"done": [name]}


def ask(state: Any) -> Any:
    return {"done": [str(interrupt("which?"))]}


def fail(state: Any) -> Any:
    raise ValueError("broken")


def built(*names: str, **others: Any) -> Any:
    graph: Any = StateGraph(State)
    for name in names:
        graph.add_node(name, node(name))
    for name, function in others.items():
        graph.add_node(name, function)
    return graph


def joined() -> Any:
    graph = built("a", "b", "c", "after")
    for start, end in ((START, "a"), (START, "b"), ("b", "c")):
        graph.add_edge(start, end)
    graph.add_edge(["a", "c"], "after")
    return graph


def sending() -> Any:
    graph = built("work", "end")
    graph.add_conditional_edges(START, lambda state: [Send("work", {"n": 1}), Send("work", {"n": 2})], ["work"])
    graph.add_edge("work", "end")
    return graph


def half_done() -> Any:
    graph = built("a", ask=ask, bad=fail)
    for name in ("a", "ask", "bad"):
        graph.add_edge(START, name)
    return graph


def asking_twice_sent() -> Any:
    graph = built("end", ask=ask)
    graph.add_conditional_edges(START, lambda state: [Send("ask", {}), Send("ask", {}), "end"], ["ask", "end"])
    return graph


def nested() -> Any:
    inner = built(ask=ask)
    inner.add_edge(START, "ask")
    graph = built("first", sub=inner.compile())
    graph.add_edge(START, "first")
    graph.add_edge("first", "sub")
    return graph


def deferred() -> Any:
    graph = built("a", "b", "c")
    graph.add_node("last", node("last"), defer=True)
    for start, end in ((START, "a"), (START, "b"), ("b", "c"), ("a", "last"), ("c", "last"), ("last", END)):
        graph.add_edge(start, end)
    return graph


GRAPHS = [joined, sending, half_done, asking_twice_sent, nested, deferred]


@pytest.fixture
def bench() -> Any:
    with Bench("memory://") as bench:
        yield bench


@pytest.mark.parametrize("make", GRAPHS)
@pytest.mark.parametrize("is_answered", [False, True])
def test_states_are_those_that_langgraph_computes(make: Any, is_answered: bool, bench: Bench) -> None:
    graph = make().compile(checkpointer=Saver(bench))
    config: Any = {"configurable": {"thread_id": "t"}}
    for given in [{"done": []}, *([Command(resume="this")] if is_answered else [])]:
        with suppress(ValueError, RuntimeError):  # a node fails; several questions need the ids of their answers
            graph.invoke(given, config)
    states = ThreadStates(bench.services.storage, Masker())
    expected = list(graph.get_state_history(config))
    found = states.history(CheckpointPlace(thread_id="t"), limit=100)
    assert len(found) == len(expected) > 1
    for ours, theirs in zip(found, expected, strict=True):
        assert sorted(ours.next) == sorted(theirs.next)
        assert ours.values.get("done", []) == theirs.values["done"]
        assert ours.place.id == theirs.config["configurable"]["checkpoint_id"]
        assert ours.created_at == theirs.created_at
        assert ours.metadata == theirs.metadata
        assert (ours.parent and ours.parent.id) == (
            theirs.parent_config and theirs.parent_config["configurable"]["checkpoint_id"]
        )
        assert ours.interrupts == [plain(each) for task in theirs.tasks for each in task.interrupts]
        written = {task.id: task.name for task in theirs.tasks if task.error or task.interrupts or task.result}
        assert {task.id: task.name for task in ours.tasks if task.id in written} == written
    current, snapshot = states.get(CheckpointPlace(thread_id="t")), graph.get_state(config)
    assert sorted(current.next) == sorted(snapshot.next)


def test_the_state_of_a_subgraph_is_found_by_its_task(bench: Bench) -> None:
    graph = nested().compile(checkpointer=Saver(bench))
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"done": []}, config)
    (theirs,) = graph.get_state(config, subgraphs=True).tasks
    (ours,) = ThreadStates(bench.services.storage, Masker()).get(CheckpointPlace(thread_id="t"), subgraphs=True).tasks
    assert ours.state is not None
    assert (
        ours.state.place.to_data().items()
        >= {
            "checkpoint_ns": theirs.state.config["configurable"]["checkpoint_ns"],
            "checkpoint_id": theirs.state.config["configurable"]["checkpoint_id"],
        }.items()
    )
    assert tuple(ours.state.next) == theirs.state.next


def test_messages_are_as_langgraph_has_them_and_secrets_are_masked(bench: Bench) -> None:
    graph: Any = StateGraph(Chat)
    graph.add_node("say", lambda state: {"messages": [("ai", "my password=hunter2")], "count": 1})
    graph.add_edge(START, "say")
    graph = graph.compile(checkpointer=Saver(bench))
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [("human", "hi")], "count": 1}, config)
    found = ThreadStates(bench.services.storage, Masker()).get(CheckpointPlace(thread_id="t")).values
    expected = plain(graph.get_state(config).values)
    assert found["messages"][0] == expected["messages"][0]
    assert found["messages"][1]["content"] == "my password=***"
    assert found["count"] == 2
