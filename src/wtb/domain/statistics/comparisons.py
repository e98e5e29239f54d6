"""Summaries and comparisons: the scores of combinations, the differences between them, and their certainty.

A unit is a case, or a cluster of cases. Repeats are averaged within their case, then cases within their cluster, and
combinations are compared unit by unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtri

from wtb.domain.evaluation import Absent, Errors, Metric, ScoreTable
from wtb.domain.statistics.differences import Differences, unit_means
from wtb.domain.statistics.intervals import LEVEL, Estimate, Interval, Method, Sample, estimates
from wtb.domain.statistics.pairing import Failures, Pairing, columns_of, pairings
from wtb.domain.statistics.resampling import Array, nearest_end, sign_flip

ALPHA = 0.05
SEED = 0

_POWER = 0.8
# A normal variable lies within this many standard deviations in half of all draws.
_HALF = 0.6745


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One combination on one metric: the mean over its cases, with a 95 % interval for cases like these.

    `cases` have a score; `errors` and `missing` count runs. `scored` counts the runs in the mean; without a declared
    worst score, failed runs are not in it. The cases of a cluster count as one, and `clusters` counts these.
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
    scored: int = 0
    clusters: int | None = None

    @property
    def leaves_out_errors(self) -> bool:
        """Whether failed runs are missing from the mean, because the metric has no worst score for them."""
        return self.errors > 0 and self.metric.worst is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededCases:
    """How many cases you would need to show a difference as large as the one seen, in four batches out of five.

    `about` takes the difference as it was seen, which is itself uncertain: as likely as not, the true one needs between
    `low` and `high` cases. Without `high`, it may be that no number of cases shows it.
    """

    low: int
    about: int
    high: int | None

    def __str__(self) -> str:
        low, high = _two_digits(self.low), "" if self.high is None else _two_digits(self.high)
        if not high:
            return f"{low}+"
        return low if low == high else f"{low}–{high}"


def _two_digits(count: int) -> str:
    """Return a number of cases, rounded to the two digits that are known."""
    return f"{round(count, 2 - len(str(count))) if count > 99 else count:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A candidate against the baseline on one metric, over the `pairs`: cases (or clusters) that both have run.

    `difference` is the candidate's mean minus the baseline's, in units of the metric. `interval` contains the true
    difference with 95 % confidence, and each end of `bounds` alone limits it with 95 % confidence. All three are about
    the cases that both have scored. `wins` counts cases in which the candidate is better. `effect_size` is the
    difference in standard deviations of the differences by case; more repeats make these smaller, and the effect size
    larger.
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
    """The candidate's score on each case (or cluster) that both have scored, sorted by its name."""
    baseline_scores: tuple[float, ...] = ()
    """The baseline's score on each of them, in the same order."""
    failures: Failures = field(default_factory=Failures)
    tested: Differences | None = field(default=None, repr=False, compare=False)
    """The differences behind the p-value; a failed run on a metric without a worst score is a lost case."""

    @property
    def decided_by_failures(self) -> int:
        """How many cases count as won or lost because a run failed: the metric has no worst score."""
        return 0 if self.tested is None else self.tested.lost

    @property
    def leaning(self) -> int:
        """The side that the test leans to: 1 for the candidate, -1 for the baseline, 0 for neither."""
        total = 0.0 if self.tested is None else self.tested.total
        return self.metric.direction.sign * ((total > 0) - (total < 0))

    def needed_cases(self, alpha: float = ALPHA) -> NeededCases | None:
        """How many cases in all would show a difference as large as this one; None when there is no difference."""
        if not self.difference:
            return None
        # With fewer untied cases there are too few sign patterns for a p-value below alpha.
        fewest = math.ceil(math.log2(2 / alpha) * self.pairs / max(1, self.wins + self.losses))
        if self.effect_size is None:
            return NeededCases(low=fewest, about=fewest, high=fewest)
        effect, error = abs(self.effect_size), _HALF / math.sqrt(self.pairs)
        low, about = (max(fewest, _cases_for(each, alpha)) for each in (effect + error, effect))
        high = max(fewest, _cases_for(effect - error, alpha)) if effect > error else None
        return NeededCases(low=low, about=about, high=high)


def _cases_for(effect: float, alpha: float) -> int:
    z = float(ndtri(1 - alpha / 2))
    return math.ceil(((z + float(ndtri(_POWER))) / effect) ** 2 + z**2 / 2)


def summarise(table: ScoreTable, *, errors: Errors = Errors.WORST, seed: int = SEED) -> dict[str, Summary]:
    """Return the mean and its interval for each combination of the table."""
    means = {name: table.case_means(name, errors) for name in table.combinations}
    columns = [_array(unit_means(own, table.clusters).values()) for own in means.values()]
    samples = [Sample.of_scores(own, table.ends(), share=_is_share(own, table.ends())) for own in columns]
    return {
        name: _summary(table, name, means[name], errors, estimate)
        for name, estimate in zip(means, estimates(samples, seed), strict=True)
    }


