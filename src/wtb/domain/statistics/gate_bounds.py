"""The smallest and the largest likely drop, each with 95 % confidence, in units or as a share.

On a scale with two ends, the largest drop is Gaffke's bound: weigh the cases at random, together with one made-up case
in which the candidate loses by the whole scale, and take the mean that 95 % of the weightings stay below. It assumes
nothing about the scores except the scale, so it also holds if failures are so rare that a few cases show none. For
scores that are right or wrong it is the bound of Clopper and Pearson; for all others it is a conjecture without a known
exception.

A drop as a share of the baseline is bounded by a sign-flip test of candidate - k x baseline, which is exact if the
candidate scores like k times the baseline. The test does not reject the values of k between the ratios of sums over
random halves of the cases (Hartigan's typical values), so no k needs to be tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Metric
from wtb.domain.statistics.comparisons import ALPHA, SEED, Comparison

Array = NDArray[np.float64]

_DRAWS = 9_999
_CELLS = 1_000_000
_DIGITS = 12
"""Shares are rounded to this many digits: a candidate exactly at the allowance must not fail by rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drops:
    """The observed drop, and the lower and upper bounds of the true drop; None if nothing is known."""

    seen: float | None
    at_least: float | None = None
    at_most: float | None = None


def drops_in_units(comparison: Comparison) -> Drops:
    """Return the drop in units of the metric: positive is worse."""
    sign = -comparison.metric.direction.sign
    if comparison.difference is None or not math.isfinite(comparison.difference):
        return Drops(seen=None)
    at_least = at_most = None
    if comparison.bounds is not None:
        at_least, at_most = sorted((sign * comparison.bounds.low, sign * comparison.bounds.high))
    ends = _ends(comparison)
    if ends is not None:
        losses = sign * (np.asarray(comparison.candidate_scores) - np.asarray(comparison.baseline_scores))
        at_most = _highest(_weighted_means(np.append(losses, ends[1] - ends[0])))
    return Drops(seen=sign * comparison.difference, at_least=at_least, at_most=at_most)


def drops_as_share(comparison: Comparison) -> Drops:
    """Return the drop as a share of the baseline; raise InvalidInput if scores are not positive."""
    candidate, baseline = np.asarray(comparison.candidate_scores), np.asarray(comparison.baseline_scores)
    if not candidate.size or not np.isfinite([candidate, baseline]).all():
        return Drops(seen=None)
    ends = _ends(comparison)
    _check_positive(comparison.metric, candidate, baseline, ends)
    sign = -comparison.metric.direction.sign
    seen = sign * (float(candidate.sum() / baseline.sum()) - 1)
    typical = sorted(sign * (ratio - 1) for ratio in _typical_ratios(candidate, baseline))
    at_least, at_most = typical or (None, None)
    if ends is not None and ends[0] >= 0:
        worst, best = ends if comparison.metric.direction.sign > 0 else ends[::-1]
        ratios = _weighted_means(np.append(candidate, worst)) / _weighted_means(np.append(baseline, best))
        proven = _highest(sign * (ratios - 1))
        at_most = proven if at_most is None else max(at_most, proven)
    return Drops(seen=_rounded(seen), at_least=_rounded(at_least), at_most=_rounded(at_most))


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, _DIGITS)


def _ends(comparison: Comparison) -> tuple[float, float] | None:
    """Return the lower and the upper end of the scale if both are declared; scores beyond an end move it."""
    metric = comparison.metric
    if metric.worst is None or metric.best is None or not comparison.candidate_scores:
        return None
    known = (metric.worst, metric.best, *comparison.candidate_scores, *comparison.baseline_scores)
    return min(known), max(known)


def _check_positive(metric: Metric, candidate: Array, baseline: Array, ends: tuple[float, float] | None) -> None:
    """Refuse scores that allow no share; on a declared scale from 0, some scores may be 0, but not all."""
    lowest = float(min(candidate.min(), baseline.min()))
    if ends is not None and ends[0] >= 0:
        if baseline.sum() > 0:
            return
        problem = "all scores of the baseline are 0"
    elif lowest > 0:
        return
    else:
        problem = f"there is a score of {lowest:g}"
    raise InvalidInput(
        f"a drop in percent needs positive scores, and {problem} on {metric.name}: "
        "give the drop in units of the metric, such as 0.02"
    )


def _typical_ratios(candidate: Array, baseline: Array) -> tuple[float, float] | tuple[()]:
    """Return the lowest and the highest k that the test of candidate - k x baseline allows; empty below 5 cases."""
    low, high = [], []
    for halves in _halves(candidate.size):
        new, old = halves @ candidate, halves @ baseline
        # A half without any score fits every k: it counts on both sides.
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = new / old
        nothing = (old == 0) & (new == 0)
        low.append(np.where(nothing, -np.inf, ratios))
        high.append(np.where(nothing, np.inf, ratios))
    lowest, highest = np.sort(np.concatenate(low)), np.sort(np.concatenate(high))
    beyond = math.floor(ALPHA * (lowest.size + 1)) - 1
    if beyond < 0 or not math.isfinite(lowest[beyond]):
        return ()
    return float(lowest[beyond]), float(highest[-1 - beyond])


def _halves(size: int) -> Iterator[Array]:
    """Yield random halves of the cases as rows of 0 and 1; for few cases, yield all but the empty one."""
    if 2**size <= _DRAWS:
        numbers = np.arange(1, 2**size)[:, None]
        yield ((numbers >> np.arange(size)) & 1).astype(np.float64)
        return
    yield from _blocks(size, _coins)


def _weighted_means(values: Array) -> Array:
    """Return the means of the values under random weights, which depend only on the number of values."""
    return np.concatenate([weights @ values for weights in _blocks(values.size, _weights)])


def _highest(means: Array) -> float:
    """Return the value that 95 % of the means stay below."""
    rank = math.floor(ALPHA * (means.size + 1))
    return float(np.sort(means)[-rank])


def _coins(generator: np.random.Generator, shape: tuple[int, int]) -> Array:
    return generator.integers(0, 2, size=shape).astype(np.float64)


def _weights(generator: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return rows of random weights that add up to 1; all such rows are equally likely."""
    drawn = generator.standard_exponential(shape)
    weights: Array = drawn / drawn.sum(axis=1, keepdims=True)
    return weights


def _blocks(width: int, draw: Callable[[np.random.Generator, tuple[int, int]], Array]) -> Iterable[Array]:
    """Yield all draws in blocks that are small enough for memory."""
    generator = np.random.default_rng(SEED)
    step = max(1, _CELLS // width)
    for start in range(0, _DRAWS, step):
        yield draw(generator, (min(step, _DRAWS - start), width))
