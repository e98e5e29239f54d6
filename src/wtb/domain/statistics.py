"""Verdicts: what the scores of a batch say about its combinations, and how sure one can be of it.

A case is the unit: repeats are averaged within their case first, and combinations are compared case by case.

The interval of a difference is that of this one comparison, not adjusted for the others, while a verdict takes all of
them into account. So an interval that leaves 0 out can go with "no evidence": that is the price of looking at many
candidates. The opposite, a winner whose interval holds 0, never happens: a verdict needs the adjusted p-value and the
interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Absent, Errors, Metric, ScoreTable
from wtb.domain.intervals import Estimate, Interval, Method, Sample, estimates
from wtb.domain.resampling import Array, sign_flip

ALPHA = 0.05
SEED = 0

_POWER = 0.8
# The smallest p-value is about one in as many: candidates need more of them to get below Holm's threshold at all.
_DRAWS = 9_999
_DRAWS_A_CANDIDATE = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One combination on one metric: the mean over its cases, with a 95 % interval for cases like these.

    `cases` have a score; `errors` and `missing` count runs.
    """

    metric: Metric
    combination: str
    cases: int
    repeats: int
    mean: float | None
    interval: Interval | None
    method: Method
    errors: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How many cases have a failed run: only with the candidate, only with the baseline, or with both."""

    candidate_only: int = 0
    baseline_only: int = 0
    both: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A candidate against the baseline on one metric, over the `pairs`: the cases in which both have a score.

    `difference` is the candidate's mean less the baseline's, in units of the metric. `interval` holds the true one with
    95 % confidence, and so does each end of `bounds` by itself. `wins` are cases in which the candidate is the better
    one. `effect_size` is the difference in standard deviations of the differences by case.
    """

    metric: Metric
    candidate: str
    baseline: str
    pairs: int
    dropped: int
    difference: float | None
    interval: Interval | None
    bounds: Interval | None
    method: Method
    p_value: float
    wins: int
    ties: int
    losses: int
    effect_size: float | None
    candidate_scores: tuple[float, ...] = ()
    """The candidate's score on each pair, in the order of the cases."""
    baseline_scores: tuple[float, ...] = ()
    """The baseline's score on each pair, in the same order."""
    failures: Failures = Failures()

    def needed_cases(self, alpha: float = ALPHA) -> int | None:
        """About how many cases in all would show a difference as large as this one in four batches of five.

        None when there is no difference. The one that was seen is itself uncertain: this is an order of magnitude.
        """
        if not self.difference:
            return None
        # Fewer cases that are no ties have too few sign patterns for a p-value below alpha.
        fewest = math.ceil(math.log2(2 / alpha) * self.pairs / (self.wins + self.losses))
        if self.effect_size is None:
            return fewest
        z = float(ndtri(1 - alpha / 2))
        return max(fewest, math.ceil(((z + float(ndtri(_POWER))) / self.effect_size) ** 2 + z**2 / 2))


class Finding(StrEnum):
    """What may be said of a candidate."""

    BETTER = "better"
    WORSE = "worse"
    NO_EVIDENCE = "no evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A comparison among all that were made: Holm's p-value, what it shows, and how many cases in all would show it."""

    comparison: Comparison
    finding: Finding
    adjusted_p: float
    needed_cases: int | None


def summarise(table: ScoreTable, *, errors: Errors = Errors.WORST, seed: int = SEED) -> dict[str, Summary]:
    """Return the mean and its interval for each combination of the table."""
    means = {name: table.case_means(name, errors) for name in table.combinations}
    columns = [_array(own.values()) for own in means.values()]
    samples = [Sample.of_scores(own, table.ends(), share=_is_share(own, table.ends())) for own in columns]
    return {
        name: _summary(table, name, len(means[name]), estimate)
        for name, estimate in zip(means, estimates(samples, seed), strict=True)
    }


def compare(
    tables: Iterable[ScoreTable], baseline: str, *, errors: Errors = Errors.WORST, seed: int = SEED
) -> tuple[Comparison, ...]:
    """Compare each other combination with the baseline, case by case, one table after the other.

    The p-value is that of a sign-flip test: how often a difference as large would come about if in each case a coin had
    decided which of the two had which score.
    """
    tables = tuple(tables)
    pairings = [pairing for table in tables for pairing in _pairings(table, baseline, errors)]
    return _compared(pairings, max((len(table.combinations) for table in tables), default=0), seed)


def compare_pairs(
    pairs: Iterable[tuple[ScoreTable, str]], *, errors: Errors = Errors.WORST, seed: int = SEED
) -> tuple[Comparison, ...]:
    """Compare as `compare` does where each table has a baseline of its own: the second of each pair."""
    pairings = [pairing for table, baseline in pairs for pairing in _pairings(table, baseline, errors)]
    return _compared(pairings, len(pairings), seed)


def _compared(pairings: Sequence[_Pairing], candidates: int, seed: int) -> tuple[Comparison, ...]:
    draws = max(_DRAWS, _DRAWS_A_CANDIDATE * candidates)
    p_values = _p_values([pairing.differences for pairing in pairings], draws, seed)
    samples = [Sample.of_differences(pairing.differences, pairing.table.ends()) for pairing in pairings]
    return tuple(
        _comparison(pairing, estimate, p_value)
        for pairing, estimate, p_value in zip(pairings, estimates(samples, seed), p_values, strict=True)
    )


