"""Tells whether a batch that is stored as running still runs: its driver may be gone, or silent."""

from __future__ import annotations

from dataclasses import dataclass

from wtb.application.batch_driving import is_driven_here
from wtb.application.queries.batch_data import LostDriver
from wtb.application.queries.runs import RunReader
from wtb.domain.batch import Batch, BatchStatus
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.job_attempt import WorkerName
from wtb.domain.ports import UnitOfWork
from wtb.domain.values import evolve

_MOST_BUSY = 1_000
"""The most running runs that the status of a batch looks at."""


@dataclass(frozen=True, slots=True)
class DrivenBatches:
    """Reads batches with the status that they really have."""

    runs: RunReader

    def seen(self, uow: UnitOfWork, batch: Batch) -> Batch:
        """Return a batch as paused if nobody runs it any more."""
        return self.lost_driver(uow, batch)[0]

    def lost_driver(self, uow: UnitOfWork, batch: Batch) -> tuple[Batch, LostDriver | None]:
        """Return a batch, and if nobody runs it any more: as paused, with the process that ran it."""
        lost = self._left(uow, batch)
        if lost is None or self.busy_runs(uow, batch, lost):
            return batch, None
        return evolve(batch, status=BatchStatus.PAUSED), lost

    def busy_runs(self, uow: UnitOfWork, batch: Batch, lost: LostDriver | None) -> list[Execution]:
        """Return the runs of a batch that living processes are working on; those of a lost driver do not count."""
        busy = uow.executions.list_executions(statuses=[ExecutionStatus.RUNNING], batch=batch.id, limit=_MOST_BUSY)
        left = None if lost is None else lost.process.name
        return [
            run
            for run in busy
            if run.lease is not None and run.lease.owner != left and self.runs.row(uow, run).neglect is None
        ]

    def _left(self, uow: UnitOfWork, batch: Batch) -> LostDriver | None:
        """Return the driver of a batch if it is gone or silent; others may still run jobs of the batch."""
        driver = batch.driver
        if batch.status is not BatchStatus.RUNNING or driver is None:
            return None
        owners = self.runs.owners
        if driver.owner == owners.me():
            reason = None if is_driven_here(batch.id) else "no longer runs it"
        elif owners.is_gone(driver.owner):
            reason = "is gone"
        else:
            reason = "has been silent" if driver.is_silent(uow.now()) else None
        return (
            None
            if reason is None
            else LostDriver(process=WorkerName(driver.owner), seen_at=driver.seen_at, reason=reason)
        )
