"""SqlBatchRepository and SqlNodeCacheRepository: batch tests, and the node runs that they share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from wtb.domain.batch import Baseline, Batch, BatchStatus, CacheEntry, CacheStatus, Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.errors import BaselineNotFound, BatchNotFound, DamagedData
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import JobRecord
from wtb.domain.ports import Codec
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.seals import sealed, unsealed
from wtb.infrastructure.timestamps import from_us, to_us

_US = 1_000_000
_BATCH = "id, name, workflow_name, status, plan, created_at_us, updated_at_us, spent_us"
_JOB = "batch_id, number, combination, case_id, repeat, fingerprint, status, execution_id, result"
_BASELINE = "name, batch_id, combination, created_at_us"


class SqlBatchRepository:
    """Batches, jobs and baselines."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def save(self, batch: Batch) -> None:
        statement = (
            f"INSERT INTO wtb_batches ({_BATCH}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "status = excluded.status, plan = excluded.plan, updated_at_us = excluded.updated_at_us"
        )
        plan = json_text(batch.record.to_data(), f"the record of batch {batch.name!r}")
        times = (to_us(batch.created_at), to_us(batch.updated_at), round(batch.spent_s * _US))
        self._transaction.run(statement, (batch.id, batch.name, batch.workflow_name, batch.status.value, plan, *times))
        self.took(batch.id, batch.spent_s)

    def took(self, batch_id: str, spent_s: float) -> None:
        spent_us = round(spent_s * _US)
        statement = "UPDATE wtb_batches SET spent_us = ? WHERE id = ? AND spent_us < ?"
        self._transaction.run(statement, (spent_us, batch_id, spent_us))

    def get(self, batch_id: str) -> Batch:
        row = self._transaction.row(f"SELECT {_BATCH} FROM wtb_batches WHERE id = ?", (batch_id,))
        if row is None:
            raise BatchNotFound(batch_id)
        return _batch(row)

    def list_batches(self, *, name: str | None = None, limit: int = 100) -> tuple[Batch, ...]:
        where, values = ("", ()) if name is None else (" WHERE name = ?", (name,))
        statement = f"SELECT {_BATCH} FROM wtb_batches{where} ORDER BY created_at_us DESC, id DESC LIMIT ?"
        return tuple(_batch(row) for row in self._transaction.rows(statement, (*values, limit)))

    def save_jobs(self, jobs: Sequence[Job]) -> None:
        statement = (
            f"INSERT INTO wtb_batch_jobs ({_JOB}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (batch_id, number) DO "
            "UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status, "
            "execution_id = excluded.execution_id, result = excluded.result"
        )
        for job in jobs:
            result = json_text(job.record.to_data(), f"the result of {job.combination} on {job.case_id}")
            where = (job.batch_id, job.number, job.combination, job.case_id, job.repeat)
            self._transaction.run(statement, (*where, job.fingerprint, job.status.value, job.execution_id, result))

    def list_jobs(self, batch_id: str) -> tuple[Job, ...]:
        statement = f"SELECT {_JOB} FROM wtb_batch_jobs WHERE batch_id = ? ORDER BY number"
        return tuple(_job(row) for row in self._transaction.rows(statement, (batch_id,)))

    def get_job(self, batch_id: str, number: int) -> Job:
        statement = f"SELECT {_JOB} FROM wtb_batch_jobs WHERE batch_id = ? AND number = ?"
        row = self._transaction.row(statement, (batch_id, number))
        if row is None:
            raise BatchNotFound(f"{batch_id}#{number}")
        return _job(row)

    def delete(self, batch_id: str) -> None:
        self._transaction.run("DELETE FROM wtb_batch_jobs WHERE batch_id = ?", (batch_id,))
        self._transaction.run("DELETE FROM wtb_batches WHERE id = ?", (batch_id,))

    def lock(self, name: str) -> None:
        self._transaction.lock(f"batch {name}")

    def save_baseline(self, baseline: Baseline) -> None:
        statement = (
            f"INSERT INTO wtb_baselines ({_BASELINE}) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET batch_id = excluded.batch_id, combination = excluded.combination, "
            "created_at_us = excluded.created_at_us"
        )
        row = (baseline.name, baseline.batch_id, baseline.combination, to_us(baseline.created_at))
        self._transaction.run(statement, row)

    def get_baseline(self, name: str) -> Baseline:
        row = self._transaction.row(f"SELECT {_BASELINE} FROM wtb_baselines WHERE name = ?", (name,))
        if row is None:
            raise BaselineNotFound(name)
        return _baseline(row)

    def list_baselines(self) -> tuple[Baseline, ...]:
        found = map(_baseline, self._transaction.rows(f"SELECT {_BASELINE} FROM wtb_baselines", ()))
        return tuple(sorted(found, key=lambda baseline: baseline.name))  # databases differ in how they order texts

    def delete_baseline(self, name: str) -> None:
        self._transaction.run("DELETE FROM wtb_baselines WHERE name = ?", (name,))


