"""LangGraph graphs, run by WTB: broken at, asked, rolled back, forked, shared and recovered like any other workflow."""

from __future__ import annotations

import operator
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

import wtb
import wtb.langgraph as wtb_langgraph
from wtb.domain.execution import ExecutionStatus

PAUSED, COMPLETED, FAILED = ExecutionStatus.PAUSED, ExecutionStatus.COMPLETED, ExecutionStatus.FAILED


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    topic: str


def says(word: str) -> Any:
    def node(state: Log) -> Log:
        return {"log": [word]}

    return node


def chain(*words: str, **nodes: Any) -> StateGraph[Any]:
    """Return a graph of nodes in a row, each of which says its name unless it is given."""
    graph: StateGraph[Any] = StateGraph(Log)
    names = [START, *words, END]
    for name in words:
        graph.add_node(name, nodes.get(name) or says(name))
    for before, after in pairwise(names):
        graph.add_edge(before, after)
    return graph


def visits(run: wtb.Run) -> list[tuple[str, int]]:
    return [(boundary.node, boundary.visit) for boundary in run.history.boundaries()]


def test_a_graph_runs_node_by_node(bench: wtb.Bench) -> None:
    run = bench.run(chain("a", "b"), {"log": ["in"]})
    assert (run.status, run.state, visits(run)) == (COMPLETED, {"log": ["in", "a", "b"]}, [("a", 1), ("b", 1)])
    assert run.returned == {"a": [{"log": ["a"]}], "b": [{"log": ["b"]}]}


def test_a_run_breaks_where_it_is_told_and_where_the_graph_was_compiled_to(bench: wtb.Bench) -> None:
    graph = chain("a", "b", "c").compile(interrupt_before=["b"])
    run = bench.run(graph, {"log": []}, break_after=["b"])
    assert (run.status, run.state) == (PAUSED, {"log": ["a"]})
    run.resume(update={"topic": "changed"})
    assert (run.status, run.state) == (PAUSED, {"log": ["a", "b"], "topic": "changed"})
    assert run.resume().state == {"log": ["a", "b", "c"], "topic": "changed"}


def test_a_paused_run_goes_on_with_the_graph_given_again(bench: wtb.Bench) -> None:
    run = bench.run(chain("a", "b"), {"log": []}, break_before=["b"])
    assert bench.resume(run.id, chain("a", "b").compile()).state == {"log": ["a", "b"]}


def test_what_was_sent_runs_at_the_same_time_and_is_joined(bench: wtb.Bench) -> None:
    def fan(state: Log) -> list[Send]:
        return [Send("part", {"number": number}) for number in range(3)]

    graph: StateGraph[Any] = StateGraph(Log)
    graph.add_node("begin", says("begin"))
    graph.add_node("side", says("side"))
    graph.add_node("part", lambda given: {"log": [f"part {given['number']}"]})
    graph.add_node("end", lambda state: Command(goto=END, update={"log": ["end"]}), destinations=(END,))
    graph.add_edge(START, "begin")
    graph.add_edge("begin", "side")
    graph.add_conditional_edges("begin", fan, ["part"])
    graph.add_edge(["part", "side"], "end")
    run = bench.run(graph, {"log": []})
    assert run.error is None
    assert run.state == graph.compile().invoke({"log": []})
    assert Counter(node for node, _ in visits(run)) == {"begin": 1, "side": 1, "part": 3, "end": 1}


def test_an_interrupt_is_a_question_and_the_node_runs_again_with_its_answers(bench: wtb.Bench) -> None:
    def ask(state: Log) -> Log:
        return {"log": [interrupt("how many?"), interrupt("how many?")]}

    run = bench.run(chain("a", "ask", "c", ask=ask), {"log": []})
    assert run.waiting is not None
    assert (run.status, run.waiting.node, run.waiting.question["question"]) == (PAUSED, "ask", "how many?")  # type: ignore[index]
    assert run.resume(answer=1).status is PAUSED
    assert run.resume(answer=2).state == {"log": ["a", 1, 2, "c"]}


