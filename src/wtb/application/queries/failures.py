"""Explains a failed run: what its node got, and what is different since the last run that went well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.application.dependencies.workflow_code import differences
from wtb.application.queries.views import FailureView, LastGoodRun, NodeInput, VariantChange
from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.diff import StateDiff, state_diffs
from wtb.domain.errors import InvalidInput, WorkflowNotFound
from wtb.domain.execution import Execution, ExecutionStatus, Failure
from wtb.domain.ids import CheckpointId
from wtb.domain.job_origin import JobOrigin
from wtb.domain.ports import UnitOfWork

_MOST_RUNS = 100
"""How many runs that went well are looked at, in search of the one that is most alike."""


def explain(uow: UnitOfWork, execution: Execution) -> FailureView:
    """Return why a run failed; raise InvalidInput if it did not."""
    failure = execution.failure
    if failure is None:
        raise InvalidInput(f"run {execution.id!r} has not failed: it is {execution.status}")
    good = _last_good(uow, execution)
    return FailureView(
        execution=execution,
        failure=failure,
        input=_input(uow, execution, failure),
        last_good=None if good is None else _compared(uow, good, execution, failure),
    )


def _input(uow: UnitOfWork, execution: Execution, failure: Failure) -> NodeInput | None:
    """Return the state that the failed node could see; None if that is not known."""
    if failure.input_checkpoint_id is None:
        return None
    snapshot = uow.checkpoints.load(failure.input_checkpoint_id)
    reads = _reads(_definition(uow, execution), failure.node)
    seen = snapshot.state if reads is None else {key: snapshot.state[key] for key in reads if key in snapshot.state}
    return NodeInput(checkpoint=snapshot.checkpoint, reads=reads, state=seen)


def _reads(definition: Mapping[str, Any] | None, node: str | None) -> tuple[str, ...] | None:
    nodes = () if definition is None else definition["nodes"]
    found = next((each.get("reads") for each in nodes if each["name"] == node), None)
    return None if found is None else tuple(found)


def _last_good(uow: UnitOfWork, execution: Execution) -> Execution | None:
    """Return the completed run before this one that is most alike: of the same case, with the same variants, newest."""
    found = uow.executions.list_executions(
        statuses=(ExecutionStatus.COMPLETED,),
        workflow=execution.workflow_name,
        until=execution.created_at,
        limit=_MOST_RUNS,
    )
    return max(
        found, key=lambda each: (_case(each) == _case(execution), _variants(each) == _variants(execution)), default=None
    )


def _compared(uow: UnitOfWork, good: Execution, failed: Execution, failure: Failure) -> LastGoodRun:
    begun, now = _first(uow, good), _first(uow, failed)
    place = _input_of(uow, good, failure)
    came = failure.input_checkpoint_id
    return LastGoodRun(
        execution=good,
        code=_code(uow, good, failed),
        variants=_variant_changes(good, failed),
        input=_changes(uow, begun, now),
        state=None if place is None or came is None else _changes(uow, place, came),
    )


def _code(uow: UnitOfWork, good: Execution, failed: Execution) -> tuple[str, ...] | None:
    """Return in words what changed in the workflow; None if one of the two is not stored."""
    if good.workflow_id == failed.workflow_id:
        return ()
    before, now = _definition(uow, good), _definition(uow, failed)
    if before is None or now is None or "code" not in now:
        return None
    return tuple(differences(before, now))


def _definition(uow: UnitOfWork, execution: Execution) -> Mapping[str, Any] | None:
    try:
        return uow.workflows.get(execution.workflow_id)
    except WorkflowNotFound:  # a LangGraph thread has none
        return None


def _variant_changes(good: Execution, failed: Execution) -> tuple[VariantChange, ...]:
    before, now = _variants(good), _variants(failed)
    nodes = sorted(node for node in {*before, *now} if before.get(node) != now.get(node))
    return tuple(VariantChange(node=node, before=before.get(node), now=now.get(node)) for node in nodes)


def _variants(execution: Execution) -> Mapping[str, str]:
    found: Mapping[str, str] = execution.options.get("variants") or {}
    return found


def _case(execution: Execution) -> str | None:
    origin = JobOrigin.find(execution.metadata)
    return None if origin is None else origin.case_id


def _first(uow: UnitOfWork, execution: Execution) -> CheckpointId | None:
    """Return the checkpoint that holds the input of a run: the oldest on the line to its head."""
    head_id = uow.branches.get(execution.branch_id).head_id
    line: tuple[Checkpoint, ...] = () if head_id is None else tuple(uow.pages.list_line(head_id, upto=0, limit=1))
    return line[0].id if line and not line[0].deleted else None


def _input_of(uow: UnitOfWork, good: Execution, failure: Failure) -> CheckpointId | None:
    """Return from which checkpoint the node that failed had started in the other run, at the same visit."""
    runs = [run for run in uow.node_runs.list_runs(good.id) if _is_same_visit(run, failure)]
    return runs[-1].input_id if runs else None


def _is_same_visit(run: NodeRun, failure: Failure) -> bool:
    same = (run.node, run.visit) == (failure.node, failure.visit)
    return same and run.status is NodeStatus.COMPLETED


def _changes(uow: UnitOfWork, old: CheckpointId | None, new: CheckpointId | None) -> tuple[StateDiff, ...] | None:
    """Return how two states differ; None if one of them is gone."""
    if old is None or new is None:
        return None
    return state_diffs(*uow.checkpoints.compare(old, new))
