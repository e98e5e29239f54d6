"""Gates: when a loss is a regression, when it may be chance, and what proves that there is none."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Absent, Direction, Metric, Score, ScoreTable
from wtb.domain.statistics.comparisons import Comparison, compare
from wtb.domain.statistics.gate import Allowance, GateOutcome, GateReason, non_inferior, regression

RIGHT = Metric(name="right", worst=0.0, best=1.0)
LATENCY = Metric(name="latency", direction=Direction.LOWER)


def answers(wins: int, losses: int, cases: int) -> Comparison:
    """A candidate that wins and loses so many cases of all, right or wrong."""
    new = [1.0] * wins + [0.0] * losses + [1.0] * (cases - wins - losses)
    old = [0.0] * wins + [1.0] * (cases - wins)
    return paired(RIGHT, new, old)


def latencies(change: float, cases: int = 80) -> Comparison:
    chance = random.Random(1)
    old = [chance.uniform(1, 2) for _ in range(cases)]
    return paired(LATENCY, [one + change + chance.uniform(-0.5, 0.5) for one in old], old)


def failing(candidate: int, baseline: int = 0, *, cases: int = 12, metric: Metric = RIGHT) -> Comparison:
    """All that is scored is right; the first cases fail with the baseline, the last ones with the candidate."""
    new: list[Score] = [1.0] * (cases - candidate) + [Absent.ERROR] * candidate
    old: list[Score] = [Absent.ERROR] * baseline + [1.0] * (cases - baseline)
    return paired(metric, new, old)


def paired(metric: Metric, new: Sequence[Score], old: Sequence[Score]) -> Comparison:
    rows = {name: {str(case): [score] for case, score in enumerate(row)} for name, row in (("old", old), ("new", new))}
    (comparison,) = compare([ScoreTable(metric=metric, combinations=rows)], "old")
    return comparison


def test_a_large_loss_is_a_regression() -> None:
    gate = regression(answers(wins=2, losses=14, cases=80), max_drop=0.02)

    assert gate.outcome is GateOutcome.REGRESSION
    assert gate.drop == pytest.approx(0.15)
    assert gate.at_least is not None
    assert gate.at_least > 0.02


def test_a_loss_that_may_be_chance_passes_and_says_how_large_it_may_be() -> None:
    gate = regression(answers(wins=2, losses=6, cases=80), max_drop=0.02)

    assert (gate.outcome, gate.reason) == (GateOutcome.FINE, GateReason.NO_DROP_SHOWN)
    assert gate.drop == pytest.approx(0.05)
    assert gate.at_most is not None
    assert 0.1 < gate.at_most < 0.15


def test_a_loss_in_four_cases_is_inconclusive_and_no_loss_is_fine() -> None:
    lost = regression(answers(wins=0, losses=2, cases=4))

    assert (lost.outcome, lost.reason) == (GateOutcome.INCONCLUSIVE, GateReason.TOO_FEW_CASES)
    assert regression(answers(wins=0, losses=0, cases=4)).outcome is GateOutcome.FINE


def test_a_loss_within_what_is_allowed_is_fine() -> None:
    assert regression(answers(wins=4, losses=5, cases=80), max_drop=0.02).outcome is GateOutcome.FINE
    assert regression(answers(wins=4, losses=4, cases=80)).outcome is GateOutcome.FINE


def test_the_same_loss_is_supported_with_more_cases() -> None:
    assert regression(answers(wins=20, losses=60, cases=800), max_drop=0.02).outcome is GateOutcome.REGRESSION


def test_equal_answers_in_few_cases_prove_little() -> None:
    assert non_inferior(answers(wins=0, losses=0, cases=80), margin=0.02).outcome is GateOutcome.INCONCLUSIVE
    assert non_inferior(answers(wins=0, losses=0, cases=80), margin=0.05).outcome is GateOutcome.FINE


def test_a_loss_beyond_the_margin_is_a_regression_there_too() -> None:
    assert non_inferior(answers(wins=2, losses=14, cases=80), margin=0.02).outcome is GateOutcome.REGRESSION


def test_a_longer_latency_is_a_drop() -> None:
    slower, faster = latencies(0.4), latencies(-0.4)

    assert regression(slower, max_drop=0.1).outcome is GateOutcome.REGRESSION
    assert non_inferior(faster, margin=0.1).outcome is GateOutcome.FINE
    gate = regression(slower, max_drop=1.0)
    assert gate.outcome is GateOutcome.FINE
    assert gate.drop is not None
    assert gate.at_least is not None
    assert gate.at_most is not None
    assert 0.3 < gate.at_least < gate.drop < gate.at_most < 0.5


def test_no_case_in_common_is_inconclusive() -> None:
    rows = {"old": {"q1": [1.0]}, "new": {"q2": [1.0]}}
    (comparison,) = compare([ScoreTable(metric=RIGHT, combinations=rows)], "old")

    assert regression(comparison).outcome is GateOutcome.INCONCLUSIVE
    assert non_inferior(comparison, 0.1).outcome is GateOutcome.INCONCLUSIVE


@pytest.mark.parametrize("allowed", [-0.1, math.nan, math.inf])
def test_an_allowance_that_is_none_is_refused(allowed: float) -> None:
    with pytest.raises(InvalidInput, match="0 or more"):
        regression(answers(1, 1, 10), allowed)
    with pytest.raises(InvalidInput, match="0 or more"):
        non_inferior(answers(1, 1, 10), allowed)


@pytest.mark.parametrize("metric", [RIGHT, Metric(name="judge"), LATENCY], ids=["scale", "no scale", "latency"])
@pytest.mark.parametrize("proof", [False, True])
def test_a_candidate_that_fails_in_every_case_is_a_regression(metric: Metric, proof: bool) -> None:
    comparison = failing(12, metric=metric)
    gate = non_inferior(comparison, 0.0) if proof else regression(comparison)

    assert (gate.outcome, gate.reason) == (GateOutcome.REGRESSION, GateReason.MORE_ERRORS)
    assert (gate.errors.candidate_only, gate.max_errors) == (12, 0)
    assert gate.errors_p == pytest.approx(0.5**12)


def test_few_errors_may_be_chance_but_never_pass() -> None:
    gate = regression(failing(4), max_drop=1.0)

    assert (gate.outcome, gate.reason) == (GateOutcome.INCONCLUSIVE, GateReason.MORE_ERRORS)
    assert regression(failing(5), max_drop=1.0).outcome is GateOutcome.REGRESSION
    assert regression(failing(5, baseline=2), max_drop=1.0).outcome is GateOutcome.INCONCLUSIVE


def test_as_many_errors_as_are_tolerated_pass() -> None:
    assert regression(failing(1, cases=80), max_errors=1).outcome is GateOutcome.FINE
    assert regression(failing(2, cases=80), max_errors=1).outcome is GateOutcome.INCONCLUSIVE
    with pytest.raises(InvalidInput, match="max_errors must be a number of cases, 0 or more, not -1"):
        regression(failing(1), max_errors=-1)


def test_where_every_case_fails_on_both_sides_nothing_was_compared() -> None:
    rows: list[Score] = [Absent.ERROR] * 12
    gate = regression(paired(RIGHT, rows, rows))

    assert (gate.outcome, gate.reason) == (GateOutcome.INCONCLUSIVE, GateReason.NOTHING_TO_COMPARE)


def test_a_candidate_with_cases_that_have_not_been_run_does_not_pass() -> None:
    gate = regression(answers(wins=3, losses=0, cases=80), unfinished=2)

    assert (gate.outcome, gate.reason, gate.unfinished) == (GateOutcome.INCONCLUSIVE, GateReason.UNFINISHED, 2)
    assert non_inferior(answers(80, 0, 80), 0.5, unfinished=2).outcome is GateOutcome.INCONCLUSIVE
    assert regression(answers(wins=0, losses=40, cases=80), unfinished=2).outcome is GateOutcome.REGRESSION


def test_a_share_is_told_from_a_number() -> None:
    assert Allowance.of("10%") == Allowance.of(" 10 % ") == Allowance(value=0.1, is_share=True)
    assert Allowance.of("0.02") == Allowance.of(0.02) == Allowance(value=0.02)
    for wrong in ("", "ten", "10%%", "-1%", "nan%"):
        with pytest.raises(InvalidInput, match="must be 0 or more, or a share such as '10%', not"):
            Allowance.of(wrong)


def test_a_share_is_lost_of_what_the_baseline_scored() -> None:
    old = [1.0 + case / 10 for case in range(20)]
    slower = paired(LATENCY, [each * 1.2 for each in old], old)
    less = paired(Metric(name="score"), [each * 0.8 for each in old], old)

    for comparison in (slower, less):
        assert regression(comparison, "20%").outcome is GateOutcome.FINE, "exactly what is allowed is not more"
        assert non_inferior(comparison, "20%").outcome is GateOutcome.INCONCLUSIVE
        assert regression(comparison, "19%").outcome is GateOutcome.REGRESSION
        gate = non_inferior(comparison, "21%")
        assert (gate.outcome, gate.reason) == (GateOutcome.FINE, GateReason.PROVEN)
        assert (gate.allowed, gate.is_share) == (0.21, True)
        assert gate.drop == gate.at_least == gate.at_most == pytest.approx(0.2)


@pytest.mark.parametrize("cases", [5, 13, 14, 40])
def test_the_bounds_of_a_share_are_those_that_the_sign_flip_test_does_not_reject(cases: int) -> None:
    chance = np.random.default_rng(cases)
    old, new = chance.lognormal(size=(2, cases))
    gate = regression(paired(LATENCY, new.tolist(), old.tolist()), "0%")

    assert gate.at_least is not None
    assert gate.at_most is not None
    signs = chance.choice([-1.0, 1.0], size=(100_000, cases))
    for share, side in ((gate.at_least, 1), (gate.at_most, -1)):
        differences = side * (new - (1 + share) * old)
        assert np.mean(signs @ differences >= differences.sum() - 1e-9) == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize(
    ("metric", "new", "old", "said"),
    [
        (LATENCY, [1.0, 0.0], [1.0, 2.0], "there is a score of 0 on latency"),
        (Metric(name="gain"), [1.0, 2.0], [1.0, -2.0], "there is a score of -2 on gain"),
        (RIGHT, [1.0, 1.0], [0.0, 0.0], "all scores of the baseline are 0 on right"),
    ],
)
def test_of_scores_that_are_not_positive_no_share_can_be_lost(
    metric: Metric, new: list[float], old: list[float], said: str
) -> None:
    with pytest.raises(InvalidInput, match=f"a drop in percent needs positive scores, and {said}"):
        regression(paired(metric, new, old), "10%")


def test_on_a_scale_from_0_up_a_share_may_be_lost_though_some_scores_are_0() -> None:
    assert non_inferior(answers(wins=3, losses=3, cases=80), "20%").outcome is GateOutcome.FINE
    assert regression(answers(wins=0, losses=40, cases=80), "20%").outcome is GateOutcome.REGRESSION
    assert regression(failing(12), "20%").reason is GateReason.MORE_ERRORS


def test_on_a_scale_few_cases_without_a_failure_prove_little() -> None:
    chance = random.Random(2)
    old = [chance.uniform(0.9, 1.0) for _ in range(20)]
    new = [score - chance.uniform(-0.001, 0.001) for score in old]

    scale = Metric(name="f1", worst=0.0, best=1.0)
    assert non_inferior(paired(scale, new, old), 0.02).outcome is GateOutcome.INCONCLUSIVE
    gate = non_inferior(paired(scale, new, old), 0.15)
    assert gate.outcome is GateOutcome.FINE
    assert gate.at_most == pytest.approx(1 - 0.05 ** (1 / 20), abs=0.01), "Clopper and Pearson, for no failure in 20"
