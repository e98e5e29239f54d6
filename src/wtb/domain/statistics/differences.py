"""Differences: the difference of two combinations on each unit, as numbers whose sums keep ties exact.

A unit is a case, or a cluster of cases. Scores with few digits become integers, so that equal sums are really equal,
whatever the unit of the metric. Other scores stay floats, with a slack within which two sums count as equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from wtb.domain.evaluation import mean_of
from wtb.domain.statistics.resampling import Array

Runs = Mapping[str, Sequence[float]]
"""The scores of one combination by case, one per run."""

_Number = TypeVar("_Number", int, float)

_DIGITS = 12
# A score with more digits than this is a third, a logarithm or a latency: as a decimal it would be rounded, and equal
# sums would become unequal.
_FEW_DIGITS = 9
_FAR = 280
_LARGEST_INTEGER = 2**53
_NOISE = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class Differences:
    """The differences by unit, sorted by the name of the unit.

    `values` times `factor`, divided by `divisor`, are differences in units of the metric. Sums of `values` that are
    closer than `slack` count as equal. `lost` is the number of cases that count as a win or a loss because a run failed
    and the metric has no worst score.
    """

    units: tuple[str, ...]
    values: Array
    factor: float = 1.0
    divisor: float = 1.0
    slack: float = 0.0
    lost: int = 0

    @cached_property
    def in_metric(self) -> Array:
        """The differences in units of the metric."""
        with np.errstate(over="ignore"):
            return self.values * self.factor / self.divisor

    @cached_property
    def total(self) -> float:
        """The sum of the values; 0 if wins and losses cancel except for rounding."""
        total = math.fsum(self.values)
        return total if abs(total) > self.slack else 0.0

    @property
    def mean(self) -> float | None:
        """The mean in units of the metric; None if there are no differences, or if a float cannot hold it."""
        if not self.values.size:
            return None
        mean = self.total / self.values.size * self.factor / self.divisor
        return mean if math.isfinite(mean) else None


def differences(candidate: Runs, baseline: Runs, clusters: Mapping[str, str], lost: Mapping[str, int]) -> Differences:
    """Subtract case by case, over the cases that both have, and average within each cluster.

    `lost` names the cases that a failed run decides: -1 for the lower end, 1 for the upper end, 0 for a tie. They count
    as much as the largest difference among the other cases.
    """
    cases = sorted(case for case in candidate if case in baseline and case not in lost)
    found = _exact(candidate, baseline, cases, clusters, lost)
    return found or _floating(candidate, baseline, cases, clusters, lost)


def unit_of(case: str, clusters: Mapping[str, str]) -> str:
    """Return the name of the unit that a case belongs to; a case without a cluster is its own unit."""
    return f"cluster {clusters[case]}" if case in clusters else f"case {case}"


def unit_means(means: Mapping[str, float], clusters: Mapping[str, str]) -> dict[str, float]:
    """Return the mean over the cases of each unit, sorted by the name of the unit."""
    grouped: dict[str, list[float]] = {}
    for case, score in means.items():
        grouped.setdefault(unit_of(case, clusters), []).append(score)
    return {unit: mean_of(grouped[unit]) for unit in sorted(grouped)}


def _exact(
    candidate: Runs, baseline: Runs, cases: Sequence[str], clusters: Mapping[str, str], lost: Mapping[str, int]
) -> Differences | None:
    """Return the differences as integers; None if the scores have too many digits for that."""
    sides = [[side[case] for case in cases] for side in (candidate, baseline)]
    decimals = {}
    for score in {score for side in sides for runs in side for score in runs}:
        decimals[score] = _decimal(score)
        if abs(decimals[score][0]) >= 10**_FEW_DIGITS:
            return None
    exponents = [exponent for digits, exponent in decimals.values() if digits]
    least = min(exponents, default=0)
    if exponents and (abs(least) > _FAR or max(exponents) - least > _DIGITS + 3):
        return None
    whole = {
        score: digits * 10 ** (exponent - least) if digits else 0 for score, (digits, exponent) in decimals.items()
    }
    counts = math.lcm(*{len(runs) for side in sides for runs in side})
    ours, theirs = ([sum(map(whole.__getitem__, runs)) * (counts // len(runs)) for runs in side] for side in sides)
    by_case = {case: own - other for case, own, other in zip(cases, ours, theirs, strict=True)}
    loss = max(map(abs, by_case.values()), default=0) or 1
    grouped = _grouped({**by_case, **{case: sign * loss for case, sign in lost.items()}}, clusters)
    sizes = math.lcm(*{len(each) for each in grouped.values()})
    values = [sum(each) * (sizes // len(each)) for each in grouped.values()]
    if sum(map(abs, values)) >= _LARGEST_INTEGER:
        return None
    return Differences(
        units=tuple(grouped),
        values=np.array(values, dtype=np.float64),
        factor=10.0 ** max(least, 0),
        divisor=10.0 ** max(-least, 0) * counts * sizes,
        lost=len(lost),
    )


def _decimal(score: float) -> tuple[int, int]:
    """Return the digits and the exponent of a score, rounded to 12 digits."""
    mantissa, _, exponent = f"{score:.{_DIGITS - 1}e}".partition("e")
    digits = mantissa.replace(".", "").rstrip("0")
    if digits in ("", "-"):
        return 0, 0
    return int(digits), int(exponent) + 1 - len(digits.lstrip("-"))


def _floating(
    candidate: Runs, baseline: Runs, cases: Sequence[str], clusters: Mapping[str, str], lost: Mapping[str, int]
) -> Differences:
    ours, theirs = (_array(mean_of(side[case]) for case in cases) for side in (candidate, baseline))
    largest = float(np.abs(np.concatenate([ours, theirs])).max(initial=0.0))
    # A power of two changes no digit, and keeps the squares of tiny and huge scores within the range of a float.
    scale = math.ldexp(1.0, max(-1021, min(1023, math.frexp(largest)[1]))) if largest else 1.0
    size = np.maximum(np.abs(ours / scale), np.abs(theirs / scale))
    apart = ours / scale - theirs / scale
    apart = np.where(np.abs(apart) <= size * 10.0**-_DIGITS, 0.0, apart)
    loss = float(np.abs(apart).max(initial=0.0)) or 1.0
    by_case = {**dict(zip(cases, apart.tolist(), strict=True)), **{case: sign * loss for case, sign in lost.items()}}
    grouped = _grouped(by_case, clusters)
    return Differences(
        units=tuple(grouped),
        values=_array(mean_of(each) for each in grouped.values()),
        factor=scale,
        slack=float(size.sum()) * _NOISE,
        lost=len(lost),
    )


def _grouped(by_case: Mapping[str, _Number], clusters: Mapping[str, str]) -> dict[str, list[_Number]]:
    grouped: dict[str, list[_Number]] = {}
    for case, value in by_case.items():
        grouped.setdefault(unit_of(case, clusters), []).append(value)
    return dict(sorted(grouped.items()))


def _array(values: Iterable[float]) -> Array:
    return np.fromiter(values, dtype=np.float64)
