"""Verdicts, intervals and gates are right as often as they say, in simulated batches whose truth is known.

Every bound is what chance allows once in ten thousand for this number of batches. `make soak` simulates more of them:
then the bounds are narrower than what is promised, which is at most 6 % false winners in each family, and intervals
that hold the truth in 95 ± 1.5 % with 80 cases and in 92.5 % with 20.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.statistics import simulate
from tests.statistics.chance import BATCHES, least, most
from tests.statistics.simulate import CLUSTERED, KINDS, LOGNORMAL, MORE_KINDS, NORMAL, TIED, ZERO_INFLATED, Kind
from wtb.domain.statistics import intervals, pairing, verdicts
from wtb.domain.statistics.comparisons import Comparison
from wtb.domain.statistics.differences import Differences, Runs, differences
from wtb.domain.statistics.resampling import Array
from wtb.domain.statistics.verdicts import Finding

# Cheaper than comparisons; skewed scores need as many to tell a good interval from a bad one.
MEANS = 4_000 if os.environ.get("WTB_SOAK") else 900


def names(kind: Kind) -> str:
    return kind.name


@pytest.mark.parametrize("cases", [20, 80])
@pytest.mark.parametrize("kind", [*KINDS, *MORE_KINDS], ids=names)
def test_a_combination_does_not_win_against_itself(kind: Kind, cases: int) -> None:
    comparisons = simulate.compared(kind, batches=BATCHES, cases=cases)

    assert simulate.winners(comparisons) <= most(0.05)
    assert simulate.differences_covered(comparisons) >= least(0.95)


@pytest.mark.parametrize("kind", [NORMAL, LOGNORMAL, CLUSTERED], ids=names)
def test_none_of_five_candidates_wins_by_luck(kind: Kind) -> None:
    comparisons = simulate.compared(kind, batches=BATCHES, cases=80, candidates=5)

    assert simulate.winners(comparisons, candidates=5) <= most(0.05)


@pytest.mark.parametrize("cases", [20, 80])
def test_none_of_520_comparisons_wins_by_luck(cases: int) -> None:
    batches = BATCHES if os.environ.get("WTB_SOAK") else 15

    assert simulate.family_winners(batches=batches, cases=cases) <= most(0.05, batches)


def test_near_copies_win_by_luck_unless_their_clusters_are_declared() -> None:
    declared, undeclared = (
        simulate.winners(simulate.compared(kind, batches=BATCHES, cases=80))
        for kind in (CLUSTERED, simulate.UNDECLARED)
    )

    assert declared <= most(0.05)
    assert undeclared > 0.2


@pytest.mark.parametrize(("kind", "share"), [(TIED, 0.15), (ZERO_INFLATED, 0.5)])
def test_tied_scores_and_zeros_are_found_as_often_as_the_test_alone_finds_them(kind: Kind, share: float) -> None:
    comparisons = simulate.compared(kind, batches=BATCHES, cases=20, drop=simulate.half_a_deviation(kind))

    assert simulate.found(comparisons, Finding.WORSE) >= least(share)
    assert simulate.found(comparisons, Finding.WORSE) >= np.mean([one.p_value <= 0.05 for one in comparisons]) - 0.02


@pytest.mark.parametrize(("cases", "share"), [(8, 0.9), (20, 0.91), (80, 0.93)])
def test_the_interval_of_a_skewed_difference_holds_a_real_effect(cases: int, share: float) -> None:
    effect = simulate.half_a_deviation(LOGNORMAL)
    comparisons = simulate.compared(LOGNORMAL, batches=BATCHES, cases=cases, drop=effect)

    assert simulate.effects_covered(LOGNORMAL, comparisons, effect) >= least(share)


def test_an_effect_of_half_a_standard_deviation_is_found() -> None:
    effect = simulate.half_a_deviation(NORMAL)

    assert simulate.found(simulate.compared(NORMAL, batches=BATCHES, cases=80, drop=effect), Finding.WORSE) >= 0.95


def test_as_many_cases_as_needed_find_the_effect_four_times_of_five() -> None:
    effect = simulate.half_a_deviation(NORMAL)
    (comparison,) = simulate.compared(NORMAL, batches=1, cases=100, drop=effect)
    needed = replace(comparison, effect_size=-0.5).needed_cases()  # the true effect: that of a sample is uncertain

    assert needed is not None
    comparisons = simulate.compared(NORMAL, batches=BATCHES, cases=needed.about, drop=effect)
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


def without_pairs(candidate: Runs, baseline: Runs, *others: Any) -> Differences:
    turned = [*baseline.values()]
    return differences(candidate, dict(zip(baseline, [*turned[1:], turned[0]], strict=True)), *others)


def unadjusted(members: Sequence[Comparison]) -> list[float]:
    return [each.p_value for each in members]


def test_a_percentile_bootstrap_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "bootstrap_t", percentile_bootstrap)
    monkeypatch.setattr(intervals.Interval, "hull", lambda own, student: own)

    with pytest.raises(AssertionError):
        test_the_interval_of_a_mean_holds_the_true_mean(LOGNORMAL, 20, 0.92)


def test_an_unpaired_comparison_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "differences", without_pairs)

    with pytest.raises(AssertionError):
        test_an_effect_of_half_a_standard_deviation_is_found()


def test_verdicts_without_a_correction_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_adjusted", unadjusted)

    with pytest.raises(AssertionError):
        test_none_of_five_candidates_wins_by_luck(NORMAL)
