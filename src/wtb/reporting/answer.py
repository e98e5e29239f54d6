"""The answer of a report: one sentence on what the batch found, some details, and the finding that colours it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wtb.domain.evaluation import Metric
from wtb.domain.statistics.verdicts import Finding, Verdict

if TYPE_CHECKING:
    from wtb.reporting.content import Report, Row

_SUPPORTED = (Finding.BETTER, Finding.WORSE)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The main result: a sentence, some details, and the finding that colours it."""

    headline: str
    detail: str = ""
    finding: str = ""

    def __str__(self) -> str:
        return f"{self.headline} {self.detail}".strip()


def answer_of(report: Report) -> Answer:
    """Say which combinations are better than the baseline on the primary metric, as far as is known."""
    metric, is_whole = report.metrics[0], len(report.jobs) == report.planned
    if report.jobs and report.failed == len(report.jobs):
        every = "The only run" if report.failed == 1 else f"All {report.failed:,} runs"
        return Answer(headline=f"{every} failed.", detail=report.troubles[0].what, finding=Finding.WORSE)
    if all(row.summaries[metric.name].mean is None for row in report.rows):
        return Answer(headline=f"There are no scores on {metric.name}{'' if is_whole else ' yet'}.")
    answer = _only(report, metric) if len(report.rows) == 1 else _compared(report, metric)
    so_far = "" if is_whole else f"So far ({len(report.jobs):,} of {report.planned:,} jobs): "
    return replace(answer, headline=so_far + answer.headline)


def _only(report: Report, metric: Metric) -> Answer:
    summary, figures = report.rows[0].summaries[metric.name], report.figures(metric)
    return Answer(
        headline=f"{metric.name} is {figures.number(summary.mean)}{figures.interval(summary.interval, ' ({})')}.",
        detail="There is only one combination, so there is nothing to compare it with.",
    )


def _compared(report: Report, metric: Metric) -> Answer:
    others = report.rows[1:]
    better, worse = ([row for row in others if row.finding(metric.name) == kind] for kind in _SUPPORTED)
    if not any(row.finding(metric.name) for row in others):
        return _incomparable(report, metric)
    if len(others) == 1 and (better or worse):
        row, change = others[0], _change(report, others[0], metric)
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
            detail=f"{better[0].name} {has} {_change(report, better[0], metric)}.{lost}",
            finding=Finding.BETTER,
        )
    subject = others[0].name if len(others) == 1 else f"any of the {len(others):,} combinations"
    return Answer(
        headline=f"There is no evidence that {subject} is better than the baseline on {metric.name}.",
        detail=f"{lost}{_why(others, metric)}{_needed(report, metric)}".strip(),
        finding=Finding.WORSE if worse else Finding.NO_EVIDENCE,
    )


def _incomparable(report: Report, metric: Metric) -> Answer:
    """Say why nothing can be compared, and which combination has the best mean."""
    best, figures = report.rows[1], report.figures(metric)
    mean = best.summaries[metric.name].mean
    return Answer(
        headline=f"Nothing can be compared with the baseline on {metric.name}: no case has a score on both sides.",
        detail="" if mean is None else f"{best.name} has the best mean of the others, {figures.number(mean)}.",
    )


def _change(report: Report, row: Row, metric: Metric) -> str:
    """Return the scores of a combination and of the baseline, and the difference with its interval."""
    figures, comparison = report.figures(metric), row.verdicts[metric.name].comparison
    own, other = (figures.number(each.summaries[metric.name].mean) for each in (row, report.rows[0]))
    if comparison.difference is None:
        return f"no score on any case that the baseline has scored, against {other}"
    interval = figures.interval(comparison.interval, " (95 % interval {})", signed=True)
    return f"{own} against {other}, a difference of {figures.change(comparison.difference)}{interval}"


def _why(others: Sequence[Row], metric: Metric) -> str:
    """Say why there is no evidence for the only candidate."""
    reason = others[0].reason(metric.name) if len(others) == 1 else ""
    return f" {_upper(reason)}." if reason else ""


def _needed(report: Report, metric: Metric) -> str:
    """Return how many cases would be needed to show the largest observed gain."""
    gains = [verdict for row in report.rows if (verdict := row.verdicts.get(metric.name)) and _gain(verdict) > 0]
    best = max(gains, key=_gain, default=None)
    if best is None or best.finding is not Finding.NO_EVIDENCE or best.needed_cases is None:
        return ""
    change = report.figures(metric).change(best.comparison.difference)
    return (
        f" The largest gain was {change} ({best.comparison.candidate}); you would need about {best.needed_cases} "
        "cases to show a gain of this size."
    )


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _gain(verdict: Verdict) -> float:
    comparison = verdict.comparison
    return (comparison.difference or 0.0) * comparison.metric.direction.sign
