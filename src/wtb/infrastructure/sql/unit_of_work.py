"""SqlStorage and SqlUnitOfWork: one transaction over all tables."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from wtb.domain.ports import NO_TELEMETRY, Clock, Codec, EventBus, Measure, Telemetry, measured
from wtb.infrastructure.checkpoints.store import DeltaCheckpointStore, HistorySources
from wtb.infrastructure.files.commits import DeltaFileCommits
from wtb.infrastructure.sql.access import SqlSignInRepository, SqlTokenRepository
from wtb.infrastructure.sql.audit import SqlAuditTrail
from wtb.infrastructure.sql.background_jobs import SqlBackgroundJobRepository
from wtb.infrastructure.sql.baselines import SqlBaselineRepository
from wtb.infrastructure.sql.batches import SqlBatchRepository, SqlNodeCacheRepository
from wtb.infrastructure.sql.checkpoint_rows import SqlCheckpointRows
from wtb.infrastructure.sql.commands import SqlCommandRepository
from wtb.infrastructure.sql.database import Database, Transaction
from wtb.infrastructure.sql.evaluations import SqlEvaluationRepository
from wtb.infrastructure.sql.event_feed import SqlEventFeed, event_feed
from wtb.infrastructure.sql.event_log import SqlEventLog, StreamEnds
from wtb.infrastructure.sql.file_commits import SqlFileCommitRows
from wtb.infrastructure.sql.limits import SqlLimitRepository
from wtb.infrastructure.sql.node_runs import SqlNodeRunRepository
from wtb.infrastructure.sql.observations import SqlObservationRepository
from wtb.infrastructure.sql.pages import SqlPages
from wtb.infrastructure.sql.pending_writes import SqlPendingWriteRepository
from wtb.infrastructure.sql.repositories import SqlBranchRepository, SqlExecutionRepository, SqlWorkflowRepository
from wtb.infrastructure.sql.rollbacks import SqlRollbackRepository
from wtb.infrastructure.sql.tool_calls import SqlToolCallRepository
from wtb.infrastructure.sql.upkeep_rows import SqlUpkeepRows
from wtb.infrastructure.sql.webhooks import SqlDeliveryRepository, SqlWebhookRepository
from wtb.infrastructure.unit_of_work import StorageParts, TransactionalUnitOfWork, lazy


class SqlStorage(StorageParts):
    """Everything in one database."""

    def __init__(
        self, database: Database, *, codec: Codec, clock: Clock, bus: EventBus, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        super().__init__(codec=codec, clock=clock, bus=bus)
        self.database = database
        self.telemetry = telemetry
        self.stream_ends = StreamEnds()

    def unit_of_work(self, *, readonly: bool = False) -> SqlUnitOfWork:
        return SqlUnitOfWork(self, readonly=readonly)

    def close(self) -> None:
        self.database.retire()


class SqlUnitOfWork(TransactionalUnitOfWork):
    """A transaction of the database; each repository is created when it is first used, because a step uses few."""

    def __init__(self, storage: SqlStorage, *, readonly: bool) -> None:
        super().__init__(storage.bus, readonly=readonly)
        self._storage = storage

    @lazy
    def workflows(self) -> SqlWorkflowRepository:
        return SqlWorkflowRepository(self._sql)

    @lazy
    def executions(self) -> SqlExecutionRepository:
        return SqlExecutionRepository(self._sql)

    @lazy
    def branches(self) -> SqlBranchRepository:
        return SqlBranchRepository(self._sql)

    @lazy
    def node_runs(self) -> SqlNodeRunRepository:
        return SqlNodeRunRepository(self._sql, self._storage.codec)

    @lazy
    def tool_calls(self) -> SqlToolCallRepository:
        return SqlToolCallRepository(self._sql, self._storage.codec)

    @lazy
    def rollbacks(self) -> SqlRollbackRepository:
        return SqlRollbackRepository(self._sql)

    @lazy
    def evaluations(self) -> SqlEvaluationRepository:
        return SqlEvaluationRepository(self._sql)

    @lazy
    def batches(self) -> SqlBatchRepository:
        return SqlBatchRepository(self._sql)

    @lazy
    def baselines(self) -> SqlBaselineRepository:
        return SqlBaselineRepository(self._sql)

    @lazy
    def cache(self) -> SqlNodeCacheRepository:
        return SqlNodeCacheRepository(self._sql, self._storage.codec)

    @lazy
    def observations(self) -> SqlObservationRepository:
        return SqlObservationRepository(self._sql)

    @lazy
    def limits(self) -> SqlLimitRepository:
        return SqlLimitRepository(self._sql)

    @lazy
    def background_jobs(self) -> SqlBackgroundJobRepository:
        return SqlBackgroundJobRepository(self._sql)

    @lazy
    def webhooks(self) -> SqlWebhookRepository:
        return SqlWebhookRepository(self._sql)

    @lazy
    def deliveries(self) -> SqlDeliveryRepository:
        return SqlDeliveryRepository(self._sql)

    @lazy
    def tokens(self) -> SqlTokenRepository:
        return SqlTokenRepository(self._sql)

    @lazy
    def sign_ins(self) -> SqlSignInRepository:
        return SqlSignInRepository(self._sql)

    @lazy
    def commands(self) -> SqlCommandRepository:
        return SqlCommandRepository(self._sql)

    @lazy
    def events(self) -> SqlEventLog:
        return SqlEventLog(self._sql, self._storage.codec, self._storage.stream_ends)

    @lazy
    def feed(self) -> SqlEventFeed:
        return event_feed(self._sql, self._storage.codec)

    @lazy
    def audit(self) -> SqlAuditTrail:
        return SqlAuditTrail(self._sql, self._storage.codec)

    @lazy
    def pending_writes(self) -> SqlPendingWriteRepository:
        return SqlPendingWriteRepository(self._sql, self._storage.codec, self._rows)

    @lazy
    def checkpoints(self) -> DeltaCheckpointStore:
        return self._storage.checkpoint_store(self._rows, partial(_history_sources, self._sql, self._storage.codec))

    @lazy
    def files(self) -> DeltaFileCommits:
        return self._storage.file_commits(SqlFileCommitRows(self._sql), self._rows)

    @lazy
    def pages(self) -> SqlPages:
        return SqlPages(self._sql, self._storage.codec)

    def now(self) -> datetime:
        return self._storage.database.now(self._sql) or self._storage.clock.now()

    def upkeep_rows(self) -> SqlUpkeepRows:
        """Return all rows as they are in this transaction."""
        return SqlUpkeepRows(self._sql, self._storage.codec)

    def _begin(self, *, readonly: bool) -> Transaction:
        name = "read" if readonly else "write"
        begin = measured(self._storage.telemetry, Measure.POOL, name, self._storage.database.begin)
        transaction = self._sql = begin(readonly=readonly)
        if transaction.take_turn is not None:
            transaction.take_turn = measured(self._storage.telemetry, Measure.POOL, name, transaction.take_turn)
        self._rows = SqlCheckpointRows(transaction)
        return transaction

    def _checkpoint_store(self) -> DeltaCheckpointStore:
        return self.checkpoints


def _history_sources(transaction: Transaction, codec: Codec) -> HistorySources:
    return HistorySources(
        SqlExecutionRepository(transaction),
        SqlBranchRepository(transaction),
        SqlNodeRunRepository(transaction, codec),
    )
