"""Tools in batches: mocked, answered by a recorded run, or recorded once for a case, seen from the server's side."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import wtb.langgraph
from tests.integration.ticket_desk import CASES, DESK, STEPS, TicketServer, close_ticket, desk, open_ticket
from wtb import append
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.tools import Effects
from wtb.flow import Workflow


@pytest.fixture
def server() -> Iterator[TicketServer]:
    with TicketServer() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_no_call_reaches_the_server_when_the_tools_are_mocked(bench: Bench, server: TicketServer) -> None:
    flow = desk(server.url).mocked_tools({"desk_open_ticket": lambda subject: f"mock {subject}"})
    result = bench.batch(flow, cases=CASES, evaluators=STEPS, workers=8)
    assert server.seen.total() == 0
    assert result.results[0].state == {"subject": "ada", "ticket": "mock ada", "more": ["mock more", "mock more"]}
    call = result.results[0].run.calls[-1]
    assert (call.effects, call.arguments, call.result) == (Effects.NONE, {"subject": "more"}, "mock more")


def test_recorded_tools_are_called_once_for_each_key_by_eight_workers(bench: Bench, server: TicketServer) -> None:
    flow = desk(server.url)
    result = bench.batch(
        flow, cases=CASES, evaluators=STEPS, tools={"desk_open_ticket": "record"}, workers=8, repeats=2, share=False
    )
    assert result.status == "completed"
    assert server.seen == {"/open/ada": 1, "/open/bob": 1, "/open/eve": 1, "/open/more": 6}
    by_case: dict[str, set[Any]] = {each.case_id: set() for each in result.results}
    for each in result.results:
        by_case[each.case_id].add((each.state["ticket"], *each.state["more"]))
    assert [len(answers) for answers in by_case.values()] == [1, 1, 1]
    assert len({ticket for answers in by_case.values() for each in answers for ticket in each}) == 9


def test_a_node_whose_tools_are_recorded_is_shared_like_any_other(bench: Bench, server: TicketServer) -> None:
    result = bench.batch(
        desk(server.url), cases=CASES, evaluators=STEPS, tools={"desk_open_ticket": "record"}, workers=4
    )
    assert result.sharing == {"executed": 3 + 3 * 4, "shared": 3 * 3, "not_shareable": {}}
    calls = [call for each in result.results for call in each.run.calls]
    assert Counter(call.effects for call in calls) == {Effects.EXTERNAL: 9, Effects.NONE: 18}


def test_a_later_batch_gets_recorded_answers_until_it_is_to_be_fresh(bench: Bench, server: TicketServer) -> None:
    def run(name: str, **options: Any) -> None:
        tools = {"desk_open_ticket": "record"}
        bench.batch(desk(server.url, 0), name=name, cases=CASES, evaluators=STEPS, tools=tools, **options)

    run("one")
    assert server.seen.total() == 9
    run("two", share=False)
    assert server.seen.total() == 9
    run("two", fresh=["more"])
    assert server.seen == {"/open/ada": 1, "/open/bob": 1, "/open/eve": 1, "/open/more": 12}
    run("two", fresh=True)
    assert server.seen == {"/open/ada": 2, "/open/bob": 2, "/open/eve": 2, "/open/more": 18}


def test_a_call_that_fails_is_not_recorded_and_the_next_job_makes_it(bench: Bench, server: TicketServer) -> None:
    flow = desk("http://127.0.0.1:1", 0)  # nobody listens there
    options: dict[str, Any] = {"cases": CASES[:1], "evaluators": STEPS, "tools": {"desk_open_ticket": "record"}}
    assert bench.batch(flow, **options).status == "completed_with_errors"
    DESK.url = server.url
    assert bench.batch(flow, **options).status == "completed"
    assert server.seen.total() == 3


def counted(result: Any, key: str) -> set[Any]:
    """Return the different values that the jobs have under a key of their states."""
    return {str(each.state[key]) for each in result.results}


def test_equal_calls_of_two_nodes_and_of_the_visits_of_a_loop_are_calls_of_their_own(
    bench: Bench, server: TicketServer
) -> None:
    DESK.url = server.url
    flow = Workflow("looking")
    flow.reducer("seen", append)

    def look(state: Any, ctx: Any) -> dict[str, Any]:
        return {"seen": ctx.tool(open_ticket, "same")}

    flow.add_node("once", look, start=True)
    flow.add_node("loop", look)
    flow.add_variant("loop", "other", lambda state, ctx: {"seen": ctx.tool(open_ticket, "same")})
    flow.edge("once", "loop").edge("loop", "loop", when="size(seen) < 4")
    options: dict[str, Any] = {"cases": CASES[:1], "evaluators": STEPS, "workers": 8, "repeats": 3}
    for share in (True, False):
        result = bench.batch(flow, tools={"desk_open_ticket": "record"}, share=share, name=str(share), **options)
        assert (result.status, counted(result, "seen")) == ("completed", {"[1, 2, 3, 4]"})
    assert server.seen == {"/open/same": 4}


def test_a_node_that_is_tried_again_takes_up_its_own_calls_and_counts_on(bench: Bench, server: TicketServer) -> None:
    DESK.url = server.url
    flow = Workflow("stumbling")
    failed: set[str] = set()

    def stumble(state: Any, ctx: Any) -> dict[str, Any]:
        first = ctx.tool(open_ticket, "same")
        if ctx.run.execution_id not in failed:
            failed.add(ctx.run.execution_id)
            raise ConnectionError("once")
        return {"seen": [first, ctx.tool(open_ticket, "same")]}

    flow.add_node("stumble", stumble, start=True, retry=2)
    options: dict[str, Any] = {"cases": CASES[:1], "evaluators": STEPS, "repeats": 4, "workers": 8, "share": False}
    result = bench.batch(flow, tools={"desk_open_ticket": "record"}, **options)
    assert (result.status, counted(result, "seen")) == ("completed", {"[1, 2]"})
    assert server.seen == {"/open/same": 2}


@pytest.mark.parametrize("is_async", [False, True])
def test_equal_calls_in_one_tool_node_are_told_apart_by_their_number(server: TicketServer, is_async: bool) -> None:
    flow = agent(server.url, is_async=is_async, subjects=["same", "same", "same"])
    cases = [{"id": name, "input": {"messages": [("user", name)]}} for name in ("ada", "bob")]
    options: dict[str, Any] = {"cases": cases, "evaluators": STEPS, "workers": 8, "share": False, "repeats": 3}
    with Bench("memory://") as bench:
        result = bench.batch(flow, tools={"graph_ticket": "record"}, **options)
        answers = [[message.content for message in each.state["messages"][-3:]] for each in result.results]
    assert server.seen == {"/open/same": 6}
    assert all(len(set(each)) == 3 for each in answers)
    assert len({tuple(sorted(each)) for each in answers}) == 2, "one set of answers for each case"


def test_a_recorded_run_answers_the_calls_that_it_made_and_refuses_others(bench: Bench, server: TicketServer) -> None:
    flow = desk(server.url, 0)
    run = bench.run(flow, {"subject": "ada"})
    assert run.state["more"] == [2, 3]
    again = bench.run(flow.mocked_tools({"desk_open_ticket": run}), {"subject": "ada"})
    assert (again.state, server.seen.total()) == (run.state, 3)
    other = bench.run(flow.mocked_tools({"desk_open_ticket": run}), {"subject": "bob"})
    assert "has no answer to call 1 of desk_open_ticket with {'subject': 'bob'}" in str(other.error)
    assert server.seen.total() == 3


def test_a_run_that_never_called_a_tool_cannot_answer_for_it(bench: Bench, server: TicketServer) -> None:
    run = bench.run(desk(server.url, 0), {"subject": "ada"})
    with pytest.raises(InvalidInput, match="has no answers of tool 'desk_close_ticket'"):
        desk(server.url).mocked_tools({"desk_close_ticket": run})
    with pytest.raises(InvalidInput, match="cannot be mocked with 3; give a function"):
        desk(server.url).mocked_tools({"desk_close_ticket": 3})


def test_mocking_recording_and_another_mock_are_each_something_that_results_depend_on(
    bench: Bench, server: TicketServer
) -> None:
    flow = desk(server.url, 0)
    options: dict[str, Any] = {"cases": CASES, "evaluators": STEPS}

    def polite(subject: str) -> str:
        return f"dear {subject}"

    bench.batch(flow, tools={"desk_open_ticket": polite}, **options)
    assert bench.plan(flow, tools={"desk_open_ticket": polite}, **options).run == 0
    for other in ({}, {"desk_open_ticket": "record"}, {"desk_open_ticket": lambda subject: subject}):
        plan = bench.plan(flow, tools=other, **options)
        assert plan.run == 3
        assert "the answers of tool `desk_open_ticket`" in plan.changes["first"]


def test_async_tools_are_mocked_and_recorded_as_well(bench: Bench, server: TicketServer) -> None:
    DESK.url = server.url
    flow = Workflow("async desk")

    async def close(state: Any, ctx: Any) -> dict[str, Any]:
        return {"closed": await ctx.atool(close_ticket, state["subject"])}

    async def mock(subject: str) -> int:
        return -1

    flow.add_node("close", close, start=True)
    options: dict[str, Any] = {"cases": CASES, "evaluators": STEPS, "repeats": 3, "share": False, "workers": 8}
    mocked = bench.batch(flow, tools={"desk_close_ticket": mock}, **options)
    plain = bench.batch(flow, tools={"desk_close_ticket": lambda subject: -2}, **options)
    assert {each.state["closed"] for each in mocked.results} == {-1}
    assert {each.state["closed"] for each in plain.results} == {-2}
    assert server.seen.total() == 0
    bench.batch(flow, tools={"desk_close_ticket": "record"}, **options)
    assert server.seen == {"/close/ada": 1, "/close/bob": 1, "/close/eve": 1}


def test_a_mock_answers_for_a_tool_that_nobody_registered_here(bench: Bench) -> None:
    flow = Workflow("elsewhere")
    flow.add_node("send", lambda state, ctx: {"sent": ctx.tool("send_from_elsewhere", 1)}, start=True)
    run = bench.run(flow.mocked_tools({"send_from_elsewhere": lambda number: number + 1}), {})
    assert run.state == {"sent": 2}


WORKER = """
import sys
import wtb
from tests.integration.ticket_desk import CASES, STEPS, desk