def test_one_of_several_nodes_asks_and_the_others_do_not_run_again(bench: wtb.Bench) -> None:
    ran: Counter[str] = Counter()

    def other(state: Log) -> Log:
        ran["other"] += 1
        return {"log": ["other"]}

    graph: StateGraph[Any] = StateGraph(Log)
    graph.add_node("ask", lambda state: {"log": [interrupt("yes?")]})
    graph.add_node("other", other)
    graph.add_edge(START, "ask")
    graph.add_edge(START, "other")
    run = bench.run(graph, {"log": []})
    assert (run.status, ran["other"]) == (PAUSED, 1)
    assert run.resume(answer="yes").state == {"log": ["yes", "other"]}
    assert ran["other"] == 1


def test_a_failed_node_is_recorded_and_the_run_goes_on_from_before_it(bench: wtb.Bench) -> None:
    broken = [True]

    def fails(state: Log) -> Log:
        if broken:
            raise ValueError("no luck")
        return {"log": ["b"]}

    run = bench.run(chain("a", "b", b=fails), {"log": []})
    assert run.error is not None
    assert (run.status, run.error.type, run.error.node, run.error.message) == (FAILED, "ValueError", "b", "no luck")
    broken.clear()
    assert run.resume().state == {"log": ["a", "b"]}


def test_retry_policies_of_the_graph_hold(bench: wtb.Bench) -> None:
    tried: list[int] = []

    def flaky(state: Log) -> Log:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError("busy")
        return {"log": ["done"]}

    graph: StateGraph[Any] = StateGraph(Log)
    graph.add_node("flaky", flaky, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.001))
    graph.add_edge(START, "flaky")
    assert bench.run(graph, {"log": []}).state == {"log": ["done"]}


def test_async_nodes_and_subgraphs_run(bench: wtb.Bench) -> None:
    async def slow(state: Log) -> Log:
        return {"log": ["async"]}

    inner = chain("x", "y", y=slow).compile()
    run = bench.run(chain("a", "inner", "b", a=slow, inner=inner), {"log": []})
    assert run.error is None
    assert visits(run) == [("a", 1), ("inner", 1), ("b", 1)]
    assert run.state["log"] == ["async", "async", "x", "async", "b"]


def test_a_node_inside_a_subgraph_can_lead_the_outer_graph_on(bench: wtb.Bench) -> None:
    inner: StateGraph[Any] = StateGraph(Log)
    inner.add_node("leave", lambda state: Command(graph=Command.PARENT, goto="end", update={"log": ["left"]}))
    inner.add_edge(START, "leave")
    graph: StateGraph[Any] = StateGraph(Log)
    graph.add_node("inner", inner.compile(), destinations=("end",))
    graph.add_node("end", says("end"))
    graph.add_edge(START, "inner")
    run = bench.run(graph, {"log": []})
    assert run.error is None
    assert run.state == {"log": ["left", "end"]}


def test_questions_inside_a_subgraph_are_answered_in_their_order(bench: wtb.Bench) -> None:
    def asks(state: Log) -> Log:
        return {"log": [interrupt("first?"), interrupt("second?")]}

    inner = chain("x", "ask", ask=asks).compile()
    run = bench.run(chain("a", "inner", inner=inner), {"log": []})
    for number in (1, 2):
        assert run.waiting is not None
        run.resume(answer=number)
    assert (run.error, run.state) == (None, {"log": ["a", "a", "x", 1, 2]})


def test_nodes_of_subgraphs_are_told_by_their_path(bench: wtb.Bench) -> None:
    inner = chain("x", "deeper", deeper=chain("y").compile()).compile()
    run = bench.run(chain("a", "inner", inner=inner), {"log": []})
    inside = [event.data for event in run.events() if event.type == "node.inside"]
    assert [data["node"] for data in inside] == ["inner/x", "inner/deeper/y", "inner/deeper"]
    assert all(data["ms"] >= 0 for data in inside)


