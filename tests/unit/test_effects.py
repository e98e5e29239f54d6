"""The effects of variants: averages over the grid, interactions, incomplete grids, failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Absent, Direction, Metric, ScoreTable
from wtb.domain.statistics.comparisons import compare
from wtb.domain.statistics.effects import Settings, VariantEffect, VariantEffects, effects

QUALITY = Metric(name="quality")
DEFAULTS = {"retrieve": "baseline", "answer": "baseline"}
CASES = 40


def grid(**variants: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return every combination of these variants by name."""
    found = [dict(zip(variants, chosen, strict=True)) for chosen in product(*variants.values())]
    return {", ".join(f"{node}={name}" for node, name in each.items()): each for each in found}


FULL = grid(retrieve=("baseline", "dense"), answer=("baseline", "short", "long"))


def table(
    settings: Settings,
    score: Callable[[Mapping[str, str], int], float | Absent],
    *,
    metric: Metric = QUALITY,
    clusters: Mapping[str, str] | None = None,
) -> ScoreTable:
    scores = {
        name: {f"case {case:02}": [score(chosen, case)] for case in range(CASES)} for name, chosen in settings.items()
    }
    return ScoreTable(metric=metric, combinations=scores, clusters=clusters or {})


def noisy(seed: int = 1) -> Callable[[Mapping[str, str], int], float]:
    """Return scores in which `dense` gains 0.5, `long` gains 1, and both together another 0.7."""
    generator = np.random.default_rng(seed)

    def score(chosen: Mapping[str, str], case: int) -> float:
        dense, long = chosen["retrieve"] == "dense", chosen["answer"] == "long"
        return case / 10 + 0.5 * dense + 1.0 * long + 0.7 * (dense and long) + float(generator.normal(scale=0.2))

    return score


def only(found: VariantEffects, name: str) -> VariantEffect:
    (effect,) = (each for each in (*found.main, *found.interactions) if each.name == name)
    return effect


def test_an_effect_is_the_mean_difference_over_all_settings_of_the_other_nodes() -> None:
    scores = table(FULL, noisy())
    found = effects(scores, FULL, DEFAULTS)
    means = {name: float(np.mean(list(scores.case_means(name).values()))) for name in FULL}

    def mean(retrieve: str, answer: str) -> float:
        return means[f"retrieve={retrieve}, answer={answer}"]

    by_hand = np.mean([mean("dense", each) - mean("baseline", each) for each in ("baseline", "short", "long")])
    assert only(found, "retrieve=dense").difference == pytest.approx(by_hand)
    double = mean("dense", "long") - mean("dense", "baseline") - mean("baseline", "long") + mean("baseline", "baseline")
    assert only(found, "retrieve=dense × answer=long").difference == pytest.approx(double)
    assert found.is_complete
    assert found.confounded == ()


def test_shown_effects_and_interactions_are_told_from_those_that_are_not_there() -> None:
    found = effects(table(FULL, noisy()), FULL, DEFAULTS)
    shown = [each.name for each in (*found.main, *found.interactions) if each.is_shown]
    assert shown == ["retrieve=dense", "answer=long", "retrieve=dense × answer=long"]
    assert found.nodes == ("answer", "retrieve")
    assert found.sentence() == "On quality: `answer` matters most, then `retrieve`."


def test_intervals_leave_0_out_just_where_an_effect_is_shown() -> None:
    for seed in range(5):
        found = effects(table(FULL, noisy(seed)), FULL, DEFAULTS)
        for effect in (*found.main, *found.interactions):
            assert effect.interval is not None
            assert effect.interval.low <= effect.difference <= effect.interval.high
            assert effect.is_shown is not (effect.interval.low < 0 < effect.interval.high)


SHARE = Metric(name="exact_match", worst=0.0, best=1.0)


def six_cases(score: Callable[[Mapping[str, str], int], float]) -> ScoreTable:
    scores = {name: {str(case): [score(chosen, case)] for case in range(6)} for name, chosen in FULL.items()}
    return ScoreTable(metric=SHARE, combinations=scores, clusters={})


@pytest.mark.parametrize("right", [0, 1, 3, 5])
def test_an_effect_on_few_cases_is_no_more_certain_than_one_comparison(right: int) -> None:
    scores = six_cases(lambda chosen, case: float(chosen["retrieve"] == "dense" and case < right))
    found = only(effects(scores, FULL, DEFAULTS), "retrieve=dense")
    baseline, candidate = "retrieve=baseline, answer=baseline", "retrieve=dense, answer=baseline"
    (alone,) = (each for each in compare([scores], baseline) if each.candidate == candidate)
    assert found.interval is not None
    assert alone.interval is not None
    assert found.interval.low <= alone.interval.low + 1e-9
    assert found.interval.high >= alone.interval.high - 1e-9


def test_no_interval_is_wider_than_the_scale() -> None:
    found = effects(six_cases(lambda chosen, case: float(chosen["retrieve"] == "dense")), FULL, DEFAULTS)
    for effect in (*found.main, *found.interactions):
        most = 2.0 if effect.is_interaction else 1.0
        assert effect.interval is not None
        assert -most <= effect.interval.low <= effect.interval.high <= most


