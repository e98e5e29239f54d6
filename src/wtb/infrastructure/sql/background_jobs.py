"""SqlBackgroundJobRepository: the table of background jobs.

The rows carry no seal: a run replaces most of a row, and damage to it passes with the next run.
"""

from __future__ import annotations

import json
from typing import Any

from wtb.domain.background import BackgroundJob
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.timestamps import from_us, from_us_or_none, to_us, to_us_or_none

_COLUMNS = (
    "name, registered_at_us, owner, token, expires_at_us, requested_by, last_started_at_us, last_ended_at_us, "
    "last_error, figures, notes"
)
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[1:])
_SAVE = (
    f"INSERT INTO wtb_background_jobs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    f"ON CONFLICT (name) DO UPDATE SET {_CHANGED}"
)
_ALL = f"SELECT {_COLUMNS} FROM wtb_background_jobs"


class SqlBackgroundJobRepository:
    """Background jobs inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def lock(self, name: str) -> BackgroundJob | None:
        self._transaction.lock(f"background job {name}")
        row = self._transaction.row(f"{_ALL} WHERE name = ?", (name,))
        return None if row is None else _job(row)

    def save(self, job: BackgroundJob) -> None:
        last = (to_us_or_none(job.last_started_at), to_us_or_none(job.last_ended_at), job.last_error)
        texts = (json_text(dict(job.figures), "figures"), json_text(dict(job.notes), "notes"))
        lease = (job.owner, job.token, to_us_or_none(job.expires_at), job.requested_by)
        self._transaction.run(_SAVE, (job.name, to_us(job.registered_at), *lease, *last, *texts))

    def list_jobs(self) -> tuple[BackgroundJob, ...]:
        found = map(_job, self._transaction.rows(_ALL))
        return tuple(sorted(found, key=lambda job: job.name))  # databases sort texts in different ways


@mapping("background job")
def _job(row: Any) -> BackgroundJob:
    return BackgroundJob(
        name=row[0],
        registered_at=from_us(row[1]),
        owner=row[2],
        token=int(row[3]),
        expires_at=from_us_or_none(row[4]),
        requested_by=row[5],
        last_started_at=from_us_or_none(row[6]),
        last_ended_at=from_us_or_none(row[7]),
        last_error=row[8],
        figures=json.loads(row[9]),
        notes=json.loads(row[10]),
    )
