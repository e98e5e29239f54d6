"""SqlBaselineRepository: baselines and their saved results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wtb.domain.batch import Baseline, Job
from wtb.domain.batch_record import BatchRecord
from wtb.domain.errors import BaselineNotFound, DamagedData
from wtb.domain.integrity import FaultKind
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.sql.batches import JOB_SEAL, job_in, job_row, upsert
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.seals import TELLS_MORE, RowSeal, text_of
from wtb.infrastructure.timestamps import from_us, to_us

BASELINE_SEAL = RowSeal(
    kind=FaultKind.BASELINE,
    table="wtb_baselines",
    key=("name",),
    rest=("batch_id", "workflow_name", "combination", "record", "results", "created_at_us"),
)
RESULT_SEAL = RowSeal(
    kind=FaultKind.BASELINE_RESULT, table="wtb_baseline_results", key=JOB_SEAL.key, rest=JOB_SEAL.rest
)
"""Covers the same columns as the seal of a job: a result has the same row as a job."""
_BASELINE = f"SELECT {BASELINE_SEAL.covered}, seal FROM wtb_baselines"
_RESULTS = f"SELECT {RESULT_SEAL.covered}, seal FROM wtb_baseline_results WHERE batch_id = ? ORDER BY number"
_SAVE_BASELINE = upsert(BASELINE_SEAL)
_SAVE_RESULT = upsert(RESULT_SEAL)
_DROP_ORPHANS = "DELETE FROM wtb_baseline_results WHERE batch_id NOT IN (SELECT batch_id FROM wtb_baselines)"
"""Finds the results of a deleted baseline even if its damaged row named another id."""


class SqlBaselineRepository:
    """Baselines by name."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def save(self, baseline: Baseline, results: Sequence[Job]) -> None:
        row = _row(baseline)
        self._transaction.run(_SAVE_BASELINE, (*row, BASELINE_SEAL.of(row)))
        self._transaction.run(_DROP_ORPHANS, ())
        for job in results:
            result = job_row(job)
            self._transaction.run(_SAVE_RESULT, (*result, RESULT_SEAL.of(result)))

    def get(self, name: str) -> Baseline:
        row = self._transaction.row(f"{_BASELINE} WHERE name = ?", (name,))
        if row is None:
            known = self._transaction.rows("SELECT name FROM wtb_baselines", ())
            raise BaselineNotFound.among(name, [each for (each,) in known])
        return _baseline(row)

    def find(self, batch_id: str) -> Baseline | None:
        row = self._transaction.row(f"{_BASELINE} WHERE batch_id = ?", (batch_id,))
        return None if row is None else _baseline(row)

    def list_baselines(self) -> tuple[Baseline, ...]:
        found = map(_baseline, self._transaction.rows(_BASELINE, ()))
        return tuple(sorted(found, key=lambda baseline: baseline.name))  # databases sort texts differently

    def list_results(self, name: str) -> tuple[Job, ...]:
        baseline = self.get(name)
        results = tuple(_result(row) for row in self._transaction.rows(_RESULTS, (baseline.batch_id,)))
        if len(results) != baseline.results:
            raise DamagedData(f"{lost_results(name, baseline.results, len(results))}{TELLS_MORE}")
        return results

    def delete(self, name: str) -> None:
        self._transaction.run("DELETE FROM wtb_baselines WHERE name = ?", (name,))
        self._transaction.run(_DROP_ORPHANS, ())


def lost_results(name: str, saved: int, found: int) -> str:
    """Say that a baseline does not have the results that were saved with it."""
    return f"baseline {name!r} is damaged: it was saved with {saved:,} results and has {found:,}"


def _row(baseline: Baseline) -> tuple[Any, ...]:
    return (
        text_of(baseline.name),
        baseline.batch_id,
        text_of(baseline.workflow_name),
        baseline.combination,
        json_text(baseline.record.to_data(), f"the record of baseline {baseline.name!r}"),
        baseline.results,
        to_us(baseline.created_at),
    )


@mapping("baseline")
def _baseline(row: Any) -> Baseline:
    BASELINE_SEAL.check(row[:-1], row[-1])
    return Baseline(
        name=row[0],
        batch_id=row[1],
        workflow_name=row[2],
        combination=row[3],
        record=BatchRecord.from_data(json.loads(row[4])),
        results=row[5],
        created_at=from_us(row[6]),
    )


@mapping("result of baseline")
def _result(row: Any) -> Job:
    RESULT_SEAL.check(row[:-1], row[-1])
    return job_in(row)
