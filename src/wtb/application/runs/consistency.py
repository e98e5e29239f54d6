"""Checks that a run is complete enough to continue or go back, so that nothing it did is repeated."""

from __future__ import annotations

from wtb.application.runs.steps import Position
from wtb.domain.checkpoint import Kind
from wtb.domain.errors import DamagedData
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import UnitOfWork
from wtb.domain.rollback import RollbackDirection, RollbackStatus

_ADVICE = "`wtb doctor` shows more: restore a backup, or delete the run"
_MOST_NAMED = 3


def check_calls(uow: UnitOfWork, execution_id: ExecutionId) -> None:
    """Raise DamagedData if the node runs of recorded calls are missing: nothing would find those calls."""
    lost = uow.tool_calls.list_lost(execution_id)
    if lost:
        named = ", ".join(repr(key.identity) for key in lost[:_MOST_NAMED])
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        raise DamagedData(
            f"run {execution_id!r} is damaged: the node runs of its calls {named}{more} are missing, and those calls "
            f"could be made again; {_ADVICE}"
        )


def check_head(uow: UnitOfWork, at: Position, history: ExecutionHistory) -> None:
    """Raise DamagedData if the run has steps after its head, and no rollback moved the head back."""
    following = (
        checkpoint
        for checkpoint in history.checkpoints
        if checkpoint.parent_id == at.head.id
        and checkpoint.branch_id == at.branch.id
        and checkpoint.kind is not Kind.SYSTEM  # this kind saves the run as it was before a rollback
        and not checkpoint.deleted
    )
    further = next(following, None)
    if further is not None and not _went_back(uow, at):
        raise DamagedData(
            f"run {at.execution.id!r} is damaged: it stands at checkpoint {at.head.id!r}, but had gone on to "
            f"{further.id!r}, and no rollback took it back; {_ADVICE}"
        )


def _went_back(uow: UnitOfWork, at: Position) -> bool:
    return any(
        journal.branch_id == at.branch.id
        and journal.target_id == at.head.id
        and journal.status is RollbackStatus.COMPLETED
        and journal.direction is not RollbackDirection.TAKE_BACK
        for journal in uow.rollbacks.list_rollbacks(at.execution.id)
    )