class Tickets:
    """What a ticket system holds."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.made = 0

    def tool(self, name: str) -> Any:
        @tool(name)
        def create(title: str) -> str:
            """Open a ticket."""
            self.made += 1
            self.open.append(title)
            return f"ticket {title}"

        def close(call: Any) -> None:
            self.open.remove(call.arguments["title"])

        return wtb_langgraph.reversible(create, reverse=close)


def agent(model: Any, tools: Any) -> StateGraph[Any]:
    """Return the usual agent: a model that calls tools until it has an answer."""
    graph: StateGraph[Any] = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    graph.add_edge("tools", "model")
    return graph


def scripted(*messages: AIMessage) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter(messages))


def wants(name: str, **arguments: Any) -> AIMessage:
    return AIMessage(
        content="",
        tool_calls=[{"name": name, "args": arguments, "id": f"call-{name}"}],
        usage_metadata={"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        response_metadata={"model_name": "scripted"},
    )


def test_an_agent_with_a_reversible_tool_is_rolled_back_whole(bench: wtb.Bench) -> None:
    tickets = Tickets()
    model = scripted(wants("open_1", title="broken"), AIMessage("done"), AIMessage("done again"))
    run = bench.run(agent(model, ToolNode([tickets.tool("open_1")])), {"messages": [HumanMessage("help")]})
    assert run.error is None
    assert [type(message) for message in run.state["messages"]] == [HumanMessage, AIMessage, ToolMessage, AIMessage]
    assert run.state["messages"][-1].content == "done"
    assert (tickets.open, run.usage["input_tokens"], run.usage["output_tokens"]) == (["broken"], 10, 5)
    assert [(call.tool, call.arguments) for call in run.calls] == [("open_1", {"title": "broken"})]
    run.rollback("model#1")
    assert (tickets.open, run.status, len(run.state["messages"])) == ([], PAUSED, 2)
    run.resume()
    assert (tickets.open, tickets.made, run.state["messages"][-1].content) == (["broken"], 2, "done again")


def test_a_recorded_tool_is_not_called_again_when_its_node_is(bench: wtb.Bench) -> None:
    tickets, broken = Tickets(), [True]
    create = tickets.tool("open_2")

    def act(state: Log) -> Log:
        made = create.invoke({"title": "one"})
        if broken:
            raise ValueError("after the call")
        return {"log": [made]}

    run = bench.run(chain("act", act=act), {"log": []})
    broken.clear()
    assert run.resume().state == {"log": ["ticket one"]}
    assert (tickets.made, tickets.open) == (1, ["one"])


def test_a_tool_that_nobody_declared_is_recorded_and_never_called_twice_unseen(bench: wtb.Bench) -> None:
    called: list[str] = []

    @tool
    def notify(text: str) -> str:
        """Tell somebody."""
        called.append(text)
        return "sent"

    broken = [True]

    def act(state: Log) -> Log:
        made = notify.invoke({"text": "hello"})
        if broken:
            raise ValueError("after the call")
        return {"log": [made]}

    run = bench.run(chain("act", act=act), {"log": []})
    assert [(call.tool, call.arguments) for call in run.calls] == [("notify", {"text": "hello"})]
    broken.clear()
    run.resume()
    assert run.error is not None
    assert "wtb.langgraph.recorded" in run.error.message
    assert called == ["hello"]


def test_files_are_versioned_with_the_run(bench: wtb.Bench) -> None:
    def write(word: str) -> Any:
        def node(state: Log) -> Log:
            with (wtb_langgraph.workspace() / "notes").open("a") as notes:
                notes.write(word)
            return {"log": [word]}

        return node

    run = bench.run(chain("a", "b", a=write("a"), b=write("b")), {"log": []})
    assert (Path(run.workspace) / "notes").read_text() == "ab"
    run.rollback("a")
    assert (Path(run.workspace) / "notes").read_text() == "a"
    assert run.resume().state == {"log": ["a", "b"]}
    assert (Path(run.workspace) / "notes").read_text() == "ab"


def test_a_fork_goes_on_with_another_variant_and_leaves_the_graph_alone(bench: wtb.Bench) -> None:
    graph = chain("a", "b", "c")
    flow = wtb_langgraph.workflow(graph)
    flow.add_variant("b", "loud", lambda state: {"log": ["B!"]})
    run = bench.run(flow, {"log": []})
    other = run.fork("a", variants={"b": "loud"}).resume()
    assert (run.state["log"], other.state["log"]) == (["a", "b", "c"], ["a", "B!", "c"])
    assert graph.compile().invoke({"log": []})["log"] == ["a", "b", "c"]


def test_a_batch_of_variants_shares_what_they_have_in_common(bench: wtb.Bench) -> None:
    ran: Counter[str] = Counter()

    def counted(word: str) -> Any:
        def node(state: Log) -> Log:
            ran[word] += 1
            return {"log": [word]}

        return node

    flow = wtb_langgraph.workflow(chain("a", "b", "c", **{name: counted(name) for name in "abc"}))
    for name in "abc":
        for variant in ("x", "y"):
            flow.add_variant(name, variant, counted(f"{name}{variant}"))
    result = bench.batch(flow, cases=[{"id": "1", "input": {"log": []}}], variants="all", evaluators=[wtb.Steps()])
    assert len(result.results) == 27
    assert sum(ran.values()) == 3 + 9 + 27
    assert {tuple(each.state["log"]) for each in result.results} == {
        (a, b, c) for a in ("a", "ax", "ay") for b in ("b", "bx", "by") for c in ("c", "cx", "cy")
    }


def test_a_graph_with_a_checkpointer_runs_without_it_and_says_so(
    bench: wtb.Bench, caplog: pytest.LogCaptureFixture
) -> None:
    saver = InMemorySaver()
    graph = chain("a").compile(checkpointer=saver)
    assert bench.run(graph, {"log": []}).state["log"] == ["a"]
    assert "was compiled with the checkpointer InMemorySaver: WTB runs it without that one" in caplog.text
    assert list(saver.list(None)) == []


@pytest.mark.parametrize(
    ("node", "function", "message"),
    [
        ("b", lambda state: {}, "the graph has no node 'b'; it has a"),
        ("a", 3, "variant 'v' of node 'a' is 3; give a function"),
        ("a", dict, "is <class 'dict'>; give a function"),
        ("a", [lambda state: {}], "give a function, a tool node or a compiled graph"),
        ("a", lambda: None, "takes no arguments; a node takes"),
    ],
)
def test_a_variant_that_cannot_be_a_node_of_a_graph_is_refused_at_once(node: str, function: Any, message: str) -> None:
    flow = wtb.langgraph.workflow(chain("a"))
    with pytest.raises(wtb.InvalidInput, match=message):
        flow.add_variant(node, "v", function)


def test_a_node_of_another_graph_is_a_variant(bench: wtb.Bench) -> None:
    flow = wtb.langgraph.workflow(chain("a"))
    other = StateGraph(Log)
    other.add_node("a", lambda state: {"log": ["other"]})
    other.add_edge(START, "a")
    flow.add_variant("a", "other", wtb.langgraph.node_of(other.compile(), "a"))
    assert bench.run(flow, {"log": []}, variants={"a": "other"}).state["log"] == ["other"]
    with pytest.raises(wtb.InvalidInput, match="the graph has no node 'b'; it has a"):
        wtb.langgraph.node_of(other, "b")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (StateGraph(Log), "it has no nodes"),
        (chain("a b"), "a node cannot be called 'a b'"),
        (object(), "an object of type object is not a workflow"),
        (lambda config: None, "a function is not a workflow; call it, if it makes one"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(bench: wtb.Bench, graph: Any, message: str) -> None:
    with pytest.raises(wtb.WTBError, match=message):
        bench.run(graph, {"log": []})


def test_a_value_that_cannot_be_stored_is_named(bench: wtb.Bench) -> None:
    run = bench.run(chain("a", a=lambda state: {"topic": object()}), {"log": []})
    assert run.error is not None
    assert (run.error.type, run.error.node) == ("StateNotSerialisable", "a")
    assert "'topic'" in run.error.message


def test_a_thread_that_langgraph_runs_itself_is_not_resumed_here(bench: wtb.Bench) -> None:
    app = chain("a").compile(checkpointer=wtb_langgraph.Saver(bench))
    app.invoke({"log": []}, {"configurable": {"thread_id": "theirs"}})
    with pytest.raises(wtb.WTBError, match="a thread that LangGraph runs itself"):
        bench.resume("theirs", chain("a"))


def test_a_node_that_was_renamed_is_named(bench: wtb.Bench) -> None:
    run = bench.run(chain("a", "b"), {"log": []}, break_before=["b"])
    with pytest.raises(wtb.WTBError, match="continues with b, which the workflow no longer has"):
        bench.resume(run.id, chain("a", "c"), break_before=())


def test_a_fork_with_another_input_begins_where_the_graph_begins_with_it(bench: wtb.Bench) -> None:
    graph: StateGraph[Any] = StateGraph(Log)
    graph.add_node("a", says("a"))
    graph.add_node("b", says("b"))
    graph.add_conditional_edges(START, lambda state: state["topic"], ["a", "b"])
    run = bench.run(graph, {"log": ["one"], "topic": "a"})
    other = run.fork(input={"log": ["two"], "topic": "b"}).resume()
    assert (run.state["log"], other.state) == (["one", "a"], {"log": ["two", "b"], "topic": "b"})


def test_messages_are_put_into_the_state_of_a_run_and_of_a_fork(bench: wtb.Bench) -> None:
    graph: StateGraph[Any] = StateGraph(MessagesState)
    graph.add_node("a", lambda state: {"messages": [AIMessage("a")]})
    graph.add_node("b", lambda state: {"messages": [AIMessage(f"{len(state['messages'])} before")]})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    run = bench.run(graph, {"messages": ["hello"]}, break_before=["b"])
    other = run.fork("a", update={"messages": [HumanMessage("only")]}).resume()
    assert [message.content for message in other.state["messages"]] == ["only", "1 before"]
    run.resume(update={"messages": [HumanMessage("this"), HumanMessage("that")]})
    assert [message.content for message in run.state["messages"]] == ["this", "that", "2 before"]


@pytest.mark.parametrize(
    "change", [lambda run: run.fork("a", update={"zz": 1}), lambda run: run.resume(update={"zz": 1})]
)
def test_a_key_that_is_no_channel_is_refused(bench: wtb.Bench, change: Any) -> None:
    run = bench.run(chain("a", "b"), {"log": []}, break_before=["b"])
    with pytest.raises(wtb.WTBError, match="the graph has no channel zz; it has log, topic"):
        change(run)
    assert run.resume().state == {"log": ["a", "b"]}


def test_the_record_of_a_graph_is_replayed_without_its_nodes(bench: wtb.Bench) -> None:
    def fan(state: Log) -> list[Send]:
        return [Send("part", {"number": number}) for number in range(3)]

    def built(reducer: Any) -> StateGraph[Any]:
        schema: Any = type("Parts", (), {"__annotations__": {"log": Annotated[list[Any], reducer]}})
        graph: StateGraph[Any] = StateGraph(schema)
        graph.add_node("begin", says("begin"))
        graph.add_node("part", lambda given: {"log": [given["number"]]})
        graph.add_edge(START, "begin")
        graph.add_conditional_edges("begin", fan, ["part"])
        return graph

    run = bench.run(built(operator.add), {"log": []})
    assert run.replay().same
    other = run.replay(wtb_langgraph.workflow(built(lambda left, right: right + left)))
    assert [(each.step, each.key) for each in other.differences] == [(2, "log")]


def test_nodes_of_a_graph_are_mocked_with_what_they_returned(bench: wtb.Bench) -> None:
    def leads(state: Log) -> Command[Any]:
        return Command(goto="b", update={"log": ["led"]})

    graph: StateGraph[Any] = StateGraph(Log)
    graph.add_node("a", leads, destinations=("b",))
    graph.add_node("b", says("b"))
    graph.add_edge(START, "a")
    flow = wtb_langgraph.workflow(graph)
    recorded = bench.run(flow, {"log": []}).returned
    assert bench.run(flow.mocked(recorded), {"log": []}).state == {"log": ["led", "b"]}
    assert bench.run(flow.mocked({"b": {"log": ["mocked"]}}), {"log": []}).state == {"log": ["led", "mocked"]}


def test_each_of_several_tools_gets_the_answer_to_its_own_question(bench: wtb.Bench) -> None:
    done: list[tuple[int, str]] = []

    @tool
    def approve(number: int) -> str:
        """Do something that somebody must allow."""
        answer = interrupt(f"may {number}?")
        done.append((number, answer))
        return f"{number} {answer}"

    calls = [{"name": "approve", "args": {"number": number}, "id": str(number)} for number in (1, 2)]
    model = scripted(AIMessage("", tool_calls=calls), AIMessage("done"))
    run = bench.run(agent(model, ToolNode([approve])), {"messages": ["go"]})
    while run.waiting is not None:
        assert run.waiting.question is not None
        run.resume(answer=f"yes, {run.waiting.question['question']}")
    assert run.error is None
    assert [message.content for message in run.state["messages"][2:4]] == ["1 yes, may 1?", "2 yes, may 2?"]
    assert sorted(done) == [(1, "yes, may 1?"), (2, "yes, may 2?")]


def test_what_a_node_changes_in_place_changes_nothing(bench: wtb.Bench) -> None:
    kept: list[dict[str, int]] = []

    def gives(state: Log) -> Log:
        kept.append({"k": 1})
        return {"log": kept[:1]}

    def changes(state: Log) -> Log:
        kept[0]["k"] = state["log"][0]["k"] = 8
        state["log"].append("unseen")
        return {"topic": "changed"}

    run = bench.run(chain("a", "b", "c", a=gives, b=changes), {"log": [{"k": 0}]})
    assert run.state == {"log": [{"k": 0}, {"k": 1}, "c"], "topic": "changed"}


def test_combinations_share_messages_too(bench: wtb.Bench) -> None:
    ran: Counter[str] = Counter()

    def counted(word: str) -> Any:
        def node(state: Any) -> Any:
            ran[word] += 1
            return {"messages": [AIMessage(word)]}

        return node

    graph: StateGraph[Any] = StateGraph(MessagesState)
    for before, name in ((START, "a"), ("a", "b"), ("b", "c")):
        graph.add_node(name, counted(name))
        graph.add_edge(before, name)
    flow = wtb_langgraph.workflow(graph)
    flow.add_variant("c", "x", counted("cx"))
    case = {"id": "1", "input": {"messages": [["user", "hello"]]}}
    bench.batch(flow, cases=[case], variants="all", evaluators=[wtb.Steps()])
    assert ran == {"a": 1, "b": 1, "c": 1, "cx": 1}


def test_a_graph_is_tried_without_being_made_a_workflow(bench: wtb.Bench) -> None:
    cases = [{"id": "1", "input": {"log": []}}]
    for graph in (chain("a", "b"), chain("a", "b").compile()):
        result = bench.batch(wtb.BatchTest(graph, cases=cases, evaluators=[wtb.Steps()]))
        assert [each.state["log"] for each in result.results] == [["a", "b"]]


def test_a_batch_runs_again_what_another_router_leads_to(bench: wtb.Bench) -> None:
    def routed(target: str) -> Any:
        graph: StateGraph[Any] = StateGraph(Log)
        for name in "abc":
            graph.add_node(name, says(name))
        graph.add_edge(START, "a")
        graph.add_conditional_edges("a", lambda state: target, ["b", "c"])
        return wtb_langgraph.workflow(graph)

    cases = [{"id": "1", "input": {"log": []}}]
    for target in ("b", "c"):
        result = bench.batch(routed(target), name="routed", cases=cases, evaluators=[wtb.Steps()])
        assert [each.state["log"] for each in result.results] == [["a", target]]
