"""The numbers behind verdicts: sign-flip tests and bootstrap-t intervals, for many columns at once.

All columns use the same random signs, which depend only on the seed, so that the same scores always give the same
answer. A unit, which is a case or a cluster, has the same sign in all columns: so the test of a whole family takes into
account how its comparisons depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DRAWS = 9_999
RESAMPLES = 4_999
_CELLS = 1_000_000
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """The differences of several comparisons: a row per unit, 0 where a comparison lacks the unit.

    Sums of a column that are closer than its `slack` count as equal.
    """

    values: Array
    slack: Array

    @cached_property
    def norms(self) -> Array:
        """The root of the sum of squares, which does not depend on signs; 1 if all differences are 0."""
        norms: Array = np.sqrt((self.values**2).sum(axis=0))
        norms[norms == 0] = 1.0
        return norms

    @cached_property
    def reach(self) -> Array:
        """How far from 0 each column is in its own units, |Σd| / √Σd²."""
        reach: Array = np.abs(self.values.sum(axis=0)) / self.norms
        return reach

    @cached_property
    def tolerance(self) -> Array:
        """The largest rounding error of `reach`."""
        return self.slack / self.norms + _ROUNDING * (1 + self.reach)

    def chosen(self, indices: Sequence[int]) -> Columns:
        """Return some of the columns."""
        return Columns(values=self.values[:, indices], slack=self.slack[indices])


def sign_flip(columns: Columns, *, draws: int = DRAWS, seed: int) -> list[float]:
    """Return the two-sided p-value of each column, under "either side could have had the other's score".

    Then the sign of each difference is a coin toss, and p is how often tosses give a sum at least as far from 0. If the
    differences that are not 0 have no more sign patterns than draws, all are tried and p is exact. Otherwise patterns
    are drawn, and the observed one counts as one of them, so that p is never 0.
    """
    p_values = np.ones(columns.values.shape[1])
    filled = np.count_nonzero(columns.values, axis=0)
    few = filled <= np.log2(draws)
    for index in np.flatnonzero(few):
        p_values[index] = _share_reached(columns.chosen([int(index)]), draws, seed)[0]
    many = np.flatnonzero(~few)
    if many.size:
        p_values[many] = _share_reached(columns.chosen(many.tolist()), draws, seed)
    return [float(p) for p in p_values]


def step_down(columns: Columns, *, draws: int = DRAWS, seed: int) -> list[float]:
    """Return the p-value of each column among all of them: Westfall and Young's step-down maxT over joint sign flips.

    The largest column is compared with the largest of all columns under the same signs, the next with the largest of
    the remaining columns, and so on. Columns that depend on each other cost little, and the number of draws does not
    depend on the number of columns.
    """
    order = np.argsort(-columns.reach, kind="stable")
    adjusted = np.ones(order.size)
    shares = _share_reached(columns.chosen(order.tolist()), draws, seed, joint=True)
    adjusted[order] = np.maximum.accumulate(shares)
    return [float(p) for p in adjusted]


def highest_reach(centred: Array, alpha: float, *, draws: int = DRAWS, seed: int) -> float:
    """Return how far from 0 the largest of all columns reaches in all but a share `alpha` of the sign patterns.

    The columns are centred: this is the effect of chance alone if each column has exactly its own mean.
    """
    columns = Columns(values=centred, slack=np.zeros(centred.shape[1]))
    reached = [np.abs(signs @ centred / columns.norms).max(axis=1) for signs in _draws(draws, len(centred), seed)]
    return float(np.quantile(np.concatenate(reached), 1 - alpha))


def _share_reached(columns: Columns, draws: int, seed: int, *, joint: bool = False) -> Array:
    """Return the share of sign patterns in which each column (with `joint`: it or a later one) is as far from 0."""
    values = columns.values[np.any(columns.values != 0, axis=1)]
    exact = len(values) <= np.log2(draws)
    if not exact:
        values = columns.values  # the signs of a unit do not depend on whether another one is tied
    found = np.zeros(values.shape[1], dtype=np.int64)
    for signs in _patterns(len(values)) if exact else _draws(draws, len(values), seed):
        for rows in _slices(len(signs), values.shape[1]):
            reached = np.abs(signs[rows] @ values) / columns.norms + columns.tolerance
            if joint:
                reached = np.maximum.accumulate(reached[:, ::-1], axis=1)[:, ::-1]
            found += np.count_nonzero(reached >= columns.reach - columns.tolerance, axis=0)
    return found / 2.0 ** len(values) if exact else (1 + found) / (1 + draws)


def _patterns(units: int) -> Iterator[Array]:
    """Yield all sign patterns."""
    yield _signs((np.arange(2**units)[:, None] >> np.arange(units)) & 1)


def _draws(draws: int, units: int, seed: int) -> Iterator[Array]:
    """Yield random sign patterns, always the same ones for the same number of units."""
    if draws * units <= _CELLS:
        yield _few_draws(draws, units, seed)
        return
    generator = np.random.default_rng(seed)
    for rows in _blocks(draws, units):
        yield _signs(generator.integers(0, 2, size=(rows, units), dtype=np.int8))


@lru_cache(maxsize=2)  # at most eight megabytes each, and every family uses them again
def _few_draws(draws: int, units: int, seed: int) -> Array:
    signs = _signs(np.random.default_rng(seed).integers(0, 2, size=(draws, units), dtype=np.int8))
    signs.flags.writeable = False
    return signs


def _signs(bits: NDArray[np.integer[Any]]) -> Array:
    return np.asarray(1 - 2.0 * bits, dtype=np.float64)


def nearest_end(values: Array, level: float, *, seed: int) -> float:
    """Return the end near 0 of the interval that inverts the sign-flip test, for a mean above 0.

    A shift of all values is rejected exactly if few enough means of random subsets are below it, so the end is a
    quantile of such means. If 0 is rejected, the end is above 0.
    """
    means = []
    for signs in _draws(DRAWS, values.size, seed):
        flipped = (signs < 0).astype(np.float64)
        counts = flipped.sum(axis=1)
        means.append((flipped @ values)[counts > 0] / counts[counts > 0])
    ordered = np.sort(np.concatenate(means))
    end = float(ordered[max(0, int((DRAWS + 1) * (1 - level) / 2) - 1)])
    return end if end > 0 else float(ordered[ordered > 0][0])


def bootstrap_t(columns: Array, levels: Sequence[float], *, seed: int) -> list[list[tuple[float, float]]]:
    """Return, for each column, an interval of its mean at each level.

    Resampled means are measured in their own standard errors, so that skewed scores get the asymmetric interval that
    they need; the plain percentile bootstrap is too narrow for few cases.
    """
    found = []
    for chosen in _slices(columns.shape[1], RESAMPLES):
        some = columns[:, chosen]
        pivots = np.sort(_pivots(some, seed), axis=0)
        error = some.std(axis=0, ddof=1) / np.sqrt(some.shape[0])
        for mean, width, pivot in zip(some.mean(axis=0), error, pivots.T, strict=True):
            found.append([_ends(mean, width, pivot, level) for level in levels])
    return found


def _ends(mean: float, error: float, pivots: Array, level: float) -> tuple[float, float]:
    rank = round((RESAMPLES + 1) * (1 - level) / 2)
    return float(mean - pivots[-rank] * error), float(mean - pivots[rank - 1] * error)


def _pivots(columns: Array, seed: int) -> Array:
    """Return the resampled means minus the mean of each column, in standard errors of the resample."""
    size = columns.shape[0]
    generator = np.random.default_rng(seed)
    centred = columns - columns.mean(axis=0)
    squares = centred**2
    pivots = []
    for rows in _blocks(RESAMPLES, size):
        drawn = generator.integers(0, size, size=(rows, size)) + np.arange(rows)[:, None] * size
        counts = np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size) / size
        means = counts @ centred
        spread = np.maximum(counts @ squares - means**2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            pivots.append(np.nan_to_num(means / np.sqrt(spread / (size - 1)), nan=0.0, posinf=np.inf, neginf=-np.inf))
    return np.concatenate(pivots)


def _blocks(rows: int, width: int) -> Iterator[int]:
    """Yield numbers of rows that add up to `rows`, each small enough for memory."""
    for block in _slices(rows, width):
        yield block.stop - block.start


def _slices(length: int, width: int) -> Iterator[slice]:
    step = max(1, _CELLS // width)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
