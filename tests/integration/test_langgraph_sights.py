"""What nodes and callers are shown of a run: the same as LangGraph shows them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, RetryPolicy, Send, interrupt
from pydantic import BaseModel

import wtb
from wtb.notebooks import KnownFlows

THREAD: Any = {"configurable": {"thread_id": "t"}}


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    other: Any


def graph(*nodes: Any, **edges: str) -> StateGraph[Any]:
    """Return a graph whose nodes begin together; `edges` say which come after another."""
    built: StateGraph[Any] = StateGraph(Log)
    for node in nodes:
        built.add_node(node.__name__, node, retry_policy=RetryPolicy(initial_interval=0.001, max_attempts=3))
        built.add_edge(edges.get(node.__name__, START), node.__name__)
    return built


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_is_tried_again_is_told_the_number_of_the_attempt(bench: wtb.Bench, *, is_async: bool) -> None:
    seen: list[int] = []

    def tries(state: Log, runtime: Runtime[Any]) -> Log:
        assert runtime.execution_info is not None
        seen.append(runtime.execution_info.node_attempt)
        if len(seen) < 3:
            raise ConnectionError
        return {"log": ["done"]}

    async def atries(state: Log, runtime: Runtime[Any]) -> Log:
        return tries(state, runtime)

    assert bench.run(graph(atries if is_async else tries), {"log": []}).state["log"] == ["done"]
    assert seen == [1, 2, 3]


def test_after_a_question_attempts_are_counted_anew_as_in_langgraph(bench: wtb.Bench) -> None:
    seen: list[int] = []

    def asks(state: Log, runtime: Runtime[Any]) -> Log:
        assert runtime.execution_info is not None
        seen.append(runtime.execution_info.node_attempt)
        return {"log": [interrupt("go on?")]}

    theirs = graph(asks).compile(checkpointer=InMemorySaver())
    theirs.invoke({"log": []}, THREAD)
    theirs.invoke(Command(resume="yes"), THREAD)
    expected, seen[:] = list(seen), []
    bench.run(graph(asks), {"log": []}).resume(answer="yes")
    assert seen == expected


def test_an_object_that_would_come_back_as_data_is_named_wherever_it_is(bench: wtb.Bench) -> None:
    class Hidden(BaseModel):
        count: int = 1

    class Frozen(BaseModel, frozen=True):
        count: int = 1

    @dataclass
    class Concealed:
        held: Any = None

    places: list[Any] = [
        Command(update={"other": Hidden()}),
        Command(update={"log": [Hidden()]}),
        Command(goto=Send("node", {"other": Hidden()})),
        [Command(update={"other": {"deep": [Hidden()]}})],
        {"other": {"key": Hidden()}},
        {"other": (1, Hidden())},
        {"other": {1: frozenset({("a", Frozen())})}},
        {"log": [{"key": (Hidden(),)}]},
        {"other": {"key": Concealed()}},
        {"other": Holding(Hidden())},
    ]
    for place in places:

        def node(state: Log, place: Any = place) -> Any:
            return place

        error = bench.run(graph(node), {"log": []}).error
        assert error is not None, place
        assert error.type == "StateNotSerialisable"
        assert any(name in error.message for name in ("Hidden", "Frozen", "Concealed"))
        assert "at the top of a module" in error.message


def test_an_object_of_a_class_inside_a_function_of_the_script_is_named_too(bench: wtb.Bench) -> None:
    class Hidden(BaseModel):
        count: int = 1

    Hidden.__module__ = "__main__"

    def hides(state: Log) -> Command[Any]:
        return Command(update={"other": (1, Hidden())})

    error = bench.run(graph(hides), {"log": []}).error
    assert error is not None
    assert "Hidden would come back as data; define its class at the top of a module" in error.message


class Known(BaseModel):
    count: int = 1


@dataclass
class Holding:
    held: Any = None


def test_objects_of_a_module_come_back_from_wherever_they_are(bench: wtb.Bench) -> None:
    def node(state: Log) -> Any:
        return Command(update={"other": {"a": [Known(count=2)], "b": Holding(Known())}, "log": [(Known(), 1)]})

    run = bench.run(graph(node), {"log": []})
    assert run.error is None
    assert run.state == {"other": {"a": [Known(count=2)], "b": Holding(Known())}, "log": [[Known(), 1]]}


def test_a_question_may_hold_an_object_of_a_class_inside_a_function(bench: wtb.Bench) -> None:
    class Form(BaseModel):
        title: str = "Pay?"

    def node(state: Log) -> Log:
        return {"log": [interrupt({"form": Form()})]}

    run = bench.run(graph(node), {"log": []})
    assert run.waiting is not None
    assert run.waiting.question is not None
    assert run.waiting.question["question"]["form"]["title"] == "Pay?"
    assert run.resume(answer="yes").state["log"] == ["yes"]


def asks(state: Log) -> Log:
    return {"log": [interrupt("go on?")]}


def beside(state: Log) -> Log:
    return {"log": ["beside"], "other": Known(count=2)}


def commands(state: Log) -> Command[Any]:
    return Command(update=[("log", ["first"]), ("log", ["second"])])


def spreads(state: Log) -> Command[Any]:
    sent = [Send("part", {"log": [name]}) for name in ("b", "asks", "a")]
    return Command(goto=[*sent, "z_last", "also"], update={"log": ["spread"]})


def part(state: Log) -> Log:
    name = state["log"][0]
    return {"log": [f"{name}: {interrupt('go on?') if name == 'asks' else 'done'}"]}


def z_last(state: Log) -> Log:
    return {"log": ["z"]}


def also(state: Log) -> Log:
    return {"log": ["also"]}


def silent(state: Log) -> None:
    return None


def spreading() -> StateGraph[Any]:
    built = graph(spreads)
    built.add_node(part)
    built.add_node(z_last)
    built.add_node(also)
    return built


@pytest.mark.parametrize(
    "build",
    [
        lambda: graph(asks, beside),
        lambda: graph(commands, asks, beside, silent),
        lambda: graph(asks, silent),
        lambda: graph(beside, asks, asks="beside"),
        spreading,
    ],
)
def test_at_a_pause_the_state_holds_what_finished_siblings_wrote_as_get_state_shows_it(
    bench: wtb.Bench, build: Any
) -> None:
    theirs = build().compile(checkpointer=InMemorySaver())
    theirs.invoke({"log": ["given"]}, THREAD)
    run = bench.run(build(), {"log": ["given"]})
    assert run.waiting is not None
    assert run.state == theirs.get_state(THREAD).values

    theirs.invoke(Command(resume="yes"), THREAD)
    assert run.resume(answer="yes").state == theirs.get_state(THREAD).values
    assert run.state == theirs.get_state(THREAD).values


def test_siblings_of_a_node_that_failed_are_in_the_state_too(bench: wtb.Bench) -> None:
    def fails(state: Log) -> Log:
        raise KeyError("no")

    run = bench.run(graph(fails, beside), {"log": ["given"]})
    assert run.error is not None
    assert run.state == {"log": ["given", "beside"], "other": Known(count=2)}


def test_a_state_that_siblings_cannot_share_is_shown_as_it_was_before_them(bench: wtb.Bench) -> None:
    def clashes(state: Log) -> Log:
        return {"other": 1}

    run = bench.run(graph(asks, beside, clashes), {"log": ["given"]})
    assert run.state == {"log": ["given"]}


def test_without_its_graph_a_run_shows_the_state_that_is_stored(bench: wtb.Bench) -> None:
    run = bench.run(graph(asks, beside), {"log": ["given"]})
    bench._flows = KnownFlows()  # as in a new process
    assert bench.get(run.id).state == {"log": ["given"]}