folder, url, name = sys.argv[1:]
with wtb.Bench(folder=folder) as bench:
    options = dict(cases=CASES, evaluators=STEPS, share=False, workers=4, name=name)
    bench.batch(desk(url, 1), tools={"desk_open_ticket": "record"}, **options)
"""


def test_processes_make_each_recorded_call_once_between_them(tmp_path: Path, server: TicketServer) -> None:
    Bench(folder=tmp_path / "wtb").close()
    command = [sys.executable, "-c", WORKER, str(tmp_path / "wtb"), server.url]
    workers = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert server.seen == {"/open/ada": 1, "/open/bob": 1, "/open/eve": 1, "/open/more": 6}


def agent(url: str, *, is_async: bool, subjects: Sequence[str] = ("graph", "other")) -> Any:
    """A scripted agent that opens tickets through a ToolNode."""
    DESK.url = url

    @tool
    def graph_ticket(subject: str) -> str:
        """Open a ticket."""
        return str(open_ticket(subject))

    def model(state: Any) -> dict[str, Any]:
        calls: list[Any] = [
            {"name": "graph_ticket", "id": str(number), "args": {"subject": subject}, "type": "tool_call"}
            for number, subject in enumerate(subjects)
        ]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([graph_ticket]))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return wtb.langgraph.workflow(builder.compile(), name="ticket agent", is_async=is_async)


@pytest.mark.parametrize("is_async", [False, True])
def test_tools_in_a_tool_node_are_mocked_recorded_and_answered_by_a_run(server: TicketServer, is_async: bool) -> None:
    flow = agent(server.url, is_async=is_async)
    cases = [{"id": name, "input": {"messages": [("user", name)]}} for name in ("ada", "bob")]
    options: dict[str, Any] = {"cases": cases, "evaluators": STEPS, "workers": 8, "share": False, "repeats": 2}

    def answers(result: Any) -> list[list[str]]:
        return [[message.content for message in each.state["messages"][-2:]] for each in result.results]

    with Bench("memory://") as bench:
        mocked = bench.batch(flow, tools={"graph_ticket": lambda subject: f"mock {subject}"}, **options)
        assert answers(mocked) == [["mock graph", "mock other"]] * 4
        assert server.seen.total() == 0
        recorded = bench.batch(flow, tools={"graph_ticket": "record"}, **options)
        assert server.seen == {"/open/graph": 2, "/open/other": 2}
        assert len(set(map(tuple, answers(recorded)))) == 2
        run = recorded.results[0].run
        again = bench.batch(flow, tools={"graph_ticket": run}, **options)
        assert answers(again) == [answers(recorded)[0]] * 4
        assert server.seen.total() == 4


def test_a_job_that_would_call_an_external_tool_fails_if_the_batch_refuses_that(
    bench: Bench, server: TicketServer
) -> None:
    options: dict[str, Any] = {"cases": CASES, "evaluators": STEPS, "external": "refuse"}
    result = bench.batch(desk(server.url, 0), **options)
    assert (result.status, server.seen.total()) == ("completed_with_errors", 0)
    message = "desk_open_ticket is an external tool, and this batch refuses such calls"
    assert all(message in str(each.error) for each in result.results)
    recorded = bench.batch(desk(server.url, 0), tools={"desk_open_ticket": "record"}, **options)
    assert (recorded.status, server.seen.total()) == ("completed_with_errors", 0)
    mocked = bench.batch(desk(server.url, 0), tools={"desk_open_ticket": lambda subject: 1}, **options)
    assert (mocked.status, server.seen.total()) == ("completed", 0)


def test_an_unknown_rule_for_external_tools_is_refused_with_the_known_ones(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="external='ask' is unknown; it is one of run, reverse, refuse"):
        bench.plan(desk("http://127.0.0.1:1"), cases=CASES, evaluators=STEPS, external="ask")


def test_a_batch_names_the_external_tools_that_it_knows_of_with_earlier_calls(
    bench: Bench, server: TicketServer
) -> None:
    options: dict[str, Any] = {"cases": CASES, "evaluators": STEPS}
    flow = desk(server.url, 0)
    (first,) = bench.plan(flow, **options).external
    assert (first.name, first.answer, first.jobs, first.earlier_calls) == ("desk_open_ticket", "run", 3, 0)
    bench.batch(flow, **options)
    (kept,) = bench.plan(flow, **options).external
    assert (kept.jobs, kept.earlier_calls, kept.earlier_jobs) == (0, 9, 3)
    (mocked,) = bench.plan(flow, tools={"desk_open_ticket": "record"}, **options).external
    assert (mocked.answer, mocked.jobs, mocked.earlier_calls) == ("record", 3, 9)
    (refused,) = bench.plan(flow, external="refuse", fresh=True, **options).external
    assert (refused.answer, refused.jobs) == ("refuse", 3)