def compare(
    tables: Iterable[ScoreTable], baseline: str, *, errors: Errors = Errors.WORST, seed: int = SEED
) -> tuple[Comparison, ...]:
    """Compare each other combination with the baseline, case by case, one table after the other.

    The p-value comes from a sign-flip test: how often a difference as large would arise if a coin toss had decided in
    each case which side got which score.
    """
    return _compared([pairing for table in tables for pairing in pairings(table, baseline, errors)], seed)


def compare_pairs(
    pairs: Iterable[tuple[ScoreTable, str]], *, errors: Errors = Errors.WORST, seed: int = SEED
) -> tuple[Comparison, ...]:
    """Compare like `compare`, but with a separate baseline for each table: the second of each pair."""
    return _compared([pairing for table, baseline in pairs for pairing in pairings(table, baseline, errors)], seed)


def _compared(found: Sequence[Pairing], seed: int) -> tuple[Comparison, ...]:
    if not found:
        return ()
    p_values = sign_flip(columns_of([pairing.tested for pairing in found]), seed=seed)
    samples = [_sample(pairing) for pairing in found]
    return tuple(
        _comparison(pairing, estimate, p_value, seed)
        for pairing, estimate, p_value in zip(found, estimates(samples, seed), p_values, strict=True)
    )


def _sample(pairing: Pairing) -> Sample:
    """Return the differences of the scores; those that differ only by rounding become equal."""
    values = pairing.measured.in_metric
    if not np.isfinite(values).all():
        return Sample.of_differences(_array(()), None)
    sizes = sorted(abs(score) for side in pairing.unit_scores for score in side)
    middle = sizes[len(sizes) // 2] if sizes else 0.0
    grain = math.ulp(middle) * 2**12  # a power of two: rounding to its multiples adds no new error
    if middle and float(np.abs(values).max()) / grain < 2.0**60:
        values = np.round(values / grain) * grain
    return Sample.of_differences(values, pairing.table.ends())


def _comparison(pairing: Pairing, estimate: Estimate, p_value: float, seed: int) -> Comparison:
    metric, tested, measured = pairing.table.metric, pairing.tested, pairing.measured
    gains = tested.values * metric.direction.sign
    low, high = pairing.table.limits()
    agreed = _agreeing(estimate, measured, p_value, seed) if not pairing.lost else estimate
    reach = (low - high, high - low)
    return Comparison(
        metric=metric,
        candidate=pairing.candidate,
        baseline=pairing.baseline,
        pairs=tested.values.size,
        dropped=pairing.dropped,
        difference=measured.mean,
        interval=agreed.interval and agreed.interval.within(reach),
        bounds=agreed.bounds and agreed.bounds.within(reach),
        method=agreed.method,
        p_value=p_value,
        wins=int(np.count_nonzero(gains > 0)),
        ties=int(np.count_nonzero(gains == 0)),
        losses=int(np.count_nonzero(gains < 0)),
        effect_size=_effect_size(measured),
        candidate_scores=pairing.unit_scores[0],
        baseline_scores=pairing.unit_scores[1],
        failures=pairing.failures(),
        tested=tested,
    )


def _effect_size(measured: Differences) -> float | None:
    values = measured.values
    spread = float(values.std(ddof=1)) if values.size > 1 and np.ptp(values) > measured.slack else 0.0
    return measured.total / values.size / spread if spread else None


def _agreeing(estimate: Estimate, measured: Differences, p_value: float, seed: int) -> Estimate:
    """Make the interval exclude 0 exactly if the test rules out 0, because the test is exact.

    If the interval contains 0 anyway, its end on that side is replaced by the end from the test itself.
    """
    interval, bounds = estimate.interval, estimate.bounds
    if interval is None or bounds is None:
        return estimate
    if p_value > ALPHA or not measured.total:
        return replace(estimate, interval=interval.hull(Interval(0.0, 0.0)))
    if not interval.holds(0):
        return estimate
    sign = 1.0 if measured.total > 0 else -1.0
    end = nearest_end(measured.in_metric * sign, LEVEL, seed=seed) * sign
    if sign > 0:
        return replace(
            estimate, interval=Interval(end, interval.high), bounds=Interval(max(end, bounds.low), bounds.high)
        )
    return replace(estimate, interval=Interval(interval.low, end), bounds=Interval(bounds.low, min(end, bounds.high)))


def _summary(table: ScoreTable, name: str, means: Mapping[str, float], errors: Errors, estimate: Estimate) -> Summary:
    return Summary(
        metric=table.metric,
        combination=name,
        cases=len(means),
        repeats=max(map(len, table.combinations[name].values()), default=0),
        mean=estimate.mean,
        interval=estimate.interval and estimate.interval.within(table.limits()),
        method=estimate.method,
        errors=table.count(name, Absent.ERROR),
        missing=table.count(name, Absent.MISSING),
        scored=sum(map(len, table.runs(name, errors).values())),
        clusters=len(unit_means(means, table.clusters)) if table.clusters else None,
    )


def _is_share(values: Array, ends: tuple[float, float] | None) -> bool:
    """Whether every case is either right or wrong in all its repeats."""
    return ends == (0.0, 1.0) and bool(np.isin(values, (0, 1)).all())


def _array(values: Iterable[float]) -> Array:
    return np.fromiter(values, dtype=np.float64)
