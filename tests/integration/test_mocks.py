"""Mocked workflows over every storage: nodes that give results which were written down or recorded."""

from __future__ import annotations

from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import ExecutionStatus
from wtb.flow import Workflow
from wtb.notebooks import KnownFlows
from wtb.runs import Run

COMPLETED, PAUSED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.PAUSED, ExecutionStatus.FAILED

ran: list[str] = []
"""Every real node of these tests says here that it ran."""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def drafting() -> Workflow:
    """Two members that write drafts until there are enough, then an answer."""
    flow = Workflow("drafting")

    def add(name: str, make: Any, **how: Any) -> None:
        def run(state: Any) -> Any:
            ran.append(name)
            return make(state)

        flow.add_node(name, run, **how)

    add("plan", lambda state: {"round": state.get("round", 0) + 1, "scratch": "x"}, start=True)
    add("left", lambda state: {"drafts": [f"left {state['round']}"]})
    add("right", lambda state: {"drafts": [f"right {state['round']}"], "scratch": wtb.DELETE})
    add("answer", lambda state: {"answer": len(state["drafts"])}, retry=2)
    flow.edge("plan", "left").edge("plan", "right").edge(["left", "right"], "answer")
    flow.edge("answer", "plan", when="answer < 4").edge("answer", wtb.END, otherwise=True)
    return flow.reducer("drafts", wtb.append)


def mocked(bench: Bench, given: Any, **options: Any) -> Run:
    """Run a loop of three visits whose only node is mocked."""
    flow = Workflow("loop")
    flow.add_node("tick", lambda state: ran.append("tick"), start=True)
    flow.edge("tick", "tick", when="visits < 3").reducer("visits", wtb.add)
    return bench.run(flow.mocked({"tick": given}), {"visits": 0}, **options)


def test_what_nodes_returned_is_kept_by_visit_and_before_reducers(bench: Bench) -> None:
    run = bench.run(drafting(), {})
    assert run.returned == {
        "plan": [{"round": 1, "scratch": "x"}, {"round": 2, "scratch": "x"}],
        "left": [{"drafts": ["left 1"]}, {"drafts": ["left 2"]}],
        "right": [{"drafts": ["right 1"], "scratch": wtb.DELETE}, {"drafts": ["right 2"], "scratch": wtb.DELETE}],
        "answer": [{"answer": 2}, {"answer": 4}],
    }


def test_recorded_results_repeat_a_run_without_running_a_node(bench: Bench) -> None:
    run = bench.run(drafting(), {})
    ran.clear()
    again = bench.run(drafting().mocked(run.returned), {})
    assert (again.status, ran) == (COMPLETED, [])
    assert (again.state, again.history.path()) == (run.state, run.history.path())
    assert again.replay(drafting()).same


def test_one_node_runs_for_real_after_recorded_ones(bench: Bench) -> None:
    run = bench.run(drafting(), {})
    ran.clear()

    def better(state: Any, ctx: Any) -> dict[str, Any]:
        return {"answer": 10 * len(state["drafts"]) + ctx.run.visit}

    assert bench.run(drafting().mocked({**run.returned, "answer": better}), {}).state["answer"] == 21
    assert ran == []
    rest = {name: results for name, results in run.returned.items() if name != "answer"}
    assert bench.run(drafting().mocked(rest), {}).state == run.state
    assert ran == ["answer", "answer"]


def test_the_record_and_the_mock_cannot_be_changed_through_what_was_given(bench: Bench) -> None:
    run = bench.run(drafting(), {})
    given = run.returned
    flow = drafting().mocked(given)
    given["left"][0]["drafts"].append("sly")
    assert bench.run(flow, {}).state == run.state
    assert bench.run(flow, {}).state == run.state
    assert run.returned["left"][0] == {"drafts": ["left 1"]}


def test_the_original_is_untouched_and_everything_but_the_functions_stays(bench: Bench) -> None:
    flow = drafting()
    before = flow.to_dict()
    copy = flow.mocked({"plan": {"round": 1}})
    copy.add_node("more", lambda state: None)
    assert flow.to_dict() == before
    assert flow.mocked({"answer": {}}).to_dict() == before
    bench.run(flow, {})
    assert ran.count("plan") == 2


