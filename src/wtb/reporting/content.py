"""Report: the content of a batch report in any format; the answer comes first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from wtb.application.evaluation_engine import error_of
from wtb.application.queries.batch_data import MatrixRow
from wtb.batch_results import BatchResult, FlakyCase, JobResult, known_or_worst
from wtb.domain.display import counted
from wtb.domain.evaluation import FAILED, PRICES, Absent, Direction, Metric, ScoreTable
from wtb.domain.secrets import Masker
from wtb.domain.statistics.comparisons import Summary
from wtb.domain.statistics.effects import VariantEffects
from wtb.domain.statistics.verdicts import Family, Verdict
from wtb.domain.variants import parse_label
from wtb.reporting.answer import Answer, answer_of
from wtb.reporting.numbers import NumberFormat

BASELINE_KEY = "B"
MOST_AXES = 6
"""The most metrics to choose from for the axes of the trade-off."""
_MASKER = Masker()

METHOD = (
    "Combinations are compared with the baseline case by case. The repeats of a case are averaged first, and so are "
    "the cases of a cluster. With 95 % confidence, an interval contains the mean over all cases of this kind.",
    "A p-value says how often chance alone would make a difference this large (a sign-flip test). It is adjusted for "
    "all comparisons of its family (step-down maxT), so that luck makes any of them better or worse in at most one "
    "batch in twenty. There are two families: all combinations on the primary metric, which decides who wins, "
    "and all combinations on all other metrics and on the share of failed runs.",
    "“No evidence” does not mean “the same”: these cases cannot tell. The intervals are not adjusted, so an interval "
    "that excludes 0 can go with no evidence.",
    "A failed run gets the worst score that the metric declares. If it declares none, as for latency and cost, the "
    "case counts as lost, and means cover only completed runs. A combination is never called better while it fails on "
    "cases on which the baseline does not. Runs that have not been made are left out.",
    "The effect is the difference, in standard deviations of the differences by case; more repeats make it larger. "
    "“Needed” is a range of case counts; the true number is in it about half of the time.",
    "A combination is left out of the Pareto front only if another one has means that are at least as good, and the "
    "cases show that it is better on one of the metrics.",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One combination; `key` is its label in plots: B for the baseline, else its rank on the primary metric."""

    key: str
    name: str
    is_baseline: bool
    summaries: Mapping[str, Summary]
    verdicts: Mapping[str, Verdict]

    def finding(self, metric: str) -> str:
        """Return how it compares with the baseline, in words."""
        if self.is_baseline:
            return "baseline"
        verdict = self.verdicts.get(metric)
        return "" if verdict is None or not verdict.comparison.pairs else verdict.finding.value

    def reason(self, metric: str) -> str:
        """Return why there is no evidence, or that failed runs decided; empty if neither applies."""
        verdict = self.verdicts.get(metric)
        return "" if verdict is None else verdict.reason

    def unscored(self, metric: str) -> str:
        """Return how many runs have no score, and why; empty if all have one."""
        summary = self.summaries[metric]
        parts = [counted(summary.errors, "error")] if summary.errors else []
        if summary.leaves_out_errors and summary.scored:
            parts.append(f"mean of {counted(summary.scored, 'scored run')}")
        return ", ".join([*parts, f"{summary.missing:,} missing"] if summary.missing else parts)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """An error that made runs or an evaluator fail, and the jobs that had it."""

    what: str
    traceback: str
    jobs: tuple[JobResult, ...]


