"""Graphs of every shape: WTB brings them to the same state as LangGraph itself, and refuses what it cannot run."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.channels import DeltaChannel, UntrackedValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer
from langgraph.managed import IsLastStep, RemainingSteps
from langgraph.prebuilt import InjectedState, ToolNode, create_react_agent
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Overwrite, RetryPolicy, Send, StreamWriter, interrupt
from pydantic import BaseModel

import wtb
import wtb.langgraph as wtb_langgraph
from tests.langgraph_graphs import Log, graph_of, row, says
from wtb.domain.execution import ExecutionStatus


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


class Model(BaseModel):
    count: int = 0
    names: list[str] = []


@dataclass
class Data:
    count: int = 0
    names: Annotated[list[str], operator.add] = field(default_factory=list)


def with_objects(schema: Any) -> StateGraph[Any]:
    nodes = {"a": lambda state: {"count": state.count + 1}, "b": lambda state: {"names": [str(state.count)]}}
    return graph_of(schema, nodes, row("a", "b"))


def commands() -> StateGraph[Any]:
    def leads(state: Log) -> Command[Any]:
        return Command(update={"log": ["led"]}, goto=[Send("part", {"n": 1}), Send("part", {"n": 2}), "c"])

    nodes = {"a": leads, "part": lambda given: {"log": [f"part {given['n']}"]}, "c": says("c")}
    return graph_of(Log, nodes, [(START, "a")])


def list_of_commands() -> StateGraph[Any]:
    several = [Command(update={"log": [1]}), Command(update={"log": [2]}, goto="b")]
    return graph_of(Log, {"a": lambda state: several, "b": says("b")}, [(START, "a")])


def deferred() -> StateGraph[Any]:
    last = (lambda state: {"log": [len(state["log"])]}, {"defer": True})
    nodes = {"a": says("a"), "b": says("b"), "c": says("c"), "last": last}
    return graph_of(Log, nodes, [(START, "a"), ("a", "b"), ("a", "last"), ("b", "c"), ("c", "last")])


def loop() -> StateGraph[Any]:
    graph = graph_of(Log, {"a": says("a"), "b": says("b")}, [(START, "a"), ("b", "a")])
    graph.add_conditional_edges("a", lambda state: "b" if len(state["log"]) < 5 else END, ["b", END])
    return graph


def conditional_entry() -> StateGraph[Any]:
    graph = graph_of(Log, {"a": says("a"), "b": says("b")}, [])
    graph.add_conditional_edges(START, lambda state: "b", ["a", "b"])
    return graph


def ends_at_once() -> StateGraph[Any]:
    graph = graph_of(Log, {"a": says("a")}, [])
    graph.add_conditional_edges(START, lambda state: END, ["a", END])
    return graph


def streamed() -> StateGraph[Any]:
    def writes(state: Log, writer: StreamWriter) -> Log:
        writer({"seen": "by nobody"})
        return {"log": ["w"]}

    return graph_of(Log, {"a": writes, "b": lambda state: None}, row("a", "b"))


def changing_messages() -> StateGraph[Any]:
    def changes(state: Any) -> Any:
        state["messages"][0].content = "changed"
        return {"messages": [state["messages"][0], AIMessage("old", id="old")]}

    def replaces(state: Any) -> Any:
        return {"messages": [RemoveMessage(id="h"), AIMessage("new", id="old")]}

    return graph_of(MessagesState, {"a": changes, "b": replaces}, row("a", "b"))


def all_messages_removed() -> StateGraph[Any]:
    gone = [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("new", id="n")]
    return graph_of(MessagesState, {"a": lambda state: {"messages": gone}}, row("a"))


@tool
def command_tool(
    number: int,
    tool_call_id: Annotated[str, InjectedToolCallId],
    state: Annotated[dict[str, Any], InjectedState],
) -> Command[Any]:
    """Return a command, from what was injected."""
    text = f"{number} of {len(state['messages'])}"
    return Command(update={"messages": [ToolMessage(text, tool_call_id=tool_call_id, id="t")]})


def tool_with_command() -> StateGraph[Any]:
    call = {"name": "command_tool", "args": {"number": 1}, "id": "1"}
    asks = AIMessage("", id="m", tool_calls=[call])
    return graph_of(
        MessagesState, {"m": lambda state: {"messages": [asks]}, "t": ToolNode([command_tool])}, row("m", "t")
    )


def nested_deep() -> StateGraph[Any]:
    leave: Command[Any] = Command(graph=Command.PARENT, goto="end", update={"log": ["left"]})
    deepest = graph_of(Log, {"x": lambda state: leave}, [(START, "x")]).compile()
    inner = graph_of(Log, {"deepest": deepest, "end": says("inner end")}, [(START, "deepest")]).compile()
    return graph_of(Log, {"inner": inner, "end": says("outer end")}, [(START, "inner")])


def _extended(before: list[Any], writes: list[Any]) -> list[Any]:
    return [*before, *(item for write in writes for item in write)]


class Growing(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(_extended)]
    files: Annotated[dict[str, Any], DeltaChannel(lambda before, writes: {**before, **dict(*map(dict.items, writes))})]
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


def growing() -> StateGraph[Any]:
    def begins(state: Any) -> Any:
        return {"log": ["a", {"k": 1}], "files": {"a.txt": "x"}, "messages": AIMessage("a", id="a")}

    def ends(state: Any) -> Any:
        return {
            "log": Overwrite(["b"]),
            "files": Overwrite(None),
            "messages": [RemoveMessage(id="h"), AIMessage("new", id="a")],
        }

    nodes = {"a": begins, "b": says("b"), "c": says("c"), "d": ends}
    return graph_of(Growing, nodes, [(START, "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])


class Untracked(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    count: Annotated[int, UntrackedValue]
    last: Annotated[dict[str, Any], UntrackedValue(dict, guard=False)]


def untracked() -> StateGraph[Any]:
    def counts(state: Any) -> Any:
        return {"count": state.get("count", 0) + 1, "log": [sorted(state)]}

    nodes = {"a": counts, "b": lambda state: {"last": {"n": 1}}, "c": lambda state: {"last": {"n": 1}}, "d": counts}
    return graph_of(Untracked, nodes, [(START, "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])


MESSAGE = {"messages": [HumanMessage("h", id="h")]}


shapes = pytest.mark.parametrize(
    ("build", "given"),
    [
        (lambda: with_objects(Model), {"count": 1}),
        (lambda: with_objects(Data), {"count": 1}),
        (commands, {"log": []}),
        (list_of_commands, {"log": []}),
        (deferred, {"log": []}),
        (loop, {"log": []}),
        (conditional_entry, {"log": []}),
        (ends_at_once, {"log": ["in"]}),
        (streamed, {"log": []}),
        (changing_messages, MESSAGE),
        (all_messages_removed, MESSAGE),
        (tool_with_command, MESSAGE),
        (nested_deep, {"log": []}),
        (growing, {"log": ["in"], **MESSAGE}),
        (untracked, {"log": []}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)


@shapes
def test_a_graph_comes_to_the_state_that_langgraph_brings_it_to(
    bench: wtb.Bench, build: Callable[[], StateGraph[Any]], given: dict[str, Any]
) -> None:
    run = bench.run(build(), given)
    assert run.error is None
    assert run.state == build().compile().invoke(given)
    assert run.replay().same


@shapes
def test_a_graph_that_is_paused_before_every_node_comes_to_the_same_state(
    bench: wtb.Bench, build: Callable[[], StateGraph[Any]], given: dict[str, Any]
) -> None:
    """Each step begins from what is stored, in a graph that was built anew, as after a crash."""
    run = bench.run(build(), given, break_before=list(build().nodes))
    while run.status is ExecutionStatus.PAUSED:
        run = bench.resume(run.id, build())
    assert run.error is None
    assert run.state == build().compile().invoke(given)


class Input(TypedDict):
    question: str


class Private(TypedDict):
    secret: str


class Output(TypedDict):
    answer: str


class Whole(Input, Output):
    pass


class Told(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]
    log: Annotated[list[Any], DeltaChannel(_extended)]


def test_messages_without_an_id_get_one_in_a_channel_of_writes_too(bench: wtb.Bench) -> None:
    told = {"role": "assistant", "content": "told"}

    def tells(state: Any) -> Any:
        return {"messages": ["as text", told], "log": ["no message", told, AIMessage("said")]}

    def tells_anew(state: Any) -> Any:
        return {"log": Overwrite([*state["log"], HumanMessage("at last")])}

    graph = graph_of(Told, {"a": tells, "b": tells_anew}, row("a", "b"))
    states = [bench.run(graph, {"messages": [("user", "hi")], "log": []}).state for _ in range(2)]
    assert states[0] == states[1]
    messages, log = states[0]["messages"], states[0]["log"]
    assert [each.content for each in messages] == ["hi", "as text", "told"]
    assert [each if isinstance(each, str) else each.content for each in log] == [
        "no message",
        "told",
        "said",
        "at last",
    ]
    assert all(each.id for each in [*messages, *log[1:]])


def test_what_no_checkpoint_of_langgraph_would_hold_is_kept_through_a_pause(bench: wtb.Bench) -> None:
    run = bench.run(untracked(), {"log": []}, break_before=["d"])
    assert run.resume().state["count"] == 2


def test_schemas_of_input_output_and_of_single_nodes_hold(bench: wtb.Bench) -> None:
    def first(state: Input) -> Private:
        return {"secret": f"{state['question']}!"}

    def second(state: Private) -> Output:
        return {"answer": f"{sorted(state)} {state['secret']}"}

    nodes = {"first": first, "second": second}
    graph = graph_of(Whole, nodes, row("first", "second"), input_schema=Input, output_schema=Output)
    assert bench.run(graph, {"question": "q"}).state["answer"] == "['secret'] q!"


def test_nodes_and_routers_may_be_async(bench: wtb.Bench) -> None:
    async def node(state: Log) -> Log:
        return {"log": ["async"]}

    async def router(state: Log) -> str:
        return "b"

    graph = graph_of(Log, {"a": node, "b": says("b")}, [(START, "a")])
    graph.add_conditional_edges("a", router, ["b"])
    outer = graph_of(Log, {"inner": graph.compile(), "end": node}, row("inner", "end"))
    assert bench.run(graph, {"log": []}).state == {"log": ["async", "b"]}
    assert bench.run(outer, {"log": []}).state == {"log": ["async", "b", "async"]}


class Who(TypedDict):
    name: str


def test_a_node_sees_its_configuration_and_context(bench: wtb.Bench) -> None:
    def configured(state: Log, config: RunnableConfig) -> Log:
        return {"log": [config["configurable"]["level"], config["configurable"]["thread_id"]]}

    def in_context(state: Log, runtime: Runtime[Who]) -> Log:
        return {"log": [runtime.context["name"]]}

    graph = graph_of(Log, {"a": configured, "b": in_context}, row("a", "b"), context_schema=Who)
    compiled = graph.compile().with_config(configurable={"level": 3})
    flow = wtb_langgraph.workflow(compiled, config={"configurable": {"other": 1}}, context={"name": "me"})
    assert bench.run(flow, {"log": []}, run_id="this").state == {"log": [3, "this", "me"]}


def test_nodes_with_a_store_are_not_shared(bench: wtb.Bench) -> None:
    def stores(state: Log, *, store: BaseStore) -> Log:
        store.put(("names",), "k", {"v": 1})
        return {"log": [len(store.search(("names",)))]}

    flow = wtb_langgraph.workflow(graph_of(Log, {"a": stores}, row("a")).compile(store=InMemoryStore()))
    assert bench.run(flow, {"log": []}).state == {"log": [1]}
    assert [node.cache for node in flow.definition().nodes] == [False]


class Steps(TypedDict):
    log: Annotated[list[Any], operator.add]
    left: RemainingSteps
    last: IsLastStep


def test_a_node_knows_how_many_steps_are_left(bench: wtb.Bench) -> None:
    def counts(state: Any) -> Any:
        return {"log": [f"{state['left']} {state['last']}"]}

    graph = graph_of(Steps, {"a": counts, "b": counts, "c": counts}, row("a", "b", "c"))
    expected = graph.compile().invoke({"log": []}, {"recursion_limit": 4})
    assert bench.run(graph, {"log": []}, max_steps=4).state == expected == {"log": ["3 False", "2 False", "1 True"]}


def test_timeouts_of_nodes_hold(bench: wtb.Bench) -> None:
    slow = (lambda state: time.sleep(5), {"timeout": 0.05})
    run = bench.run(graph_of(Log, {"slow": slow}, row("slow")), {"log": []})
    assert run.error is not None
    assert (run.error.type, run.error.node) == ("NodeTimeout", "slow")


def test_the_tools_of_a_tool_node_are_recorded(bench: wtb.Bench) -> None:
    called: list[int] = []

    async def double(number: int) -> str:
        """Double a number."""
        called.append(number)
        return str(number * 2)

    broken = [True]

    @tool
    def breaks(number: int) -> str:
        """Fail the first time."""
        if broken:
            raise ConnectionError("busy")
        return "whole"

    names = [("double", 1), ("double", 2), ("breaks", 3)]
    calls = [{"name": name, "args": {"number": number}, "id": str(number)} for name, number in names]
    nodes = {
        "m": lambda state: {"messages": [AIMessage("", id="m", tool_calls=calls)]},
        "t": ToolNode([tool(double), breaks], handle_tool_errors=False),
    }
    run = bench.run(graph_of(MessagesState, nodes, row("m", "t")), {"messages": ["go"]})
    assert run.error is not None
    assert run.error.message == "busy"
    broken.clear()
    run.resume()
    assert [message.content for message in run.state["messages"][2:]] == ["2", "4", "whole"]
    assert sorted(called) == [1, 2]


def test_the_tools_of_a_subgraph_are_not_called_again_when_it_asks(bench: wtb.Bench) -> None:
    called: list[str] = []

    @tool
    def send(text: str) -> str:
        """Send something."""
        called.append(text)
        return f"sent {text}"

    call = {"name": "send", "args": {"text": "hello"}, "id": "1"}
    nodes = {
        "model": lambda state: {"messages": [AIMessage("", id="m", tool_calls=[call])]},
        "tools": ToolNode([send]),
        "ask": lambda state: {"messages": [AIMessage(interrupt("well?"), id="a")]},
    }
    inner = graph_of(MessagesState, nodes, row("model", "tools", "ask"))
    run = bench.run(graph_of(MessagesState, {"inner": inner.compile()}, row("inner")), {"messages": ["go"]})
    run.resume(answer="yes")
    assert (run.error, called) == (None, ["hello"])
    assert [message.content for message in run.state["messages"][2:]] == ["sent hello", "yes"]


def test_a_subgraph_is_tried_again_from_its_beginning_without_calling_its_tools_again(bench: wtb.Bench) -> None:
    called: list[str] = []

    @tool
    def send(text: str) -> str:
        """Send something."""
        called.append(text)
        return text

    sent, tried = wtb_langgraph.recorded(send), []

    def flaky(state: Log) -> Log:
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionError("busy")
        return {"log": ["done"]}

    inner = graph_of(Log, {"send": lambda state: {"log": [sent.invoke("hello")]}, "flaky": flaky}, row("send", "flaky"))
    policy = {"retry_policy": RetryPolicy(initial_interval=0.001)}
    run = bench.run(graph_of(Log, {"inner": (inner.compile(), policy)}, row("inner")), {"log": []})
    assert (run.error, run.state, called) == (None, {"log": ["hello", "done"]}, ["hello"])


class WithTools(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_agent_that_comes_with_langgraph_is_run_step_by_step(bench: wtb.Bench) -> None:
    @tool
    def double(number: int) -> str:
        """Double a number."""
        return str(number * 2)

    calls = [{"name": "double", "args": {"number": number}, "id": str(number)} for number in (1, 2)]
    model = WithTools(messages=iter([AIMessage("", tool_calls=calls), AIMessage("2 and 4"), AIMessage("again")]))
    run = bench.run(create_react_agent(model, [double]), {"messages": [("user", "double 1 and 2")]})
    assert run.error is None
    assert [message.content for message in run.state["messages"][2:]] == ["2", "4", "2 and 4"]
    assert [(each.node, each.visit) for each in run.history.boundaries()][1:3] == [("tools", 1), ("tools", 2)]
    run.rollback("tools#1", allow_irreversible=True)
    assert run.resume().state["messages"][-1].content == "again"


def interrupting() -> Any:
    return graph_of(Log, {"x": says("x"), "y": says("y")}, row("x", "y")).compile(interrupt_before=["y"])


def test_a_graph_that_a_node_invokes_cannot_be_compiled_to_interrupt(bench: wtb.Bench) -> None:
    run = bench.run(graph_of(Log, {"a": lambda state: interrupting().invoke(state)}, row("a")), {"log": []})
    assert run.error is not None
    assert "compile it without interrupt_before" in run.error.message


@entrypoint()
def functional(given: Any) -> Any:
    return given


def nested(graph: Any) -> StateGraph[Any]:
    return graph_of(Log, {"inner": graph}, row("inner"))


def simple() -> StateGraph[Any]:
    return graph_of(Log, {"x": says("x")}, row("x"))


POLICIES = [RetryPolicy(retry_on=KeyError), RetryPolicy(retry_on=OSError)]


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (graph_of(Log, {"a": says("a")}, []), "Graph must have an entrypoint"),
        (graph_of(Log, {"a": says("a")}, [(START, "a"), ("a", "b")]), "unknown node `b`"),
        (
            nested(simple().compile(checkpointer=InMemorySaver())),
            "the subgraph 'inner' was compiled with a checkpointer",
        ),
        (nested(nested(simple().compile(checkpointer=True)).compile()), "the subgraph 'inner/inner' was compiled with"),
        (nested(interrupting()), "the subgraph 'inner' was compiled to interrupt"),
        (graph_of(Log, {"a": (says("a"), {"retry_policy": POLICIES})}, row("a")), "several retry policies"),
        (functional, "the functional API"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(bench: wtb.Bench, graph: Any, message: str) -> None:
    with pytest.raises(wtb.WTBError, match=message):
        bench.create(graph, {"log": []})


def test_a_variant_sees_what_its_node_sees(bench: wtb.Bench) -> None:
    flow = wtb_langgraph.workflow(simple())
    with pytest.raises(wtb.WTBError, match="leave out reads="):
        flow.add_variant("x", "narrow", says("y"), reads=["log"])
    flow.add_variant("x", "ours", lambda state, ctx: {"log": [ctx.run.node]})
    flow.add_variant("x", "graph", simple().compile())
    assert bench.run(flow, {"log": []}, variants={"x": "ours"}).state == {"log": ["x"]}
    assert bench.run(flow, {"log": []}, variants={"x": "graph"}).state == {"log": ["x"]}


class Straight(TypedDict):
    log: Annotated[list[Any], DeltaChannel(_extended)]


class Turned(TypedDict):
    log: Annotated[list[Any], DeltaChannel(lambda before, writes: _extended(before, writes)[::-1])]


def test_a_batch_takes_no_result_from_a_subgraph_that_combined_writes_otherwise(bench: wtb.Bench) -> None:
    def last(schema: Any) -> Any:
        graph = graph_of(Log, {"inner": graph_of(schema, {"a": says("a")}, row("a")).compile()}, row("inner"))
        result = bench.batch(graph, cases=[{"id": "1", "input": {"log": ["in"]}}], evaluators=[wtb.Steps()])
        return result.results[0].state["log"][-1]

    assert (last(Straight), last(Turned)) == ("a", "in")


def test_a_node_sees_the_same_whether_the_run_was_paused_before_it_or_not(bench: wtb.Bench) -> None:
    def sees(state: Log) -> Log:
        return {"topic": repr(state["log"])}

    graph = graph_of(Log, {"a": says((1, 2), {3}, Model(count=1)), "b": sees}, row("a", "b"))
    straight = bench.run(graph, {"log": []})
    paused = bench.run(graph, {"log": []}, break_before=["b"])
    assert bench.resume(paused.id, graph, break_before=()).state["topic"] == straight.state["topic"]


def test_a_value_that_could_not_be_read_again_is_named(bench: wtb.Bench) -> None:
    class Hidden(BaseModel):
        count: int = 1

    run = bench.run(graph_of(Log, {"a": says(Hidden())}, row("a")), {"log": []})
    assert run.error is not None
    assert run.error.node == "a"
    assert "Hidden" in run.error.message
    assert "at the top of a module" in run.error.message


def test_questions_may_be_data(bench: wtb.Bench) -> None:
    graph = graph_of(Log, {"a": lambda state: {"log": [interrupt({"action": "send", "to": ["me"]})]}}, row("a"))
    run = bench.run(graph, {"log": []})
    assert run.waiting is not None
    assert run.waiting.question is not None
    assert run.waiting.question["question"] == {"action": "send", "to": ["me"]}
    assert run.resume(answer={"send": True}).state == {"log": [{"send": True}]}