@mapping("batch")
def _batch(row: Any) -> Batch:
    return Batch(
        id=row[0],
        name=row[1],
        workflow_name=row[2],
        status=BatchStatus(row[3]),
        record=BatchRecord.from_data(json.loads(row[4])),
        created_at=from_us(row[5]),
        updated_at=from_us(row[6]),
        spent_s=row[7] / _US,
    )


@mapping("job of batch")
def _job(row: Any) -> Job:
    return Job(
        batch_id=row[0],
        number=row[1],
        combination=row[2],
        case_id=row[3],
        repeat=row[4],
        fingerprint=row[5],
        status=JobStatus(row[6]),
        execution_id=None if row[7] is None else ExecutionId(row[7]),
        record=JobRecord.from_data(json.loads(row[8])),
    )


@mapping("baseline")
def _baseline(row: Any) -> Baseline:
    return Baseline(name=row[0], batch_id=row[1], combination=row[2], created_at=from_us(row[3]))


_ENTRY = "key, status, owner, attempt, expires_at_us, value"


class SqlNodeCacheRepository:
    """Shared node runs by their key."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def find(self, key: bytes) -> CacheEntry | None:
        row = self._transaction.row(f"SELECT {_ENTRY} FROM wtb_node_cache WHERE key = ?", (key,))
        return None if row is None else self._entry(row)

    def claim(self, entry: CacheEntry, *, instead_of: CacheEntry | None = None) -> bool:
        row = (entry.key, entry.status.value, entry.owner, entry.attempt, to_us(entry.expires_at), None)
        if instead_of is None:
            statement = f"INSERT INTO wtb_node_cache ({_ENTRY}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
            return self._transaction.change(statement, row) == 1
        statement = (
            "UPDATE wtb_node_cache SET status = ?, owner = ?, attempt = ?, expires_at_us = ?, value = ? "
            "WHERE key = ? AND owner = ? AND attempt = ? AND status = ?"
        )
        was = (instead_of.owner, instead_of.attempt, instead_of.status.value)
        return self._transaction.change(statement, (*row[1:], entry.key, *was)) == 1

    def settle(self, entry: CacheEntry) -> bool:
        value = None
        if entry.value is not None:
            result, _ = self._codec.encode(dict(entry.value), "the result of a node")
            value = sealed(self._codec, (entry.key,), result)
        statement = (
            "UPDATE wtb_node_cache SET status = ?, expires_at_us = ?, value = ? "
            "WHERE key = ? AND owner = ? AND attempt = ? AND status = 'running'"
        )
        row = (entry.status.value, to_us(entry.expires_at), value, entry.key, entry.owner, entry.attempt)
        return self._transaction.change(statement, row) == 1

    def release(self, key: bytes, owner: str) -> None:
        statement = "DELETE FROM wtb_node_cache WHERE key = ? AND owner = ? AND status = 'running'"
        self._transaction.run(statement, (key, owner))

    def renew(self, owner: str, expires_at: datetime) -> None:
        statement = "UPDATE wtb_node_cache SET expires_at_us = ? WHERE owner = ? AND status = 'running'"
        self._transaction.run(statement, (to_us(expires_at), owner))

    def _value(self, key: bytes, stored: Any) -> Any:
        """Return a shared result; None when it is damaged: it can be made again."""
        try:
            return self._codec.decode(unsealed(self._codec, (key,), stored, "a shared result"))
        except DamagedData:
            return None

    def _entry(self, row: Any) -> CacheEntry:
        return CacheEntry(
            key=bytes(row[0]),
            status=CacheStatus(row[1]),
            owner=row[2],
            attempt=row[3],
            expires_at=from_us(row[4]),
            value=None if row[5] is None else self._value(bytes(row[0]), row[5]),
        )
