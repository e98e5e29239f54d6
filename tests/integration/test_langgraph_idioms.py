"""What people write in the nodes of a graph: WTB makes of it what LangGraph does, or says what to write instead."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import push_message
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Command, RetryPolicy, interrupt
from pydantic import BaseModel

import wtb
import wtb.langgraph as wtb_langgraph
from tests.langgraph_graphs import Log, calls, graph_of, row, says


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


def test_folder_and_reversal_are_found_at_the_front_door(bench: wtb.Bench) -> None:
    sent: list[str] = []

    @tool
    def send_word(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    post = wtb.reversible(send_word, reverse=lambda call: sent.remove(call.arguments["text"]))

    def work(state: Any) -> dict[str, Any]:
        (wtb.workspace() / "note").write_text("sent")
        return {"log": [post.invoke({"text": "hello"})]}

    run = bench.run(graph_of(Log, {"a": says("a"), "work": work}, row("a", "work")), {"log": []})
    assert (run.state["log"], sent, list(run.files())) == (["a", "sent"], ["hello"], ["note"])
    run.rollback("a")
    assert (run.state["log"], sent, list(run.files())) == (["a"], [], [])


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


def routed(node: str, router: Any) -> StateGraph[Any]:
    """Return a graph in which a function decides what follows a node, or what comes first."""
    graph = graph_of(Log, {"a": says("a"), "b": says("b")}, [] if node == START else [(START, "a")])
    graph.add_conditional_edges(node, router, ["a", "b", END])
    return graph


def test_a_question_of_an_edge_is_refused(bench: wtb.Bench) -> None:
    run = bench.run(routed("a", lambda state: interrupt("where?")), {"log": []})
    assert run.error is not None
    assert "ask in a node" in run.error.message
    with pytest.raises(wtb.InvalidInput, match="ask in a node"):
        bench.run(routed(START, lambda state: interrupt("where?")), {"log": []})


@pytest.mark.parametrize(
    ("graph", "given"),
    [
        (graph_of(Form, {"a": lambda state: None}, row("a")), {"count": "many"}),
        (routed(START, lambda state: state["nothing"]), {"log": []}),
        (graph_of(Log, {"a": says("a")}, row("a")), {"log": 5}),
    ],
)
def test_an_input_that_the_graph_cannot_begin_with_is_refused(bench: wtb.Bench, graph: Any, given: Any) -> None:
    with pytest.raises(wtb.InvalidInput, match="the graph cannot start with this input: "):
        bench.run(graph, given)
    assert bench.list_runs() == ()


def test_a_chain_with_something_to_await_in_it_may_be_a_node(bench: wtb.Bench) -> None:
    async def awaited(state: Log) -> Log:
        return {"log": ["awaited"]}

    chain = RunnableLambda(lambda state: state) | RunnableLambda(awaited)
    nodes = {"chain": chain, "bound": chain.with_config(tags=["t"]), "parallel": RunnableParallel(log=chain) | first}
    run = bench.run(graph_of(Log, nodes, row(*nodes)), {"log": []})
    assert (run.error, run.state) == (None, {"log": ["awaited"] * 3})


def first(given: Any) -> Any:
    return given["log"]


class Defaults(TypedDict):
    log: Annotated[list[str], operator.add]
    errors: Annotated[list[str], operator.add]
    topic: str


def test_nodes_that_can_be_called_and_awaited_are_awaited_when_told_so(bench: wtb.Bench) -> None:
    async def awaited(state: Any) -> Any:
        return {"log": ["awaited"]}

    inner = graph_of(Log, {"x": RunnableLambda(says("called"), awaited)}, row("x")).compile()
    nodes = {"a": RunnableLambda(says("called"), awaited), "inner": inner, "b": says("b")}
    graph = graph_of(Log, nodes, row("a", "inner", "b"))
    assert bench.run(graph, {"log": []}).state["log"] == ["called", "called", "called", "b"]
    flow = wtb_langgraph.workflow(graph, is_async=True)
    assert bench.run(flow, {"log": []}).state["log"] == ["awaited", "awaited", "awaited", "b"]


def test_a_channel_that_nobody_wrote_to_has_the_value_that_its_reducer_begins_with(bench: wtb.Bench) -> None:
    graph = graph_of(Defaults, {"a": says("a"), "b": says("b")}, row("a", "b"))
    run = bench.run(graph, {"log": []}, break_before=["b"])
    assert run.state == {"log": ["a"], "errors": []}
    assert run.resume(break_before=()).state == graph.compile().invoke({"log": []})
    assert run.replay().same


def test_the_messages_of_one_run_can_be_given_to_the_next(bench: wtb.Bench) -> None:
    """As people do who keep a conversation: messages without an id must not be taken for earlier ones."""

    def answers(state: Any) -> Any:
        return {"messages": [("ai", f"answer {len(state['messages'])}")]}

    graph = graph_of(MessagesState, {"model": answers}, row("model"))
    said = bench.run(graph, {"messages": [("user", "first")]}).state["messages"]
    said = bench.run(graph, {"messages": [*said, ("user", "second")]}).state["messages"]
    assert [message.content for message in said] == ["first", "answer 1", "second", "answer 3"]

    paused = bench.run(graph, {"messages": [("user", "other")]}, break_before=["model"])
    forked = paused.fork(update={"messages": [*said, ("user", "third")]}).resume(break_before=())
    assert [message.content for message in forked.state["messages"][4:]] == ["third", "answer 5"]


class Opaque:
    """Nothing that can be stored."""

    def __str__(self) -> str:
        return "opaque"


@tool
def opaque(given: Any) -> Any:
    """Return something that cannot be stored."""
    return [Opaque()] if given == "list" else Opaque()


def test_a_tool_may_give_what_cannot_be_stored_where_only_its_text_counts(bench: wtb.Bench) -> None:
    nodes = {"model": calls("opaque", given="it"), "tools": ToolNode([opaque])}
    graph = graph_of(MessagesState, nodes, row("model", "tools"))
    run = bench.run(graph, {"messages": ["go"]})
    assert run.error is None
    assert run.state["messages"][-1].content == "opaque"
    assert [call.result for call in run.calls] == ["opaque"]


def test_a_tool_that_nobody_declared_may_take_and_give_what_cannot_be_stored(bench: wtb.Bench) -> None:
    graph = graph_of(Log, {"a": lambda state: {"log": [str(opaque.invoke({"given": Opaque()}))]}}, row("a"))
    run = bench.run(graph, {"log": []})
    assert (run.error, run.state) == (None, {"log": ["opaque"]})
    assert [(call.tool, call.arguments["given"], call.result) for call in run.calls] == [("opaque", "opaque", "opaque")]


class Sender(BaseTool):
    name: str = "send"
    description: str = "Send something."
    sent: list[str]

    def _run(self, text: str, run_manager: CallbackManagerForToolRun | None = None) -> str:
        self.sent.append(text)
        return f"sent {text} {run_manager is not None}"


class AsyncSender(Sender):
    name: str = "asend"

    async def _arun(self, text: str, config: RunnableConfig) -> str:
        self.sent.append(text)
        return f"sent {text} {config['configurable']['thread_id']}"


@tool
def ask(text: str) -> str:
    """Ask somebody."""
    return str(interrupt(text))


def test_a_tool_that_is_a_class_is_recorded_as_any_other(bench: wtb.Bench) -> None:
    sender, other = Sender(sent=[]), AsyncSender(sent=[])
    taken_back: list[str] = []
    declared = wtb_langgraph.reversible(other, reverse=lambda call: taken_back.append(call.arguments["text"]))
    nodes = {"model": calls("send", "asend", "ask", text="x"), "tools": ToolNode([sender, declared, tool(later), ask])}
    run = bench.run(graph_of(MessagesState, nodes, row("model", "tools")), {"messages": ["go"]}, run_id="this")
    run.resume(answer="well")
    assert run.error is None
    assert [message.content for message in run.state["messages"][2:]] == ["sent x True", "sent x this", "well"]
    assert (sender.sent, other.sent, sender.metadata) == (["x"], ["x"], None)
    run.rollback("model", allow_irreversible=True)
    assert taken_back == ["x"]


async def later(text: str) -> str:
    """Make the tools be awaited."""
    return text


def test_a_thread_without_its_context_is_told_how_to_get_it(bench: wtb.Bench) -> None:
    def in_a_thread(state: Log) -> Log:
        with ThreadPoolExecutor() as pool:
            return {"log": [pool.submit(wtb_langgraph.workspace).result()]}

    run = bench.run(graph_of(Log, {"a": in_a_thread}, row("a")), {"log": []})
    assert run.error is not None
    assert "copy_context" in run.error.message


def ends_with(node: Any) -> StateGraph[Any]:
    return graph_of(Log, {"a": node, "b": says("end")}, row("a", "b"))


def edges_inside(word: str) -> Any:
    order = ("x", "y") if word == "one" else ("y", "x")
    return graph_of(Log, {"x": says("x"), "y": says("y")}, row(*order)).compile()


def in_front(before: list[str], more: list[str]) -> list[str]:
    return more + before


class LastFirst(TypedDict):
    log: Annotated[list[str], in_front]


def reducer_inside(word: str) -> Any:
    return graph_of(Log if word == "one" else LastFirst, {"x": says("x"), "y": says("y")}, row("x", "y")).compile()


def graph_in_a_function(word: str) -> Any:
    inner = graph_of(Log, {"x": says(word)}, row("x")).compile()
    return lambda state: inner.invoke({"log": []})


def configured(state: Log, config: RunnableConfig) -> Log:
    return {"log": [config["configurable"]["word"]]}


class Prompted(GenericFakeChatModel):
    """Answers with its prompt."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(messages[0].content))])


