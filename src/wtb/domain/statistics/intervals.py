"""Intervals of means that stay reliable with few cases, skewed scores, and scores that hardly vary."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.special import ndtri, stdtrit

from wtb.domain.statistics.resampling import Array, bootstrap_t

LEVEL = 0.95

# The two-sided level, and the level at which each end alone is a one-sided bound.
_LEVELS = (LEVEL, 2 * LEVEL - 1)
_FEW = 6
_FEW_OTHERS = 15


class Method(StrEnum):
    """How an interval was made.

    `wilson`: a share of cases, each of them scored 0 or 1. `student`: fewer than 6 cases. `pseudo-cases`: scores that
    hardly vary, whose own spread promises too much: Student's interval as if both ends of what was seen had been seen a
    little more often (for the difference of two shares this is the interval of Bonett and Price). `bootstrap-t`: all
    else, and nowhere narrower than Student's, which is right more often for differences with two long tails. `none`:
    fewer than two cases, or the scores of all combinations are the same and the metric has no declared scale, so that
    nothing is known of their spread.
    """

    WILSON = "wilson"
    PSEUDO_CASES = "pseudo-cases"
    STUDENT = "student"
    BOOTSTRAP_T = "bootstrap-t"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a mean over all cases of this kind plausibly lies."""

    low: float
    high: float

    def hull(self, other: Interval) -> Interval:
        """Return the smallest interval that contains both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def within(self, ends: tuple[float, float]) -> Interval:
        """Return the part of the interval that is on the scale."""
        return Interval(max(self.low, ends[0]), min(self.high, ends[1]))

    def times(self, factor: float) -> Interval:
        """Return the interval in another unit."""
        return Interval(self.low * factor, self.high * factor)

    def holds(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number per case; `pseudo` are cases to add if these hardly vary, empty if their range is unknown."""

    values: Array
    pseudo: tuple[float, ...]
    share: bool = False

    @classmethod
    def of_scores(cls, values: Array, ends: tuple[float, float] | None, *, share: bool) -> Sample:
        """Put two pseudo-cases at each end of the observed range, or of the scale if all scores are the same."""
        if values.size and values.min() < values.max():
            ends = float(values.min()), float(values.max())
        return cls(values=values, pseudo=(*ends, *ends) if ends and ends[0] < ends[1] else (), share=share)

    @classmethod
    def of_differences(cls, values: Array, ends: tuple[float, float] | None) -> Sample:
        """Add a win and a loss by the largest observed difference, or by the whole scale if all cases are ties."""
        reach = float(np.abs(values).max(initial=0.0))
        if not reach and ends and math.isfinite(ends[1] - ends[0]):
            reach = ends[1] - ends[0]
        return cls(values=values, pseudo=(-reach, reach) if reach else ())

    def divided(self, scale: float) -> Sample:
        """Return the sample in another unit."""
        return replace(self, values=self.values / scale, pseudo=tuple(each / scale for each in self.pseudo))

    def student(self, level: float) -> Interval:
        """Return Student's interval, with the pseudo-cases if most values are tied."""
        return _student(np.append(self.values, self.pseudo) if self._tied() else self.values, level)

    def method(self) -> Method:
        """The method for the interval of this sample."""
        if self.values.size < 2:
            return Method.NONE
        if self.share:
            return Method.WILSON
        if self._tied():
            return Method.PSEUDO_CASES if self.pseudo else Method.NONE
        return Method.STUDENT if self.values.size < _FEW else Method.BOOTSTRAP_T

    def _tied(self) -> bool:
        """Whether there are at most three different values, or too few besides the most frequent one."""
        _, counts = np.unique(self.values, return_counts=True)
        others = self.values.size - counts.max()
        return bool(counts.size <= 3 or others < min(_FEW_OTHERS, self.values.size / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean, its interval, and the bounds, each of which holds alone at the same level."""

    mean: float | None
    method: Method
    interval: Interval | None = None
    bounds: Interval | None = None

    def times(self, scale: float) -> Estimate:
        """Return the estimate in another unit; without an interval if an end is not finite."""
        mean = None if self.mean is None else self.mean * scale
        if self.interval is None or self.bounds is None:
            return Estimate(mean=mean, method=self.method)
        both = self.interval.times(scale), self.bounds.times(scale)
        if not all(math.isfinite(end) for each in both for end in (each.low, each.high)):
            return Estimate(mean=mean, method=Method.NONE)
        return Estimate(mean=mean, method=self.method, interval=both[0], bounds=both[1])


def estimates(samples: Sequence[Sample], seed: int) -> list[Estimate]:
    """Return an estimate for each sample; samples of the same size are resampled together.

    Every sample is first divided by about its largest value, because squares of tiny or huge scores would leave the
    range of a float. If an end is not finite, there is no interval.
    """
    scales = [_scale(sample) for sample in samples]
    scaled = [sample.divided(scale) for sample, scale in zip(samples, scales, strict=True)]
    return [each.times(scale) for each, scale in zip(_estimates(scaled, seed), scales, strict=True)]


def _scale(sample: Sample) -> float:
    """Return a power of two near the largest value, which changes no digit; shares are not scaled."""
    if sample.share:
        return 1.0
    largest = float(np.abs(np.append(sample.values, sample.pseudo)).max(initial=0.0))
    return math.ldexp(1.0, max(-1021, min(1023, math.frexp(largest)[1]))) if largest else 1.0


def _estimates(samples: Sequence[Sample], seed: int) -> list[Estimate]:
    found: dict[int, list[Interval]] = {}
    resampled = defaultdict(list)
    for index, sample in enumerate(samples):
        method = sample.method()
        if method is Method.BOOTSTRAP_T:
            resampled[sample.values.size].append(index)
        elif method is not Method.NONE:
            found[index] = [_analytic(sample, method, level) for level in _LEVELS]
    for indices in resampled.values():
        columns = np.column_stack([samples[index].values for index in indices])
        for index, ends in zip(indices, bootstrap_t(columns, _LEVELS, seed=seed), strict=True):
            found[index] = [
                Interval(*end).hull(_student(samples[index].values, level))
                for end, level in zip(ends, _LEVELS, strict=True)
            ]
    return [_estimate(sample, found.get(index)) for index, sample in enumerate(samples)]


def _estimate(sample: Sample, found: list[Interval] | None) -> Estimate:
    mean = float(sample.values.mean()) if sample.values.size else None
    if found is None:
        return Estimate(mean=mean, method=Method.NONE)
    interval, bounds = found
    return Estimate(mean=mean, method=sample.method(), interval=interval, bounds=bounds)


def _analytic(sample: Sample, method: Method, level: float) -> Interval:
    if method is Method.WILSON:
        return _wilson(sample.values, level)
    if method is Method.PSEUDO_CASES:
        return _student(np.append(sample.values, sample.pseudo), level)
    return _student(sample.values, level)


def _student(values: Array, level: float) -> Interval:
    mean = float(values.mean())
    reach = float(stdtrit(values.size - 1, (1 + level) / 2)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Interval(mean - reach, mean + reach)


def _wilson(values: Array, level: float) -> Interval:
    size, share = values.size, float(values.mean())
    z2 = float(ndtri((1 + level) / 2)) ** 2
    centre = (share + z2 / (2 * size)) / (1 + z2 / size)
    reach = math.sqrt(z2 * (share * (1 - share) / size + z2 / (4 * size**2))) / (1 + z2 / size)
    return Interval(max(0.0, centre - reach), min(1.0, centre + reach))
