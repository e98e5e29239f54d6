"""Execution: legal and illegal transitions, versions, leases and their tokens."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from wtb.domain.errors import Conflict, InvalidTransition, LeaseLost
from wtb.domain.execution import THREAD, TRANSITIONS, Branch, Execution, ExecutionStatus, Failure, Lease, Neglect
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, WorkflowId
from wtb.domain.values import evolve

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

LEGAL = {
    "pending": {"running", "cancelled"},
    "running": {"paused", "completed", "failed", "cancelled"},
    "paused": {"running", "rolling_back", "cancelled"},
    "rolling_back": {"paused"},
    "completed": {"rolling_back"},
    "failed": {"running", "rolling_back", "cancelled"},
    "cancelled": {"rolling_back"},
}


def an_execution(status: ExecutionStatus = ExecutionStatus.PENDING, *, failure: Failure | None = None) -> Execution:
    return Execution(
        id=ExecutionId("run"),
        workflow_id=WorkflowId("flow"),
        workflow_name="flow",
        status=status,
        branch_id=BranchId("main"),
        failure=failure,
        created_at=NOW,
        updated_at=NOW,
    )


@pytest.mark.parametrize(("before", "after"), list(product(ExecutionStatus, ExecutionStatus)), ids=str)
def test_a_status_changes_only_as_the_table_says(before: ExecutionStatus, after: ExecutionStatus) -> None:
    execution = an_execution(before)
    if after.value in LEGAL[before.value]:
        moved = execution.moved_to(after, NOW + MINUTE)
        assert (moved.status, moved.version, moved.updated_at) == (after, 1, NOW + MINUTE)
        assert execution == an_execution(before)
    else:
        with pytest.raises(InvalidTransition, match=f"'run' is {before}.* not {after}"):
            execution.moved_to(after, NOW)


def test_a_refused_transition_names_what_would_be_allowed() -> None:
    with pytest.raises(InvalidTransition) as refused:
        an_execution(ExecutionStatus.PENDING).moved_to(ExecutionStatus.COMPLETED, NOW)
    assert str(refused.value) == "run 'run' is pending; from there it can become cancelled, running, not completed"


def test_every_status_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(ExecutionStatus)
    assert all(TRANSITIONS.values())
    reached = frozenset[ExecutionStatus]().union(*TRANSITIONS.values())
    assert reached == set(ExecutionStatus) - {ExecutionStatus.PENDING}


def test_a_failure_is_kept_until_the_run_goes_on() -> None:
    failure = Failure(type="ValueError", message="no", node="a", visit=2)
    failed = an_execution(ExecutionStatus.RUNNING).moved_to(ExecutionStatus.FAILED, NOW, failure=failure)
    assert failed.failure == failure
    assert failed.moved_to(ExecutionStatus.RUNNING, NOW).failure is None


def test_a_step_changes_nothing_but_version_and_time() -> None:
    execution = an_execution(ExecutionStatus.RUNNING)
    stepped = execution.stepped(NOW + MINUTE)
    assert (stepped.version, stepped.updated_at, stepped.status) == (1, NOW + MINUTE, ExecutionStatus.RUNNING)


def test_another_branch_can_become_the_active_one() -> None:
    moved = an_execution().on_branch(BranchId("other"), NOW)
    assert (moved.branch_id, moved.version) == ("other", 1)


def test_a_thread_is_known_by_the_reserved_name_of_its_workflow() -> None:
    run = an_execution()
    assert not run.is_thread
    assert evolve(run, workflow_name=THREAD).is_thread


def test_a_free_run_can_be_leased_and_its_token_grows_with_every_owner() -> None:
    first = an_execution().leased("host:1", NOW, MINUTE)
    assert first.lease == Lease(owner="host:1", token=1, expires_at=NOW + MINUTE)
    second = first.released(1, NOW).leased("host:2", NOW, MINUTE)
    assert second.lease == Lease(owner="host:2", token=2, expires_at=NOW + MINUTE)


def test_a_living_lease_keeps_others_out_and_says_whose_it_is() -> None:
    held = an_execution().leased("host:1", NOW, MINUTE)
    with pytest.raises(Conflict, match=r"host:1 until 12:01:00 UTC"):
        held.leased("host:2", NOW + MINUTE - timedelta(microseconds=1), MINUTE)


def test_an_expired_lease_can_be_taken_over_and_the_old_owner_is_fenced_off() -> None:
    held = an_execution().leased("host:1", NOW, MINUTE)
    taken = held.leased("host:2", NOW + MINUTE, MINUTE)
    assert taken.lease is not None
    assert (taken.lease.owner, taken.lease.token) == ("host:2", 2)
    with pytest.raises(LeaseLost, match="now belongs to host:2"):
        taken.renewed(1, NOW + MINUTE)
    with pytest.raises(LeaseLost, match="now belongs to host:2"):
        taken.released(1, NOW)


def test_an_owner_that_takes_its_own_lease_again_gets_a_new_token() -> None:
    again = an_execution().leased("host:1", NOW, MINUTE).leased("host:1", NOW, MINUTE)
    assert again.lease_token == 2
    with pytest.raises(LeaseLost):
        again.check_lease(1)


def test_renewing_moves_the_end_and_keeps_the_token() -> None:
    renewed = an_execution().leased("host:1", NOW, MINUTE).renewed(1, NOW + 2 * MINUTE)
    assert renewed.lease == Lease(owner="host:1", token=1, expires_at=NOW + 2 * MINUTE)


def test_a_released_lease_cannot_be_renewed_and_belongs_to_nobody() -> None:
    released = an_execution().leased("host:1", NOW, MINUTE).released(1, NOW)
    assert released.lease is None
    with pytest.raises(LeaseLost, match="now belongs to nobody"):
        released.renewed(1, NOW + MINUTE)


def test_tokens_go_on_growing_after_a_release() -> None:
    execution = an_execution()
    for token in range(1, 5):
        execution = execution.leased("host:1", NOW, MINUTE)
        assert execution.lease_token == token
        execution = execution.released(token, NOW)


def test_taking_and_giving_up_a_lease_are_versions_and_keeping_it_is_none() -> None:
    execution = an_execution().leased("a", NOW, MINUTE)
    execution = execution.renewed(1, NOW + MINUTE).released(1, NOW)
    assert execution.version == 2


@pytest.mark.parametrize(("gone", "allowed"), [(True, True), (False, False), (None, False)])
def test_a_holder_that_is_known_to_be_gone_keeps_nobody_out(gone: bool | None, allowed: bool) -> None:
    held = an_execution().leased("host:1", NOW, MINUTE)
    if allowed:
        assert held.leased("host:2", NOW, MINUTE, holder_gone=gone).lease_token == 2
    else:
        with pytest.raises(Conflict):
            held.leased("host:2", NOW, MINUTE, holder_gone=gone)


def test_a_holder_that_is_known_to_live_keeps_others_out_after_its_lease_has_ended() -> None:
    held = an_execution().leased("host:1", NOW, MINUTE)
    with pytest.raises(Conflict):
        held.leased("host:2", NOW + 2 * MINUTE, MINUTE, holder_gone=False)


def test_a_lease_expires_at_its_end_and_not_before() -> None:
    lease = Lease(owner="a", token=1, expires_at=NOW)
    assert not lease.expired(NOW - timedelta(microseconds=1))
    assert lease.expired(NOW)


def test_moving_a_branch_changes_its_head_only() -> None:
    branch = Branch(id=BranchId("b"), execution_id=ExecutionId("run"), name="main", head_id=None, created_at=NOW)
    moved = branch.moved(CheckpointId("c1"))
    assert (moved.head_id, branch.head_id, moved.name) == ("c1", None, "main")


@pytest.mark.parametrize(
    ("minutes", "holder_gone", "neglect"),
    [
        (0, False, None),
        (0, None, None),
        (0, True, Neglect.GONE),
        (1, None, Neglect.GONE),  # nobody can look, so the end of the lease decides
        (1, False, None),  # a busy process may be late with its heartbeat
        (60, True, Neglect.GONE),
        (61, True, Neglect.ABANDONED),
        (61, None, Neglect.ABANDONED),
        (61, False, Neglect.ABANDONED),
    ],
)
def test_a_running_run_is_neglected_when_its_holder_is_gone_or_an_hour_silent(
    minutes: int, holder_gone: bool | None, neglect: Neglect | None
) -> None:
    run = an_execution(ExecutionStatus.RUNNING).leased("me", NOW, MINUTE)
    assert run.neglect(NOW + minutes * MINUTE, holder_gone) is neglect


def test_a_run_without_a_holder_is_neglected_after_an_hour() -> None:
    run = an_execution(ExecutionStatus.RUNNING)
    assert run.neglect(NOW + 59 * MINUTE, None) is None
    assert run.neglect(NOW + 60 * MINUTE, None) is Neglect.ABANDONED


@pytest.mark.parametrize("status", [status for status in ExecutionStatus if "ing" not in status or status == "pending"])
def test_only_a_run_that_should_get_on_can_be_neglected(status: ExecutionStatus) -> None:
    assert an_execution(status).neglect(NOW + 600 * MINUTE, None) is None
