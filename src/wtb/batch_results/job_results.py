"""JobResult: the result of one job, and the failures among many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from wtb.application.evaluation_engine import error_of
from wtb.application.queries.batch_data import EvaluatorFailures, JobFailure
from wtb.domain.batch import JobStatus
from wtb.domain.errors import InvalidInput
from wtb.domain.job_attempt import JobAttempt, RayIds

if TYPE_CHECKING:
    from wtb.batch_results.result import BatchResult
    from wtb.batch_results.source import ResultSource
    from wtb.runs import Run


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The result of one combination on one case."""

    combination: str
    case_id: str
    repeat: int
    status: str
    scores: Mapping[str, Any]
    error: Mapping[str, Any] | None
    run_id: str | None
    latency_s: float | None
    usage: Mapping[str, float]
    output: str | None
    """The answer as text, masked; only the first characters of a very long one. None if the job failed."""
    output_size: int
    """How many characters the whole answer has."""
    not_taken_back: Mapping[str, str]
    """The runs whose external calls should have been taken back and were not, each with the reason.

    These are the run of this job, and runs that were given up before it.
    """
    attempts: tuple[JobAttempt, ...] = ()
    """Each attempt at the job: worker, host, started, ended and how it ended. Empty for jobs of earlier versions."""
    is_dead: bool = False
    """Whether the job was given up because it lost its worker too often."""
    bench: ResultSource = field(repr=False, compare=False)

    @property
    def run(self) -> Run:
        """The run of this job, for example to look at its history or to fork it."""
        if self.run_id is None:
            raise InvalidInput(f"{self.combination} on {self.case_id} has no run: it failed before it began")
        return self.bench.get(self.run_id)

    @property
    def worker(self) -> str | None:
        """The number of the process that made the last attempt."""
        return self.attempts[-1].pid if self.attempts else None

    @property
    def host(self) -> str | None:
        """The machine of the last attempt."""
        return self.attempts[-1].host if self.attempts else None

    @property
    def ray(self) -> RayIds | None:
        """Ray's ids of the last attempt, if it was made on Ray."""
        return self.attempts[-1].ray if self.attempts else None

    @property
    def started(self) -> datetime | None:
        """When the last attempt started."""
        return self.attempts[-1].started if self.attempts else None

    @property
    def ended(self) -> datetime | None:
        """When the last attempt ended."""
        return self.attempts[-1].ended if self.attempts else None

    @property
    def state(self) -> dict[str, Any]:
        """The final state of the run."""
        return self.run.state


@dataclass(frozen=True, kw_only=True)
class CaseText:
    """A case as people read it."""

    input: str | None
    """None for batches of earlier versions."""
    expected: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FlakyCase:
    """A case on which the repeats of one combination disagree, with the metrics and the runs."""

    case_id: str
    combination: str
    metrics: tuple[str, ...]
    runs: tuple[str, ...]
    bench: ResultSource = field(repr=False, compare=False)

    @cached_property
    def node(self) -> str | None:
        """The first node after which the states of the runs differ; None if the runs are gone, or do not differ."""
        return self.bench.services.queries.first_difference(self.runs)

    def to_data(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "case": self.case_id,
            "combination": self.combination,
            "metrics": list(self.metrics),
            "node": self.node,
            "runs": list(self.runs),
        }


def failed_jobs(result: BatchResult) -> list[JobResult]:
    """Return the jobs that failed."""
    return [job for job in result.results if job.status == JobStatus.FAILED]


def unscored_jobs(result: BatchResult) -> dict[str, list[JobResult]]:
    """Return, for each evaluator that failed, the jobs that it could not score."""
    found = {
        metric: [job for job in result.results if error_of(job.scores.get(metric)) is not None]
        for metric in result.batch.record.metric_names
    }
    return {metric: jobs for metric, jobs in found.items() if jobs}


def error_line(job: JobResult) -> str:
    """Return the error of a failed job in one line; empty if it did not fail."""
    return "" if job.error is None else f"{job.error.get('type')}: {job.error.get('message')}"


def failure_of(job: JobResult) -> JobFailure:
    return JobFailure(
        combination=job.combination,
        case_id=job.case_id,
        repeat=job.repeat,
        error=error_line(job),
        run_id=job.run_id,
    )


def evaluator_failures(metric: str, jobs: Sequence[JobResult]) -> EvaluatorFailures:
    first = jobs[0]
    return EvaluatorFailures(
        evaluator=metric, failed=len(jobs), error=error_of(first.scores[metric]), run_id=first.run_id
    )


def reason_of(job: JobResult) -> str | None:
    """Return why a job failed, or why evaluators gave it no score."""
    if job.error is not None:
        return error_line(job)
    return "; ".join(why for score in job.scores.values() if (why := error_of(score))) or None


def number_of(score: Any) -> float | None:
    return None if error_of(score) else score
