"""Report: the content of a batch report in any format; the answer comes first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from wtb.domain.statistics.intervals import Interval
from wtb.domain.statistics.verdicts import Family, Finding, Verdict
from wtb.domain.variants import parse_label

BASELINE_KEY = "B"
MOST_AXES = 6
"""The most metrics to choose from for the axes of the trade-off."""
_MASKER = Masker()

_SUPPORTED = (Finding.BETTER, Finding.WORSE)

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
class Answer:
    """The main result: a sentence, some details, and the finding that colours it."""

    headline: str
    detail: str = ""
    finding: str = ""

    def __str__(self) -> str:
        return f"{self.headline} {self.detail}".strip()


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
        metric, is_whole = self.metrics[0], len(self.jobs) == self.planned
        if self.jobs and self.failed == len(self.jobs):
            every = "The only run" if self.failed == 1 else f"All {self.failed:,} runs"
            return Answer(headline=f"{every} failed.", detail=self.troubles[0].what, finding=Finding.WORSE)
        if all(row.summaries[metric.name].mean is None for row in self.rows):
            return Answer(headline=f"There are no scores on {metric.name}{'' if is_whole else ' yet'}.")
        answer = self._only(metric) if len(self.rows) == 1 else self._compared(metric)
        so_far = "" if is_whole else f"So far ({len(self.jobs):,} of {self.planned:,} jobs): "
        return replace(answer, headline=so_far + answer.headline)

    def _only(self, metric: Metric) -> Answer:
        summary, figures = self.rows[0].summaries[metric.name], self.figures(metric)
        return Answer(
            headline=f"{metric.name} is {figures.number(summary.mean)}{figures.interval(summary.interval, ' ({})')}.",
            detail="There is only one combination, so there is nothing to compare it with.",
        )

    def _compared(self, metric: Metric) -> Answer:
        others = self.rows[1:]
        better, worse = ([row for row in others if row.finding(metric.name) == kind] for kind in _SUPPORTED)
        if not any(row.finding(metric.name) for row in others):
            return self._incomparable(metric)
        if len(others) == 1 and (better or worse):
            row, change = others[0], self._change(others[0], metric)
            finding = row.finding(metric.name)
            headline = f"{row.name} is {finding} than the baseline on {metric.name}."
            reason = f" {_upper(row.reason(metric.name))}." if row.reason(metric.name) else ""
            return Answer(headline=headline, detail=f"It has {change}.{reason}", finding=finding)
        lost = f" {f'{worse[0].name} is' if len(worse) == 1 else f'{len(worse):,} are'} worse." if worse else ""
        if better:
            are, has = ("is", "has") if len(better) == 1 else ("are", "has the best mean of them,")
            return Answer(
                headline=f"{len(better):,} of {len(others):,} combinations {are} better than the baseline on "
                f"{metric.name}.",
                detail=f"{better[0].name} {has} {self._change(better[0], metric)}.{lost}",
                finding=Finding.BETTER,
            )
        subject = others[0].name if len(others) == 1 else f"any of the {len(others):,} combinations"
        return Answer(
            headline=f"There is no evidence that {subject} is better than the baseline on {metric.name}.",
            detail=f"{lost}{self._why(others, metric)}{self._needed(metric)}".strip(),
            finding=Finding.WORSE if worse else Finding.NO_EVIDENCE,
        )

    def _incomparable(self, metric: Metric) -> Answer:
        """Say why nothing can be compared, and which combination has the best mean."""
        best, figures = self.rows[1], self.figures(metric)
        mean = best.summaries[metric.name].mean
        return Answer(
            headline=f"Nothing can be compared with the baseline on {metric.name}: no case has a score on both sides.",
            detail="" if mean is None else f"{best.name} has the best mean of the others, {figures.number(mean)}.",
        )

    def _change(self, row: Row, metric: Metric) -> str:
        """Return the scores of a combination and of the baseline, and the difference with its interval."""
        figures, comparison = self.figures(metric), row.verdicts[metric.name].comparison
        own, other = (figures.number(each.summaries[metric.name].mean) for each in (row, self.rows[0]))
        if comparison.difference is None:
            return f"no score on any case that the baseline has scored, against {other}"
        interval = figures.interval(comparison.interval, " (95 % interval {})", signed=True)
        return f"{own} against {other}, a difference of {figures.change(comparison.difference)}{interval}"

    def _why(self, others: Sequence[Row], metric: Metric) -> str:
        """Say why there is no evidence for the only candidate."""
        reason = others[0].reason(metric.name) if len(others) == 1 else ""
        return f" {_upper(reason)}." if reason else ""

    def _needed(self, metric: Metric) -> str:
        """Return how many cases would be needed to show the largest observed gain."""
        gains = [verdict for row in self.rows if (verdict := row.verdicts.get(metric.name)) and _gain(verdict) > 0]
        best = max(gains, key=_gain, default=None)
        if best is None or best.finding is not Finding.NO_EVIDENCE or best.needed_cases is None:
            return ""
        change = self.figures(metric).change(best.comparison.difference)
        return (
            f" The largest gain was {change} ({best.comparison.candidate}); you would need about {best.needed_cases} "
            "cases to show a gain of this size."
        )

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


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Formats the numbers of one metric, all with as many decimals as the largest one needs for three digits.

    Much smaller numbers get up to two more decimals, so that they keep significant digits.
    """

    decimals: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> NumberFormat:
        """Choose the decimals for these numbers."""
        sizes = [abs(value) for value in values if value is not None and abs(value) >= 1e-9]
        if not sizes:
            return cls(3)
        enough, for_smallest = (
            most - math.floor(math.log10(size)) for most, size in ((2, max(sizes)), (1, min(sizes)))
        )
        return cls(max(enough, min(for_smallest, enough + 2)))

    def number(self, value: float | None) -> str:
        """Return a number as text; a dash if there is none."""
        if value is None:
            return "–"
        text = f"{value:,.{max(0, min(self.decimals, 9))}f}"
        return text.replace("-", "−") if float(text.replace(",", "")) else text.removeprefix("-")

    def change(self, value: float | None) -> str:
        """Return a difference with its sign."""
        text = self.number(value)
        return f"+{text}" if value is not None and value > 0 and text.strip("0.") else text

    def interval(self, interval: Interval | None, frame: str = "{}", *, signed: bool = False) -> str:
        """Return both ends of an interval in a frame; empty if there is no interval."""
        if interval is None:
            return ""
        write = self.change if signed else self.number
        return frame.format(f"{write(interval.low)} to {write(interval.high)}")


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _gain(verdict: Verdict) -> float:
    comparison = verdict.comparison
    return (comparison.difference or 0.0) * comparison.metric.direction.sign


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
