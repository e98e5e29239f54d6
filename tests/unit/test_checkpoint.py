"""Checkpoint, NodeRun and NodeBoundary: values that change through named steps only."""

from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta

import pytest

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Kind, NodeRun, NodeStatus, Trigger
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Failure
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE = Failure(type="ValueError", message="no such thing")

DRAFT = CheckpointDraft(
    id=CheckpointId("c1"),
    execution_id=ExecutionId("run"),
    branch_id=BranchId("main"),
    parent_id=None,
    step=0,
    created_at=NOW,
)
RUN = NodeRun(
    id=NodeRunId("n1"),
    execution_id=ExecutionId("run"),
    branch_id=BranchId("main"),
    node="classify",
    visit=2,
    input_id=CheckpointId("c0"),
    started_at=NOW,
)


def test_the_defaults_describe_an_automatic_checkpoint_at_the_end_of_a_node() -> None:
    assert (DRAFT.trigger, DRAFT.kind, DRAFT.restore_point) == (Trigger.NODE_END, Kind.AUTO, True)


def test_triggers_and_kinds_are_those_of_the_design() -> None:
    triggers = "start node_end tool_start tool_end llm_call decision handoff pause user_request"
    assert " ".join(Trigger) == triggers
    assert " ".join(Kind) == "auto manual system conflict"


def test_a_time_without_a_zone_is_refused_with_the_name_of_the_checkpoint() -> None:
    with pytest.raises(InvalidInput, match=r"'c1'.*time zone"):
        replace(DRAFT, created_at=NOW.replace(tzinfo=None))


def test_a_stored_checkpoint_refuses_a_time_without_a_zone_too() -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        Checkpoint(
            id=CheckpointId("c1"),
            execution_id=ExecutionId("run"),
            branch_id=BranchId("main"),
            parent_id=None,
            step=0,
            created_at=NOW.replace(tzinfo=None),
            state_hash=b"",
            parent_hash=b"",
            hash=b"",
            size_bytes=0,
        )


def test_a_checkpoint_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DRAFT.step = 1  # type: ignore[misc]


def test_the_first_checkpoint_of_a_run_stays_its_first() -> None:
    run = RUN.reached(CheckpointId("c1")).reached(CheckpointId("c2")).reached(CheckpointId("c3"))
    assert (run.first_id, run.last_id, run.checkpoint_count) == ("c1", "c3", 3)


def test_a_run_counts_its_tool_calls() -> None:
    assert RUN.called_tool().called_tool().tool_count == 2


def test_a_retry_is_another_attempt_of_the_same_run() -> None:
    failed = RUN.reached(CheckpointId("c1")).called_tool().ended(NodeStatus.FAILED, NOW, FAILURE)
    again = failed.tried_again()
    assert (again.id, again.attempt, again.status) == (RUN.id, 2, NodeStatus.STARTED)
    assert (again.failure, again.ended_at) == (None, None)
    assert (again.first_id, again.tool_count) == ("c1", 1)


def test_the_boundary_of_a_run_says_what_the_run_says() -> None:
    ended = RUN.reached(CheckpointId("c1")).ended(NodeStatus.FAILED, NOW + timedelta(seconds=3), FAILURE)
    boundary = ended.boundary()
    assert (boundary.node_run_id, boundary.node, boundary.visit) == ("n1", "classify", 2)
    assert (boundary.first_id, boundary.last_id, boundary.checkpoint_count) == ("c1", "c1", 1)
    assert (boundary.status, boundary.error) == (NodeStatus.FAILED, "ValueError: no such thing")
    assert boundary.duration == timedelta(seconds=3)


def test_a_visit_that_still_runs_has_no_duration_and_no_error() -> None:
    boundary = RUN.boundary()
    assert (boundary.duration, boundary.error, boundary.first_id) == (None, None, None)


def test_the_time_in_which_nobody_ran_a_node_is_no_part_of_its_duration() -> None:
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    again = RUN.tried_again(since=NOW + hour).ended(NodeStatus.COMPLETED, NOW + hour + second)
    assert again.boundary().duration == second
    assert RUN.tried_again().ended(NodeStatus.COMPLETED, NOW + hour).boundary().duration == hour
