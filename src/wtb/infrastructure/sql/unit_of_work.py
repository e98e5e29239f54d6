"""SqlStorage and SqlUnitOfWork: one transaction over all tables."""

from __future__ import annotations

from datetime import datetime

from wtb.domain.ports import Clock, Codec, EventBus
from wtb.infrastructure.sql.batches import SqlBatchRepository, SqlNodeCacheRepository
from wtb.infrastructure.sql.checkpoint_rows import SqlCheckpointRows
from wtb.infrastructure.sql.database import Database, Transaction
from wtb.infrastructure.sql.event_log import SqlEventLog, StreamEnds
from wtb.infrastructure.sql.file_commits import SqlFileCommitRows
from wtb.infrastructure.sql.node_runs import SqlNodeRunRepository
from wtb.infrastructure.sql.pending_writes import SqlPendingWriteRepository
from wtb.infrastructure.sql.repositories import SqlBranchRepository, SqlExecutionRepository, SqlWorkflowRepository
from wtb.infrastructure.sql.rollbacks import SqlRollbackRepository
from wtb.infrastructure.sql.tool_calls import SqlToolCallRepository
from wtb.infrastructure.sql.upkeep_rows import SqlUpkeepRows
from wtb.infrastructure.unit_of_work import StorageParts, TransactionalUnitOfWork


class SqlStorage(StorageParts):
    """Everything in one database."""

    def __init__(self, database: Database, *, codec: Codec, clock: Clock, bus: EventBus) -> None:
        super().__init__(codec=codec, clock=clock, bus=bus)
        self.database = database
        self.stream_ends = StreamEnds()

    def unit_of_work(self, *, readonly: bool = False) -> SqlUnitOfWork:
        return SqlUnitOfWork(self, readonly=readonly)

    def close(self) -> None:
        self.database.close()


class SqlUnitOfWork(TransactionalUnitOfWork):
    """A transaction of the database."""

    workflows: SqlWorkflowRepository
    executions: SqlExecutionRepository
    branches: SqlBranchRepository
    node_runs: SqlNodeRunRepository
    tool_calls: SqlToolCallRepository
    rollbacks: SqlRollbackRepository
    batches: SqlBatchRepository
    cache: SqlNodeCacheRepository
    writes: SqlPendingWriteRepository
    events: SqlEventLog

    def __init__(self, storage: SqlStorage, *, readonly: bool) -> None:
        super().__init__(storage.bus, readonly=readonly)
        self._storage = storage

    def now(self) -> datetime:
        return self._storage.database.now(self._sql) or self._storage.clock.now()

    def upkeep_rows(self) -> SqlUpkeepRows:
        """Return all rows as they are in this transaction."""
        return SqlUpkeepRows(self._sql)

    def _begin(self, *, readonly: bool) -> Transaction:
        transaction = self._sql = self._storage.database.begin(readonly=readonly)
        self.workflows = SqlWorkflowRepository(transaction)
        self.executions = SqlExecutionRepository(transaction)
        self.branches = SqlBranchRepository(transaction)
        self.node_runs = SqlNodeRunRepository(transaction, self._storage.codec)
        self.tool_calls = SqlToolCallRepository(transaction, self._storage.codec)
        self.rollbacks = SqlRollbackRepository(transaction)
        self.batches = SqlBatchRepository(transaction)
        self.cache = SqlNodeCacheRepository(transaction, self._storage.codec)
        self.events = self._log = SqlEventLog(transaction, self._storage.codec, self._storage.stream_ends)
        rows = SqlCheckpointRows(transaction)
        self.writes = SqlPendingWriteRepository(transaction, self._storage.codec, rows)
        self.checkpoints = self._storage.checkpoint_store(rows, self.executions, self.branches, self.node_runs)
        self.files = self._storage.file_commits(SqlFileCommitRows(transaction), rows)
        return transaction

    def commit(self) -> None:
        super().commit()
        self.events.keep_ends()
