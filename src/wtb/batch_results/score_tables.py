"""ScoreTables: the scores of a batch's jobs, one table for each metric; `overall` and `failed` are metrics, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from wtb.application.evaluation_engine import error_of
from wtb.domain.batch import Batch, Job, JobStatus, bool_metrics
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import FAILED, OVERALL, Absent, Metric, Score, ScoreTable, overall


class ScoreTables:
    """Makes each table when it is first asked for."""

    def __init__(self, batch: Batch, jobs: Sequence[Job]) -> None:
        self._record = batch.record
        self._jobs = jobs
        self._tables: dict[str, ScoreTable] = {}

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name; with weights, also `overall`."""
        declared = self._record.metrics
        found = {each.name: each.of_bools() if each.name in self._bools else each for each in declared}
        return {**found, OVERALL.name: OVERALL} if self._record.weights else found

    @cached_property
    def _bools(self) -> frozenset[str]:
        """The metrics whose scores are all true or false: their worst is 0 and their best is 1."""
        return bool_metrics(self._jobs, self._record.bools)

    @property
    def shown_metrics(self) -> dict[str, Metric]:
        """The metrics to show: all of them, and the share of failed runs if any run failed."""
        return {**self.metrics, **({FAILED.name: FAILED} if any(self.failed) else {})}

    @property
    def all_metrics(self) -> dict[str, Metric]:
        """The metrics, and the share of failed runs."""
        return {**self.metrics, FAILED.name: self.metrics.get(FAILED.name, FAILED)}

    @cached_property
    def failed(self) -> list[bool]:
        """Whether each job failed, or an evaluator could not score it."""
        metrics = self.metrics
        return [_has_failed(job, metrics) for job in self._jobs]

    @cached_property
    def overall(self) -> ScoreTable | None:
        """The overall score of each run; None without weights."""
        weights = dict(self._record.weights)
        return overall([self.table(name) for name in weights], weights) if weights else None

    def table(self, metric: str) -> ScoreTable:
        """Return all scores on one metric, by combination and case, one per repeat."""
        if metric not in self.all_metrics:
            raise InvalidInput(f"there is no metric {metric!r}; this batch has {', '.join(self.all_metrics)}")
        if metric == OVERALL.name and self.overall is not None:
            return self.overall
        if metric not in self._tables:
            self._tables[metric] = self._table(metric)
        return self._tables[metric]

    def _table(self, metric: str) -> ScoreTable:
        record, metrics = self._record, self.metrics
        scores: dict[str, dict[str, list[Score]]] = {
            name: {case: [Absent.MISSING] * record.repeats for case in record.cases} for name in record.combinations
        }
        for job, failed in zip(self._jobs, self.failed, strict=True):
            if job.outcome is not JobStatus.PENDING:
                score = _score(job, metric) if metric in metrics else float(failed)
                scores[job.combination][job.case_id][job.repeat] = score
        return ScoreTable(metric=self.all_metrics[metric], combinations=scores, clusters=dict(record.clusters))


def _score(job: Job, metric: str) -> Score:
    score = (job.record.scores or {}).get(metric)
    if score is None and job.has_run and job.status is JobStatus.PENDING:
        return Absent.MISSING  # it is not scored yet
    return Absent.ERROR if score is None or error_of(score) else float(score)


def _has_failed(job: Job, metrics: Iterable[str]) -> bool:
    """Whether the run failed, or an evaluator could not score it."""
    if job.outcome is JobStatus.PENDING:
        return False
    measured = [metric for metric in metrics if metric != OVERALL.name]
    return job.outcome is JobStatus.FAILED or any(_score(job, metric) is Absent.ERROR for metric in measured)