@dataclass(frozen=True, kw_only=True)
class Front:
    """Two metrics against each other, and the combinations that no other one is shown to beat."""

    quality: Metric
    price: Metric
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of a batch, in the order of the report: the baseline, then the best on the primary metric.

    The first of the `metrics` is the primary one.
    """

    result: BatchResult
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    jobs: tuple[JobResult, ...]

    @classmethod
    def of(cls, result: BatchResult, matrix: Sequence[MatrixRow] = ()) -> Report:
        """Return the report of a batch, as far as it has run; `matrix` is its matrix if you have it already."""
        shown = result.shown_metrics
        metrics = (shown.pop(result.primary), *shown.values())
        rows = tuple(_ranked(matrix or result.matrix, metrics[0]))
        return cls(result=result, metrics=metrics, rows=rows, jobs=tuple(result.results))

    @property
    def case_metrics(self) -> tuple[Metric, ...]:
        """The metrics whose scores are shown for every case; a failed run is marked in each of them."""
        return tuple(metric for metric in self.metrics if metric != FAILED)

    @property
    def title(self) -> str:
        """The title of the report."""
        return f"Batch {self.result.batch.name}"

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the batch: what ran, when, and how far it has come."""
        batch, record = self.result.batch, self.result.batch.record
        repeats = f" × {counted(record.repeats, 'repeat')}" if record.repeats > 1 else ""
        return {
            "Workflow": batch.workflow_name,
            "Status": self.result.status.replace("_", " "),
            "Size": f"{counted(len(self.rows), 'combination')} × {counted(len(record.cases), 'case')}{repeats}",
            "Jobs": f"{len(self.jobs):,} of {self.planned:,} done, {self.failed:,} failed",
            "Node runs": self._shared(),
            "Ended" if len(self.jobs) == self.planned else "As of": f"{batch.updated_at:%Y-%m-%d %H:%M} UTC",
            **self._measured_apart(),
            "Id": batch.id,
        }

    def _measured_apart(self) -> dict[str, str]:
        apart = [f"{name} {how}" for name, how in self.result.measured_apart.items()]
        return {"Latency and cost measured apart from the baseline": "; ".join(apart)} if apart else {}

    @cached_property
    def failed(self) -> int:
        """How many runs failed."""
        return sum(job.error is not None for job in self.jobs)

    @property
    def planned(self) -> int:
        """How many jobs the batch has in all."""
        return self.result.batch.record.jobs

    def _shared(self) -> str:
        sharing = self.result.sharing
        total = sharing["executed"] + sharing["shared"]
        part = f" ({100 * sharing['shared'] / total:.0f} % of {total:,})" if total else ""
        return f"{sharing['executed']:,} executed, {sharing['shared']:,} shared{part}"

    @property
    def families(self) -> list[Family]:
        """The families of comparisons in which verdicts are judged, the primary one first."""
        found = {verdict.family for row in self.rows for verdict in row.verdicts.values()}
        return sorted(found, key=lambda family: not family.is_primary)

    @property
    def notes(self) -> list[str]:
        """What to keep in mind when reading the verdicts."""
        families = [f"{family}{' (primary)' if family.is_primary else ''}" for family in self.families]
        adjusted = [f"p-values are adjusted for {'; '.join(families)}."] if families else []
        clusters = {*self.result.clusters.values()}
        grouped = [f"Cases of one cluster count as one; there are {counted(len(clusters), 'cluster')}."]
        return [*adjusted, *(grouped if clusters else []), *self.result.notes]

    @property
    def not_shareable(self) -> dict[str, str]:
        """The nodes whose results could not be shared, and why."""
        return dict(self.result.sharing["not_shareable"])

    @cached_property
    def answer(self) -> Answer:
        """The answer: which combinations are better than the baseline on the primary metric, as far as is known."""
        return answer_of(self)

    @cached_property
    def effects(self) -> tuple[VariantEffects, ...]:
        """The effects of the variants on each metric; none if only one node varies, as the verdicts say it all then."""
        if len({node for row in self.rows for node in parse_label(row.name)}) < 2:
            return ()
        return tuple(self.result.effects(metric.name) for metric in self.metrics if metric != FAILED)

    @property
    def prices(self) -> tuple[VariantEffects, ...]:
        """The effects on latency, cost and tokens, which quality is usually paid for with."""
        return tuple(each for each in self.effects if each.metric.name in PRICES)

    @cached_property
    def front(self) -> Front | None:
        """The first quality metric against latency, cost or another metric that is best low; None if one is lacking."""
        quality = next((each for each in self.metrics if each.direction is Direction.HIGHER), None)
        lower = {each.name: each for each in self.metrics if each.direction is Direction.LOWER}
        price = next((lower[name] for name in PRICES if name in lower), next(iter(lower.values()), None))
        if quality is None or price is None:
            return None
        if all(row.summaries[each.name].mean is None for each in (quality, price) for row in self.rows):
            return None
        return Front(quality=quality, price=price, names=self.result.pareto(quality.name, price.name))

    @cached_property
    def fronts(self) -> tuple[Front, ...]:
        """The trade-offs of every two metrics, up to a number of metrics; the one that matters most first."""
        if self.front is None:
            return ()
        first = self.front.quality, self.front.price
        others = [
            (one, other) if one.direction is Direction.HIGHER else (other, one)
            for one, other in combinations(self.case_metrics[:MOST_AXES], 2)
        ]
        rest = [pair for pair in others if set(pair) != set(first) and self._has_means(*pair)]
        made = (Front(quality=y, price=x, names=self.result.pareto(y.name, x.name)) for y, x in rest)
        return (self.front, *made)

    def _has_means(self, *metrics: Metric) -> bool:
        return all(any(row.summaries[each.name].mean is not None for row in self.rows) for each in metrics)

    @cached_property
    def flaky(self) -> list[FlakyCase]:
        """The cases on which repeats of one combination disagree."""
        return self.result.flaky()

    @cached_property
    def troubles(self) -> list[Trouble]:
        """The errors, each once: failed runs, failed evaluators, calls not taken back; the most frequent first."""
        jobs: dict[tuple[int, str], list[JobResult]] = defaultdict(list)
        for job in self.jobs:
            if job.error is not None:
                jobs[0, _sentence(job.error)].append(job)
            for metric, score in job.scores.items():
                if (why := error_of(score)) is not None:
                    text = why if why.startswith("evaluator ") else f"evaluator {metric}: {why}"
                    jobs[1, _MASKER.text(text)].append(job)
            for run_id, why in job.not_taken_back.items():
                jobs[2, _MASKER.text(f"external calls of run {run_id} were not taken back: {why}")].append(job)
        order = sorted(jobs.items(), key=lambda item: (item[0][0], -len(item[1])))
        return [
            Trouble(what=what, traceback="" if kind else _traceback(found[0]), jobs=tuple(found))
            for (kind, what), found in order
        ]

    @property
    def failures(self) -> int:
        """The number of failed runs, of missing scores, and of runs with calls that were not taken back."""
        return sum(len(trouble.jobs) for trouble in self.troubles)

    def place(self, job: JobResult) -> str:
        """Return the name of a job: its combination, its case, and its repeat if there are several."""
        repeat = f" (repeat {job.repeat + 1})" if self.result.batch.record.repeats > 1 else ""
        return f"{job.combination} on {job.case_id}{repeat}"

    def scores(self, metric: Metric) -> CaseScores:
        """Return the scores of every combination on every case."""
        table = self.result.table(metric.name)
        return CaseScores(table=table, means={row.name: known_or_worst(table, row.name) for row in self.rows})

    def figures(self, metric: Metric) -> NumberFormat:
        """Return the number format of a metric."""
        return NumberFormat.of(row.summaries[metric.name].mean for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class CaseScores:
    """The score of each combination on each case: the mean of its repeats."""

    table: ScoreTable
    means: Mapping[str, Mapping[str, float]]

    @cached_property
    def different(self) -> tuple[str, ...]:
        """The cases on which combinations disagree, the widest spread first."""
        spread = {case: self.spread(case) for case in self.table.cases}
        return tuple(sorted((case for case, width in spread.items() if width > 0), key=lambda case: -spread[case]))

    def spread(self, case: str) -> float:
        """Return the distance between the best and the worst score on a case; 0 if fewer than two have a score."""
        found = [own[case] for own in self.means.values() if case in own]
        return max(found) - min(found) if found else 0.0

    def failed(self, name: str, case: str) -> bool:
        """Whether a run of this combination on this case has an error."""
        return Absent.ERROR in self.table.combinations[name][case]

    def quality(self, name: str, case: str) -> float | None:
        """Return the score on a scale from 0 (the worst) to 1 (the best); None if there is no score."""
        score, worst, best = self.means[name].get(case), self.table.worst(), self.table.best()
        if score is None or worst is None or best is None:
            return None
        return float(score == worst) if worst == best else (score - worst) / (best - worst)


def _ranked(matrix: Sequence[MatrixRow], metric: Metric) -> Iterator[Row]:
    def rank(row: MatrixRow) -> tuple[bool, bool, float]:
        mean = row.summaries[metric.name].mean
        return not row.is_baseline, mean is None, -(mean or 0.0) * metric.direction.sign

    for number, row in enumerate(sorted(matrix, key=rank)):
        yield Row(
            key=BASELINE_KEY if row.is_baseline else str(number),
            name=row.combination,
            is_baseline=row.is_baseline,
            summaries=row.summaries,
            verdicts=row.verdicts,
        )


def _sentence(error: Mapping[str, Any]) -> str:
    return _MASKER.text(": ".join(str(error[part]) for part in ("type", "message") if error.get(part)) or "failed")


def _traceback(job: JobResult) -> str:
    return "" if job.error is None else _MASKER.text(str(job.error.get("traceback") or ""))
