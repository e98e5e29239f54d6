"""What nodes emit and log is kept with the run, in its order, without secrets, and shown while the run goes on."""

from __future__ import annotations

import itertools
import logging
import threading
from pathlib import Path
from typing import Any, TypedDict

import numpy
import pytest
from click.testing import CliRunner
from langgraph.graph import StateGraph

import wtb
import wtb.langgraph
from wtb.application.runs import node_messages
from wtb.bench import Bench
from wtb.cli import main
from wtb.domain.event_catalogue import NodeEmitted, NodeLogged
from wtb.flow import Workflow
from wtb.runs import Run


def flow_of(*nodes: Any, **options: Any) -> Workflow:
    flow = Workflow("flow")
    for number, node in enumerate(nodes):
        flow.add_node(node.__name__, node, start=not number, **options)
    for one, two in itertools.pairwise(nodes):
        flow.edge(one.__name__, two.__name__)
    return flow


def told(run: Run) -> list[Any]:
    """Return what the nodes said, in order: data of emits, texts of logs."""
    found = [event.body for event in run.all_events(types=["node.emitted", "node.logged"])]
    return [body.data if isinstance(body, NodeEmitted) else body.text for body in found]  # type: ignore[attr-defined]


def test_what_a_node_emits_and_logs_is_kept_before_its_end_and_in_order(bench: Bench) -> None:
    def work(state: Any, ctx: Any) -> None:
        ctx.emit({"done": 1, "of": 2})
        ctx.log("looked at %s", "a file")
        ctx.log.warning("careful")
        ctx.log.debug("of no interest")
        ctx.emit("half way")

    run = bench.run(flow_of(work), {})
    assert told(run) == [{"done": 1, "of": 2}, "looked at a file", "careful", "half way"]
    types = [event.type for event in run.events()]
    assert types[-2:] == ["node.completed", "execution.completed"]
    (warning,) = [event.body for event in run.events(types=["node.logged"])][1:]
    assert warning == NodeLogged(node="work", visit=1, level="warning", text="careful")


def test_a_log_line_whose_arguments_do_not_fit_does_not_stop_the_node(bench: Bench) -> None:
    def work(state: Any, ctx: Any) -> None:
        ctx.log("%d of %d done", 1)

    run = bench.run(flow_of(work), {})
    assert (run.status, told(run)) == ("completed", ["%d of %d done (its arguments do not fit)"])


def test_what_is_said_before_a_call_comes_before_it(bench: Bench) -> None:
    tool = wtb.tool(name="ping", effects="none")(lambda: 1)

    def work(state: Any, ctx: Any) -> None:
        ctx.emit("before")
        ctx.tool(tool)
        ctx.emit("after")

    types = [event.type.value for event in bench.run(flow_of(work), {}).events()]
    expected = ["node.emitted", "tool.started", "tool.completed", "node.emitted", "node.completed"]
    assert types[2:-1] == expected


def test_a_failed_attempt_keeps_what_it_said(bench: Bench) -> None:
    tries = iter([True, False])

    def work(state: Any, ctx: Any) -> None:
        ctx.emit("trying")
        if next(tries):
            raise OSError("not yet")

    run = bench.run(flow_of(work, retry=wtb.RetryPolicy(times=2, wait_s=0)), {})
    said = [event.body for event in run.events(types=["node.emitted"])]
    assert said == [NodeEmitted(node="work", visit=1, attempt=n, data="trying") for n in (1, 2)]


def test_a_rollback_keeps_what_was_said(bench: Bench) -> None:
    def work(state: Any, ctx: Any) -> None:
        ctx.emit("worked")

    run = bench.run(flow_of(work), {})
    run.rollback(0)
    assert told(run) == ["worked"]
    assert told(run.resume()) == ["worked", "worked"]


def test_async_nodes_and_parallel_branches_say_things_too(bench: Bench) -> None:
    async def left(state: Any, ctx: Any) -> None:
        ctx.emit("left")

    def right(state: Any, ctx: Any) -> None:
        ctx.log("right")

    flow = Workflow("parallel")
    flow.add_node("first", lambda state: {}, start=True)
    flow.add_node("left", left)
    flow.add_node("right", right)
    flow.edge("first", "left")
    flow.edge("first", "right")
    assert sorted(told(bench.run(flow, {}))) == ["left", "right"]


class SaidCount(TypedDict):
    n: int


