"""Verdicts: the findings of a batch's comparisons when they are judged together.

The interval of a difference belongs to one comparison, and excludes 0 exactly if its own p-value is at most 5 %. A
verdict takes all comparisons of its family into account. So an interval that excludes 0 can go with "no evidence": that
is the price of many candidates. A winner never has an interval on the other side of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from wtb.domain.display import Display, Displayed, DisplayTable, counted, signed_figure
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Errors, ScoreTable
from wtb.domain.statistics.comparisons import ALPHA, SEED, Comparison, NeededCases
from wtb.domain.statistics.intervals import Interval
from wtb.domain.statistics.pairing import Pairing, columns_of
from wtb.domain.statistics.resampling import step_down


class Finding(StrEnum):
    """What may be said of a candidate."""

    BETTER = "better"
    WORSE = "worse"
    NO_EVIDENCE = "no evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The comparisons that are judged together: on the primary metric, or on all other metrics."""

    is_primary: bool
    metrics: tuple[str, ...]
    comparisons: int

    def __str__(self) -> str:
        count = counted(self.comparisons, "comparison")
        return f"{count} on {self.metrics[0] if len(self.metrics) == 1 else f'{len(self.metrics)} metrics'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The finding of a comparison, judged within its family, and the reason if there is no evidence.

    `adjusted_p` is the p-value within the family. `reason` says why there is no evidence, or that failed runs decided.
    """

    comparison: Comparison
    finding: Finding
    adjusted_p: float
    needed_cases: NeededCases | None
    reason: str
    family: Family


class Verdicts(tuple[Verdict, ...], Displayed):
    """Verdicts in a row, which show themselves as a table."""

    __slots__ = ()

    def _display(self) -> Display:
        rows = [
            (
                each.comparison.candidate,
                each.comparison.metric.name,
                each.finding.value,
                signed_figure(each.comparison.difference),
                _range(each.comparison.interval),
                f"{each.adjusted_p:.3g}",
                each.reason,
            )
            for each in self
        ]
        headings = ("combination", "metric", "finding", "difference", "95 % interval", "p", "why")
        return Display(title=counted(len(self), "comparison"), tables=(DisplayTable.of(headings, rows),))


def _range(interval: Interval | None) -> str | None:
    return None if interval is None else f"{signed_figure(interval.low)} to {signed_figure(interval.high)}"


def verdicts(
    comparisons: Sequence[Comparison], alpha: float = ALPHA, *, primary: str | None = None, max_errors: int = 0
) -> tuple[Verdict, ...]:
    """Judge all comparisons that were made, in two families: on the primary metric, and on all the others.

    The primary metric is that of the first comparison unless one is named. Step-down maxT over joint sign flips keeps
    the chance that luck makes any comparison of a family better or worse at `alpha` at most, however many they are.
    A candidate that fails on more than `max_errors` cases where the baseline does not is never called better.
    """
    if not 0 < alpha < 1:
        raise InvalidInput(f"alpha must lie between 0 and 1, not {alpha}")
    if max_errors < 0:
        raise InvalidInput(f"max_errors must be a number of cases, 0 or more, not {max_errors}")
    first = primary or next((each.metric.name for each in comparisons), "")
    families = [
        [index for index, each in enumerate(comparisons) if (each.metric.name == first) is is_primary]
        for is_primary in (True, False)
    ]
    failed = _failed_alone(comparisons)
    found: dict[int, Verdict] = {}
    for indices in filter(None, families):
        members = [comparisons[index] for index in indices]
        metrics = tuple(dict.fromkeys(each.metric.name for each in members))
        family = Family(is_primary=metrics == (first,), metrics=metrics, comparisons=len(members))
        for index, each, adjusted in zip(indices, members, _adjusted(members), strict=True):
            excess = failed[each.candidate] if failed[each.candidate] > max_errors else 0
            found[index] = _verdict(each, adjusted, alpha, family, excess)
    return tuple(found[index] for index in range(len(comparisons)))


def _failed_alone(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Return how many cases failed only with each candidate, on the metric with the most of them."""
    failed: dict[str, int] = {}
    for each in comparisons:
        failed[each.candidate] = max(failed.get(each.candidate, 0), each.failures.candidate_only)
    return failed


