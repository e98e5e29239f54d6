"""Figures belong to the line that led to the head of a run, however it came about; budgets count what was spent."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

import wtb
from tests.run_writer import RunWriter
from wtb.domain.execution import ExecutionStatus
from wtb.infrastructure.sql import schema
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database

COMPLETED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.FAILED
MEASURES: list[Any] = [wtb.Steps(), wtb.Cost(), wtb.Tokens(), wtb.ToolErrors()]


class OwnTime(threading.local):
    """What `time.perf_counter` tells: each thread has a time of its own, which passes when a node says so."""

    now = 0.0


@pytest.fixture
def own_time(monkeypatch: pytest.MonkeyPatch) -> OwnTime:
    passing = OwnTime()
    told = SimpleNamespace(perf_counter=lambda: passing.now, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr("wtb.application.runs.node_runner.time", told)
    return passing


def pay(state: Any, ctx: Any) -> dict[str, Any]:
    """Cost a dollar and ten tokens."""
    ctx.usage(model="m", input_tokens=9, output_tokens=1, cost_usd=1.0)
    return {"paid": state.get("paid", 0) + 1}


def chain(*functions: Callable[..., Any], **options: Any) -> wtb.Workflow:
    """One node after the other: a, b, c …"""
    flow = wtb.Workflow("chain")
    names = "abcdef"[: len(functions)]
    for name, function in zip(names, functions, strict=True):
        flow.add_node(name, function, start=name == "a", **options)
    for before, after in itertools.pairwise(names):
        flow.edge(before, after)
    return flow


def measures(bench: wtb.Bench, run: wtb.Run) -> tuple[Any, ...]:
    """Return steps, dollars, tokens and tool errors as evaluators see them."""
    scores = bench.evaluate(run, MEASURES)
    return tuple(scores[each.name] for each in MEASURES)


def latency(bench: wtb.Bench, run: wtb.Run) -> float:
    return float(bench.evaluate(run, [wtb.Latency()])["latency_s"])


def test_a_plain_run_sums_its_nodes(bench: wtb.Bench) -> None:
    run = bench.run(chain(pay, pay, pay), {})
    assert measures(bench, run) == (3, 3.0, 30, 0)
    assert run.usage == run.spent == {"input_tokens": 27, "output_tokens": 3, "cost_usd": 3.0}


def test_a_loop_counts_each_visit(bench: wtb.Bench) -> None:
    flow = chain(pay)
    flow.edge("a", "a", when="paid < 3")
    run = bench.run(flow, {})
    assert measures(bench, run) == (3, 3.0, 30, 0)


def test_after_rollback_and_resume_only_the_new_line_counts_and_all_was_spent(bench: wtb.Bench) -> None:
    run = bench.run(chain(pay, pay, pay), {})
    run.rollback("a")
    assert run.usage["cost_usd"] == 1.0
    run = run.resume()
    assert measures(bench, run) == (3, 3.0, 30, 0)
    assert (run.usage["cost_usd"], run.spent["cost_usd"]) == (3.0, 5.0)


def test_after_redo_the_old_line_counts_again(bench: wtb.Bench) -> None:
    run = bench.run(chain(pay, pay, pay), {})
    run.rollback("a")
    run.redo()
    assert run.usage["cost_usd"] == run.spent["cost_usd"] == 3.0
    assert measures(bench, run.resume()) == (3, 3.0, 30, 0)


def test_a_fork_has_the_figures_of_the_line_that_it_goes_on_with_and_spent_its_own(bench: wtb.Bench) -> None:
    run = bench.run(chain(pay, pay, pay), {})
    fork = run.fork("a").resume()
    assert measures(bench, fork) == measures(bench, run) == (3, 3.0, 30, 0)
    assert (fork.usage["cost_usd"], fork.spent["cost_usd"]) == (3.0, 2.0)
    again = fork.fork("b").resume()
    assert (measures(bench, again), again.spent["cost_usd"]) == ((3, 3.0, 30, 0), 1.0)


def test_a_fork_keeps_its_figures_when_the_run_that_it_came_from_is_deleted(bench: wtb.Bench) -> None:
    run = bench.run(chain(pay, pay, pay), {})
    fork = run.fork("b").resume()
    run.delete()
    assert measures(bench, fork) == (3, 3.0, 30, 0)


def test_a_branch_of_the_same_run_has_figures_of_its_own(bench: wtb.Bench) -> None:
    run = bench.run(chain(pay, pay, pay), {}, break_after=["b"])
    services = bench.services
    recorder = RunWriter(services.storage, services.clock, services.ids)
    recorder.fork(recorder.load(run.id), run.history.resolve("a").id, "other")
    assert run.usage["cost_usd"] == 1.0
    run = run.resume(break_after=())
    assert measures(bench, run) == (3, 3.0, 30, 0)
    assert run.spent["cost_usd"] == 4.0


def test_of_nodes_that_run_at_the_same_time_the_slowest_counts(bench: wtb.Bench, own_time: OwnTime) -> None:
    def slow(seconds: float) -> Callable[..., Any]:
        def wait(state: Any, ctx: Any) -> None:
            own_time.now += seconds
            ctx.usage(cost_usd=seconds)

        return wait

    flow = wtb.Workflow("fan")
    flow.add_node("begin", slow(1), start=True)
    flow.add_node("left", slow(2))
    flow.add_node("right", slow(4))
    flow.add_node("end", slow(8))
    flow.edge("begin", "left")
    flow.edge("begin", "right")
    flow.edge(["left", "right"], "end")
    run = bench.run(flow, {})
    assert latency(bench, run) == 13
    assert measures(bench, run)[:2] == (3, 15.0)


def test_of_a_node_that_is_tried_again_the_attempt_that_succeeded_counts(bench: wtb.Bench, own_time: OwnTime) -> None:
    def tried(state: Any, ctx: Any) -> None:
        ctx.usage(cost_usd=1.0)
        own_time.now += 5 if ctx.run.attempt == 1 else 1
        if ctx.run.attempt == 1:
            raise OSError("not yet")

    run = bench.run(chain(tried, retry=wtb.RetryPolicy(times=2, wait_s=0)), {})
    assert (latency(bench, run), measures(bench, run)[:2]) == (1, (1, 1.0))
    assert run.spent["cost_usd"] == 2.0


def test_what_a_failed_node_used_was_spent_and_is_in_no_line(bench: wtb.Bench) -> None:
    broken = [True]

    def fails(state: Any, ctx: Any) -> None:
        ctx.usage(cost_usd=1.0)
        if broken[0]:
            raise OSError("not yet")

    run = bench.run(chain(pay, fails), {})
    assert (run.status, run.usage["cost_usd"], run.spent["cost_usd"]) == (FAILED, 1.0, 2.0)
    broken[0] = False
    run = run.resume()
    assert (measures(bench, run)[:2], run.spent["cost_usd"]) == ((2, 2.0), 3.0)


def test_a_recorded_step_counts_in_the_attempt_that_took_its_result_and_was_spent_once(bench: wtb.Bench) -> None:
    def think(state: Any, ctx: Any) -> None:
        def model() -> str:
            ctx.step("inner", lambda: ctx.usage(model="m", input_tokens=1, cost_usd=0.5))
            ctx.usage(model="m", input_tokens=10, cost_usd=1.0)
            return "said"

        ctx.step("model", model)
        if ctx.run.attempt == 1:
            raise OSError("not yet")

    run = bench.run(chain(think, retry=wtb.RetryPolicy(times=2, wait_s=0)), {})
    assert run.usage == run.spent == {"input_tokens": 11, "output_tokens": 0, "cost_usd": 1.5}
    assert measures(bench, run) == (1, 1.5, 11, 0)


def test_a_step_inside_another_counts_also_when_only_the_outer_one_is_taken_from_the_record(bench: wtb.Bench) -> None:
    def think(state: Any, ctx: Any) -> None:
        def outer() -> None:
            ctx.step("inner", lambda: ctx.usage(cost_usd=0.5))
            if ctx.run.attempt == 1:
                raise OSError("the inner one was recorded, the outer one was not")
            ctx.usage(cost_usd=1.0)

        ctx.step("outer", outer)
        if ctx.run.attempt == 2:
            raise OSError("now both were recorded")

    run = bench.run(chain(think, retry=wtb.RetryPolicy(times=3, wait_s=0)), {})
    assert run.usage["cost_usd"] == run.spent["cost_usd"] == 1.5


def test_the_time_of_a_recorded_step_counts_in_the_attempt_that_took_its_result(
    bench: wtb.Bench, own_time: OwnTime
) -> None:
    def think(state: Any, ctx: Any) -> None:
        ctx.step("model", lambda: "said")
        if ctx.run.attempt == 1:
            raise OSError("not yet")

    run = bench.run(chain(think, retry=wtb.RetryPolicy(times=2, wait_s=0)), {})
    (call,) = run.calls
    assert call.ms > 0
    assert latency(bench, run) == pytest.approx(call.ms / 1000)


def test_a_process_that_dies_leaves_what_its_recorded_steps_spent(bench: wtb.Bench) -> None:
    def think(state: Any, ctx: Any) -> None:
        ctx.step("model", lambda: ctx.usage(cost_usd=1.0))
        if ctx.run.attempt == 1:
            raise KeyboardInterrupt  # what a process that dies here looks like to the record
        ctx.usage(cost_usd=0.25)

    flow = chain(pay, think)
    with pytest.raises(KeyboardInterrupt):
        bench.run(flow, {}, run_id="killed")
    run = bench.get("killed")
    assert (run.usage["cost_usd"], run.spent["cost_usd"]) == (1.0, 2.0)
    run = bench.resume("killed", flow)
    assert measures(bench, run)[:2] == (2, 2.25)
    assert run.spent["cost_usd"] == 2.25


def test_a_fork_in_the_middle_of_a_node_has_what_the_node_used_up_to_there(bench: wtb.Bench) -> None:
    def think(state: Any, ctx: Any) -> None:
        ctx.step("model", lambda: ctx.usage(cost_usd=1.0))
        ctx.checkpoint("thought")
        ctx.usage(cost_usd=0.25)

    run = bench.run(chain(pay, think), {})
    fork = run.fork("thought").resume()
    assert measures(bench, fork)[:2] == measures(bench, run)[:2] == (2, 2.25)
    assert (run.spent["cost_usd"], fork.spent["cost_usd"]) == (2.25, 0.25)


def test_tool_errors_are_those_of_the_line_with_all_attempts(bench: wtb.Bench) -> None:
    def flaky(attempt: int) -> int:
        if attempt == 1:
            raise OSError("no connection")
        return attempt

    def call(state: Any, ctx: Any) -> None:
        ctx.step("flaky", flaky, ctx.run.attempt)

    run = bench.run(chain(pay, call, call, retry=wtb.RetryPolicy(times=2, wait_s=0)), {})
    assert measures(bench, run) == (3, 1.0, 10, 2)
    run.rollback("b")
    run = run.resume()
    assert measures(bench, run) == (3, 1.0, 10, 2)
    (tool,) = run.summary().tools
    assert (tool.calls, tool.failures) == (4, 2)


def test_a_summary_is_that_of_the_line(bench: wtb.Bench) -> None:
    def look(state: Any, ctx: Any) -> None:
        ctx.usage(cost_usd=1.0)
        ctx.step("look", lambda: None)

    run = bench.run(chain(look, look, look), {})
    run.rollback("a")
    summary = run.resume().summary()
    assert (summary.line.steps, summary.line.usage.cost_usd) == (3, 3.0)
    assert [(node.node, node.visits) for node in summary.nodes] == [("a", 1), ("b", 1), ("c", 1)]
    assert [(tool.tool, tool.calls) for tool in summary.tools] == [("look", 3)]
    fork = run.fork("b").resume().summary()
    assert (fork.line.usage.cost_usd, [(tool.tool, tool.calls) for tool in fork.tools]) == (3.0, [("look", 3)])


class Log(TypedDict, total=False):
    said: str


def test_a_graph_of_langgraph_has_the_figures_of_its_line(bench: wtb.Bench) -> None:
    def say(state: Log) -> Log:
        wtb.langgraph.context().usage(model="m", input_tokens=10, cost_usd=1.0)
        return {"said": "yes"}

    graph = StateGraph(Log)
    for name in ("one", "two", "three"):
        graph.add_node(name, say)
    for before, after in ((START, "one"), ("one", "two"), ("two", "three"), ("three", END)):
        graph.add_edge(before, after)
    run = bench.run(graph, {})
    run.rollback("one")
    run = run.resume()
    assert measures(bench, run) == (3, 3.0, 30, 0)
    assert measures(bench, run.fork("two").resume()) == (3, 3.0, 30, 0)
    assert run.spent["cost_usd"] == 5.0


def test_shared_results_have_the_figures_of_the_attempt_that_made_them(bench: wtb.Bench, own_time: OwnTime) -> None:
    def ask(state: Any, ctx: Any) -> None:
        ctx.usage(cost_usd=1.0)
        own_time.now += 5 if ctx.run.attempt == 1 else 1
        if ctx.run.attempt == 1:
            raise OSError("not yet")

    flow = wtb.Workflow("shared")
    flow.add_node("ask", ask, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0))
    flow.add_node("answer", lambda state: {"answer": 0})
    flow.add_variant("answer", "other", lambda state: {"answer": 1})
    flow.edge("ask", "answer")
    cases = [{"id": "one", "input": {}}]
    result = bench.batch(flow, cases=cases, evaluators=[wtb.Cost(), wtb.Steps(), wtb.Latency()], workers=1)
    assert result.sharing["shared"] == 1
    assert [each.scores for each in result.results] == [{"cost_usd": 1.0, "steps": 2.0, "latency_s": 1.0}] * 2
    assert [each.run.usage["cost_usd"] for each in result.results] == [1.0, 1.0]
    assert sorted(each.run.spent["cost_usd"] for each in result.results) == [0.0, 2.0]
    assert result.spent.usd == 2.0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/own.db"
    address: str = request.getfixturevalue("postgres_url")
    return address


def test_runs_of_an_older_database_have_their_figures_from_the_events(url: str, tmp_path: Path) -> None:
    def flaky(state: Any, ctx: Any) -> None:
        def connect(attempt: int) -> None:
            if attempt == 1:
                raise OSError("no connection")

        pay(state, ctx)
        ctx.step("connect", connect, ctx.run.attempt)

    flow = chain(pay, flaky, pay, retry=wtb.RetryPolicy(times=2, wait_s=0))
    database = open_database(Settings(url=url))
    schema.upgrade(database)
    with wtb.Bench(url, folder=tmp_path) as bench:
        run = bench.run(flow, {}, run_id="old")
        run.rollback("a")
        run = run.resume()
        known = (measures(bench, run), run.usage)
        took = latency(bench, run)
    schema.downgrade(database, "0008")
    schema.upgrade(database)
    with wtb.Bench(url, folder=tmp_path) as bench:
        run = bench.get("old")
        assert {each.figures for each in run.history.node_runs} == {None}
        assert (measures(bench, run), run.usage) == known == ((3, 3.0, 30, 1), run.usage)
        assert latency(bench, run) == pytest.approx(took)
        assert run.spent["cost_usd"] == 5.0  # failed attempts were told of nowhere
        fork = wtb.Run(bench, run.id, flow).fork("b").resume()
        assert measures(bench, fork) == (3, 3.0, 30, 1)
    database.close()


def test_the_seconds_of_a_batch_are_kept_while_a_long_job_runs(
    bench: wtb.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.application.batches.attempt._TOOK_S", 0.0)
    monkeypatch.setattr("wtb.application.batches.attempt._LOOK_S", 0.01)

    def wait(state: Any) -> None:
        until = time.monotonic() + 60
        while bench.get_batch("long").spent.s == 0:
            assert time.monotonic() < until

    flow = chain(wait)
    result = bench.batch(flow, name="long", cases=[{"id": "1", "input": {}}], evaluators=[wtb.Steps()])
    assert result.status == "completed"


KILLED = """
import os, sys, wtb
from pathlib import Path