def test_a_mapping_is_returned_at_every_visit(bench: Bench) -> None:
    run = mocked(bench, {"visits": 1})
    assert (run.state, ran, run.history.visits()) == ({"visits": 3}, [], {"tick": 3})


def test_a_list_gives_one_result_a_visit_also_when_the_run_is_resumed(bench: Bench) -> None:
    run = mocked(bench, [{"visits": 1, "at": "first"}, {"visits": 2, "at": "second"}], break_after=["tick"])
    assert (run.status, run.state["at"]) == (PAUSED, "first")
    run = run.resume()
    assert (run.status, run.state) == (COMPLETED, {"visits": 3, "at": "second"})


def test_a_list_that_runs_out_names_the_node_and_the_visit(bench: Bench) -> None:
    run = mocked(bench, [{"visits": 1}, None])
    assert run.error is not None
    assert (run.status, run.error.type) == (FAILED, "InvalidInput")
    assert "node 'tick' is at visit 3, but its mock has only 2 results" in run.error.message


@pytest.mark.parametrize("error", [TimeoutError("too slow"), TimeoutError, [{"visits": 1}, TimeoutError("later")]])
def test_an_exception_is_raised(bench: Bench, error: Any) -> None:
    run = mocked(bench, error)
    assert run.error is not None
    assert (run.status, run.error.type) == (FAILED, "TimeoutError")


def test_a_function_is_called_like_a_node_sync_or_async_with_or_without_the_context(bench: Bench) -> None:
    async def waits(state: Any, ctx: Any) -> dict[str, Any]:
        return {"visits": ctx.run.visit}

    assert mocked(bench, lambda state: {"visits": 3}).state == {"visits": 3}
    assert mocked(bench, waits).state == {"visits": 3}


def test_a_mocked_node_is_tried_again_as_often_as_its_policy_says(bench: Bench) -> None:
    tries: list[int] = []

    def flaky(state: Any, ctx: Any) -> dict[str, Any]:
        tries.append(ctx.run.attempt)
        raise OSError("again")

    run = bench.run(drafting().mocked({"answer": flaky}), {})
    assert (run.status, tries) == (FAILED, [1, 2])


def test_nodes_that_are_not_named_run_or_give_what_the_rest_gives(bench: Bench) -> None:
    run = bench.run(drafting().mocked({"answer": {"answer": 9}}), {})
    assert (run.state["answer"], sorted(ran)) == (9, ["left", "plan", "right"])
    ran.clear()
    strict = bench.run(drafting().mocked({"plan": {"round": 1}}, rest=AssertionError("not mocked")), {})
    assert strict.error is not None
    assert (strict.error.message, ran) == ("not mocked", [])


def test_a_mocked_run_is_never_resumed_for_real(bench: Bench) -> None:
    flow = drafting()
    flow.source = "somewhere.py:flow"
    run = bench.run(flow.mocked({"plan": {"round": 1}}), {}, break_after=["plan"])
    bench._flows = KnownFlows()  # as in a new process
    with pytest.raises(InvalidInput, match="does not know where its workflow came from"):
        bench.resume(run.id)


def test_a_mocked_node_is_not_written_down_as_the_real_one() -> None:
    flow = Workflow("data").add_node("real", lambda state: None, start=True)
    read = Workflow.from_dict({**flow.to_dict(), "nodes": [{**flow.to_dict()["nodes"][0], "reference": "math:sqrt"}]})
    assert read.to_dict()["nodes"][0]["reference"] == "math:sqrt"
    assert read.mocked({"real": {}}).to_dict()["nodes"][0]["reference"] is None


def test_a_node_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="there is no node nope to mock; there are plan, left, right, answer"):
        drafting().mocked({"nope": {}})


@pytest.mark.parametrize("given", [5, "text", [{}, 5], [[{}]], ({},)])
def test_what_is_no_result_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"node 'plan' cannot be mocked with a .*; give a mapping"):
        drafting().mocked({"plan": given})
