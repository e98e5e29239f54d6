"""The checkpoint that follows a head, and the move of a branch to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from wtb.application.runs.steps import Position
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import Clock, HeadMove, Ids, UnitOfWork
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve

# Making a frozen dataclass of twenty fields takes five times as long as copying one with other values.
_UNKNOWN: Any = None
_DRAFT = CheckpointDraft(
    id=_UNKNOWN, execution_id=_UNKNOWN, branch_id=_UNKNOWN, parent_id=None, step=0, created_at=datetime.now(UTC)
)


class HeadDrafts:
    """Drafts the checkpoint that comes after the head of a run."""

    def __init__(self, clock: Clock, ids: Ids, user: str | None = None) -> None:
        self._clock = clock
        self._ids = ids
        self._user = user

    def after(self, at: Position, **facts: Any) -> CheckpointDraft:
        """Return the next checkpoint; by default the same nodes come next as after the head."""
        head = at.head
        known = {"next_nodes": head.next_nodes, "joins": head.joins, **facts}
        known["created_by"] = facts.get("created_by") or self._user
        return evolve(
            _DRAFT,
            id=CheckpointId(self._ids.new()),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            parent_id=head.id,
            step=head.step + 1,
            agent=head.agent,
            file_commit=head.file_commit,
            created_at=self._clock.now(),
            **known,
        )

    def beside(self, at: Position, **facts: Any) -> CheckpointDraft:
        """Return a checkpoint of the current position: inside the same node if the head is inside one."""
        head = at.head
        inside = {"node": head.node, "visit": head.visit, "node_run_id": head.node_run_id} if head.is_inside else {}
        return self.after(at, **facts, **inside)


def edit_of(change: StateDelta) -> str:
    """Return a description of a person's change, for `wtb history`."""
    return f"edited {', '.join(sorted(change.changes))}"


def move_head(uow: UnitOfWork, at: Position, head: Checkpoint) -> Position:
    """Make a new checkpoint the head of the branch. A request to pause or stop stays for the next step."""
    execution = at.execution.stepped(head.created_at)
    uow.executions.advance(execution, token=at.token, move=HeadMove(at.branch.id, head.id, at.head.id))
    return Position(execution=execution, branch=at.branch.moved(head.id), head=head)