def test_nodes_of_a_graph_say_things_through_the_context_function(bench: Bench) -> None:
    def plain(state: SaidCount) -> SaidCount:
        wtb.langgraph.context().emit({"n": state["n"]})
        return {"n": 1}

    async def awaited(state: SaidCount) -> SaidCount:
        wtb.langgraph.context().log("awaited")
        return {"n": 2}

    graph: Any = StateGraph(SaidCount)
    graph.add_node("plain", plain)
    graph.add_node("awaited", awaited)
    graph.set_entry_point("plain")
    graph.add_edge("plain", "awaited")
    assert told(bench.run(graph.compile(), {"n": 0})) == [{"n": 0}, "awaited"]


def test_secrets_are_masked_and_sizes_bounded(bench: Bench) -> None:
    secret = wtb.Secret("hunter2-and-more")

    def work(state: Any, ctx: Any) -> None:
        ctx.emit({"password": "x", "said": f"with {secret.reveal()}", "itself": secret})
        ctx.log("with %s", secret.reveal())
        ctx.emit([["a" * 10_000] * 100] * 100)
        ctx.emit({"object": object(), "n": float("inf"), "loss": numpy.float32(0.5), "mean": numpy.float64(0.25)})
        ctx.log("b" * 10_000)

    run = bench.run(flow_of(work), {})
    first, second, third, fourth, fifth = told(run)
    assert first == {"password": "***", "said": "with ***", "itself": "***"}
    assert second == "with ***"
    assert len(repr(third)) < 20_000
    assert third[-1] == "… 99 more"
    assert fourth == {"object": "<object>", "n": "<float>", "loss": 0.5, "mean": 0.25}
    assert len(fifth) == 4_000


def test_the_number_of_messages_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_messages, "MOST_MESSAGES", 5)

    def work(state: Any, ctx: Any) -> None:
        for n in range(20):
            ctx.emit(n)

    assert told(bench.run(flow_of(work), {})) == [0, 1, 2, 3, 4]
    assert caplog.text.count("the most that are kept") == 1


def test_a_node_that_was_given_up_says_nothing_more(bench: Bench) -> None:
    let_go, said = threading.Event(), threading.Event()

    def slow(state: Any, ctx: Any) -> None:
        ctx.emit("begun")
        let_go.wait(60)
        ctx.emit("too late")
        said.set()

    run = bench.run(flow_of(slow, timeout_s=0.2), {})
    let_go.set()
    assert said.wait(60)
    assert run.status == "failed"
    assert told(run) == ["begun"]


def test_a_shared_result_says_nothing_again(bench: Bench) -> None:
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.emit("worked")
        return {"out": 1}

    def end(state: Any) -> None:
        pass

    def other(state: Any) -> None:
        return None

    flow = flow_of(work, end)
    flow.add_variant("end", "other", other)
    result = bench.batch(flow, cases=[{"id": "a", "input": {}}], evaluators=[wtb.Steps()], name="b", workers=1)
    runs = [job.run for job in result.results]
    assert sorted(told(run) for run in runs) == [[], ["worked"]]


def test_subscribers_get_what_a_node_says_while_it_runs(bench: Bench) -> None:
    heard = threading.Event()
    bench.subscribe("node.emitted", lambda event: heard.set())

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.emit("now")
        return {"heard": heard.wait(60)}

    assert bench.run(flow_of(work), {}).state == {"heard": True}


def test_the_log_is_a_logger_of_python_too(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def work(state: Any, ctx: Any) -> None:
        ctx.log("one")
        ctx.log.info("two")
        try:
            raise ValueError("three")
        except ValueError:
            ctx.log.exception("caught")

    with caplog.at_level(logging.INFO):
        run = bench.run(flow_of(work), {})
    own = [record for record in caplog.records if record.name == "wtb.run.flow.work"]
    assert [record.getMessage() for record in own] == ["one", "two", "caught"]
    assert {record.funcName for record in own} == {"work"}
    assert "ValueError: three" in told(run)[2]


FLOW = """
import wtb

flow = wtb.Workflow("flow")


@flow.node(start=True)
def work(state, ctx):
    ctx.emit({"done": 1, "of": 2})
    ctx.log("a line")
    ctx.log.warning("a warning")


flow.edge("work", wtb.END)
"""


def test_wtb_run_shows_messages_as_lines_and_each_once(empty_folder: Path) -> None:
    (empty_folder / "flow.py").write_text(FLOW)
    shown = CliRunner().invoke(main, ["run", "flow.py", "--run-id", "first"])
    assert shown.exit_code == 0
    assert "  · work  done=1 of=2\n" in shown.stderr
    assert "  · work  a line\n" in shown.stderr
    assert shown.stderr.count("a warning") == 1
    events = CliRunner().invoke(main, ["events", "--run", "first", "--type", "node.logged"])
    assert "level=warning text=a warning" in events.stdout
