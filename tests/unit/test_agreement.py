"""Agreement of a judge with people: what is counted, and kappa between its ends."""

from __future__ import annotations

import pytest

from wtb.domain.statistics.agreement import agreement_of


def test_equal_scores_agree_perfectly() -> None:
    found = agreement_of([(1, 1), (3, 3), (5, 5)])
    assert (found.scores, found.exact, found.mean_difference, found.mean_error, found.kappa) == (3, 1, 0, 0, 1)


def test_opposite_scores_are_worse_than_chance() -> None:
    assert agreement_of([(1, 5), (5, 1)]).kappa == pytest.approx(-1)


def test_a_judge_that_is_always_one_too_high_is_biased_but_knows_the_order() -> None:
    found = agreement_of([(2, 1), (3, 2), (4, 3), (5, 4)])
    assert (found.exact, found.mean_difference, found.mean_error) == (0, 1, 1)
    assert found.kappa == pytest.approx(1 - 1 / 3.5)


def test_missing_scores_and_labels_are_counted_and_left_out() -> None:
    found = agreement_of([(4, 4), (4, None), (None, 2), (None, None)])
    assert (found.scores, found.unlabelled, found.failed, found.exact, found.kappa) == (1, 1, 1, 1, None)


def test_without_any_difference_there_is_nothing_to_agree_about() -> None:
    assert agreement_of([(4, 4), (4, 4)]).kappa is None
    assert agreement_of([]).exact is None
