"""What may go from a run, and what must stay whatever its age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint, Kind, NodeRun, NodeStatus, Trigger
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Branch
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.retention import Outline, Reason, RetentionPolicy, expendable, open_runs
from wtb.settings import load_settings

NOW = datetime(2026, 6, 1, tzinfo=UTC)
RUN = ExecutionId("run")


def checkpoint(id: str, parent: str | None, *, days: float = 0, **facts: Any) -> Checkpoint:
    given: dict[str, Any] = {
        "execution_id": RUN,
        "branch_id": BranchId("main"),
        "step": int(id.rstrip("abcs") or 0),
        "created_at": NOW - timedelta(days=days),
        "trigger": Trigger.NODE_END if parent else Trigger.START,
        "state_hash": b"",
        "parent_hash": b"",
        "hash": b"",
        "size_bytes": 1,
    }
    parent_id = None if parent is None else CheckpointId(parent)
    return Checkpoint(id=CheckpointId(id), parent_id=parent_id, **given | facts)


def line(length: int, **facts: Any) -> list[Checkpoint]:
    return [checkpoint(str(number), str(number - 1) if number else None, **facts) for number in range(length)]


def branch(name: str, head: str, forked_from: str | None = None) -> Branch:
    start = None if forked_from is None else CheckpointId(forked_from)
    return Branch(
        id=BranchId(name),
        execution_id=RUN,
        name=name,
        head_id=CheckpointId(head),
        forked_from_id=start,
        created_at=NOW,
    )


def history(checkpoints: list[Checkpoint], *branches: Branch, runs: tuple[NodeRun, ...] = ()) -> Outline:
    """The first branch is the active one."""
    heads = {branch.head_id for branch in branches}
    return Outline.of(
        checkpoints,
        head_id=branches[0].head_id,
        branches=branches,
        open_runs=open_runs(runs, [each for each in checkpoints if each.id in heads]),
    )


def node_run(input_id: str, status: NodeStatus, **facts: Any) -> NodeRun:
    return NodeRun(
        id=NodeRunId("node run"),
        execution_id=RUN,
        branch_id=BranchId("main"),
        node="n",
        visit=1,
        status=status,
        input_id=CheckpointId(input_id),
        started_at=NOW,
        **facts,
    )


def gone(told: Outline, *, keep_last: int = 2, keep_days: float = 90) -> dict[str, Reason]:
    policy = RetentionPolicy(keep_last=keep_last, keep_days=keep_days)
    return {each.id: reason for each, reason in expendable(told, policy, NOW)}


def test_the_last_ones_the_start_and_the_head_stay() -> None:
    assert gone(history(line(6), branch("main", "5"))) == dict.fromkeys(("1", "2", "3"), Reason.BEYOND_LAST)


def test_nothing_goes_from_a_short_run() -> None:
    assert gone(history(line(3), branch("main", "2"))) == {}


def test_what_is_too_old_goes_even_when_it_is_among_the_last() -> None:
    told = history(line(4, days=100), branch("main", "3"))
    assert gone(told, keep_last=20) == dict.fromkeys(("1", "2"), Reason.TOO_OLD)
    assert gone(told, keep_last=20, keep_days=101) == {}


def test_the_newest_come_first() -> None:
    found = expendable(history(line(6), branch("main", "5")), RetentionPolicy(keep_last=0), NOW)
    assert [each.id for each, _ in found] == ["4", "3", "2", "1"]


@pytest.mark.parametrize("kind", [Kind.MANUAL, Kind.SYSTEM, Kind.CONFLICT])
def test_only_automatic_ones_go(kind: Kind) -> None:
    told = line(6, days=100)
    told[2] = checkpoint("2", "1", days=100, kind=kind)
    assert gone(history(told, branch("main", "5"))) == dict.fromkeys(("1", "3", "4"), Reason.TOO_OLD)


def test_manual_ones_do_not_count_among_the_last() -> None:
    told = line(5)
    told[3] = checkpoint("3", "2", kind=Kind.MANUAL)
    assert set(gone(history(told, branch("main", "4")))) == {"1"}


def test_heads_and_branch_points_of_every_branch_stay_and_the_rest_of_an_inactive_one_goes() -> None:
    told = [*line(6), checkpoint("3b", "2"), checkpoint("4b", "3b"), checkpoint("5b", "4b")]
    found = gone(history(told, branch("main", "5"), branch("other", "5b", forked_from="2")))
    assert found == {"1": Reason.BEYOND_LAST, "3": Reason.BEYOND_LAST, "3b": Reason.OFF_LINE, "4b": Reason.OFF_LINE}


def test_a_line_that_can_be_redone_stays_until_its_safety_checkpoint_is_too_old() -> None:
    told = [*line(5), checkpoint("2a", "1"), checkpoint("3a", "2a"), checkpoint("4s", "3a", kind=Kind.SYSTEM)]
    assert set(gone(history(told, branch("main", "4")), keep_last=9)) == set()
    told[-1] = checkpoint("4s", "3a", kind=Kind.SYSTEM, days=91)
    assert gone(history(told, branch("main", "4")), keep_last=9) == dict.fromkeys(("2a", "3a"), Reason.OFF_LINE)


def test_what_an_open_node_began_from_and_has_made_stays() -> None:
    told = line(4)
    inside = [
        checkpoint("4", "3", trigger=Trigger.TOOL_END, node_run_id=NodeRunId("node run")),
        checkpoint("5", "4", trigger=Trigger.TOOL_END, node_run_id=NodeRunId("node run")),
    ]
    for status in (NodeStatus.STARTED, NodeStatus.FAILED):
        run = node_run("3", status)
        assert set(gone(history(told + inside, branch("main", "5"), runs=(run,)), keep_last=0)) == {"1", "2"}


def test_what_a_result_that_waits_for_its_barrier_began_from_stays() -> None:
    run = node_run("2", NodeStatus.COMPLETED, pending={"returned": {}})
    assert set(gone(history(line(5), branch("main", "4"), runs=(run,)), keep_last=0)) == {"1", "3"}


def test_the_line_of_a_fork_begins_with_its_own_first_checkpoint() -> None:
    told = history(line(6)[3:], branch("main", "5", forked_from="2"))
    assert gone(told, keep_last=1) == dict.fromkeys(("3", "4"), Reason.BEYOND_LAST)
    assert gone(history([], branch("main", "2", forked_from="2"))) == {}


def test_tombstones_are_not_deleted_again() -> None:
    told = line(6)
    told[2] = checkpoint("2", "1", deleted=True)
    assert set(gone(history(told, branch("main", "5")), keep_last=0)) == {"1", "3", "4"}


def test_impossible_policies_are_refused() -> None:
    with pytest.raises(InvalidInput):
        RetentionPolicy(keep_last=-1)
    with pytest.raises(InvalidInput):
        RetentionPolicy(keep_days=-1)


def test_a_policy_may_keep_everything() -> None:
    assert gone(history(line(6, days=99), branch("main", "5")), keep_last=99, keep_days=1_000_000) == {}


def test_settings_hold_for_all_workflows_or_for_one() -> None:
    retention = load_settings(
        retention={"keep_last": 5, "workflows": {"chat": {"keep_days": 7}, "audit": {"keep_last": 1_000}}}
    ).retention
    assert retention.policy("other") == RetentionPolicy(keep_last=5, keep_days=90)
    assert retention.policy("chat") == RetentionPolicy(keep_last=5, keep_days=7)
    assert retention.policy("audit") == RetentionPolicy(keep_last=1_000, keep_days=90)


def test_settings_that_are_wrong_are_named() -> None:
    for wrong in ({"keep_last": -1}, {"keep_day": 3}, {"workflows": {"chat": {"keep": 1}}}):
        with pytest.raises(InvalidInput, match="retention"):
            load_settings(retention=wrong)
