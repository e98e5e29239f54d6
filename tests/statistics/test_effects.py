"""Effects are found where they are, and nowhere else, in simulated batches whose truth is known.

A grid of 2 × 5 × 2 × 2 variants over 80 cases, of which one variant adds 0.3 deviations of a run's own noise.
"""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import product

import numpy as np

from tests.statistics.chance import least, most
from wtb.domain.evaluation import Metric, ScoreTable
from wtb.domain.statistics.effects import VariantEffects, effects

BATCHES = 1_000 if os.environ.get("WTB_SOAK") else 100
CASES = 80
SIZES = {"retrieve": 2, "answer": 5, "rerank": 2, "check": 2}
GRID = [dict(zip(SIZES, map(str, each), strict=True)) for each in product(*map(range, SIZES.values()))]
NAMES = [", ".join(f"{node}={variant}" for node, variant in each.items()) for each in GRID]
CHANGED = (("answer", "3"),)


def batch(seed: int, effect: float) -> ScoreTable:
    generator = np.random.default_rng(seed)
    scores = generator.normal(scale=2, size=(CASES, 1)) + generator.normal(size=(CASES, len(GRID)))
    scores += effect * np.array([each["answer"] == "3" for each in GRID])
    cases = {
        name: {str(case): [float(scores[case, column])] for case in range(CASES)} for column, name in enumerate(NAMES)
    }
    return ScoreTable(metric=Metric(name="quality"), combinations=cases)


@lru_cache
def simulated(effect: float) -> list[VariantEffects]:
    settings = dict(zip(NAMES, GRID, strict=True))
    return [effects(batch(seed, effect), settings, dict.fromkeys(SIZES, "0")) for seed in range(BATCHES)]


def share(found: list[bool]) -> float:
    return sum(found) / len(found)


def test_an_effect_of_three_tenths_of_a_deviation_is_found() -> None:
    found = share([any(each.factors == CHANGED and each.is_shown for each in one.main) for one in simulated(0.3)])
    assert found >= least(0.93, BATCHES)


def test_other_effects_are_rarely_shown() -> None:
    found = share(
        [
            any(each.is_shown for each in (*one.main, *one.interactions) if each.factors != CHANGED)
            for one in simulated(0.3)
        ]
    )
    assert found <= most(0.06, BATCHES)


def test_intervals_hold_all_true_effects_at_once() -> None:
    held = [
        all(
            each.interval is not None and each.interval.holds(0.3 * (each.factors == CHANGED))
            for each in (*one.main, *one.interactions)
        )
        for one in simulated(0.3)
    ]
    assert share(held) >= least(0.94, BATCHES)
