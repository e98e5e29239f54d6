"""`Overwrite` in a DeltaChannel: the same value as in LangGraph, under each reducer and in each form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Overwrite

import wtb


def extended(before: list[Any], writes: list[Any]) -> list[Any]:
    return [*before, *(item for write in writes for item in (write if isinstance(write, list) else [write]))]


def added(before: Any, writes: list[Any]) -> Any:
    return reduce(add_messages, writes, before)


def counted(before: Any, writes: list[Any]) -> list[Any]:
    """Tell how many writes came at once."""
    return [*before, len(writes)]


def grown(before: list[Any], writes: list[Any]) -> list[Any]:
    """Change the list in place, as no reducer should."""
    for write in writes:
        before += write
    return before


class Delta(TypedDict):
    log: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


class Extended(TypedDict):
    log: Annotated[list[Any], DeltaChannel(extended)]


class Added(TypedDict):
    log: Annotated[list[Any], DeltaChannel(added)]


class Counted(TypedDict):
    log: Annotated[list[Any], DeltaChannel(counted)]


class Grown(TypedDict):
    log: Annotated[list[Any], DeltaChannel(grown)]


SAID = {"role": "user", "content": "said"}
TYPED = {"type": "ai", "content": "typed"}
OTHER = {"role": "admin", "content": "no message"}

# Made anew for each graph: LangGraph gives messages their ids in place.
OVERWRITTEN: Mapping[str, Callable[[], Any]] = {
    "texts and mappings": lambda: ["text", SAID, TYPED],
    "messages and pairs": lambda: [AIMessage("new"), ("user", "pair")],
    "a tuple": lambda: ("text", AIMessage("new")),
    "no message": lambda: [OTHER],
    "an empty list": list,
    "None": lambda: None,
}
WRITTEN: Mapping[str, Callable[[], Any]] = {
    "a mapping": lambda: SAID,
    "mappings": lambda: [SAID, TYPED],
    "a message": lambda: AIMessage("one"),
    "text and a message": lambda: ["text", AIMessage("new")],
}


def overwritten(form: str, value: Any) -> Any:
    match form:
        case "object":
            return Overwrite(value)
        case "short":
            return {"__overwrite__": value}
        case _:
            return {"value": value, "type": "__overwrite__"}


def graph(schema: Any, *values: Any, then: Any = None) -> StateGraph[Any]:
    """Return a graph whose first nodes write these values at once, and whose last one adds another."""
    built: StateGraph[Any] = StateGraph(schema)
    names = [f"node_{number}" for number in range(len(values))]
    for name, value in zip(names, values, strict=True):
        built.add_node(name, partial(_write, value))
        built.add_edge(START, name)
    if then is not None:
        built.add_node("then", partial(_write, then))
        built.add_edge(names, "then")
    return built


def _write(value: Any, state: Any) -> Any:
    return {"log": value}


def shown(log: Any) -> Any:
    """Return a log with whether messages have an id, in the place of the id itself: LangGraph's are random.

    A tuple is a list once it has been stored, in LangGraph too.
    """
    if isinstance(log, list | tuple):
        return [*map(shown, log)]
    if isinstance(log, BaseMessage):
        return type(log).__name__, log.content, bool(log.id)
    return {**log, "id": True} if isinstance(log, dict) and "id" in log else log


@pytest.fixture(scope="module")
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


def assert_same(bench: wtb.Bench, build: Callable[[], StateGraph[Any]]) -> None:
    given, thread = {"log": ["given"]}, {"configurable": {"thread_id": "t"}}
    run = bench.run(build(), given)
    assert run.error is None
    expected = build().compile(checkpointer=InMemorySaver()).invoke(given, thread)  # type: ignore[call-overload]
    assert shown(run.state["log"]) == shown(expected["log"])


@pytest.mark.parametrize("schema", [Delta, Extended, Added, Counted])
@pytest.mark.parametrize("value", OVERWRITTEN)
def test_a_channel_that_is_overwritten_holds_what_langgraph_gives_it(bench: wtb.Bench, schema: Any, value: str) -> None:
    for form in ("object", "short", "as JSON"):
        assert_same(bench, lambda form=form: graph(schema, overwritten(form, OVERWRITTEN[value]())))  # type: ignore[misc]


@pytest.mark.parametrize("schema", [Delta, Extended, Added, Counted])
def test_writes_beside_an_overwrite_are_left_out_and_those_after_it_added(bench: wtb.Bench, schema: Any) -> None:
    assert_same(bench, lambda: graph(schema, ["a"], Overwrite([HumanMessage("new")]), ["b"], then=["then"]))
    assert_same(bench, lambda: graph(schema, Overwrite([SAID]), then=[AIMessage("then")]))


@pytest.mark.parametrize("schema", [Delta, Extended, Added, Counted])
@pytest.mark.parametrize("value", WRITTEN)
def test_what_is_written_without_overwrite_is_what_langgraph_makes_of_it(
    bench: wtb.Bench, schema: Any, value: str
) -> None:
    assert_same(bench, lambda: graph(schema, WRITTEN[value](), ["beside"]))


def test_two_overwrites_at_once_fail_as_in_langgraph(bench: wtb.Bench) -> None:
    error = bench.run(graph(Extended, Overwrite([1]), Overwrite([2])), {"log": []}).error
    assert error is not None
    assert "only one Overwrite" in error.message


def test_the_list_in_an_overwrite_stays_as_its_node_gave_it(bench: wtb.Bench) -> None:
    given = ["a"]
    assert bench.run(graph(Grown, Overwrite(given), then=["b"]), {"log": []}).state["log"] == ["a", "b"]
    assert given == ["a"]