def verdicts(comparisons: Sequence[Comparison], alpha: float = ALPHA) -> tuple[Verdict, ...]:
    """Judge all comparisons that are looked at together: all candidates, and all metrics that are asked about.

    Holm's correction keeps the chance that luck makes any of them better or worse at `alpha` at most, however many they
    are. `needed_cases` is what it takes among as many.
    """
    if not 0 < alpha < 1:
        raise InvalidInput(f"alpha must lie between 0 and 1, not {alpha}")
    adjusted = _holm([comparison.p_value for comparison in comparisons])
    return tuple(
        Verdict(
            comparison=comparison,
            finding=_finding(comparison, p_value, alpha),
            adjusted_p=p_value,
            needed_cases=comparison.needed_cases(alpha / len(comparisons)),
        )
        for comparison, p_value in zip(comparisons, adjusted, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class _Pairing:
    table: ScoreTable
    candidate: str
    baseline: str
    candidate_scores: Array
    baseline_scores: Array
    dropped: int

    @cached_property
    def differences(self) -> Array:
        return _differences(self.candidate_scores, self.baseline_scores)


def _pairings(table: ScoreTable, baseline: str, errors: Errors) -> Iterator[_Pairing]:
    if baseline not in table.combinations:
        raise InvalidInput(
            f"there is no combination {baseline!r} to compare with; there are {', '.join(table.combinations) or 'none'}"
        )
    known = table.case_means(baseline, errors)
    for candidate in table.combinations:
        if candidate == baseline:
            continue
        means = table.case_means(candidate, errors)
        both = [case for case in known if case in means]
        cases = table.combinations[candidate].keys() | table.combinations[baseline].keys()
        yield _Pairing(
            table=table,
            candidate=candidate,
            baseline=baseline,
            candidate_scores=_array(means[case] for case in both),
            baseline_scores=_array(known[case] for case in both),
            dropped=len(cases) - len(both),
        )


def _differences(candidate: Array, baseline: Array) -> Array:
    """Subtract, and round to about twelve digits of the scores: what differs by less is a tie, or the same."""
    largest = float(np.abs(np.concatenate([candidate, baseline])).max(initial=0.0))
    grain = math.ulp(largest) * 2**12  # a power of two: rounding to its multiples adds no error of its own
    return np.round((candidate - baseline) / grain) * grain


def _difference(differences: Array) -> float | None:
    """Return the mean; wins and losses that cancel but for rounding make 0."""
    if not differences.size:
        return None
    mean = float(differences.mean())
    return mean if abs(mean) > 1e-12 * float(np.abs(differences).max()) else 0.0


def _p_values(samples: Sequence[Array], draws: int, seed: int) -> list[float]:
    """Test the samples, those of one size together."""
    found = [1.0] * len(samples)
    sizes = defaultdict(list)
    for index, sample in enumerate(samples):
        sizes[sample.size].append(index)
    for indices in sizes.values():
        columns = np.column_stack([samples[index] for index in indices])
        for index, p_value in zip(indices, sign_flip(columns, draws=draws, seed=seed), strict=True):
            found[index] = p_value
    return found


def _comparison(pairing: _Pairing, estimate: Estimate, p_value: float) -> Comparison:
    metric, differences = pairing.table.metric, pairing.differences
    gains = differences * metric.direction.sign
    spread = float(differences.std(ddof=1)) if np.unique(differences).size > 1 else 0.0
    difference = _difference(differences)
    low, high = pairing.table.limits()
    reach = (low - high, high - low)
    return Comparison(
        metric=metric,
        candidate=pairing.candidate,
        baseline=pairing.baseline,
        pairs=differences.size,
        dropped=pairing.dropped,
        difference=difference,
        interval=estimate.interval and estimate.interval.within(reach),
        bounds=estimate.bounds and estimate.bounds.within(reach),
        method=estimate.method,
        p_value=p_value,
        wins=int(np.count_nonzero(gains > 0)),
        ties=int(np.count_nonzero(gains == 0)),
        losses=int(np.count_nonzero(gains < 0)),
        effect_size=difference / spread if difference is not None and spread else None,
        candidate_scores=tuple(pairing.candidate_scores.tolist()),
        baseline_scores=tuple(pairing.baseline_scores.tolist()),
        failures=_failures(pairing),
    )


def _failures(pairing: _Pairing) -> Failures:
    candidate, baseline = (_failed_cases(pairing.table, name) for name in (pairing.candidate, pairing.baseline))
    return Failures(
        candidate_only=len(candidate - baseline),
        baseline_only=len(baseline - candidate),
        both=len(candidate & baseline),
    )


def _failed_cases(table: ScoreTable, combination: str) -> set[str]:
    return {case for case, repeats in table.combinations[combination].items() if Absent.ERROR in repeats}


def _summary(table: ScoreTable, name: str, cases: int, estimate: Estimate) -> Summary:
    return Summary(
        metric=table.metric,
        combination=name,
        cases=cases,
        repeats=max(map(len, table.combinations[name].values()), default=0),
        mean=estimate.mean,
        interval=estimate.interval and estimate.interval.within(table.limits()),
        method=estimate.method,
        errors=table.count(name, Absent.ERROR),
        missing=table.count(name, Absent.MISSING),
    )


def _finding(comparison: Comparison, adjusted_p: float, alpha: float) -> Finding:
    interval = comparison.interval
    if adjusted_p > alpha or interval is None or interval.low <= 0 <= interval.high:
        return Finding.NO_EVIDENCE
    return Finding.BETTER if comparison.metric.better(interval.low, 0) else Finding.WORSE


def _holm(p_values: Sequence[float]) -> list[float]:
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def _is_share(values: Array, ends: tuple[float, float] | None) -> bool:
    """Whether every case is either right or wrong, in all of its repeats."""
    return ends == (0.0, 1.0) and bool(np.isin(values, (0, 1)).all())


def _array(values: Iterable[float]) -> Array:
    return np.fromiter(values, dtype=np.float64)