def _adjusted(members: Sequence[Comparison]) -> list[float]:
    tested = [each.tested for each in members if each.tested is not None]
    if len(members) < 2 or len(tested) < len(members):  # without the differences, use Bonferroni's correction
        return [min(1.0, each.p_value * len(members)) for each in members]
    adjusted = step_down(columns_of(tested), seed=SEED)
    return [max(p_value, each.p_value) for p_value, each in zip(adjusted, members, strict=True)]


def _verdict(comparison: Comparison, adjusted_p: float, alpha: float, family: Family, failed: int) -> Verdict:
    finding, reason = _finding(comparison, adjusted_p, alpha, family, failed)
    return Verdict(
        comparison=comparison,
        finding=finding,
        adjusted_p=adjusted_p,
        needed_cases=comparison.needed_cases(alpha / family.comparisons),
        reason=reason,
        family=family,
    )


def _finding(
    comparison: Comparison, adjusted_p: float, alpha: float, family: Family, failed: int
) -> tuple[Finding, str]:
    reason = _no_evidence(comparison, adjusted_p, alpha, family)
    if reason:
        return Finding.NO_EVIDENCE, reason
    count = comparison.decided_by_failures
    decided = f"{counted(count, 'case')} {'is' if count == 1 else 'are'} decided by failed runs" if count else ""
    if comparison.interval is not None and _contradicts(comparison.interval, comparison):
        return Finding.NO_EVIDENCE, f"{decided}, and the other cases say the opposite"
    if comparison.leaning < 0:
        return Finding.WORSE, decided
    if failed:
        return Finding.NO_EVIDENCE, f"it failed on {counted(failed, 'case')} where the baseline did not"
    return Finding.BETTER, decided


def _no_evidence(comparison: Comparison, adjusted_p: float, alpha: float, family: Family) -> str:
    """Return why the test gives no evidence; an empty text if it does."""
    differing = comparison.wins + comparison.losses
    too_few = (
        f"only {counted(differing, 'case')} {'differs' if differing == 1 else 'differ'}: too few to rule out chance"
    )
    reasons = {
        "no case has a score on both sides": not comparison.pairs,
        "the scores are too large to calculate with": _is_beyond_floats(comparison),
        "": adjusted_p <= alpha and comparison.leaning != 0,
        "no case differs": not differing,
        too_few: 2.0 ** (1 - differing) > alpha,
        f"p is {_p(comparison.p_value)} alone, {_p(adjusted_p)} among {family}": comparison.p_value <= alpha,
        "it may be chance": True,
    }
    return next(reason for reason, applies in reasons.items() if applies)


def _is_beyond_floats(comparison: Comparison) -> bool:
    return math.isnan(comparison.p_value) or (comparison.difference is None and bool(comparison.candidate_scores))


def _contradicts(interval: Interval, comparison: Comparison) -> bool:
    """Whether the whole interval is on the side that the test rejects."""
    sign = comparison.leaning * comparison.metric.direction.sign
    return interval.high < 0 if sign > 0 else interval.low > 0


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def beyond_chance(
    tables: Sequence[ScoreTable], pairs: Sequence[tuple[str, str]], *, errors: Errors = Errors.WORST, seed: int = SEED
) -> set[tuple[str, str]]:
    """Return the pairs whose first combination is shown to be better than the second on one of the metrics.

    All pairs on all metrics are judged together.
    """
    asked = [
        (pair, Pairing(table=table, candidate=pair[0], baseline=pair[1], errors=errors))
        for table in tables
        for pair in pairs
    ]
    if not asked:
        return set()
    adjusted = step_down(columns_of([pairing.tested for _, pairing in asked]), seed=seed)
    return {
        pair
        for (pair, pairing), p_value in zip(asked, adjusted, strict=True)
        if p_value <= ALPHA and pairing.tested.total * pairing.table.metric.direction.sign > 0
    }
