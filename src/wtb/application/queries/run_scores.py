"""Read the scores of a run: those of the batch that made it, and those that it got by itself."""

from __future__ import annotations

from collections.abc import Iterator

from wtb.domain.batch import Batch, Job
from wtb.domain.errors import BatchNotFound, DamagedData
from wtb.domain.execution import Execution
from wtb.domain.ids import CheckpointId
from wtb.domain.job_origin import JobOrigin
from wtb.domain.ports import UnitOfWork
from wtb.domain.run_scores import RunScore, RunScores


def scores_of(uow: UnitOfWork, execution: Execution) -> RunScores:
    """Return all scores of a run. A batch keeps its scores with its jobs, so they are read from there."""
    return RunScores((*_batch_scores(uow, execution), *uow.evaluations.list_scores(execution.id)))


def _batch_scores(uow: UnitOfWork, execution: Execution) -> Iterator[RunScore]:
    origin = JobOrigin.find(execution.metadata)
    if origin is None or origin.is_fork:
        return
    try:
        job, batch = uow.batches.find_job(origin.batch_id, execution.id), uow.batches.get(origin.batch_id)
    except (BatchNotFound, DamagedData):  # a deleted or damaged batch does not hide the run
        return
    if job is not None:
        yield from _job_scores(job, batch, execution)


def _job_scores(job: Job, batch: Batch, execution: Execution) -> Iterator[RunScore]:
    record = job.record
    scores = {**record.numbers, **{name: bool(record.numbers[name]) for name in record.bools if name in record.numbers}}
    errors = record.score_errors
    given = record.scores or {}
    in_order = dict.fromkeys((*batch.record.metric_names, *sorted(given)))
    for metric in (name for name in in_order if name in given):
        yield RunScore(
            id=f"{job.batch_id}/{job.number}/{metric}",
            execution_id=execution.id,
            checkpoint_id=None if record.checkpoint is None else CheckpointId(record.checkpoint),
            metric=metric,
            fingerprint=record.scored_by.get(metric, ""),
            score=scores.get(metric),
            error=errors.get(metric),
            created_by=execution.created_by,
            created_at=record.attempts[-1].ended if record.attempts else batch.updated_at,
            batch_id=job.batch_id,
        )