def as_log(state: Any) -> Any:
    return {"log": [state["messages"][-1].content]}


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize(
    "node",
    [
        lambda word: RunnableLambda(lambda state: state) | RunnableLambda(lambda state: {"log": [word]}),
        lambda word: graph_of(Log, {"x": says(word)}, row("x")).compile(),
        lambda word: RunnableLambda(configured).with_config(configurable={"word": word}),
        edges_inside,
        reducer_inside,
        graph_in_a_function,
        lambda word: create_react_agent(Prompted(messages=iter(())), [], prompt=word) | as_log,
    ],
)
def test_a_batch_runs_again_what_another_chain_or_subgraph_is_part_of(
    bench: wtb.Bench, node: Callable[[str], Any]
) -> None:
    for word in ("one", "two", "one"):
        graph = ends_with(node(word))
        result = bench.batch(graph, cases=[{"id": "c", "input": {"log": []}}], evaluators=[wtb.Latency()])
        assert result.results[0].state == graph.compile().invoke({"log": []})


class Shouting(Prompted):
    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(messages[0].content.upper()))])


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_prompt_and_the_model_of_a_prebuilt_agent_are_varied_in_one_line_each(bench: wtb.Bench) -> None:
    plain, loud = Prompted(messages=iter(())), Shouting(messages=iter(()))
    flow = wtb.langgraph.workflow(create_react_agent(plain, [], prompt="polite"))
    node_of = wtb.langgraph.node_of
    flow.add_variant("agent", "brief", node_of(create_react_agent(plain, [], prompt="brief"), "agent"))
    flow.add_variant("agent", "loud", node_of(create_react_agent(loud, [], prompt="polite"), "agent"))
    cases = [{"id": "1", "input": {"messages": [["user", "hi"]]}, "expected": "brief"}]
    result = bench.batch(flow, cases=cases, evaluators=[wtb.Contains(wtb.langgraph.last_message)])
    said = {each.combination: each.state["messages"][-1].content for each in result.results}
    assert said == {"baseline": "polite", "agent=brief": "brief", "agent=loud": "POLITE"}


