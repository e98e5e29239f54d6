"""Storage: transactions over all repositories, and the pages, counts and sums that the database computes."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self, Unpack

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.execution import ExecutionStatus
from wtb.domain.figures import Usage
from wtb.domain.ids import CheckpointId, ExecutionId, WorkflowId
from wtb.domain.ports.audit import AuditTrail
from wtb.domain.ports.background import BackgroundJobRepository
from wtb.domain.ports.batches import (
    BaselineRepository,
    BatchRepository,
    NodeCacheRepository,
    ObservationRepository,
)
from wtb.domain.ports.events import EventFeed, EventLog
from wtb.domain.ports.files import FileCommitRepository
from wtb.domain.ports.limits import LimitRepository
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
from wtb.domain.ports.server import CommandRepository, SignInRepository, TokenRepository
from wtb.domain.ports.webhooks import DeliveryRepository, WebhookRepository
from wtb.domain.run_filters import RunFilters


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
    """Pages, counts and sums that the database computes, so that readers need not load a whole long run.

    Checkpoints come without states, oldest first, deleted ones included, verified as in CheckpointStore.
    """

    def list_line(self, head_id: CheckpointId, *, upto: int | None = None, limit: int) -> tuple[Checkpoint, ...]:
        """Return the last checkpoints of the line that ends with this one; a fork's line continues in other runs.

        With `upto`, checkpoints after that step are left out.
        """
        ...

    def list_checkpoints(
        self, execution_id: ExecutionId, *, before: tuple[int, CheckpointId] | None = None, limit: int
    ) -> tuple[Checkpoint, ...]:
        """Return the last checkpoints that a run has made on any line, by step and then id.

        With `before`, a step and an id, checkpoints from there on are left out.
        """
        ...

    def count_checkpoints(self, execution_id: ExecutionId) -> CheckpointCounts:
        """Count the checkpoints of a run."""
        ...

    def sum_line(self, head_id: CheckpointId) -> Usage | None:
        """Return the usage of a line's completed node runs; None if one has no stored figures."""
        ...

    def sum_spent(self, execution_id: ExecutionId) -> Usage | None:
        """Return the usage of all attempts of a run's node runs; None if a completed one has no stored figures."""
        ...

    def count_runs(self, **filters: Unpack[RunFilters]) -> dict[ExecutionStatus, int]:
        """Count the runs that fit all filters, by status; a status without runs is left out."""
        ...

    def list_workflows(self) -> tuple[WorkflowUse, ...]:
        """Return the definitions that runs used, by name and then by their last run, oldest first."""
        ...


class UnitOfWork(Protocol):
    """One transaction over everything. Enter it with `with`; leaving the block without `commit` undoes it.

    Others see nothing of it before the commit. A read-only unit cannot commit, and sees the data as of its first read.
    A unit belongs to one thread, and is used once: after the commit, or outside the block, every use raises
    InvalidInput. The unit stays usable after one of our rules refuses a write, but not after the database refuses one.
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
        """Observations of what runs read."""
        ...

    @property
    def limits(self) -> LimitRepository:
        """Limits of concurrent calls, and the slots that processes hold."""
        ...

    @property
    def background_jobs(self) -> BackgroundJobRepository:
        """What servers do in the background."""
        ...

    @property
    def webhooks(self) -> WebhookRepository:
        """Webhooks."""
        ...

    @property
    def deliveries(self) -> DeliveryRepository:
        """Events on their way to webhooks."""
        ...

    @property
    def tokens(self) -> TokenRepository:
        """Tokens of a server."""
        ...

    @property
    def sign_ins(self) -> SignInRepository:
        """One-time links of a server, and the sessions of browsers."""
        ...

    @property
    def commands(self) -> CommandRepository:
        """Commands that servers have accepted."""
        ...

    @property
    def events(self) -> EventLog:
        """The log of events."""
        ...

    @property
    def feed(self) -> EventFeed:
        """All events, for readers that follow them."""
        ...

    @property
    def audit(self) -> AuditTrail:
        """All events and calls of tools, for those who look into what happened."""
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
        """Return the time for leases: the database's time, if several machines share the database."""
        ...

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undo everything that was not committed."""
        ...

    def commit(self) -> None:
        """Keep everything, then hand the recorded events to the bus."""
        ...


class Storage(Protocol):
    """The place where everything is stored; opens units of work. Writers wait for each other; readers never wait."""

    def unit_of_work(self, *, readonly: bool = False) -> UnitOfWork:
        """Return a new unit of work, not yet begun."""
        ...

    def close(self) -> None:
        """Close connections and files; the storage must not be used afterwards."""
        ...
