"""Gates: when a loss is a regression, when it may be chance, and what proves that there is none."""

from __future__ import annotations

import math
import random

import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Direction, Metric, ScoreTable
from wtb.domain.gate import Outcome, non_inferior, regression
from wtb.domain.statistics import Comparison, compare

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


def paired(metric: Metric, new: list[float], old: list[float]) -> Comparison:
    rows = {name: {str(case): [score] for case, score in enumerate(row)} for name, row in (("old", old), ("new", new))}
    (comparison,) = compare([ScoreTable(metric=metric, combinations=rows)], "old")
    return comparison


def test_a_large_loss_is_a_regression() -> None:
    gate = regression(answers(wins=2, losses=14, cases=80), max_drop=0.02)

    assert gate.outcome is Outcome.REGRESSION
    assert gate.drop == pytest.approx(0.15)
    assert gate.at_least is not None
    assert gate.at_least > 0.02


def test_a_loss_that_may_be_chance_is_inconclusive() -> None:
    assert regression(answers(wins=2, losses=6, cases=80), max_drop=0.02).outcome is Outcome.INCONCLUSIVE


def test_a_loss_within_what_is_allowed_is_fine() -> None:
    assert regression(answers(wins=4, losses=5, cases=80), max_drop=0.02).outcome is Outcome.FINE
    assert regression(answers(wins=4, losses=4, cases=80)).outcome is Outcome.FINE


def test_the_same_loss_is_supported_with_more_cases() -> None:
    assert regression(answers(wins=20, losses=60, cases=800), max_drop=0.02).outcome is Outcome.REGRESSION


def test_equal_answers_in_few_cases_prove_little() -> None:
    assert non_inferior(answers(wins=0, losses=0, cases=80), margin=0.02).outcome is Outcome.INCONCLUSIVE
    assert non_inferior(answers(wins=0, losses=0, cases=80), margin=0.05).outcome is Outcome.FINE


def test_a_loss_beyond_the_margin_is_a_regression_there_too() -> None:
    assert non_inferior(answers(wins=2, losses=14, cases=80), margin=0.02).outcome is Outcome.REGRESSION


def test_a_longer_latency_is_a_drop() -> None:
    slower, faster = latencies(0.4), latencies(-0.4)

    assert regression(slower, max_drop=0.1).outcome is Outcome.REGRESSION
    assert non_inferior(faster, margin=0.1).outcome is Outcome.FINE
    gate = regression(slower, max_drop=1.0)
    assert gate.outcome is Outcome.FINE
    assert gate.drop is not None
    assert gate.at_least is not None
    assert gate.at_most is not None
    assert 0.3 < gate.at_least < gate.drop < gate.at_most < 0.5


def test_no_case_in_common_is_inconclusive() -> None:
    rows = {"old": {"q1": [1.0]}, "new": {"q2": [1.0]}}
    (comparison,) = compare([ScoreTable(metric=RIGHT, combinations=rows)], "old")

    assert regression(comparison).outcome is Outcome.INCONCLUSIVE
    assert non_inferior(comparison, 0.1).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("allowed", [-0.1, math.nan, math.inf])
def test_an_allowance_that_is_none_is_refused(allowed: float) -> None:
    with pytest.raises(InvalidInput, match="from 0 up"):
        regression(answers(1, 1, 10), allowed)
    with pytest.raises(InvalidInput, match="from 0 up"):
        non_inferior(answers(1, 1, 10), allowed)
