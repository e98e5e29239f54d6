"""MemoryStorage and MemoryUnitOfWork: one transaction over dictionaries."""

from __future__ import annotations

from datetime import datetime

from wtb.domain.ports import Clock, Codec, EventBus
from wtb.infrastructure.checkpoints.store import DeltaCheckpointStore, HistorySources
from wtb.infrastructure.files.commits import DeltaFileCommits
from wtb.infrastructure.memory.access import MemorySignInRepository, MemoryTokenRepository
from wtb.infrastructure.memory.audit import MemoryAuditTrail
from wtb.infrastructure.memory.background_jobs import MemoryBackgroundJobRepository
from wtb.infrastructure.memory.baselines import MemoryBaselineRepository
from wtb.infrastructure.memory.batches import MemoryBatchRepository, MemoryNodeCacheRepository
from wtb.infrastructure.memory.checkpoint_rows import MemoryCheckpointRows
from wtb.infrastructure.memory.commands import MemoryCommandRepository
from wtb.infrastructure.memory.evaluations import MemoryEvaluationRepository
from wtb.infrastructure.memory.event_feed import MemoryEventFeed
from wtb.infrastructure.memory.file_commits import MemoryFileCommitRows
from wtb.infrastructure.memory.limits import MemoryLimitRepository
from wtb.infrastructure.memory.observations import MemoryObservationRepository
from wtb.infrastructure.memory.pages import MemoryPages
from wtb.infrastructure.memory.pending_writes import MemoryPendingWriteRepository
from wtb.infrastructure.memory.repositories import (
    MemoryBranchRepository,
    MemoryEventLog,
    MemoryExecutionRepository,
    MemoryNodeRunRepository,
    MemoryWorkflowRepository,
)
from wtb.infrastructure.memory.rollbacks import MemoryRollbackRepository
from wtb.infrastructure.memory.tables import MemoryTransaction, Table, Tables
from wtb.infrastructure.memory.tool_calls import MemoryToolCallRepository
from wtb.infrastructure.memory.upkeep_rows import MemoryUpkeepRows
from wtb.infrastructure.memory.webhooks import MemoryDeliveryRepository, MemoryWebhookRepository
from wtb.infrastructure.unit_of_work import StorageParts, TransactionalUnitOfWork


class MemoryStorage(StorageParts):
    """Everything in the memory of this process."""

    def __init__(self, *, codec: Codec, clock: Clock, bus: EventBus) -> None:
        super().__init__(codec=codec, clock=clock, bus=bus)
        self.tables = Tables(
            workflows=Table(),
            executions=Table(),
            branches=Table(lambda branch: branch.execution_id),
            checkpoints=Table(lambda stored: stored[0].execution_id, lambda stored: stored[0].parent_id),
            keyframes=Table(),
            blobs=Table(),
            file_commits=Table(),
            node_runs=Table(lambda run: run.execution_id),
            tool_calls=Table(lambda stored: stored[0].execution_id),
            rollbacks=Table(lambda rollback: rollback.execution_id),
            evaluations=Table(lambda score: score.execution_id),
            batches=Table(),
            batch_jobs=Table(lambda job: job.batch_id),
            baselines=Table(),
            node_cache=Table(),
            observations=Table(lambda row: row[0]),
            limits=Table(lambda state: state.scope),
            limit_slots=Table(lambda slot: (slot.scope, slot.name)),
            pending_writes=Table(
                lambda stored: stored[0].execution_id,
                lambda stored: (stored[0].execution_id, stored[0].checkpoint_id),
            ),
            requests=Table(),
            background_jobs=Table(),
            webhooks=Table(),
            deliveries=Table(lambda delivery: delivery.webhook_id),
            tokens=Table(),
            sign_ins=Table(),
            commands=Table(),
            accepted_requests=Table(),
            events=Table(lambda event: event.stream),
            stream_ends=Table(),
            counters=Table(),
        )

    def unit_of_work(self, *, readonly: bool = False) -> MemoryUnitOfWork:
        return MemoryUnitOfWork(self, readonly=readonly)

    def close(self) -> None:
        """Nothing to give back."""


class MemoryUnitOfWork(TransactionalUnitOfWork):
    """A transaction over dictionaries."""

    workflows: MemoryWorkflowRepository
    executions: MemoryExecutionRepository
    branches: MemoryBranchRepository
    node_runs: MemoryNodeRunRepository
    tool_calls: MemoryToolCallRepository
    rollbacks: MemoryRollbackRepository
    evaluations: MemoryEvaluationRepository
    batches: MemoryBatchRepository
    baselines: MemoryBaselineRepository
    cache: MemoryNodeCacheRepository
    observations: MemoryObservationRepository
    limits: MemoryLimitRepository
    tokens: MemoryTokenRepository
    sign_ins: MemorySignInRepository
    commands: MemoryCommandRepository
    pending_writes: MemoryPendingWriteRepository
    background_jobs: MemoryBackgroundJobRepository
    webhooks: MemoryWebhookRepository
    deliveries: MemoryDeliveryRepository
    events: MemoryEventLog
    checkpoints: DeltaCheckpointStore
    files: DeltaFileCommits
    pages: MemoryPages

    def __init__(self, storage: MemoryStorage, *, readonly: bool) -> None:
        super().__init__(storage.bus, readonly=readonly)
        self._storage = storage

    def now(self) -> datetime:
        return self._storage.clock.now()

    def upkeep_rows(self) -> MemoryUpkeepRows:
        """Return all rows as they are in this transaction."""
        return MemoryUpkeepRows(self._memory)

    def _checkpoint_store(self) -> DeltaCheckpointStore:
        return self.checkpoints

    def _begin(self, *, readonly: bool) -> MemoryTransaction:
        transaction = self._memory = MemoryTransaction(self._storage.tables, readonly=readonly)
        self.workflows = MemoryWorkflowRepository(transaction)
        self.executions = MemoryExecutionRepository(transaction)
        self.branches = MemoryBranchRepository(transaction)
        self.node_runs = MemoryNodeRunRepository(transaction, self._storage.codec)
        self.tool_calls = MemoryToolCallRepository(transaction, self._storage.codec)
        self.rollbacks = MemoryRollbackRepository(transaction)
        self.evaluations = MemoryEvaluationRepository(transaction)
        self.batches = MemoryBatchRepository(transaction)
        self.baselines = MemoryBaselineRepository(transaction)
        self.cache = MemoryNodeCacheRepository(transaction, self._storage.codec)
        self.observations = MemoryObservationRepository(transaction)
        self.limits = MemoryLimitRepository(transaction)
        self.background_jobs = MemoryBackgroundJobRepository(transaction)
        self.webhooks = MemoryWebhookRepository(transaction)
        self.deliveries = MemoryDeliveryRepository(transaction)
        self.tokens = MemoryTokenRepository(transaction)
        self.sign_ins = MemorySignInRepository(transaction)
        self.commands = MemoryCommandRepository(transaction)
        self.events = MemoryEventLog(transaction, self._storage.codec)
        self.feed = MemoryEventFeed(transaction, self._storage.codec)
        self.audit = MemoryAuditTrail(transaction, self._storage.codec)
        self.pending_writes = MemoryPendingWriteRepository(transaction, self._storage.codec)
        rows = MemoryCheckpointRows(transaction)
        sources = HistorySources(self.executions, self.branches, self.node_runs)
        self.checkpoints = self._storage.checkpoint_store(rows, lambda: sources)
        self.files = self._storage.file_commits(MemoryFileCommitRows(transaction), rows)
        self.pages = MemoryPages(transaction, rows, self._storage.codec)
        return transaction
