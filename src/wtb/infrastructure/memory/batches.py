"""MemoryBatchRepository and MemoryNodeCacheRepository: batch tests in dictionaries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from wtb.domain.batch import Batch, BatchDriver, CacheEntry, CacheStatus, Job
from wtb.domain.batch_record import BatchRecord
from wtb.domain.errors import BatchNotFound
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import JobRecord
from wtb.domain.ports import Codec
from wtb.domain.values import evolve
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryBatchRepository:
    """Batches and jobs."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def save(self, batch: Batch) -> None:
        record = stored_record(batch.record, f"batch {batch.name!r}")
        known: Batch | None = self._transaction.find("batches", batch.id)
        spent_s = batch.spent_s if known is None else max(batch.spent_s, known.spent_s)
        driver = None if known is None else known.driver
        self._transaction.put("batches", batch.id, evolve(batch, record=record, spent_s=spent_s, driver=driver))

    def took(self, batch_id: str, spent_s: float) -> None:
        known: Batch | None = self._transaction.find("batches", batch_id)
        if known is not None and known.spent_s < spent_s:
            self._transaction.put("batches", batch_id, evolve(known, spent_s=spent_s))

    def note_driver(self, batch_id: str, driver: BatchDriver) -> None:
        known: Batch | None = self._transaction.find("batches", batch_id)
        if known is not None:
            self._transaction.put("batches", batch_id, evolve(known, driver=driver))

    def get(self, batch_id: str) -> Batch:
        found: Batch | None = self._transaction.find("batches", batch_id)
        if found is None:
            raise BatchNotFound(batch_id)
        return found

    def list_batches(
        self, *, name: str | None = None, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> tuple[Batch, ...]:
        found = [
            batch
            for batch in self._transaction.all("batches")
            if name in (None, batch.name) and (before is None or (batch.created_at, batch.id) < before)
        ]
        return tuple(sorted(found, key=lambda batch: (batch.created_at, batch.id), reverse=True)[:limit])

    def save_jobs(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._transaction.put("batch_jobs", (job.batch_id, job.number), stored_job(job))

    def list_jobs(self, batch_id: str) -> tuple[Job, ...]:
        return tuple(sorted(self._transaction.group("batch_jobs", 0, batch_id), key=lambda job: job.number))

    def digest_jobs(self, batch_id: str) -> bytes | None:
        return hashlib.sha256(repr(self.list_jobs(batch_id)).encode("utf-8", "surrogatepass")).digest()

    def get_job(self, batch_id: str, number: int) -> Job:
        found: Job | None = self._transaction.find("batch_jobs", (batch_id, number))
        if found is None:
            raise BatchNotFound(f"{batch_id}#{number}")
        return found

    def find_job(self, batch_id: str, execution_id: ExecutionId) -> Job | None:
        return next((job for job in self.list_jobs(batch_id) if job.execution_id == execution_id), None)

    def delete(self, batch_id: str) -> None:
        for job in self.list_jobs(batch_id):
            self._transaction.drop("batch_jobs", (batch_id, job.number))
        if self._transaction.find("batches", batch_id) is not None:
            self._transaction.drop("batches", batch_id)

    def lock(self, name: str) -> None:
        """Nothing to do: one transaction at a time writes."""


def stored_job(job: Job) -> Job:
    """Return a job that shares nothing with the caller's."""
    text = json_text(job.record.to_data(), f"the result of {job.combination} on {job.case_id}")
    return evolve(job, record=JobRecord.from_data(json.loads(text)))


def stored_record(record: BatchRecord, what: str) -> BatchRecord:
    """Return a record that shares nothing with the caller's."""
    return BatchRecord.from_data(json.loads(json_text(record.to_data(), f"the record of {what}")))


class MemoryNodeCacheRepository:
    """Shared node runs by their key; values are stored encoded, so that they cannot change afterwards."""

    def __init__(self, transaction: MemoryTransaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def find(self, key: bytes) -> CacheEntry | None:
        found = self._transaction.find("node_cache", key)
        if found is None:
            return None
        entry: CacheEntry = found[0]
        return entry if found[1] is None else replace(entry, value=self._codec.decode(found[1]))

    def claim(self, entry: CacheEntry, *, instead_of: CacheEntry | None = None) -> bool:
        found = self.find(entry.key)
        if found is not None and (instead_of is None or _differs(found, instead_of)):
            return False
        if found is None and instead_of is not None:
            return False
        self._transaction.put("node_cache", entry.key, (entry, None))
        return True

    def settle(self, entry: CacheEntry) -> bool:
        found = self.find(entry.key)
        if found is None or _differs(found, replace(entry, status=CacheStatus.RUNNING)):
            return False
        value = None if entry.value is None else self._codec.encode(dict(entry.value), "the result of a node")[0]
        self._transaction.put("node_cache", entry.key, (replace(entry, value=None), value))
        return True

    def release(self, key: bytes, owner: str) -> None:
        found = self.find(key)
        if found is not None and found.status is CacheStatus.RUNNING and found.owner == owner:
            self._transaction.drop("node_cache", key)

    def renew(self, owner: str, expires_at: datetime) -> None:
        for entry, _ in list(self._transaction.all("node_cache")):
            if entry.owner == owner and entry.status is CacheStatus.RUNNING:
                self._transaction.put("node_cache", entry.key, (evolve(entry, expires_at=expires_at), None))


def _differs(found: CacheEntry, expected: CacheEntry) -> bool:
    return (found.owner, found.attempt, found.status) != (expected.owner, expected.attempt, expected.status)
