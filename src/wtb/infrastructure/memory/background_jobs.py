"""MemoryBackgroundJobRepository: background jobs in a dictionary."""

from __future__ import annotations

from wtb.domain.background import BackgroundJob
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryBackgroundJobRepository:
    """Background jobs inside one transaction; only one transaction at a time writes, so a lock is not needed."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def lock(self, name: str) -> BackgroundJob | None:
        found: BackgroundJob | None = self._transaction.find("background_jobs", name)
        return found

    def save(self, job: BackgroundJob) -> None:
        self._transaction.put("background_jobs", job.name, job)

    def list_jobs(self) -> tuple[BackgroundJob, ...]:
        return tuple(sorted(self._transaction.all("background_jobs"), key=lambda job: job.name))
