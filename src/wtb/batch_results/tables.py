"""Rows of results for files and tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wtb.batch_results.job_results import CaseText, JobResult, number_of, reason_of

_FORMULA = tuple("=+-@\t\r\n")
"""A spreadsheet treats a cell that begins with one of these as a formula."""


def row_of(job: JobResult, texts: CaseText, metrics: Iterable[str], failed: Mapping[str, int]) -> dict[str, Any]:
    """Return the result of a job as a flat row; `failed` is the column of failures, if there is one."""
    return {
        "combination": job.combination,
        "case": job.case_id,
        "repeat": job.repeat,
        "status": job.status,
        "input": texts.input,
        "expected": texts.expected,
        "output": job.output,
        **{name: number_of(job.scores.get(name)) for name in metrics},
        **failed,
        "latency_s": job.latency_s,
        "error": reason_of(job),
        "run": job.run_id,
        "worker": job.worker,
        "host": job.host,
        "started": None if job.started is None else job.started.isoformat(),
        "ended": None if job.ended is None else job.ended.isoformat(),
        "attempts": len(job.attempts),
        **({} if job.ray is None else {"ray_actor": job.ray.actor, "ray_task": job.ray.task}),
    }


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as CSV; a column that only some of them have is empty in the others."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(map(_cell, columns))
        writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula; numbers, also as text, stay as they are."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