def test_a_node_without_an_effect_is_named() -> None:
    def score(chosen: Mapping[str, str], case: int) -> float:
        return case % 7 + (chosen["answer"] == "long") * (1 + case % 3)

    found = effects(table(FULL, score), FULL, DEFAULTS)
    assert found.sentence() == "On quality: `answer` matters most; `retrieve` shows no effect."
    assert only(found, "retrieve=dense").difference == 0
    assert only(found, "retrieve=dense").p_value == 1


def test_effects_show_themselves_as_a_table() -> None:
    found = effects(table(FULL, noisy()), FULL, DEFAULTS)
    said = str(found)
    assert said.startswith("On quality: `answer` matters most, then `retrieve`.\n\nvariant ")
    assert re.search(r"\nanswer=long  +better  +\+\d\.\d{3}  +\+\d\.\d{3} to \+\d\.\d{3}  +0\.0001  +40\n", said)
    assert "retrieve=dense × answer=long  interaction" in said
    assert said.endswith("1 interaction of two variants not shown to be there")
    assert "<td" in found._repr_html_()


def test_where_less_is_better_a_gain_is_a_negative_difference() -> None:
    latency = Metric(name="latency_s", direction=Direction.LOWER)
    found = effects(table(FULL, noisy(), metric=latency), FULL, DEFAULTS)
    assert only(found, "answer=long").difference > 0 > only(found, "answer=long").gain


def test_cases_of_a_cluster_count_as_one() -> None:
    clusters = {f"case {case:02}": f"document {case // 4}" for case in range(CASES)}
    found = effects(table(FULL, noisy(), clusters=clusters), FULL, DEFAULTS)
    assert {effect.units for effect in found.main} == {CASES // 4}


def test_without_the_whole_grid_effects_are_estimated_and_interactions_refused() -> None:
    one_at_a_time = {name: each for name, each in FULL.items() if "baseline" in each.values()}

    def score(chosen: Mapping[str, str], case: int) -> float:
        return case % 5 + (chosen["answer"] == "long") * (1 + case % 2) + 0.5 * (chosen["retrieve"] == "dense")

    found = effects(table(one_at_a_time, score), one_at_a_time, DEFAULTS)
    assert only(found, "answer=long").difference == pytest.approx(1.5)
    assert only(found, "retrieve=dense").difference == pytest.approx(0.5)
    assert not found.is_complete
    assert found.interactions == ()
    assert {each.name for each in found.confounded} == {"retrieve=dense × answer=short", "retrieve=dense × answer=long"}


def test_variants_that_always_go_together_are_refused_with_each_other() -> None:
    together = {
        name: each for name, each in FULL.items() if (each["retrieve"] == "dense") == (each["answer"] == "long")
    }
    found = effects(table(together, noisy()), together, DEFAULTS)
    refused = {each.name: each.with_ for each in found.confounded}
    assert refused["retrieve=dense"] == ("answer=long",)
    assert refused["answer=long"] == ("retrieve=dense",)
    assert [effect.name for effect in found.main] == ["answer=short"]


def test_cases_that_have_not_run_everywhere_count_where_they_tell_an_effect_apart() -> None:
    def score(chosen: Mapping[str, str], case: int) -> float | Absent:
        if case < 10 and chosen["answer"] == "long":
            return Absent.MISSING
        return case + 2.0 * (chosen["answer"] == "long") + 1.0 * (chosen["retrieve"] == "dense") + 0.1 * (case % 3)

    found = effects(table(FULL, score), FULL, DEFAULTS)
    assert (only(found, "answer=long").units, only(found, "retrieve=dense").units) == (CASES - 10, CASES)
    assert only(found, "answer=long").difference == pytest.approx(2)
    assert not found.is_complete


def test_a_variant_that_fails_on_hard_cases_does_not_gain_by_it() -> None:
    def score(chosen: Mapping[str, str], case: int) -> float | Absent:
        if chosen["answer"] == "long" and case % 2:
            return Absent.ERROR
        return 1.0 + 0.01 * (chosen["answer"] == "long")

    undeclared = effects(table(FULL, score), FULL, DEFAULTS)
    declared = effects(table(FULL, score, metric=Metric(name="quality", worst=0, best=1.01)), FULL, DEFAULTS)
    for found in (undeclared, declared):
        assert only(found, "answer=long").gain <= 0


def test_a_batch_in_which_nothing_varies_has_no_effects() -> None:
    with pytest.raises(InvalidInput, match="more than one variant"):
        effects(table({"baseline": {}}, lambda chosen, case: 1.0), {"baseline": {}}, {})


def test_nothing_that_has_run_gives_no_effects() -> None:
    found = effects(table(FULL, lambda chosen, case: Absent.MISSING), FULL, DEFAULTS)
    assert (found.main, found.interactions) == ((), ())
    assert found.sentence() == "On quality: no effect can be estimated."
