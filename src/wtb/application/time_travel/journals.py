"""Journals of rollbacks: a new one, the open one, and the one that a redo reverses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from wtb.application.runs.steps import Position
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.rollback import CallKey, Rollback, RollbackDirection, redoable


class Journals:
    """Starts journals, and finds the one that is not finished."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids

    def new(
        self,
        direction: RollbackDirection,
        at: Position,
        *,
        target: CheckpointId,
        safety: CheckpointId,
        calls: tuple[CallKey, ...],
        created_by: str | None,
    ) -> Rollback:
        """Return a new journal for a run at its present position; nothing is stored yet."""
        with self._storage.unit_of_work(readonly=True) as uow:
            number = uow.rollbacks.count_rollbacks(at.execution.id)
        return Rollback(
            id=self._ids.new(),
            number=number,
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            direction=direction,
            head_id=at.head.id,
            target_id=target,
            safety_id=safety,
            calls=calls,
            created_by=created_by,
            created_at=self._clock.now(),
        )

    def find_open(self, execution_id: ExecutionId) -> Rollback | None:
        """Return the newest unfinished journal of a run; None if there is none."""
        with self._storage.unit_of_work(readonly=True) as uow:
            journals = uow.rollbacks.list_rollbacks(execution_id)
        return next((journal for journal in reversed(journals) if journal.is_open), None)


def with_own_end_time(journal: Rollback, journals: Sequence[Rollback]) -> Rollback:
    """Return the journal with an end time that no other journal of the run has.

    By that time, a redo finds the node runs that a rollback left behind.
    """
    ended_at = journal.ended_at
    assert ended_at is not None
    taken = {other.ended_at for other in journals}
    while ended_at in taken:
        ended_at += timedelta(microseconds=1)
    return replace(journal, ended_at=ended_at)


def last_undone(journals: Sequence[Rollback], at: Position) -> Rollback | None:
    """Return the rollback that the next redo reverses."""
    return redoable([journal for journal in journals if journal.branch_id == at.branch.id])
