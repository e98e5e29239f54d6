"""RunSummary: counts and times of what was recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from wtb.domain.checkpoint import NodeRun, NodeStatus
from wtb.domain.events import Event, EventType, Severity
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.summary import NodeFigures, RunSummary, ToolFigures
from wtb.domain.tools import CallKind, Effects, ToolCall

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def call_event(type: EventType, tool: str, seconds: float, number: int = 1) -> Event:
    data = {"node": "search", "visit": 1, "tool": tool, "call": f"{tool}:00#{number}"}
    return Event(type=type, stream="run", at=NOW + seconds * SECOND, data=data)


def node_event(type: EventType, node: str) -> Event:
    return Event(type=type, stream="run", at=NOW, data={"node": node, "visit": 1})


def a_call(tool: str, kind: CallKind = CallKind.TOOL) -> ToolCall:
    return ToolCall(
        execution_id=ExecutionId("run"),
        node_run_id=NodeRunId("node"),
        identity=f"{tool}:00#1",
        sequence=0,
        kind=kind,
        tool=tool,
        effects=Effects.NONE,
        arguments={},
        started_at=NOW,
    )


def a_visit(node: str, visit: int, seconds: float | None) -> Any:
    run = NodeRun(
        id=NodeRunId(f"{node}{visit}"),
        execution_id=ExecutionId("run"),
        branch_id=BranchId("main"),
        node=node,
        visit=visit,
        input_id=CheckpointId("0"),
        started_at=NOW,
    )
    return (run if seconds is None else run.ended(NodeStatus.COMPLETED, NOW + seconds * SECOND)).boundary()


def test_calls_of_a_tool_are_counted_and_timed_each_by_itself() -> None:
    events = [
        call_event(EventType.TOOL_STARTED, "find", 0, 1),
        call_event(EventType.TOOL_STARTED, "find", 1, 2),  # at the same time as the first
        call_event(EventType.TOOL_FAILED, "find", 2, 1),
        call_event(EventType.TOOL_COMPLETED, "find", 4, 2),
        call_event(EventType.TOOL_STARTED, "find", 10, 1),  # the first one again
        call_event(EventType.TOOL_COMPLETED, "find", 11, 1),
        call_event(EventType.TOOL_STARTED, "find", 20, 3),  # never came back
    ]
    (figures,) = RunSummary.of(events, [a_call("find")], []).tools
    assert figures == ToolFigures(tool="find", kind=CallKind.TOOL, calls=4, failures=1, total=6 * SECOND)
    assert figures.mean == 1.5 * SECOND


def test_questions_are_no_tools_and_recorded_steps_are_named_as_such() -> None:
    events = [call_event(EventType.TOOL_STARTED, name, 0) for name in ("ask", "model")]
    tools = RunSummary.of(events, [a_call("ask", CallKind.ASK), a_call("model", CallKind.STEP)], []).tools
    assert [(figures.tool, figures.kind, figures.calls) for figures in tools] == [("model", CallKind.STEP, 1)]


def test_visits_of_a_node_are_counted_and_timed_with_its_failures_and_retries() -> None:
    events = [
        node_event(EventType.NODE_RETRIED, "search"),
        node_event(EventType.NODE_FAILED, "search"),
        node_event(EventType.NODE_RETRIED, "write"),
    ]
    visits = [a_visit("search", 1, 2), a_visit("write", 1, 1), a_visit("search", 2, 3), a_visit("write", 2, None)]
    search, write = RunSummary.of(events, [], visits).nodes
    assert search == NodeFigures(node="search", visits=2, failures=1, retries=1, total=5 * SECOND)
    assert write == NodeFigures(node="write", visits=2, failures=0, retries=1, total=SECOND)


def test_events_are_counted_by_type_and_by_severity() -> None:
    kinds = [EventType.NODE_FAILED, EventType.NODE_RETRIED, EventType.NODE_RETRIED, EventType.NODE_COMPLETED]
    summary = RunSummary.of([node_event(kind, "n") for kind in kinds], [], [])
    assert next(iter(summary.types.items())) == (EventType.NODE_RETRIED, 2)
    assert summary.severities == {Severity.INFO: 1, Severity.WARNING: 2, Severity.ERROR: 1}


def test_a_run_that_did_nothing_has_a_summary_too() -> None:
    summary = RunSummary.of([], [], [])
    assert (summary.types, summary.tools, summary.nodes) == ({}, (), ())
