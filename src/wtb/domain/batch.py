"""Batch and Job: combinations × cases × repeats, the result of each job, and the status of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wtb.domain.batch_record import BatchRecord
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import NOTHING_YET, JobRecord
from wtb.domain.spending import Spent
from wtb.domain.values import evolve


class BatchStatus(StrEnum):
    """The status of a batch."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    """The process that ran it is gone or silent. Such a process cannot store this, so whoever reads finds it out."""
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobStatus(StrEnum):
    """The status of a job; failed jobs are counted separately and score worst."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one combination on one case; `record` is its result: scores, times, usage, or the error."""

    batch_id: str
    number: int
    combination: str
    case_id: str
    repeat: int
    fingerprint: str
    status: JobStatus = JobStatus.PENDING
    execution_id: ExecutionId | None = None
    record: JobRecord = NOTHING_YET

    @property
    def spent(self) -> Spent:
        """What it has spent, over all its runs."""
        return self.record.spent

    @property
    def has_run(self) -> bool:
        """Whether its run has finished, so that only scores can be missing."""
        return self.record.scores is not None

    @property
    def outcome(self) -> JobStatus:
        """Its status for readers of results: a job that is queued again keeps its status until it has run.

        A failed job stays failed, and a job that only waits for scores counts as run; both may be stopped on the way.
        """
        if self.status is not JobStatus.PENDING:
            return self.status
        if self.record.error is not None:
            return JobStatus.FAILED
        return JobStatus.COMPLETED if self.has_run else JobStatus.PENDING

    @property
    def has_calls_left(self) -> bool:
        """Whether it has external calls that should be taken back but are, or may be, still in effect."""
        return bool(self.record.take_back)

    def taking_back(self) -> Job:
        """Return the job with a note that the external calls of its run must be taken back."""
        if self.execution_id is None or self.execution_id in self.record.take_back:
            return self
        return self.noted(take_back={**self.record.take_back, self.execution_id: ""})

    def ended(self, status: JobStatus, execution_id: ExecutionId | None, record: JobRecord) -> Job:
        """Return the job with its result."""
        return evolve(self, status=status, execution_id=execution_id, record=record)

    def noted(self, **changes: Any) -> Job:
        """Return the job with a record that differs in these fields."""
        return evolve(self, record=replace(self.record, **changes))


def end_of(jobs: Sequence[Job], metrics: Iterable[str]) -> BatchStatus:
    """Return the status of a batch whose jobs have all ended.

    Errors are failed jobs, failed evaluators, and calls that could not be taken back.
    """
    wanted = set(metrics)

    def has_error(job: Job) -> bool:
        return job.status is JobStatus.FAILED or job.has_calls_left or bool(wanted & job.record.score_errors.keys())

    return BatchStatus.COMPLETED_WITH_ERRORS if any(map(has_error, jobs)) else BatchStatus.COMPLETED


def bool_metrics(jobs: Iterable[Job], earlier: Iterable[str]) -> frozenset[str]:
    """Return the metrics whose scores are all true or false; without scores, a metric counts as it did `earlier`."""
    bools: set[str] = set()
    others: set[str] = set()
    for job in jobs:
        own, numbers = set(job.record.bools), job.record.numbers.keys()
        bools |= numbers & own
        others |= numbers - own
    return frozenset({*bools, *earlier} - others)


SILENT_AFTER = timedelta(seconds=30)
"""How long the driver of a batch may be silent before the batch counts as paused. It reports every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDriver:
    """The process that runs a batch, and when it last reported, by the store's clock."""

    owner: str
    seen_at: datetime

    def is_silent(self, now: datetime) -> bool:
        """Whether it has not reported for so long that it has probably ended, or lost the database."""
        return now - self.seen_at > SILENT_AFTER


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch; `record` holds its plan and the notes of its runs.

    `spent_s` is its elapsed time, over all its runs. `driver` is the process that last ran it.
    """

    id: str
    name: str
    workflow_name: str
    status: BatchStatus = BatchStatus.PENDING
    record: BatchRecord
    created_at: datetime
    updated_at: datetime
    spent_s: float = 0.0
    driver: BatchDriver | None = None

    def moved_to(self, status: BatchStatus, now: datetime) -> Batch:
        """Return the batch in another status."""
        return evolve(self, status=status, updated_at=now)

    def noted(self, **changes: Any) -> Batch:
        """Return the batch with a record that differs in these fields."""
        return evolve(self, record=replace(self.record, **changes))


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A saved combination of a batch, by name, that later batches are compared with.

    Its results are copies of jobs. They carry `batch_id`, which is the baseline's own: no batch has this id.
    """

    name: str
    batch_id: str
    workflow_name: str
    combination: str
    record: BatchRecord
    results: int
    """How many results were saved, so that a lost one is noticed."""
    created_at: datetime

    def as_batch(self, results: Sequence[Job]) -> Batch:
        """Return a batch of only these results, for comparisons; it is not stored."""
        return Batch(
            id=self.batch_id,
            name=f"baseline/{self.name}",
            workflow_name=self.workflow_name,
            status=end_of(results, self.record.metric_names),
            record=self.record,
            created_at=self.created_at,
            updated_at=self.created_at,
        )


class CacheStatus(StrEnum):
    """The status of a shared node run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """The result of a node run that others may share, or the process that is making it."""

    key: bytes
    status: CacheStatus
    owner: str
    attempt: str
    expires_at: datetime
    value: Mapping[str, Any] | None = None
