"""Filters, subscriptions, updates, timeouts and answers, as people use them every day, on every store."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.events import EventType, RecordedEvent, Severity
from wtb.domain.execution import ExecutionStatus

WAIT_S = 30.0
sent: list[Any] = []


@wtb.tool(name="everyday_send", reverse=lambda call: sent.remove(call.result))
def send(text: str) -> str:
    sent.append(text)
    return text


def a_flow() -> wtb.Workflow:
    flow = wtb.Workflow("everyday")
    flow.add_node("greet", lambda state: {"greeting": "hello"}, start=True)
    flow.add_node("post", lambda state, ctx: {"posted": ctx.tool(send, state["greeting"])})
    return flow.edge("greet", "post")


def asking() -> wtb.Workflow:
    flow = wtb.Workflow("asking")
    flow.add_node("ask", lambda state, ctx: {"said": ctx.ask("Go on?", schema=["yes", "no"])}, start=True)
    return flow


def story(run: wtb.Run) -> tuple[Any, ...]:
    """Return everything that an attempt to resume a run could change."""
    return run.status, run.waiting, run.state, run.events(), run.checkpoints, run.calls, run.history.node_runs


def test_a_summary_counts_reversals_and_redone_calls(bench: Bench) -> None:
    run = bench.run(a_flow())
    run.rollback("greet")
    assert run.summary().types[EventType.TOOL_REVERSED] == 1
    assert [figures.node for figures in run.summary().nodes] == ["greet"]
    run.redo()
    assert [figures.tool for figures in run.summary().tools] == ["everyday_send"]


@pytest.mark.parametrize("wanted", ["paused", ["paused"], {"paused"}, ExecutionStatus.PAUSED, [ExecutionStatus.PAUSED]])
def test_runs_are_filtered_by_the_status_as_text_or_enum(bench: Bench, wanted: Any) -> None:
    bench.run(a_flow())
    paused = bench.run(a_flow(), break_before=["post"])
    assert [run.id for run in bench.list_runs(statuses=wanted)] == [paused.id]
    assert [execution.id for execution in bench.list_executions(statuses=wanted)] == [paused.id]


@pytest.mark.parametrize("wanted", ["tool.started", ["tool.started"], EventType.TOOL_STARTED, [EventType.TOOL_STARTED]])
def test_events_are_filtered_by_the_type_as_text_or_enum(bench: Bench, wanted: Any) -> None:
    run = bench.run(a_flow())
    for found in (run.events(types=wanted), run.all_events(types=wanted), bench.events(run=run.id, types=wanted)):
        assert [event.type for event in found] == [EventType.TOOL_STARTED]


@pytest.mark.parametrize("wanted", ["error", ["error"], Severity.ERROR, [Severity.ERROR]])
def test_events_are_filtered_by_the_severity_as_text_or_enum(bench: Bench, wanted: Any) -> None:
    flow = wtb.Workflow("fails")
    flow.add_node("fail", lambda state: state["missing"], start=True)
    run = bench.run(flow)
    for found in (run.events(severities=wanted), run.all_events(severities=wanted)):
        assert {event.severity for event in found} == {Severity.ERROR}


@pytest.mark.parametrize(
    ("ask", "advice"),
    [
        (lambda bench, run: bench.list_runs(statuses="done"), "statuses='done' is unknown; it is one of pending, "),
        (lambda bench, run: run.events(types=["node.ended"]), r"there is no event 'node\.ended'; .*node\.completed"),
        (lambda bench, run: run.all_events(severities="fatal"), "severities='fatal' is unknown; it is one of info, "),
        (lambda bench, run: bench.events(types="nodes"), r"there is no event 'nodes'; the types are .*node\.failed"),
        (
            lambda bench, run: bench.subscribe("nodes", print),
            r"there is no event 'nodes'; .*events of a noun: .*tool",
        ),
    ],
)
def test_an_unknown_filter_is_refused_with_those_that_exist(ask: Callable[..., Any], advice: str) -> None:
    with Bench("memory://") as bench:
        run = bench.run(a_flow())
        with pytest.raises(InvalidInput, match=advice):
            ask(bench, run)


@pytest.mark.parametrize("wanted", ["tool", ["tool"], ["tool.started", "tool.completed"]])
def test_a_noun_stands_for_all_its_events(wanted: Any) -> None:
    with Bench("memory://") as bench:
        heard: list[RecordedEvent] = []
        bench.subscribe(wanted, heard.append)
        run = bench.run(a_flow())
        assert bench.services.bus.flush(WAIT_S)
        assert [event.type.value for event in heard] == ["tool.started", "tool.completed"]
        assert list(run.events(types=wanted)) == heard


def test_a_key_is_deleted_when_a_run_goes_on(bench: Bench) -> None:
    run = bench.run(a_flow(), {"draft": "x", "kept": 1}, break_before=["post"])
    run.resume(update={"draft": wtb.DELETE, "unknown": wtb.DELETE})
    assert run.state == {"greeting": "hello", "kept": 1, "posted": "hello"}


def test_a_key_is_deleted_in_a_fork(bench: Bench) -> None:
    run = bench.run(a_flow(), {"draft": "x"}, break_before=["post"])
    assert run.fork(update={"draft": wtb.DELETE}).state == {"greeting": "hello"}
    assert run.state == {"draft": "x", "greeting": "hello"}


@pytest.mark.parametrize("limit", [None, 60.0])
def test_a_run_that_takes_too_long_names_its_own_timeout(limit: float | None) -> None:
    flow = wtb.Workflow("slow")
    flow.add_node("wait", lambda state: time.sleep(1), start=True, timeout_s=limit, retry=3)
    with Bench("memory://") as bench:
        error = bench.run(flow, timeout_s=0.05).error
    assert error is not None
    assert (error.type, error.node) == ("RunTimeout", "wait")
    assert error.message == "the run took longer than its timeout of 0.05 s, in node 'wait'"


def test_a_node_that_takes_too_long_names_the_timeout_of_the_node() -> None:
    flow = wtb.Workflow("slow")
    flow.add_node("wait", lambda state: time.sleep(1), start=True, timeout_s=0.05)
    with Bench("memory://") as bench:
        error = bench.run(flow, timeout_s=60).error
    assert error is not None
    assert (error.type, error.message) == ("NodeTimeout", "node 'wait' took longer than its 0.05 s")


def test_a_wrong_answer_changes_nothing(bench: Bench) -> None:
    run = bench.run(asking())
    before = story(run)
    with pytest.raises(InvalidInput, match="answer one of yes, no"):
        run.resume(answer="perhaps")
    assert story(run) == before
    assert run.resume(answer="yes").state == {"said": "yes"}


def test_an_answer_to_a_fresh_fork_changes_nothing(bench: Bench) -> None:
    fork = bench.run(asking()).fork()
    before = story(fork)
    with pytest.raises(InvalidInput, match="does not wait for an answer"):
        fork.resume(answer="yes")
    assert story(fork) == before
    fork.resume()
    assert fork.resume(answer="no").state == {"said": "no"}


def test_an_answer_with_anything_that_starts_the_node_over_changes_nothing(bench: Bench) -> None:
    run = bench.run(asking())
    before = story(run)
    with pytest.raises(InvalidInput, match="starts the node over"):
        run.resume(answer="yes", update={"k": 1})
    with pytest.raises(InvalidInput, match="starts the node over"):
        run.resume(answer="yes", rerun_node=True)
    assert story(run) == before


def test_a_class_is_no_node_and_no_variant() -> None:
    flow = a_flow()
    with pytest.raises(InvalidInput, match="variant 'v' of node 'greet' is the class int; give a function"):
        flow.add_variant("greet", "v", int)
    with pytest.raises(InvalidInput, match="node 'n' is the class NoneType"):
        flow.add_node("n", type(None))


def test_a_workflow_as_data_calls_a_registered_tool(bench: Bench) -> None:
    nodes = [{"name": "post", "reference": "everyday_send", "start": True, "config": {"text": "from config"}}]
    flow = wtb.Workflow.from_dict({"name": "data", "nodes": nodes})
    run = bench.run(flow, {"text": "from the state"})
    assert (run.state["post"], [(call.tool, call.arguments) for call in run.calls]) == (
        "from config",
        [("everyday_send", {"text": "from config"})],
    )
    assert "from config" in sent
    run.rollback(0)
    assert "from config" not in sent
    del nodes[0]["config"]
    assert bench.run(wtb.Workflow.from_dict({"name": "data", "nodes": nodes}), {"text": "x"}).state["post"] == "x"


def test_a_tool_does_not_get_arguments_that_it_does_not_have() -> None:
    nodes = [{"name": "post", "reference": f"{__name__}:send", "start": True, "config": {"txt": 1}}]
    with Bench("memory://") as bench:
        error = bench.run(wtb.Workflow.from_dict({"name": "data", "nodes": nodes})).error
    assert error is not None
    assert error.message.startswith("node 'post': tool 'everyday_send' has no argument txt; it has text.")


def test_the_folder_of_a_workspace_outside_a_run_is_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WTB_WORKSPACE_FALLBACK", str(tmp_path / "mine"))
    wtb.workspace().joinpath("note.txt").write_text("x")
    assert wtb.workspace() == tmp_path / "mine"
    assert caplog.text.count("outside a run") == 1
    monkeypatch.delenv("WTB_WORKSPACE_FALLBACK")
    monkeypatch.chdir(tmp_path)
    assert wtb.workspace() == tmp_path / ".wtb" / "outside"