flow = wtb.Workflow("killed")

begun = []

def watch():
    begun.append(1)
    return len(begun) == 2 and Path(sys.argv[2]).exists()

def ask(state, ctx):
    ctx.step("model", lambda: ctx.usage(cost_usd=1.0))
    return {"answer": VARIANT}

def end(state):
    if watch():
        os._exit(9)

flow.add_node("ask", ask, start=True)
flow.add_node("end", end)
flow.edge("ask", "end")
cases = [{"id": case, "input": {"case": case}} for case in ("first", "second")]

with wtb.Bench(folder=sys.argv[1]) as bench:
    result = bench.batch(flow, name="killed", cases=cases, evaluators=[wtb.Cost()], workers=1)
    print(result.status, result.spent.usd, [each.scores["cost_usd"] for each in result.results])
"""


def killed_batch(tmp_path: Path, variant: int = 0) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "batch.py"
    script.write_text(KILLED.replace("VARIANT", str(variant)))
    command = [sys.executable, str(script), str(tmp_path / ".wtb"), str(tmp_path / "kill")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("variant", [0, 1])
def test_a_killed_batch_keeps_the_seconds_and_the_money_that_it_took(tmp_path: Path, variant: int) -> None:
    (tmp_path / "kill").touch()
    assert killed_batch(tmp_path).returncode == 9
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        taken_s = bench.get_batch("killed").spent.s
    assert taken_s > 0
    (tmp_path / "kill").unlink()
    done = killed_batch(tmp_path, variant)
    spent = 2.0 if variant == 0 else 4.0  # other code runs both cases again
    assert done.stdout.split(" ", 2)[:2] == ["completed", str(spent)], done.stderr
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        assert bench.get_batch("killed").spent.s > taken_s
