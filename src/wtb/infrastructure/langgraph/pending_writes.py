"""PendingWriteRepository: the port that the LangGraph adapter adds to a storage.

WTB's own runs have no pending writes, so `UnitOfWork` does not know them. A unit of work that serves LangGraph has one
more property, `pending_writes`. Deletions need no call here: a storage removes the writes with the rows they belong to.

Storages import this module without LangGraph installed, so it imports nothing of LangGraph's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from wtb.domain.errors import InvalidInput
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import UnitOfWork


class PendingWrite(NamedTuple):
    """What a task wrote to a channel after a checkpoint, stored before the next checkpoint includes it.

    A task writes once at each number. Negative numbers may be written again: an error, an interrupt, an answer. `path`
    is the task's place in its superstep; LangGraph applies writes in that order.
    """

    execution_id: ExecutionId
    checkpoint_id: CheckpointId
    task_id: str
    number: int
    path: str
    channel: str
    value: Any
    created_at: datetime


class PendingWriteRepository(Protocol):
    """The pending writes of executions; values come back with their types.

    A storage deletes them by itself: all with their execution, those after a checkpoint with that checkpoint, and those
    after the checkpoint that a rollback returns to (`BranchRepository.rewind`).
    """

    def add(self, writes: Sequence[PendingWrite]) -> None:
        """Store writes. When a task writes a number again, the first write stays; at a negative number the last does.

        This also holds among the writes of one call.
        """
        ...

    def list_writes(
        self, execution_ids: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId] | None = None
    ) -> tuple[PendingWrite, ...]:
        """Return the writes of these executions, all or those after these checkpoints, by path, task and number."""
        ...

    def copy(
        self, sources: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId], execution_id: ExecutionId
    ) -> None:
        """Copy the writes after these checkpoints to another execution; a write that it has already stays."""
        ...

    def delete(self, execution_id: ExecutionId, checkpoint_ids: Collection[CheckpointId] | None = None) -> None:
        """Delete the writes of an execution, all or those after these checkpoints."""
        ...


class HasPendingWrites(Protocol):
    """A unit of work that stores pending writes too, in the same transaction."""

    @property
    def pending_writes(self) -> PendingWriteRepository:
        """Pending writes."""
        ...


def pending_writes_of(uow: UnitOfWork | HasPendingWrites) -> PendingWriteRepository:
    """Return the pending writes of a unit of work; InvalidInput when its storage has none."""
    # Not isinstance: checking a protocol costs more than the look-up, and a graph writes at every step.
    found: PendingWriteRepository | None = getattr(uow, "pending_writes", None)
    if found is None:
        raise InvalidInput(
            f"{type(uow).__name__} has no pending_writes, so its storage cannot hold LangGraph threads; "
            "use memory://, SQLite or Postgres, or add the property (see docs/backends.md)"
        )
    return found
