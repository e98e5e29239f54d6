"""BatchResult: what a batch found, by combination, case and metric, and how two batches compare."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.application.evaluation_engine import error_of
from wtb.domain.batch import Batch, Job, JobStatus, Spent, bool_metrics
from wtb.domain.errors import InvalidInput, MissingLibrary
from wtb.domain.evaluation import (
    OVERALL,
    Absent,
    Errors,
    Metric,
    Score,
    ScoreTable,
    check_weights,
    overall,
    pareto,
)

_FORMULA = tuple("=+-@\t\r\n")
"""What a cell begins with that spreadsheets compute."""

if TYPE_CHECKING:
    from wtb.bench import Bench
    from wtb.domain.statistics import Summary, Verdict
    from wtb.runs import Run


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What came of one combination on one case."""

    combination: str
    case_id: str
    repeat: int
    status: str
    scores: Mapping[str, Any]
    error: Mapping[str, Any] | None
    run_id: str | None
    latency_s: float | None
    usage: Mapping[str, float]
    bench: Bench = field(repr=False, compare=False)

    @property
    def run(self) -> Run:
        """The run behind it: open its history, fork it."""
        if self.run_id is None:
            raise InvalidInput(f"{self.combination} on {self.case_id} has no run: it failed before it began")
        return self.bench.get(self.run_id)

    @property
    def state(self) -> dict[str, Any]:
        """The state that it ended with."""
        return self.run.state


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """One combination: its figures on every metric, and how each compares with the baseline."""

    combination: str
    is_baseline: bool
    summaries: Mapping[str, Summary]
    verdicts: Mapping[str, Verdict]


