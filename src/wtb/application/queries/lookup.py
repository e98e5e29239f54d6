"""Find the run or the checkpoint that a person means, without reading the whole run."""

from __future__ import annotations

from wtb.application.time_travel.run_editor import resolved
from wtb.domain.batch import Batch
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import CheckpointNotFound, ExecutionNotFound, InvalidInput, WorkflowNotFound
from wtb.domain.execution import Execution
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import UnitOfWork

SHORTEST_PREFIX = 4
"""The fewest characters of a run's id that are accepted."""
_MOST_LISTED = 5


class Prefix(str):
    """The id of a run as a person types it: the beginning is enough if no other run begins with it."""

    __slots__ = ()


def find_run(uow: UnitOfWork, run: str) -> Execution:
    """Return a run by its id, or by a Prefix of it."""
    try:
        return uow.executions.get(ExecutionId(str(run)))
    except ExecutionNotFound:
        if not isinstance(run, Prefix) or len(run) < SHORTEST_PREFIX:
            raise
        found = uow.executions.list_executions(prefix=str(run), limit=_MOST_LISTED + 1)
    if not found:
        raise ExecutionNotFound(run)
    if len(found) > 1:
        few = ", ".join(execution.id for execution in found[:_MOST_LISTED])
        more = ", …" if len(found) > _MOST_LISTED else ""
        raise InvalidInput(f"several runs start with {str(run)!r}: {few}{more}; give more of the id")
    return found[0]


def find_stream(uow: UnitOfWork, run: str) -> ExecutionId:
    """Return the event stream of a run; events stay when the run is deleted."""
    return find_run(uow, run).id if isinstance(run, Prefix) else ExecutionId(run)


def head_of(uow: UnitOfWork, execution: Execution) -> CheckpointId | None:
    """Return the head of the active branch."""
    return uow.branches.get(execution.branch_id).head_id


def find_checkpoint(uow: UnitOfWork, execution: Execution, target: str | int | None) -> Checkpoint:
    """Return the checkpoint that a person means: a step, id, name, node or `node#2`; by default the head.

    Steps and ids are found without reading the history, because paging uses them; the rest is found in the history.
    """
    if target is None:
        head_id = head_of(uow, execution)
        if head_id is None:
            raise CheckpointNotFound("the head", f"run {execution.id}")
        return uow.checkpoints.get(head_id)
    text = str(target)
    return _by_step(uow, execution, text) or _by_id(uow, execution, text) or resolved(uow, execution.id, target)[1]


def _by_step(uow: UnitOfWork, execution: Execution, text: str) -> Checkpoint | None:
    head_id = head_of(uow, execution)
    if head_id is None or not text.isdecimal() or len(text) > 18 or _is_node(uow, execution, text):
        return None
    line = uow.pages.list_line(head_id, upto=int(text), limit=1)
    return line[0] if line and line[0].step == int(text) and not line[0].deleted else None


def _is_node(uow: UnitOfWork, execution: Execution, text: str) -> bool:
    """Whether a node of the workflow has this name: then the node is meant, not the step."""
    try:
        nodes = uow.workflows.get(execution.workflow_id).get("nodes", ())
    except WorkflowNotFound:
        return False
    return any(node["name"] == text for node in nodes)


def _by_id(uow: UnitOfWork, execution: Execution, text: str) -> Checkpoint | None:
    try:
        found = uow.checkpoints.get(CheckpointId(text))
    except CheckpointNotFound:
        return None
    return found if found.execution_id == execution.id else None


def find_batch(uow: UnitOfWork, name_or_id: str) -> Batch:
    """Return the latest batch of a name, or the one with this id."""
    named = uow.batches.list_batches(name=name_or_id, limit=1)
    return named[0] if named else uow.batches.get(name_or_id)
