"""BatchTest: combinations × cases × repeats; what a job is, what came of it, and how a batch stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.ids import ExecutionId
from wtb.domain.values import evolve


class BatchStatus(StrEnum):
    """How a batch stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobStatus(StrEnum):
    """How one job stands; a failed one is counted apart and scores worst."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input with what is expected of it."""

    id: str
    input: Mapping[str, Any]
    expected: Any = None
    tags: tuple[str, ...] = ()


def cases_of(rows: Sequence[Any], where: str = "case") -> tuple[Case, ...]:
    """Read cases from plain data; every fault is named by its place and field, all at once."""
    faults: list[str] = []
    cases: list[Case] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        place = f"{where} {number}"
        if isinstance(row, Case):
            row = {"id": row.id, "input": row.input, "expected": row.expected, "tags": row.tags}  # noqa: PLW2901
        if not isinstance(row, Mapping):
            faults.append(f"{place} is {row!r}, not a mapping with id and input")
            continue
        unknown = row.keys() - {"id", "input", "expected", "tags"}
        if unknown:
            faults.append(f"{place} has the unknown field {', '.join(sorted(map(str, unknown)))}")
        case_id = row.get("id")
        if not isinstance(case_id, str) or not case_id:
            faults.append(f"{place} has no id (a text)")
            continue
        if case_id in seen:
            faults.append(f"{place} has the id {case_id!r} of {where} {seen[case_id]}")
        seen[case_id] = number
        if not isinstance(row.get("input"), Mapping):
            faults.append(f"{place} ({case_id}): input must be a mapping of keys to values")
            continue
        tags = row.get("tags") or ()
        cases.append(Case(id=case_id, input=dict(row["input"]), expected=row.get("expected"), tags=tuple(tags)))
    if not rows:
        faults.append("there are no cases")
    if faults:
        raise InvalidInput("; ".join(faults[:20]) + ("; …" if len(faults) > 20 else ""))
    return tuple(cases)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One combination on one case, once; `result` is what was measured: scores, times, usage, or the error."""

    batch_id: str
    number: int
    combination: str
    case_id: str
    repeat: int
    fingerprint: str
    status: JobStatus = JobStatus.PENDING
    execution_id: ExecutionId | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    def ended(self, status: JobStatus, execution_id: ExecutionId | None, result: Mapping[str, Any]) -> Job:
        """Return the job with what came of it."""
        return evolve(self, status=status, execution_id=execution_id, result=result)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch test; `plan` holds its combinations, cases, repeats, evaluators and baseline as plain data."""

    id: str
    name: str
    workflow_name: str
    status: BatchStatus = BatchStatus.PENDING
    plan: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime

    def moved_to(self, status: BatchStatus, now: datetime) -> Batch:
        """Return the batch in another status."""
        return evolve(self, status=status, updated_at=now)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A combination of a batch that others are held against, by a name."""

    name: str
    batch_id: str
    combination: str
    created_at: datetime


class CacheStatus(StrEnum):
    """How far a shared node run has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """The result of a node run that others may share, or who is making it."""

    key: bytes
    status: CacheStatus
    owner: str
    attempt: str
    expires_at: datetime
    value: Mapping[str, Any] | None = None
