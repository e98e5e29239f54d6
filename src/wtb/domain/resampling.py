"""The numbers behind verdicts: sign-flip tests and bootstrap-t intervals, for many samples of one size at once.

Samples are the columns of an array. All columns see the same random draws, which come from the seed alone, so that the
same scores always give the same answer; each test is valid by itself, and Holm's correction holds however they depend
on each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESAMPLES = 4_999
_CELLS = 1_000_000


def sign_flip(columns: Array, *, draws: int, seed: int) -> list[float]:
    """The two-sided p-value of each column of paired differences, under "either side could have had the other's score".

    Then the sign of each difference is a coin toss: p is how often tosses give a sum at least as far from 0. Where the
    differences that are not 0 allow no more sign patterns than draws, all are tried and p is exact; otherwise patterns
    are drawn, and the observed one counts as one of them, so that p is never 0.
    """
    p_values = np.empty(columns.shape[1])
    few = [index for index, column in enumerate(columns.T) if 2 ** int(np.count_nonzero(column)) <= draws]
    for index in few:
        column = columns[:, index]
        p_values[index] = _exact(column[column != 0])
    many = np.setdiff1d(np.arange(columns.shape[1]), few)
    if many.size:
        p_values[many] = (1 + _extremes(columns[:, many], draws, seed)) / (1 + draws)
    return [float(p) for p in p_values]


def _exact(differences: Array) -> float:
    count = differences.size
    patterns = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    return float(np.mean(np.abs((2.0 * patterns - 1) @ differences) >= _reach(differences)))


def _extremes(columns: Array, draws: int, seed: int) -> NDArray[np.int64]:
    """How many random sign patterns reach as far from 0 as each column does."""
    generator = np.random.default_rng(seed)
    reach = _reach(columns)
    found = np.zeros(columns.shape[1], dtype=np.int64)
    for rows in _blocks(draws, columns.shape[0]):
        signs = generator.integers(0, 2, size=(rows, columns.shape[0]), dtype=np.int8) * 2.0 - 1
        for some in _slices(columns.shape[1], rows):
            found[some] += np.count_nonzero(np.abs(signs @ columns[:, some]) >= reach[some], axis=0)
    return found


def _reach(differences: Array) -> Array:
    """The observed distance from 0, less what rounding may take from an equal sum in another order."""
    reach: Array = np.abs(differences.sum(axis=0)) - 1e-12 * np.abs(differences).sum(axis=0)
    return reach


def bootstrap_t(columns: Array, levels: Sequence[float], *, seed: int) -> list[list[tuple[float, float]]]:
    """For each column, an interval of its mean at each level.

    Resampled means are measured in their own standard errors, so that skewed scores get the lopsided interval they
    need; the plain percentile bootstrap is too narrow for few cases.
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
    """The resampled means less the mean of each column, in standard errors of the resample."""
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
    """Yield numbers of rows that add up to `rows`, so few at a time that memory stays small."""
    for block in _slices(rows, width):
        yield block.stop - block.start


def _slices(length: int, width: int) -> Iterator[slice]:
    step = max(1, _CELLS // width)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
