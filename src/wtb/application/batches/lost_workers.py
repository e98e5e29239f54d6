"""Decides what happens to a job whose worker was lost, or was ended because the job exceeded a limit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime

from wtb.application.runs.run_figures import measured_runs
from wtb.domain.batch import Job, JobStatus
from wtb.domain.errors import ExecutionNotFound
from wtb.domain.execution import Failure
from wtb.domain.ids import ExecutionId
from wtb.domain.job_attempt import MOST_LOST_WORKERS, AttemptEnd, JobAttempt
from wtb.domain.job_record import WORKER_LOST
from wtb.domain.ports import UnitOfWork
from wtb.domain.runner import JobLost, JobOverLimit
from wtb.domain.spending import Spent


def with_lost_worker(uow: UnitOfWork, job: Job, report: JobLost, now: datetime) -> Job:
    """Return a job with one more lost worker. If it has lost too many, it has failed, as a dead letter."""
    lost = JobAttempt(
        worker=report.worker,
        end=AttemptEnd.LOST,
        started=_started(uow, job),
        ended=now,
        reason=report.reason,
        ray=report.ray,
    )
    job = job.noted(attempts=(*job.record.attempts, lost))
    return job if len(job.record.lost_workers) < MOST_LOST_WORKERS else _dead(uow, job)


def over_limit(uow: UnitOfWork, job: Job, report: JobOverLimit, now: datetime) -> Job:
    """Return a job that failed because it took too long or too much memory."""
    attempt = JobAttempt(
        worker=report.worker,
        end=AttemptEnd.FAILED,
        started=_started(uow, job),
        ended=now,
        reason=f"was ended: the job {report.limit.happened}",
        ray=report.ray,
    )
    job = job.noted(attempts=(*job.record.attempts, attempt))
    nodes = _next_nodes(uow, job)
    where = f",{_where(nodes)}" if nodes is not None else ""
    error = Failure(
        type=report.limit.kind.value,
        message=f"the job {report.limit.happened}{where}, and its worker was ended. {report.limit.advice}",
        node=nodes[0] if nodes and len(nodes) == 1 else None,
    )
    return _given_up(uow, job, error)


def _where(nodes: tuple[str, ...] | None) -> str:
    """Say what a job was doing; a run that has no more nodes was being scored."""
    if nodes is None:
        return ""
    return f" while it ran {' and '.join(f'node `{node}`' for node in nodes)}" if nodes else " while its evaluators ran"


def _dead(uow: UnitOfWork, job: Job) -> Job:
    nodes = _next_nodes(uow, job)
    ends = "; ".join(f"process {each.pid} on {each.host} {each.reason}" for each in job.record.lost_workers)
    advice = "; SIGKILL often means that the machine ran out of memory" if "SIGKILL" in ends else ""
    error = Failure(
        type=WORKER_LOST,
        message=(
            f"the job lost its worker {len(job.record.lost_workers)} times{_where(nodes)} and is not tried again: "
            f"{ends}{advice}. Run the batch again to try it once more"
        ),
        node=nodes[0] if nodes and len(nodes) == 1 else None,
    )
    return _given_up(uow, job, error)


def _given_up(uow: UnitOfWork, job: Job, error: Failure) -> Job:
    """Return a failed job, with what its unfinished run has spent and called."""
    spent, external, in_doubt = Spent(), Counter[str](), False
    if job.execution_id is not None:
        runs = measured_runs(uow, job.execution_id)
        spent = sum((Spent.of(run.figures.spent.totals()) for run in runs if run.figures is not None), Spent())
        calls = uow.tool_calls.list_calls(job.execution_id)
        external = Counter(call.tool for call in calls if call.may_have_happened)
        in_doubt = any(call.is_in_doubt for call in calls)
    record = replace(
        job.record, error=error, spent=job.spent + spent, external=dict(external), waits=spent if in_doubt else None
    )
    return job.ended(JobStatus.FAILED, job.execution_id, record)


def _started(uow: UnitOfWork, job: Job) -> datetime | None:
    """Return when the run of a job began; None if it did not begin."""
    if job.execution_id is None:
        return None
    try:
        return uow.executions.get(job.execution_id).created_at
    except ExecutionNotFound:
        return None


def _next_nodes(uow: UnitOfWork, job: Job) -> tuple[str, ...] | None:
    """Return the nodes that the run of a job had to run next; None if the run had not begun."""
    if job.execution_id is None:
        return None
    try:
        branch = uow.branches.get(uow.executions.get(ExecutionId(job.execution_id)).branch_id)
    except ExecutionNotFound:
        return None
    return None if branch.head_id is None else tuple(dict.fromkeys(uow.checkpoints.get(branch.head_id).next_nodes))
