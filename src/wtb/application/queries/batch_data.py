"""BatchOverview: the results of a batch as `wtb batch show --json` prints them, for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wtb.application.queries.limits import LimitView
from wtb.domain.batch import Batch, Job, JobStatus
from wtb.domain.execution import Execution
from wtb.domain.job_attempt import WorkerName
from wtb.domain.spending import Spent

if TYPE_CHECKING:  # numpy and scipy take half a second to load
    from wtb.domain.statistics.comparisons import NeededCases, Summary
    from wtb.domain.statistics.effects import VariantEffects
    from wtb.domain.statistics.intervals import Interval
    from wtb.domain.statistics.verdicts import Verdict


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """One combination: its summary on each metric and on `failed`, and its verdicts against the baseline."""

    combination: str
    is_baseline: bool
    summaries: Mapping[str, Summary]
    verdicts: Mapping[str, Verdict]

    def to_data(self) -> dict[str, Any]:
        """Return the row for programs."""
        return {
            "combination": self.combination,
            "is_baseline": self.is_baseline,
            "metrics": {name: _summary_data(summary) for name, summary in self.summaries.items()},
            "verdicts": {name: verdict_data(verdict) for name, verdict in self.verdicts.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """A job that failed, with its error in one line."""

    combination: str
    case_id: str
    repeat: int
    error: str
    run_id: str | None

    def to_data(self) -> dict[str, Any]:
        """Return the failure for programs."""
        return {
            "combination": self.combination,
            "case": self.case_id,
            "repeat": self.repeat,
            "error": self.error,
            "run": self.run_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorFailures:
    """How many runs an evaluator failed to score, with the first error and its run."""

    evaluator: str
    failed: int
    error: str | None
    run_id: str | None

    def to_data(self) -> dict[str, Any]:
        """Return the failures for programs."""
        return {"evaluator": self.evaluator, "failed": self.failed, "error": self.error, "run": self.run_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that a process is running now."""

    combination: str
    case_id: str
    repeat: int
    run_id: str
    process: WorkerName
    started: datetime

    def to_data(self) -> dict[str, Any]:
        """Return the job for programs."""
        return {
            "combination": self.combination,
            "case": self.case_id,
            "repeat": self.repeat,
            "worker": self.process.pid,
            "host": self.process.host,
            "started": self.started.isoformat(),
            "run": self.run_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LostDriver:
    """The process that ran a batch and does so no longer: when it was last heard of, and how this is known."""

    process: WorkerName
    seen_at: datetime
    reason: str
    """It `is gone`, `no longer runs it`, or `has been silent`."""

    def __str__(self) -> str:
        return (
            f"its process {self.process.pid} on {self.process.host} {self.reason}, last heard of at "
            f"{self.seen_at:%Y-%m-%d %H:%M:%S} UTC"
        )

    def to_data(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "worker": self.process.pid,
            "host": self.process.host,
            "reason": self.reason,
            "seen": self.seen_at.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatusView:
    """How far a batch has come, and what runs right now."""

    batch: Batch
    completed: int
    failed: int
    running: tuple[RunningJob, ...]
    lost_workers: int
    dead: int
    """How many of the failed jobs were given up because they lost their worker too often."""
    spent: Spent
    limits: tuple[LimitView, ...] = ()
    lost_driver: LostDriver | None = None
    """If the batch has paused: the process that ran it."""

    @property
    def left(self) -> int:
        """How many jobs have not ended, including those that run."""
        return self.batch.record.jobs - self.completed - self.failed

    def to_data(self) -> dict[str, Any]:
        """Return the status for programs."""
        return {
            "batch": self.batch.id,
            "name": self.batch.name,
            "status": self.batch.status.value,
            "lost_driver": None if self.lost_driver is None else self.lost_driver.to_data(),
            "runner": self.batch.record.runner,
            "workers": self.batch.record.workers,
            "jobs": {
                "total": self.batch.record.jobs,
                "completed": self.completed,
                "failed": self.failed,
                "dead": self.dead,
                "left": self.left,
            },
            "running": [job.to_data() for job in self.running],
            "lost_workers": self.lost_workers,
            "limits": [limit.to_data() for limit in self.limits],
            "spent": self.spent.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOverview:
    """The results of a batch, as far as it has run."""

    batch: Batch
    primary: str
    notes: Sequence[str]
    completed: int
    failed: int
    sharing: Mapping[str, Any]
    spent: Spent
    measured_apart: Mapping[str, str]
    unpriced: Sequence[str]
    matrix: Sequence[MatrixRow]
    failures: Sequence[JobFailure]
    evaluator_failures: Sequence[EvaluatorFailures]
    not_taken_back: Sequence[JobFailure]
    """The runs whose external calls should have been taken back and were not."""
    tags: Mapping[str, Any]
    """The means on the primary metric by tag and combination; exploratory."""
    flaky: Sequence[Mapping[str, Any]]

    @property
    def jobs(self) -> dict[str, int]:
        """How many jobs the batch has, and how many completed, failed or have no result yet."""
        total = self.batch.record.jobs
        missing = total - self.completed - self.failed
        return {"total": total, "completed": self.completed, "failed": self.failed, "missing": missing}

    def to_data(self) -> dict[str, Any]:
        """Return the overview for programs."""
        return {
            "batch": self.batch.id,
            "name": self.batch.name,
            "status": self.batch.status.value,
            "baseline": self.batch.record.baseline,
            "primary": self.primary,
            "clusters": dict(self.batch.record.clusters),
            "notes": list(self.notes),
            "jobs": self.jobs,
            "node_runs": dict(self.sharing),
            "spent": self.spent.to_dict(),
            "measured_apart": dict(self.measured_apart),
            "unpriced": list(self.unpriced),
            "matrix": [row.to_data() for row in self.matrix],
            "exploratory_means_by_tag": dict(self.tags),
            "flaky": list(self.flaky),
            "failures": [failure.to_data() for failure in self.failures],
            "evaluation_failures": [failures.to_data() for failures in self.evaluator_failures],
            "not_taken_back": [failure.to_data() for failure in self.not_taken_back],
        }


def batch_status(
    batch: Batch,
    jobs: Sequence[Job],
    alive: Sequence[Execution],
    limits: tuple[LimitView, ...] = (),
    lost_driver: LostDriver | None = None,
) -> BatchStatusView:
    """Return the status of a batch, given its jobs, the runs that living processes are working on, and its limits."""
    record = batch.record
    combinations, cases = set(record.combinations), set(record.cases)
    wanted = [job for job in jobs if job.combination in combinations and job.case_id in cases]
    by_run = {job.execution_id: job for job in wanted if job.status is JobStatus.PENDING}
    return BatchStatusView(
        batch=batch,
        completed=sum(job.status is JobStatus.COMPLETED for job in wanted),
        failed=sum(job.status is JobStatus.FAILED for job in wanted),
        running=tuple(_running(by_run[run.id], run) for run in alive if run.id in by_run),
        lost_workers=sum(len(job.record.lost_workers) for job in wanted),
        dead=sum(job.record.is_dead for job in wanted),
        spent=sum((job.spent for job in jobs), Spent(s=batch.spent_s)),
        limits=limits,
        lost_driver=lost_driver,
    )


def _running(job: Job, run: Execution) -> RunningJob:
    assert run.lease is not None
    return RunningJob(
        combination=job.combination,
        case_id=job.case_id,
        repeat=job.repeat,
        run_id=run.id,
        process=WorkerName(run.lease.owner),
        started=run.created_at,
    )


def _summary_data(summary: Summary) -> dict[str, Any]:
    return {
        "mean": summary.mean,
        "interval": interval_data(summary.interval),
        "method": summary.method.value,
        "cases": summary.cases,
        "clusters": summary.clusters,
        "scored_runs": summary.scored,
        "errors": summary.errors,
        "missing": summary.missing,
    }


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict and its comparison for programs."""
    comparison = verdict.comparison
    return {
        "finding": verdict.finding.value,
        "reason": verdict.reason,
        "difference": comparison.difference,
        "interval": interval_data(comparison.interval),
        "p_value": comparison.p_value,
        "adjusted_p": verdict.adjusted_p,
        "wins": comparison.wins,
        "ties": comparison.ties,
        "losses": comparison.losses,
        "cases": comparison.pairs,
        "dropped": comparison.dropped,
        "decided_by_failures": comparison.decided_by_failures,
        "effect_size_by_case": comparison.effect_size,
        "needed_cases": needed_cases_data(verdict.needed_cases),
        "family": {
            "is_primary": verdict.family.is_primary,
            "metrics": list(verdict.family.metrics),
            "comparisons": verdict.family.comparisons,
        },
    }


def effects_data(found: VariantEffects) -> list[dict[str, Any]]:
    """Return the effects of variants on a metric for programs; effects that cannot be told apart have no figures."""
    known = [
        {
            **_effect_place(found, effect.factors),
            "difference": effect.difference,
            "interval": interval_data(effect.interval),
            "p_value": effect.p_value,
            "shown": effect.is_shown,
            "units": effect.units,
            "confounded_with": [],
        }
        for effect in (*found.ranked, *found.interactions)
    ]
    nothing = {"difference": None, "interval": None, "p_value": None, "shown": False, "units": 0}
    refused = [
        {**_effect_place(found, each.factors), **nothing, "confounded_with": list(each.with_)}
        for each in found.confounded
    ]
    return [*known, *refused]


def _effect_place(found: VariantEffects, factors: Sequence[tuple[str, str]]) -> dict[str, Any]:
    variants = [{"node": node, "variant": variant} for node, variant in factors]
    return {"metric": found.metric.name, "variants": variants}


def needed_cases_data(found: NeededCases | None) -> Mapping[str, int | None] | None:
    """Return a range of case counts for programs."""
    return None if found is None else {"low": found.low, "about": found.about, "high": found.high}


def interval_data(found: Interval | None) -> Mapping[str, float] | None:
    """Return an interval for programs."""
    return None if found is None else {"low": found.low, "high": found.high}
