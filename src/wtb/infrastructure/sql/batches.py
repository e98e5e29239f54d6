"""SqlBatchRepository and SqlNodeCacheRepository: batches with their jobs, and the node runs that jobs share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from wtb.domain.batch import Batch, BatchDriver, BatchStatus, CacheEntry, CacheStatus, Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.errors import BatchNotFound, DamagedData
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import FaultKind
from wtb.domain.job_record import JobRecord
from wtb.domain.ports import Codec
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.seals import RowSeal, sealed, text_of, unsealed
from wtb.infrastructure.timestamps import from_us, to_us

_US = 1_000_000
BATCH_SEAL = RowSeal(
    kind=FaultKind.BATCH,
    table="wtb_batches",
    key=("id",),
    rest=("name", "workflow_name", "status", "plan", "created_at_us", "updated_at_us"),
)
"""Does not cover `spent_us` and the driver: the processes of a batch write them without the rest of the row."""
JOB_SEAL = RowSeal(
    kind=FaultKind.JOB,
    table="wtb_batch_jobs",
    key=("batch_id", "number"),
    rest=("combination", "case_id", "repeat", "fingerprint", "status", "execution_id", "result"),
)
_BATCH = f"{BATCH_SEAL.covered}, seal, spent_us, driver, driver_seen_at_us"
_JOB = f"{JOB_SEAL.covered}, seal"


def upsert(seal: RowSeal, *more: str) -> str:
    """Return a statement that writes all columns which the seal covers, in a new or an existing row."""
    columns = (*seal.key, *seal.rest, seal.column)
    changed = ", ".join(f"{column} = excluded.{column}" for column in (*seal.rest, seal.column))
    return (
        f"INSERT INTO {seal.table} ({', '.join((*columns, *more))}) "
        f"VALUES ({', '.join('?' * len((*columns, *more)))}) "
        f"ON CONFLICT ({', '.join(seal.key)}) DO UPDATE SET {changed}"
    )


_SAVE_BATCH = upsert(BATCH_SEAL, "spent_us")
_SAVE_JOB = upsert(JOB_SEAL)


class SqlBatchRepository:
    """Batches and jobs."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def save(self, batch: Batch) -> None:
        plan = json_text(batch.record.to_data(), f"the record of batch {batch.name!r}")
        times = (to_us(batch.created_at), to_us(batch.updated_at))
        row = (batch.id, text_of(batch.name), text_of(batch.workflow_name), batch.status.value, plan, *times)
        self._transaction.run(_SAVE_BATCH, (*row, BATCH_SEAL.of(row), round(batch.spent_s * _US)))
        self.took(batch.id, batch.spent_s)

    def took(self, batch_id: str, spent_s: float) -> None:
        spent_us = round(spent_s * _US)
        statement = "UPDATE wtb_batches SET spent_us = ? WHERE id = ? AND spent_us < ?"
        self._transaction.run(statement, (spent_us, batch_id, spent_us))

    def note_driver(self, batch_id: str, driver: BatchDriver) -> None:
        statement = "UPDATE wtb_batches SET driver = ?, driver_seen_at_us = ? WHERE id = ?"
        self._transaction.run(statement, (driver.owner, to_us(driver.seen_at), batch_id))

    def get(self, batch_id: str) -> Batch:
        row = self._transaction.row(f"SELECT {_BATCH} FROM wtb_batches WHERE id = ?", (batch_id,))
        if row is None:
            raise BatchNotFound(batch_id)
        return _batch(row)

    def list_batches(
        self, *, name: str | None = None, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> tuple[Batch, ...]:
        conditions, values = ["1 = 1"], list[Any]()
        if name is not None:
            conditions.append("name = ?")
            values.append(name)
        if before is not None:
            conditions.append("(created_at_us, id) < (?, ?)")
            values += [to_us(before[0]), before[1]]
        statement = (
            f"SELECT {_BATCH} FROM wtb_batches WHERE {' AND '.join(conditions)} "
            "ORDER BY created_at_us DESC, id DESC LIMIT ?"
        )
        return tuple(_batch(row) for row in self._transaction.rows(statement, (*values, limit)))

    def save_jobs(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            row = job_row(job)
            self._transaction.run(_SAVE_JOB, (*row, JOB_SEAL.of(row)))

    def list_jobs(self, batch_id: str) -> tuple[Job, ...]:
        statement = f"SELECT {_JOB} FROM wtb_batch_jobs WHERE batch_id = ? ORDER BY number"
        return tuple(_job(row) for row in self._transaction.rows(statement, (batch_id,)))

    def digest_jobs(self, batch_id: str) -> bytes | None:
        statement = "SELECT number, seal FROM wtb_batch_jobs WHERE batch_id = ? ORDER BY number"
        found = hashlib.sha256()
        for number, seal in self._transaction.rows(statement, (batch_id,)):
            if seal is None:  # written before rows had seals
                return None
            found.update(b"%d:%s;" % (number, bytes(seal)))
        return found.digest()

    def get_job(self, batch_id: str, number: int) -> Job:
        statement = f"SELECT {_JOB} FROM wtb_batch_jobs WHERE batch_id = ? AND number = ?"
        row = self._transaction.row(statement, (batch_id, number))
        if row is None:
            raise BatchNotFound(f"{batch_id}#{number}")
        return _job(row)

    def find_job(self, batch_id: str, execution_id: ExecutionId) -> Job | None:
        statement = f"SELECT {_JOB} FROM wtb_batch_jobs WHERE batch_id = ? AND execution_id = ?"
        row = self._transaction.row(statement, (batch_id, execution_id))
        return None if row is None else _job(row)

    def delete(self, batch_id: str) -> None:
        self._transaction.run("DELETE FROM wtb_batch_jobs WHERE batch_id = ?", (batch_id,))
        self._transaction.run("DELETE FROM wtb_batches WHERE id = ?", (batch_id,))

    def lock(self, name: str) -> None:
        self._transaction.lock(f"batch {name}")


@mapping("batch")
def _batch(row: Any) -> Batch:
    BATCH_SEAL.check(row[:7], row[7])
    return Batch(
        id=row[0],
        name=row[1],
        workflow_name=row[2],
        status=BatchStatus(row[3]),
        record=BatchRecord.from_data(json.loads(row[4])),
        created_at=from_us(row[5]),
        updated_at=from_us(row[6]),
        spent_s=row[8] / _US,
        driver=None if None in row[9:11] else BatchDriver(owner=row[9], seen_at=from_us(row[10])),
    )


@mapping("job of batch")
def _job(row: Any) -> Job:
    JOB_SEAL.check(row[:-1], row[-1])
    return job_in(row)


def job_row(job: Job) -> tuple[Any, ...]:
    """Return the values of a job's columns, in the order of the seal."""
    result = json_text(job.record.to_data(), f"the result of {job.combination} on {job.case_id}")
    where = (job.batch_id, job.number, job.combination, job.case_id, job.repeat)
    return (*where, job.fingerprint, job.status.value, job.execution_id, result)


def job_in(row: Any) -> Job:
    """Return the job in a row that has been checked."""
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


_ENTRY = "key, status, owner, attempt, expires_at_us, value"
_LEGIBLE = f"status IN ({', '.join(repr(status.value) for status in CacheStatus)})"
_CLAIM = (
    f"INSERT INTO wtb_node_cache ({_ENTRY}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
    "status = excluded.status, owner = excluded.owner, attempt = excluded.attempt, "
    "expires_at_us = excluded.expires_at_us, value = excluded.value "
    f"WHERE NOT wtb_node_cache.{_LEGIBLE}"
)
"""The first claim also wins a row with an unknown status: the row was damaged, so the result is made again."""


class SqlNodeCacheRepository:
    """Shared node runs by their key."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def find(self, key: bytes) -> CacheEntry | None:
        row = self._transaction.row(f"SELECT {_ENTRY} FROM wtb_node_cache WHERE key = ? AND {_LEGIBLE}", (key,))
        return None if row is None else self._entry(row)

    def claim(self, entry: CacheEntry, *, instead_of: CacheEntry | None = None) -> bool:
        row = (entry.key, entry.status.value, entry.owner, entry.attempt, to_us(entry.expires_at), None)
        if instead_of is None:
            return self._transaction.change(_CLAIM, row) == 1
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
            value = sealed(self._codec, (entry.key, entry.status.value), result)
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

    def _value(self, key: bytes, status: str, stored: Any) -> Any:
        """Return a shared result; None if it is damaged, because it can be made again."""
        try:
            return self._codec.decode(shared_result_in(self._codec, key, status, stored))
        except DamagedData:
            return None

    def _entry(self, row: Any) -> CacheEntry:
        return CacheEntry(
            key=bytes(row[0]),
            status=CacheStatus(row[1]),
            owner=row[2],
            attempt=row[3],
            expires_at=from_us(row[4]),
            value=None if row[5] is None else self._value(bytes(row[0]), row[1], row[5]),
        )


def shared_result_in(codec: Codec, key: bytes, status: str, stored: Any) -> bytes:
    """Return the result in a row, or raise DamagedData; seals of earlier versions do not cover the status."""
    try:
        return unsealed(codec, (key, status), stored, "a shared result")
    except DamagedData:
        return unsealed(codec, (key,), stored, "a shared result")
