"""Storage: transactions over all repositories, and the pages, counts and sums that the database computes."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.figures import Usage
from wtb.domain.ids import CheckpointId, ExecutionId, WorkflowId
from wtb.domain.ports.batches import (
    BaselineRepository,
    BatchRepository,
    NodeCacheRepository,
    ObservationRepository,
)
from wtb.domain.ports.events import EventLog
from wtb.domain.ports.files import FileCommitRepository
from wtb.domain.ports.runs import (
    BranchRepository,
    CheckpointStore,
    EvaluationRepository,
    ExecutionRepository,
    NodeRunRepository,
    RollbackRepository,
    ToolCallRepository,
    WorkflowRepository,
)


class CheckpointCounts(NamedTuple):
    """The checkpoints of a run on all its lines, without deleted ones, and how many of them are restore points."""

    checkpoints: int
    restore_points: int


class WorkflowUse(NamedTuple):
    """The runs of one definition of a workflow: how many there are, and when the first and the last were created."""

    name: str
    version: str | None
    workflow_id: WorkflowId
    runs: int
    first_at: datetime
    last_at: datetime


class Pages(Protocol):
    """Pages, counts and sums that the database computes, so that nobody has to read a whole long run.

    Checkpoints come without states, oldest first, deleted ones included, verified as in CheckpointStore.
    """

    def list_line(self, head_id: CheckpointId, *, upto: int | None = None, limit: int) -> tuple[Checkpoint, ...]:
        """Return the last checkpoints of the line that ends with this one, through other runs if it is a fork.

        With `upto` those after that step are left out.
        """
        ...

    def list_checkpoints(
        self, execution_id: ExecutionId, *, before: tuple[int, CheckpointId] | None = None, limit: int
    ) -> tuple[Checkpoint, ...]:
        """Return the last checkpoints that a run has made on whichever line, by step and then id.

        With `before`, a step and an id, those from there on are left out.
        """
        ...

    def count_checkpoints(self, execution_id: ExecutionId) -> CheckpointCounts:
        """Count the checkpoints of a run."""
        ...

    def sum_line(self, head_id: CheckpointId) -> Usage | None:
        """Return what the completed node runs of a line used; None if one has no stored figures."""
        ...

    def sum_spent(self, execution_id: ExecutionId) -> Usage | None:
        """Return what all node runs of a run used in all attempts; None if a completed one has no stored figures."""
        ...

    def list_workflows(self) -> tuple[WorkflowUse, ...]:
        """Return the definitions that runs used, by name and then by their last run, oldest first."""
        ...


class UnitOfWork(Protocol):
    """One transaction over everything: enter it with `with`; `commit` keeps it, leaving without a commit undoes it.

    Others see nothing of it before the commit. One that was opened as read-only cannot commit, and sees one moment:
    that of its first look. It belongs to one thread, and is used once: after the commit, or outside the block, every
    use raises InvalidInput. A write that a rule refuses leaves the unit usable; one that the database refuses does not.
    """

    @property
    def workflows(self) -> WorkflowRepository:
        """Workflow definitions."""
        ...

    @property
    def executions(self) -> ExecutionRepository:
        """Executions."""
        ...

    @property
    def branches(self) -> BranchRepository:
        """Branches."""
        ...

    @property
    def node_runs(self) -> NodeRunRepository:
        """Node runs and boundaries."""
        ...

    @property
    def checkpoints(self) -> CheckpointStore:
        """Checkpoints and their states."""
        ...

    @property
    def tool_calls(self) -> ToolCallRepository:
        """Recorded calls of tools."""
        ...

    @property
    def rollbacks(self) -> RollbackRepository:
        """Journals of rollbacks."""
        ...

    @property
    def evaluations(self) -> EvaluationRepository:
        """Scores of single runs."""
        ...

    @property
    def batches(self) -> BatchRepository:
        """Batch tests."""
        ...

    @property
    def baselines(self) -> BaselineRepository:
        """Baselines and their results."""
        ...

    @property
    def cache(self) -> NodeCacheRepository:
        """Shared node runs."""
        ...

    @property
    def observations(self) -> ObservationRepository:
        """What runs read."""
        ...

    @property
    def events(self) -> EventLog:
        """The log of events."""
        ...

    @property
    def files(self) -> FileCommitRepository:
        """File commits."""
        ...

    @property
    def pages(self) -> Pages:
        """Pages, counts and sums."""
        ...

    def now(self) -> datetime:
        """Return the time that leases go by: the database's, if several machines share it."""
        ...

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undo what was not committed."""
        ...

    def commit(self) -> None:
        """Keep everything, then hand the recorded events to the bus."""
        ...


class Storage(Protocol):
    """The place where everything is stored; gives units of work. Writers wait for each other, readers for nobody."""

    def unit_of_work(self, *, readonly: bool = False) -> UnitOfWork:
        """Return a new unit of work, not yet begun."""
        ...

    def close(self) -> None:
        """Give back connections and files; the storage must not be used afterwards."""
        ...
