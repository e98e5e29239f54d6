"""Score tables: what counts as a score, an error or nothing; the overall score and the Pareto front."""

from __future__ import annotations

import math

import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Absent, Direction, Errors, Metric, Scores, ScoreTable, overall, pareto

RIGHT = Metric(name="right", worst=0.0, best=1.0)
LATENCY = Metric(name="latency", direction=Direction.LOWER)


def table(metric: Metric, **combinations: Scores) -> ScoreTable:
    return ScoreTable(metric=metric, combinations=combinations)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_finite_number_is_refused_with_its_place(score: float) -> None:
    with pytest.raises(InvalidInput, match="latency of combination 'fast' on case 'q7' is"):
        table(LATENCY, slow={"q7": [1.0]}, fast={"q1": [1.0], "q7": [2.0, score]})


def test_a_scale_that_runs_against_its_direction_is_refused() -> None:
    with pytest.raises(InvalidInput, match="metric 'latency': lower is better"):
        Metric(name="latency", direction=Direction.LOWER, worst=0.0, best=10.0)


def test_repeats_are_averaged_within_their_case() -> None:
    assert table(RIGHT, a={"q1": [1.0, 0.0, 0.5], "q2": [True]}).case_means("a") == {"q1": 0.5, "q2": 1.0}


def test_an_error_scores_the_declared_worst() -> None:
    assert table(RIGHT, a={"q1": [1.0, Absent.ERROR], "q2": [0.6]}).case_means("a") == {"q1": 0.5, "q2": 0.6}


def test_an_error_has_no_score_when_the_metric_declares_no_worst() -> None:
    scores = table(LATENCY, a={"q1": [Absent.ERROR], "q2": [2.0, Absent.ERROR]}, b={"q1": [9.0], "q2": [1.0]})

    assert scores.case_means("a") == {"q2": 2.0}
    assert scores.failed("a") == {"q1": 1.0, "q2": 0.5}


def test_the_mean_of_scores_whose_sum_is_too_large_for_a_float_is_their_mean() -> None:
    assert table(LATENCY, a={"q1": [1.6e308, 1.6e308]}).case_means("a") == {"q1": pytest.approx(1.6e308)}


def test_an_error_is_never_better_than_a_score_beyond_the_declared_worst() -> None:
    assert table(RIGHT, a={"q1": [Absent.ERROR], "q2": [-2.0]}).case_means("a") == {"q1": -2.0, "q2": -2.0}


def test_dropping_errors_drops_the_whole_case() -> None:
    scores = table(RIGHT, a={"q1": [1.0, Absent.ERROR], "q2": [0.6]})

    assert scores.case_means("a", Errors.DROP) == {"q2": 0.6}


def test_a_missing_run_is_left_out_and_a_case_without_any_run_too() -> None:
    scores = table(RIGHT, a={"q1": [1.0, Absent.MISSING], "q2": [Absent.MISSING], "q3": []})

    assert scores.case_means("a") == {"q1": 1.0}


def test_errors_and_missing_runs_are_counted() -> None:
    scores = table(RIGHT, a={"q1": [1.0, Absent.ERROR], "q2": [Absent.MISSING], "q3": []}, b={"q4": [0.0]})

    assert scores.count("a", Absent.ERROR) == 1
    assert scores.count("a", Absent.MISSING) == 3  # q2, q3 and q4


def test_errors_without_any_score_leave_nothing() -> None:
    assert table(LATENCY, a={"q1": [Absent.ERROR]}).case_means("a") == {}


def test_the_overall_score_weighs_metrics_from_their_worst_to_their_best() -> None:
    right = table(RIGHT, a={"q1": [1.0], "q2": [0.0]}, b={"q1": [0.5], "q2": [0.5]})
    latency = table(LATENCY, a={"q1": [4.0], "q2": [3.0]}, b={"q1": [2.0], "q2": [2.5]})

    scores = overall([right, latency], {"right": 3, "latency": 1})

    assert scores.metric == Metric(name="overall", worst=0.0, best=1.0)
    assert scores.combinations == {
        "a": {"q1": [0.75], "q2": [0.125]},
        "b": {"q1": [0.625], "q2": [0.5625]},
    }


def test_a_metric_on_which_all_are_equal_counts_as_best() -> None:
    same = table(LATENCY, a={"q1": [2.0]}, b={"q1": [2.0]})

    assert overall([same], {"latency": 1}).combinations == {"a": {"q1": [1.0]}, "b": {"q1": [1.0]}}


def test_a_run_with_an_error_in_one_metric_is_an_error_overall() -> None:
    right = table(RIGHT, a={"q1": [Absent.ERROR, 1.0, 1.0]})
    latency = table(LATENCY, a={"q1": [Absent.MISSING, 2.0]})

    scores = overall([right, latency], {"right": 1, "latency": 1})

    assert scores.combinations == {"a": {"q1": [Absent.ERROR, 1.0, Absent.MISSING]}}


@pytest.mark.parametrize("weights", [{}, {"right": 1.0, "cost": 1.0}, {"right": 0.0}, {"right": math.nan}])
def test_weights_that_do_not_fit_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="weight"):
        overall([table(RIGHT, a={"q1": [1.0]})], weights)


def test_the_pareto_front_keeps_what_nothing_beats_and_ties() -> None:
    points = {
        "good": {"right": 0.9, "cost": 3.0},
        "cheap": {"right": 0.5, "cost": 1.0},
        "as cheap": {"right": 0.5, "cost": 1.0},
        "dear": {"right": 0.9, "cost": 4.0},
        "bad": {"right": 0.4, "cost": 2.0},
    }

    assert pareto(points, {"right": Direction.HIGHER, "cost": Direction.LOWER}) == ("good", "cheap", "as cheap")
    assert pareto(points, {"right": Direction.HIGHER}) == ("good", "dear")


def test_the_pareto_front_keeps_what_is_not_shown_to_be_beaten() -> None:
    points = {"good": {"right": 0.9}, "close": {"right": 0.89}, "bad": {"right": 0.1}}

    front = pareto(points, {"right": Direction.HIGHER}, lambda better, worse: (better, worse) == ("good", "bad"))

    assert front == ("good", "close")


def test_a_point_without_one_of_the_metrics_is_refused() -> None:
    with pytest.raises(InvalidInput, match="combination 'a' has no cost"):
        pareto({"a": {"right": 1.0}}, {"right": Direction.HIGHER, "cost": Direction.LOWER})