class BatchResult:
    """What a batch found, as far as it has come."""

    def __init__(self, bench: Bench, batch: Batch, jobs: Sequence[Job]) -> None:
        self._bench = bench
        self._all = jobs
        self.spent = sum((job.spent for job in jobs), Spent(s=batch.plan.get("spent_s", 0.0)))
        """Money, tokens and seconds that the batch has taken, over all the times that it was run."""
        wanted = set(batch.plan["combinations"]), set(batch.plan["cases"])
        self._jobs = [
            job
            for job in jobs
            if job.combination in wanted[0] and job.case_id in wanted[1] and job.repeat < batch.plan["repeats"]
        ]
        self.batch = batch

    def __repr__(self) -> str:
        return f"<BatchResult {self.batch.name}: {self.batch.status}, {len(self._jobs)} jobs>"

    @property
    def id(self) -> str:
        """The id of the batch."""
        return self.batch.id

    @property
    def status(self) -> str:
        """How it stands: pending, running, completed, completed_with_errors, failed or cancelled."""
        return self.batch.status.value

    @property
    def baseline(self) -> str:
        """The combination that others are compared with."""
        return str(self.batch.plan["baseline"])

    @property
    def combinations(self) -> list[str]:
        """All combinations, the baseline first."""
        return list(self.batch.plan["combinations"])

    @property
    def cases(self) -> list[str]:
        """The ids of all cases."""
        return list(self.batch.plan["cases"])

    @property
    def metrics(self) -> dict[str, Metric]:
        """What was measured, by name: which direction is better, and the scale; with weights, `overall` too."""
        declared = [Metric.from_dict(each) for each in self.batch.plan["metrics"]]
        found = {each.name: each.of_bools() if each.name in self._bools else each for each in declared}
        return {**found, OVERALL.name: OVERALL} if self.weights else found

    @cached_property
    def _bools(self) -> frozenset[str]:
        """The metrics whose scores are all true or false: worst is 0 then, and best 1."""
        return bool_metrics(self._jobs, self.batch.plan.get("bools", ()))

    @property
    def left(self) -> int:
        """How many jobs are left to run, those included that failed and were to be run again."""
        plan = self.batch.plan
        total: int = len(plan["combinations"]) * len(plan["cases"]) * plan["repeats"]
        return total - sum(job.status is not JobStatus.PENDING for job in self._jobs)

    @property
    def weights(self) -> dict[str, float]:
        """What counts how much in the overall score; empty when there is none."""
        return dict(self.batch.plan.get("weights", {}))

    def weighted(self, weights: Mapping[str, float]) -> BatchResult:
        """Return the same result with an overall score of these weights by metric; nothing is stored."""
        check_weighted([each["name"] for each in self.batch.plan["metrics"]], weights)
        return BatchResult(
            self._bench, replace(self.batch, plan={**self.batch.plan, "weights": dict(weights)}), self._all
        )

    @property
    def results(self) -> list[JobResult]:
        """Every job that has ended: combination, case, repeat, status, scores, error, latency, usage, and its run."""
        return [
            JobResult(
                combination=job.combination,
                case_id=job.case_id,
                repeat=job.repeat,
                status=job.outcome.value,
                scores=self._scores(job),
                error=job.result.get("error"),
                run_id=job.execution_id,
                latency_s=job.result.get("latency_s"),
                usage=job.result.get("usage", {}),
                bench=self._bench,
            )
            for job in self._jobs
            if job.outcome is not JobStatus.PENDING
        ]

    def _scores(self, job: Job) -> Mapping[str, Any]:
        """Return the scores of a job, with the overall one where there is one."""
        scores: Mapping[str, Any] = job.result.get("scores", {})
        if self._overall is None or not scores:
            return scores
        found = self._overall.combinations[job.combination][job.case_id][job.repeat]
        lacking = {"error": "a score that it is made of is missing"}
        return {**scores, OVERALL.name: lacking if isinstance(found, Absent) else found}

    @cached_property
    def _overall(self) -> ScoreTable | None:
        weights = self.weights
        return overall([self.table(name) for name in weights], weights) if weights else None

    @property
    def sharing(self) -> dict[str, Any]:
        """How many node runs the last run of the batch executed and shared; which nodes could not be, and why."""
        trace = self.batch.plan.get("trace")
        unshared: dict[str, str] = {}
        for job in self._jobs:
            unshared |= job.result.get("unshared", {})
        latest = [job for job in self._jobs if job.result.get("trace") == trace]
        return {
            "executed": sum(job.result.get("executed", 0) for job in latest),
            "shared": sum(job.result.get("shared", 0) for job in latest),
            "not_shareable": unshared,
        }

    @property
    def outside(self) -> dict[str, list[str]]:
        """Nodes that used the network or other programs, with what they used, as far as that was seen."""
        return {node: list(names) for node, names in self.batch.plan.get("outside", {}).items()}

    @property
    def unpriced(self) -> list[str]:
        """Models whose price nobody knew: what they cost is in no figure."""
        return sorted({model for job in self._jobs for model in job.result.get("unpriced", ())})

    @property
    def crowding(self) -> tuple[int, int] | None:
        """Jobs at a time and cores, when there were more jobs: nodes that compute were slowed by each other."""
        workers, cores = self.batch.plan.get("workers", 0), self.batch.plan.get("cores", 1)
        return (workers, cores) if workers > cores else None

    def table(self, metric: str) -> ScoreTable:
        """Return all scores on a metric, by combination and case, one a repeat."""
        if metric not in self.metrics:
            raise InvalidInput(f"there is no metric {metric!r}; this batch has {', '.join(self.metrics)}")
        if metric == OVERALL.name and self._overall is not None:
            return self._overall
        repeats = self.batch.plan["repeats"]
        scores: dict[str, dict[str, list[Score]]] = {
            name: {case: [Absent.MISSING] * repeats for case in self.batch.plan["cases"]} for name in self.combinations
        }
        for job in self._jobs:
            if job.outcome is not JobStatus.PENDING:
                scores[job.combination][job.case_id][job.repeat] = _score(job, metric)
        return ScoreTable(metric=self.metrics[metric], combinations=scores)

    def compare(self, *metrics: str, errors: str = "worst", before: BatchResult | None = None) -> tuple[Verdict, ...]:
        """Compare every combination with the baseline on these metrics (all, when none is named), judged together.

        A run that failed counts as the worst score; with `errors="drop"` its case is left out. Given another result as
        `before`, every combination that both have is compared with itself there, on the cases that both have.
        """
        from wtb.domain.statistics import compare, verdicts  # numpy and scipy take half a second to load

        if before is not None:
            return compare_results(before, self, metrics, errors=errors)
        tables = [self.table(metric) for metric in metrics or self.metrics]
        if len(self.combinations) < 2:
            return ()
        return verdicts(compare(tables, self.baseline, errors=Errors(errors)))

    @property
    def matrix(self) -> list[MatrixRow]:
        """Combinations by metrics, with intervals and verdicts; the baseline first."""
        summaries = self._summaries(tuple(self.metrics))
        found = self.compare()
        return [
            MatrixRow(
                combination=name,
                is_baseline=name == self.baseline,
                summaries={metric: summaries[metric][name] for metric in self.metrics},
                verdicts={each.comparison.metric.name: each for each in found if each.comparison.candidate == name},
            )
            for name in self.combinations
        ]

    def _summaries(self, metrics: Sequence[str]) -> dict[str, dict[str, Summary]]:
        from wtb.domain.statistics import summarise

        return {metric: summarise(self.table(metric)) for metric in metrics}

    def pareto(self, *metrics: str) -> tuple[str, ...]:
        """Return the combinations that no other beats on one of these metrics without losing on another."""
        wanted = metrics or tuple(self.metrics)
        summaries = self._summaries(wanted)
        points = {
            name: {metric: figure for metric in wanted if (figure := summaries[metric][name].mean) is not None}
            for name in self.combinations
        }
        whole = {name: point for name, point in points.items() if len(point) == len(wanted)}
        return pareto(whole, {metric: self.metrics[metric].direction for metric in wanted})

    def different(self, metric: str) -> list[str]:
        """Return the cases on which combinations disagree, those with the widest spread first."""
        table = self.table(metric)
        means = {name: table.case_means(name) for name in self.combinations}
        spread = {
            case: max(found) - min(found)
            for case in self.batch.plan["cases"]
            if len(found := [own[case] for own in means.values() if case in own]) > 1
        }
        return sorted((case for case, width in spread.items() if width > 0), key=lambda case: -spread[case])

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row a job, for tables and files."""
        return [
            {
                "combination": each.combination,
                "case": each.case_id,
                "repeat": each.repeat,
                "status": each.status,
                **{name: _number(each.scores.get(name)) for name in self.metrics},
                "latency_s": each.latency_s,
                "error": _why(each),
                "run": each.run_id,
            }
            for each in self.results
        ]

    def to_csv(self, path: str | Path) -> None:
        """Write the rows, one a job, as CSV; a text that a spreadsheet would take for a formula begins with `'`."""
        rows = self.rows()
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with Path(path).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file)
            writer.writerow(map(_cell, columns))
            writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)

    def report(self, path: str | Path) -> None:
        """Write what was found as one HTML file that needs nothing else, or as Markdown: the path ends .html or .md."""
        from wtb.reporting import write_report

        write_report(self, Path(path))

    def to_pandas(self) -> Any:
        """Return one row a job as a DataFrame; needs pandas."""
        try:
            import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError as error:
            raise MissingLibrary("to_pandas needs pandas: pip install pandas; to_csv does without") from error
        return pd.DataFrame(self.rows())


def _why(job: JobResult) -> str | None:
    """Return why a job failed, or why evaluators gave it no score."""
    if job.error is not None:
        return f"{job.error.get('type')}: {job.error.get('message')}"
    return "; ".join(why for score in job.scores.values() if (why := error_of(score))) or None


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet computes; numbers stay numbers, those that are written as texts too."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _number(score: Any) -> float | None:
    return None if error_of(score) else score


def compare_results(
    before: BatchResult,
    after: BatchResult,
    metrics: Sequence[str] = (),
    *,
    pairs: Sequence[tuple[str, str]] = (),
    errors: str = "worst",
) -> tuple[Verdict, ...]:
    """Compare combinations of one result with those of another, paired by case, judged together.

    `pairs` are combinations before and after; without any, those that both have. Metrics are those that both have
    unless some are named.
    """
    from wtb.domain.statistics import compare_pairs, verdicts

    pairs = pairs or [(name, name) for name in before.combinations if name in after.combinations]
    metrics = metrics or [name for name in before.metrics if name in after.metrics]
    if not pairs or not metrics:
        what = "metric" if pairs else "combination"
        raise InvalidInput(f"batches {before.batch.name!r} and {after.batch.name!r} have no {what} in common")
    tables = [(before.table(metric), after.table(metric)) for metric in metrics]
    joined = [_joined(before, after, old, new, pair) for old, new in tables for pair in pairs]
    return verdicts(compare_pairs(joined, errors=Errors(errors)))


def _joined(
    before: BatchResult, after: BatchResult, old: ScoreTable, new: ScoreTable, pair: tuple[str, str]
) -> tuple[ScoreTable, str]:
    """Return the scores of two combinations in one table, and what the first is called there."""
    metric = new.metric.on_scale_of(old.metric)
    if metric.direction is not old.metric.direction:
        directions = f"{old.metric.direction} was better in {before.batch.name}, {metric.direction} in"
        raise InvalidInput(f"{metric.name} cannot be compared: {directions} {after.batch.name}")
    first, second = f"{before.batch.name}:{pair[0]}", f"{after.batch.name}:{pair[1]}"
    if first == second:
        raise InvalidInput(f"{first} is the same on both sides; name two batches, or BATCH:COMBINATION")
    scores = {first: old.combinations[pair[0]], second: new.combinations[pair[1]]}
    return ScoreTable(metric=metric, combinations=scores), first


def _score(job: Job, metric: str) -> Score:
    score = job.result.get("scores", {}).get(metric)
    if score is None and job.has_run and job.status is JobStatus.PENDING:
        return Absent.MISSING  # it waits to be scored
    return Absent.ERROR if score is None or error_of(score) else float(score)


def check_weighted(metrics: Sequence[str], weights: Mapping[str, float]) -> None:
    """Raise InvalidInput for weights that make no overall score of a batch with these metrics."""
    unknown = [name for name in weights if name not in metrics]
    if unknown:
        raise InvalidInput(f"weights: there is no metric {unknown[0]!r}; there are {', '.join(metrics)}")
    if weights and OVERALL.name in metrics:
        raise InvalidInput(f"weights make a metric {OVERALL.name!r}; give the evaluator of that name another")
    check_weights([*weights], weights)