class WithTools(Prompted):
    """Calls the tool once, then answers with its prompt."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        calls = [{"name": "search", "args": {"word": "tea"}, "id": "1"}]
        asks = AIMessage("", tool_calls=calls) if len(messages) == 2 else AIMessage(messages[0].content)
        return ChatResult(generations=[ChatGeneration(message=asks)])


def a_search(where: str) -> BaseTool:
    @tool
    def search(word: str) -> str:
        """Search."""
        return f"{word} in {where}"

    return search


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_tools_of_a_prebuilt_agent_are_varied_in_one_line(bench: wtb.Bench) -> None:
    flow = wtb.langgraph.workflow(create_react_agent(WithTools(messages=iter(())), [a_search("the shop")], prompt="ok"))
    flow.add_variant("tools", "fake", ToolNode([a_search("a list")]))
    for chosen, found in (({}, "tea in the shop"), ({"tools": "fake"}, "tea in a list")):
        run = bench.run(flow, {"messages": [["user", "tea?"]]}, variants=chosen)
        assert [message.content for message in run.state["messages"][-2:]] == [found, "ok"]


def test_cases_of_a_batch_may_hold_messages(bench: wtb.Bench) -> None:
    graph = graph_of(MessagesState, {"a": lambda state: {"messages": state["messages"][0].content}}, row("a"))
    cases = [{"id": word, "input": {"messages": [HumanMessage(word)]}} for word in ("one", "two")]
    results = bench.batch(graph, cases=cases, evaluators=[wtb.Latency()]).results
    assert [(each.case_id, each.state["messages"][1].content) for each in results] == [("one", "one"), ("two", "two")]
    changed = [{"id": "one", "input": {"messages": [HumanMessage("other")]}}]
    again = bench.batch(graph, cases=changed, evaluators=[wtb.Latency()]).results
    assert [each.state["messages"][1].content for each in again if each.case_id == "one"] == ["other"]


def changed_after_compile() -> Any:
    graph = graph_of(Log, {"a": says("a")}, row("a"))
    compiled = graph.compile()
    graph.add_node("late", says("late"))
    return compiled


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (graph_of(dict, {"a": lambda state: {"x": 1}}, row("a")), "its state is a single value"),
        (changed_after_compile(), "late was added or removed after it was compiled"),
    ],
)
def test_a_graph_that_would_run_as_another_is_refused(bench: wtb.Bench, graph: Any, message: str) -> None:
    with pytest.raises(wtb.InvalidInput, match=message):
        bench.run(graph, {"log": []})


@dataclass
class Fields:
    count: int
    name: str = "ann"


@pytest.mark.parametrize(("schema", "given"), [(Form, Form(count=2)), (Fields, Fields(count=2))])
def test_a_model_may_be_the_input(bench: wtb.Bench, schema: Any, given: Any) -> None:
    graph = graph_of(schema, {"a": lambda state: {"count": state.count + 1}}, row("a"))
    assert bench.run(graph, given).state == graph.compile().invoke(given)


def test_a_command_is_no_input(bench: wtb.Bench) -> None:
    with pytest.raises(wtb.InvalidInput, match="a Command cannot begin a run"):
        bench.run(graph_of(Log, {"a": says("a")}, row("a")), Command(resume="yes"))


def test_what_is_no_node_is_no_variant() -> None:
    graph = graph_of(Log, {"a": says("a")}, row("a"))
    with pytest.raises(wtb.InvalidInput, match="compile it first"):
        wtb_langgraph.workflow(graph).add_variant("a", "other", graph_of(Log, {"x": says("x")}, row("x")))


def test_a_question_with_objects_in_it_is_told_as_data(bench: wtb.Bench) -> None:
    asks = {"draft": AIMessage("hello", id="m"), "pair": (1, 2)}
    run = bench.run(graph_of(Log, {"a": lambda state: {"log": [interrupt(asks)]}}, row("a")), {"log": []})
    assert run.waiting is not None
    assert run.waiting.question is not None
    question = run.waiting.question["question"]
    assert (question["draft"]["content"], question["pair"]) == ("hello", [1, 2])
    assert run.resume(answer="fine").state == {"log": ["fine"]}


def test_an_answer_is_not_lost_to_an_update(bench: wtb.Bench) -> None:
    run = bench.run(
        graph_of(Log, {"a": lambda state: {"log": [interrupt("?"), state["topic"]]}}, row("a")), {"log": []}
    )
    with pytest.raises(wtb.InvalidInput, match="update first, and then with the answer"):
        run.resume(update={"topic": "t"}, answer="yes")
    assert run.resume(update={"topic": "t"}).resume(answer="yes").state == {"log": ["yes", "t"], "topic": "t"}


@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_a_graph_says_of_all_its_nodes_holds(bench: wtb.Bench, is_compiled: bool) -> None:
    tried: list[int] = []

    async def flaky(state: Log) -> Log:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError("busy")
        return {"log": [len(tried)]}

    async def slow(state: Log) -> None:
        await asyncio.sleep(60)

    once, patiently = {"retry_policy": RetryPolicy(max_attempts=1)}, {"timeout": 60}
    graph = graph_of(Log, {"flaky": (flaky, patiently), "slow": (slow, once)}, [])
    graph.add_edge(START, "flaky").add_edge("flaky", "slow")
    graph.set_node_defaults(retry_policy=RetryPolicy(initial_interval=0.001), timeout=0.05)
    run = bench.run(graph.compile() if is_compiled else graph, {"log": []})
    assert run.state == {"log": [3]}
    assert run.error is not None
    assert (run.error.type, run.error.node) == ("NodeTimeout", "slow")


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_handler_of_the_errors_of_all_nodes_is_refused(bench: wtb.Bench, is_compiled: bool) -> None:
    graph = graph_of(Log, {"a": says("a")}, row("a")).set_node_defaults(error_handler=says("handled"))
    with pytest.raises(wtb.InvalidInput, match="has an error handler"):
        bench.run(graph.compile() if is_compiled else graph, {"log": []})


def test_a_node_may_run_another_graph_on_the_bench(bench: wtb.Bench) -> None:
    def asks(state: Log) -> Log:
        inner = bench.run(graph_of(Log, {"x": lambda state: {"log": [interrupt("inner?")]}}, row("x")), {"log": []})
        return {"log": [*inner.resume(answer="inner").state["log"], interrupt("outer?")]}

    run = bench.run(graph_of(Log, {"a": asks}, row("a")), {"log": []})
    assert run.waiting is not None
    assert run.waiting.question is not None
    assert run.waiting.question["question"] == "outer?"
    assert run.resume(answer="outer").state == {"log": ["inner", "outer"]}


class Uncounted(GenericFakeChatModel):
    """Says of some of its tokens only, as some servers do while they stream."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        counts: Any = {"input_tokens": None, "output_tokens": 2, "total_tokens": None}
        said = AIMessage("hello").model_copy(update={"usage_metadata": counts})
        return ChatResult(generations=[ChatGeneration(message=said)])


def test_a_model_that_does_not_count_its_tokens_fails_nothing(bench: wtb.Bench) -> None:
    model = Uncounted(messages=iter(()))
    run = bench.run(graph_of(Log, {"a": lambda state: {"log": [model.invoke("hi").content]}}, row("a")), {"log": []})
    assert (run.error, run.state) == (None, {"log": ["hello"]})
    assert (run.usage["input_tokens"], run.usage["output_tokens"]) == (0, 2)
