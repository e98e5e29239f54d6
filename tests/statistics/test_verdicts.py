"""Verdicts, intervals and gates are right as often as they say, in simulated batches whose truth is known.

Every bound is what chance allows once in ten thousand for this number of batches. `make soak` simulates more of them:
then the bounds are narrower than what is promised, which is at most 6.4 % false winners, and intervals that hold the
truth in 95 ± 1.5 % with 80 cases and in 92.5 % with 20.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from tests.statistics import simulate
from tests.statistics.simulate import KINDS, LOGNORMAL, NORMAL, Kind
from wtb.domain import intervals, statistics
from wtb.domain.resampling import Array
from wtb.domain.statistics import Finding

BATCHES = 4_000 if os.environ.get("WTB_SOAK") else 250
# Cheaper than comparisons; skewed scores need as many to tell a good interval from a bad one.
MEANS = 4_000 if os.environ.get("WTB_SOAK") else 900


def most(share: float, batches: int = BATCHES) -> float:
    return float(binom.ppf(0.9999, batches, share)) / batches


def least(share: float, batches: int = BATCHES) -> float:
    return float(binom.ppf(0.0001, batches, share)) / batches


def names(kind: Kind) -> str:
    return kind.name


@pytest.mark.parametrize("cases", [20, 80])
@pytest.mark.parametrize("kind", KINDS, ids=names)
def test_a_combination_does_not_win_against_itself(kind: Kind, cases: int) -> None:
    comparisons = simulate.compared(kind, batches=BATCHES, cases=cases)

    assert simulate.winners(comparisons) <= most(0.05)
    assert simulate.differences_covered(comparisons) >= least(0.95)


def test_none_of_five_candidates_wins_by_luck() -> None:
    comparisons = simulate.compared(NORMAL, batches=BATCHES, cases=80, candidates=5)

    assert simulate.winners(comparisons, candidates=5) <= most(0.05)


def test_an_effect_of_half_a_standard_deviation_is_found() -> None:
    effect = simulate.half_a_deviation(NORMAL)

    assert simulate.found(simulate.compared(NORMAL, batches=BATCHES, cases=80, drop=effect), Finding.WORSE) >= 0.95


def test_as_many_cases_as_needed_find_the_effect_four_times_of_five() -> None:
    effect = simulate.half_a_deviation(NORMAL)
    (comparison,) = simulate.compared(NORMAL, batches=1, cases=100, drop=effect)
    needed = replace(comparison, effect_size=-0.5).needed_cases()  # the true effect: that of a sample is uncertain

    assert needed is not None
    comparisons = simulate.compared(NORMAL, batches=BATCHES, cases=needed, drop=effect)
    assert least(0.78) <= simulate.found(comparisons, Finding.WORSE) <= most(0.82)


@pytest.mark.parametrize(
    ("kind", "cases", "share"), [(kind, 80, 0.95) for kind in KINDS] + [(NORMAL, 20, 0.95), (LOGNORMAL, 20, 0.92)]
)
def test_the_interval_of_a_mean_holds_the_true_mean(kind: Kind, cases: int, share: float) -> None:
    assert simulate.means_covered(kind, batches=MEANS, cases=cases) >= least(share, MEANS)


def test_intervals_are_not_wider_than_they_need_to_be() -> None:
    comparisons = simulate.compared(NORMAL, batches=BATCHES, cases=80)

    assert simulate.differences_covered(comparisons) <= most(0.955)
    assert simulate.means_covered(NORMAL, batches=MEANS, cases=80) <= most(0.955, MEANS)


def percentile_bootstrap(columns: Array, levels: Sequence[float], *, seed: int) -> list[list[tuple[float, float]]]:
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(columns), size=(999, len(columns)))
    tails = [[(1 - level) / 2, (1 + level) / 2] for level in levels]
    return [[tuple(np.quantile(column[drawn].mean(axis=1), tail)) for tail in tails] for column in columns.T]


def without_pairs(candidate: Array, baseline: Array) -> Array:
    return candidate - np.roll(baseline, 1)


def test_a_percentile_bootstrap_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "bootstrap_t", percentile_bootstrap)
    monkeypatch.setattr(intervals.Interval, "hull", lambda own, student: own)

    with pytest.raises(AssertionError):
        test_the_interval_of_a_mean_holds_the_true_mean(LOGNORMAL, 20, 0.92)


def test_an_unpaired_comparison_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_differences", without_pairs)

    with pytest.raises(AssertionError):
        test_an_effect_of_half_a_standard_deviation_is_found()


def test_verdicts_without_a_correction_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_holm", list)

    with pytest.raises(AssertionError):
        test_none_of_five_candidates_wins_by_luck()
