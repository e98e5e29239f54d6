"""RunSummary: counts and times of what was recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from wtb.domain.checkpoint import Checkpoint, NodeRun, Trigger
from wtb.domain.events import Event, EventType, Severity
from wtb.domain.execution import Branch
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.summary import NodeFigures, RunSummary, ToolFigures
from wtb.domain.tools import CallKind, Effects, ToolCall
from wtb.domain.values import evolve

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def node_event(type: EventType, node: str) -> Event:
    return Event(type=type, stream="run", at=NOW, data={"node": node, "visit": 1})


def a_call(tool: str, kind: CallKind = CallKind.TOOL) -> ToolCall:
    return ToolCall(
        execution_id=ExecutionId("run"),
        node_run_id=NodeRunId("node1"),
        identity=f"{tool}:00#1",
        sequence=0,
        kind=kind,
        tool=tool,
        effects=Effects.NONE,
        arguments={},
        started_at=NOW,
    )


def a_visit(node: str, visit: int, seconds: float | None) -> NodeRun:
    run = NodeRun(
        id=NodeRunId(f"{node}{visit}"),
        execution_id=ExecutionId("run"),
        branch_id=BranchId("main"),
        node=node,
        visit=visit,
        input_id=CheckpointId("0"),
        started_at=NOW,
    )
    return run if seconds is None else run.completed(CheckpointId("0"), NOW + seconds * SECOND)


def a_history(*runs: NodeRun) -> ExecutionHistory:
    """All of them on the one line that there is."""
    branch = Branch(
        id=BranchId("main"),
        execution_id=ExecutionId("run"),
        name="main",
        head_id=CheckpointId("0"),
        forked_from_id=None,
        created_at=NOW,
    )
    only = Checkpoint(
        id=CheckpointId("0"),
        execution_id=ExecutionId("run"),
        branch_id=branch.id,
        parent_id=None,
        step=0,
        created_at=NOW,
        trigger=Trigger.START,
        state_hash=b"",
        parent_hash=b"",
        hash=b"",
        size_bytes=0,
    )
    return ExecutionHistory(
        execution_id=branch.execution_id,
        active_branch_id=branch.id,
        branches=(branch,),
        checkpoints=(only,),
        node_runs=runs,
    )


def test_calls_of_a_tool_are_counted_and_timed_each_by_itself() -> None:
    tried = a_call("find").failed("OSError", NOW + 2 * SECOND).counted_failure().again(NOW + 10 * SECOND)
    calls = [
        tried.succeeded("found", NOW + 11 * SECOND),
        a_call("find").succeeded("found", NOW + 3 * SECOND),
        a_call("find"),  # never came back
        evolve(a_call("find"), node_run_id=NodeRunId("elsewhere")).succeeded("found", NOW + SECOND),
    ]
    (figures,) = RunSummary.of([], calls, a_history(a_visit("node", 1, 9))).tools
    assert figures == ToolFigures(tool="find", kind=CallKind.TOOL, calls=4, failures=1, total=6 * SECOND)
    assert figures.mean == 1.5 * SECOND


def test_questions_are_no_tools_and_recorded_steps_are_named_as_such() -> None:
    calls = [a_call("ask", CallKind.ASK), a_call("model", CallKind.STEP)]
    tools = RunSummary.of([], calls, a_history(a_visit("node", 1, 1))).tools
    assert [(figures.tool, figures.kind, figures.calls) for figures in tools] == [("model", CallKind.STEP, 1)]


def test_visits_of_a_node_are_counted_and_timed_with_its_failures_and_retries() -> None:
    events = [
        node_event(EventType.NODE_RETRIED, "search"),
        node_event(EventType.NODE_FAILED, "search"),
        node_event(EventType.NODE_RETRIED, "write"),
    ]
    visits = [a_visit("search", 1, 2), a_visit("write", 1, 1), a_visit("search", 2, 3), a_visit("write", 2, None)]
    search, write = RunSummary.of(events, [], a_history(*visits)).nodes
    assert search == NodeFigures(node="search", visits=2, failures=1, retries=1, total=5 * SECOND)
    assert write == NodeFigures(node="write", visits=2, failures=0, retries=1, total=SECOND)


def test_events_are_counted_by_type_and_by_severity() -> None:
    kinds = [EventType.NODE_FAILED, EventType.NODE_RETRIED, EventType.NODE_RETRIED, EventType.NODE_COMPLETED]
    summary = RunSummary.of([node_event(kind, "n") for kind in kinds], [], a_history())
    assert next(iter(summary.types.items())) == (EventType.NODE_RETRIED, 2)
    assert summary.severities == {Severity.INFO: 1, Severity.WARNING: 2, Severity.ERROR: 1}


def test_a_run_that_did_nothing_has_a_summary_too() -> None:
    summary = RunSummary.of([], [], a_history())
    assert (summary.types, summary.tools, summary.nodes) == ({}, (), ())
