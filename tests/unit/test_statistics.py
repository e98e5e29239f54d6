"""Summaries, comparisons and verdicts: values computed by hand, or by scipy where it has the same thing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Absent, Direction, Errors, Metric, Score, Scores, ScoreTable
from wtb.domain.statistics.comparisons import Comparison, NeededCases, Summary, compare, summarise
from wtb.domain.statistics.intervals import Interval, Method
from wtb.domain.statistics.verdicts import Finding, beyond_chance, verdicts

PLAIN = Metric(name="score")
RIGHT = Metric(name="right", worst=0.0, best=1.0)
LATENCY = Metric(name="latency", direction=Direction.LOWER)
SECONDS = Metric(name="seconds", direction=Direction.LOWER, best=0.0)


def cases(*repeats: Score | Sequence[Score]) -> Scores:
    return {f"q{number}": [one] if isinstance(one, float | Absent) else one for number, one in enumerate(repeats)}


def summary(metric: Metric, scores: Scores, errors: Errors = Errors.WORST) -> Summary:
    return summarise(ScoreTable(metric=metric, combinations={"a": scores}), errors=errors)["a"]


def comparison(metric: Metric, candidate: Scores, baseline: Scores, errors: Errors = Errors.WORST) -> Comparison:
    table = ScoreTable(metric=metric, combinations={"old": baseline, "new": candidate})
    (found,) = compare([table], "old", errors=errors)
    return found


def differing(*differences: float, metric: Metric = PLAIN) -> Comparison:
    return comparison(metric, cases(*differences), cases(*[0.0] * len(differences)))


def ends(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def bell(count: int, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(0, 1) for _ in range(count)]


class TestSummary:
    def test_the_mean_is_that_of_case_means(self) -> None:
        found = summary(PLAIN, cases([1.0, 2.0, 3.0], [5.0]))

        assert found.mean == 3.5  # not 2.75, the mean of the runs
        assert (found.cases, found.repeats) == (2, 3)

    def test_a_share_of_cases_has_the_interval_of_wilson(self) -> None:
        found = summary(RIGHT, cases(*[1.0] * 17, *[0.0] * 3))

        oracle = stats.binomtest(17, 20).proportion_ci(method="wilson")
        assert found.method is Method.WILSON
        assert ends(found.interval) == pytest.approx((oracle.low, oracle.high))

    def test_a_perfect_share_is_not_certain(self) -> None:
        low, high = ends(summary(RIGHT, cases(*[1.0] * 20)).interval)

        assert low == pytest.approx(0.8389, abs=1e-4)
        assert high == 1.0

    def test_an_error_scored_worst_keeps_a_share_a_share(self) -> None:
        found = summary(RIGHT, cases(*[1.0] * 19, Absent.ERROR))

        assert (found.method, found.mean, found.errors) == (Method.WILSON, 0.95, 1)

    def test_few_cases_have_the_interval_of_student(self) -> None:
        scores = bell(5)
        found = summary(PLAIN, cases(*scores))

        oracle = stats.ttest_1samp(scores, 0).confidence_interval(0.95)
        assert found.method is Method.STUDENT
        assert ends(found.interval) == pytest.approx((oracle.low, oracle.high))

    def test_skewed_scores_have_an_interval_that_leans_to_their_tail(self) -> None:
        found = summary(PLAIN, cases(*np.exp(bell(30)).tolist()))
        low, high = ends(found.interval)

        assert found.method is Method.BOOTSTRAP_T
        assert found.mean is not None
        assert high - found.mean > 1.3 * (found.mean - low)

    def test_the_bootstrap_is_never_narrower_than_student(self) -> None:
        scores = bell(40)
        low, high = ends(summary(PLAIN, cases(*scores)).interval)

        oracle = stats.ttest_1samp(scores, 0).confidence_interval(0.95)
        assert low <= oracle.low + 1e-12
        assert high >= oracle.high - 1e-12
        assert high - low < 1.2 * (oracle.high - oracle.low)

    def test_repeats_that_agree_count_once(self) -> None:
        once, thrice = summary(RIGHT, cases(*[1.0] * 20)), summary(RIGHT, cases(*[[1.0, 1.0, 1.0]] * 20))

        assert (thrice.method, thrice.interval) == (Method.WILSON, once.interval)

    def test_scores_that_are_all_the_same_on_a_known_scale_are_not_certain(self) -> None:
        found = summary(RIGHT, cases(*[0.5] * 20))
        low, high = ends(found.interval)

        oracle = stats.ttest_1samp([*[0.5] * 20, 0.0, 0.0, 1.0, 1.0], 0).confidence_interval(0.95)
        assert found.method is Method.PSEUDO_CASES
        assert (low, high) == pytest.approx((oracle.low, oracle.high))

    def test_scores_that_are_mostly_tied_get_two_pseudo_cases_at_each_end(self) -> None:
        scores = [4.0] * 12 + [5.0, 6.0, 7.0]
        found = summary(PLAIN, cases(*scores))

        oracle = stats.ttest_1samp([*scores, 4.0, 4.0, 7.0, 7.0], 0).confidence_interval(0.95)
        assert found.method is Method.PSEUDO_CASES
        assert ends(found.interval) == pytest.approx((oracle.low, oracle.high))

    def test_scores_that_are_all_the_same_on_no_known_scale_have_no_interval(self) -> None:
        found = summary(PLAIN, cases(*[4.0] * 20))

        assert (found.mean, found.interval, found.method) == (4.0, None, Method.NONE)

    def test_a_cost_that_is_always_nothing_is_no_share(self) -> None:
        assert summary(LATENCY, cases(*[0.0] * 20)).interval is None

    def test_one_case_has_no_interval_and_none_has_no_mean(self) -> None:
        assert summary(PLAIN, cases(4.0)).interval is None
        assert summary(PLAIN, cases(Absent.MISSING)).mean is None

    def test_an_interval_of_what_cannot_be_negative_begins_at_0(self) -> None:
        low, high = ends(summary(SECONDS, cases(*[0.001] * 5, 0.002, 0.9)).interval)

        assert low == 0.0
        assert high > 0.3

    def test_one_declared_end_says_nothing_of_scores_that_are_all_the_same(self) -> None:
        assert summary(SECONDS, cases(*[1.0] * 20)).interval is None

    def test_an_interval_stays_on_the_declared_scale(self) -> None:
        low, high = ends(summary(RIGHT, cases([1.0, 0.9], [0.2, 0.3], [0.9, 0.95], [1.0, 0.8])).interval)

        assert 0 < low < 0.3
        assert high == 1.0

    def test_errors_and_missing_runs_are_counted(self) -> None:
        found = summary(RIGHT, cases([1.0, Absent.ERROR], Absent.MISSING, 1.0), errors=Errors.DROP)

        assert (found.cases, found.mean, found.errors, found.missing) == (1, 1.0, 1, 1)


class TestComparison:
    def test_pairs_are_made_by_case_whatever_their_order(self) -> None:
        found = comparison(PLAIN, {"q1": [3.0], "q2": [5.0]}, {"q2": [4.0], "q1": [1.0]})

        assert (found.difference, found.pairs, found.wins) == (1.5, 2, 2)

    def test_wins_follow_the_direction_and_the_difference_does_not(self) -> None:
        found = comparison(LATENCY, cases(1.0, 2.0, 3.0, 9.0), cases(2.0, 3.0, 3.0, 4.0))

        assert (found.wins, found.ties, found.losses) == (2, 1, 1)
        assert found.difference == 0.75

    def test_what_differs_by_rounding_only_is_a_tie(self) -> None:
        found = comparison(PLAIN, cases(0.1 + 0.2, 1.0), cases(0.3, 1.0))

        assert (found.ties, found.difference, found.p_value) == (2, 0.0, 1.0)

    def test_differences_that_differ_by_rounding_only_are_the_same(self) -> None:
        baseline = bell(30)
        found = comparison(PLAIN, cases(*[score + 0.1 for score in baseline]), cases(*baseline))

        assert (found.method, found.effect_size) == (Method.PSEUDO_CASES, None)

    def test_wins_and_losses_that_cancel_but_for_rounding_make_no_difference(self) -> None:
        found = differing(0.1, 0.2, -0.3)

        assert (found.difference, found.needed_cases()) == (0.0, None)

    def test_few_pairs_have_an_exact_p_value(self) -> None:
        # Of 16 sign patterns of 1, 2, 3, 4 these reach 8: + + + +, − + + +, and both with all signs turned.
        assert differing(-1.0, 2.0, 3.0, 4.0).p_value == 4 / 16

    def test_ties_do_not_change_the_p_value(self) -> None:
        assert differing(-1.0, 2.0, 3.0, 4.0, *[0.0] * 50).p_value == 4 / 16

    @pytest.mark.parametrize("count", [5, 9, 13])
    def test_exact_p_values_are_those_of_scipy(self, count: int) -> None:
        values = [one + 0.4 for one in bell(count)]

        oracle = stats.permutation_test(
            (values,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=False
        )
        assert differing(*values).p_value == pytest.approx(oracle.pvalue)

    def test_drawn_p_values_are_near_those_of_many_more_draws(self) -> None:
        values = [one + 0.25 for one in bell(60)]
        generator = np.random.default_rng(5)
        sums = np.abs(generator.choice([-1.0, 1.0], size=(100_000, 60)) @ np.array(values))

        assert differing(*values).p_value == pytest.approx(np.mean(sums >= abs(sum(values))), abs=0.008)

    def test_a_p_value_is_never_zero(self) -> None:
        assert differing(*[one + 10 for one in bell(60)]).p_value == pytest.approx(1e-4)

    def test_right_and_wrong_answers_are_compared_as_mcnemar_does(self) -> None:
        found = comparison(RIGHT, cases(*[1.0] * 9, *[0.0] * 11), cases(*[0.0] * 8, *[1.0] * 2, *[0.0] * 10))

        assert (found.wins, found.losses, found.ties) == (8, 1, 11)
        assert found.p_value == pytest.approx(stats.binomtest(8, 9).pvalue)

    def test_right_and_wrong_answers_have_the_interval_of_bonett_and_price(self) -> None:
        found = comparison(RIGHT, cases(*[1.0] * 8, *[0.0] * 72), cases(*[0.0] * 8, 1.0, *[0.0] * 71))

        # One more win and one more loss in 82 cases: 9 and 2.
        share, spread = 7 / 82, (11 / 82 - (7 / 82) ** 2) * 82 / 81
        reach = stats.t.ppf(0.975, 81) * (spread / 82) ** 0.5
        assert found.method is Method.PSEUDO_CASES
        assert ends(found.interval) == pytest.approx((share - reach, share + reach))

    def test_equal_answers_do_not_prove_equality(self) -> None:
        low, high = ends(comparison(RIGHT, cases(*[1.0] * 80), cases(*[1.0] * 80)).interval)

        assert -0.04 < low < -0.03
        assert high == -low

    def test_bounds_are_one_sided(self) -> None:
        values = bell(5)
        found = differing(*values)

        oracle = stats.ttest_1samp(values, 0, alternative="greater").confidence_interval(0.95)
        assert ends(found.bounds)[0] == pytest.approx(oracle.low)

    def test_the_effect_size_is_in_standard_deviations_of_the_differences(self) -> None:
        assert differing(1.0, 2.0, 3.0).effect_size == pytest.approx(2.0)
        assert differing(2.0, 2.0, 2.0).effect_size is None

    def test_needed_cases_are_those_of_the_textbook(self) -> None:
        # An effect of half a standard deviation needs 34 pairs for 80 % power in a paired t-test.
        sample = stats.zscore(bell(20), ddof=1) + 0.5
        found = differing(*sample.tolist())

        assert found.effect_size == pytest.approx(0.5)
        assert found.needed_cases() == NeededCases(low=21, about=34, high=67)
        stricter = found.needed_cases(0.05 / 5)
        assert stricter is not None
        assert stricter.about == 51

    def test_needed_cases_allow_for_ties(self) -> None:
        # Six wins without a loss are the fewest that can be significant; the second has them in every other case.
        assert str(differing(1.0, 1.0, 1.0).needed_cases()) == "6"
        assert str(differing(*[1.0] * 50, *[0.0] * 50).needed_cases()) == "11–12"

    def test_needed_cases_are_open_where_the_difference_may_well_be_none(self) -> None:
        needed = differing(1.0, -1.0, 1.0, -1.0, 1.0).needed_cases()

        assert needed is not None
        assert needed.high is None
        assert str(needed) == f"{needed.low}+"

    def test_needed_cases_are_told_as_roughly_as_they_are_known(self) -> None:
        assert str(NeededCases(low=1_135, about=3_000, high=16_751)) == "1,100–17,000"

    def test_errors_count_as_worst_or_drop_the_pair(self) -> None:
        candidate, baseline = cases(1.0, Absent.ERROR, 1.0), cases(0.0, 1.0, Absent.MISSING)
        worst = comparison(RIGHT, candidate, baseline)
        dropped = comparison(RIGHT, candidate, baseline, errors=Errors.DROP)

        assert (worst.pairs, worst.dropped, worst.difference) == (2, 1, 0.0)
        assert (dropped.pairs, dropped.dropped, dropped.difference) == (1, 2, 1.0)

    def test_nothing_in_common_gives_no_difference_and_no_evidence(self) -> None:
        found = comparison(PLAIN, {"q1": [1.0]}, {"q2": [1.0]})

        assert (found.pairs, found.dropped, found.difference, found.interval, found.p_value) == (0, 2, None, None, 1.0)
        assert verdicts([found])[0].finding is Finding.NO_EVIDENCE

    def test_an_unknown_baseline_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="no combination 'old' to compare with; there are new"):
            compare([ScoreTable(metric=PLAIN, combinations={"new": {}})], "old")

    def test_a_comparison_does_not_depend_on_the_others(self) -> None:
        rows = {name: cases(*bell(60, seed)) for seed, name in enumerate(["old", "a", "b", "c"])}
        alone = compare([ScoreTable(metric=PLAIN, combinations={name: rows[name] for name in ("old", "b")})], "old")
        together = compare([ScoreTable(metric=PLAIN, combinations=rows)], "old")

        assert together[1].p_value == alone[0].p_value
        assert ends(together[1].interval) == pytest.approx(ends(alone[0].interval), rel=1e-12)

    def test_another_seed_gives_nearly_the_same_answer(self) -> None:
        rows = {"old": cases(*bell(60)), "new": cases(*bell(60, 1))}
        table = ScoreTable(metric=PLAIN, combinations=rows)
        (one,), (other,) = compare([table], "old"), compare([table], "old", seed=1)

        assert one.p_value != other.p_value
        assert one.p_value == pytest.approx(other.p_value, abs=0.03)
        assert ends(one.interval) == pytest.approx(ends(other.interval), abs=0.05)


class TestVerdicts:
    def test_p_values_are_adjusted_as_westfall_and_young_do(self) -> None:
        """Held against all sign patterns, tried one by one."""
        columns = [[3.0, 2.0, 2.0, 1.0, 2.0, 1.0], [1.0, -2.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, -1.0, -1.0, 2.0, 0.0]]
        found = verdicts([differing(*column) for column in columns])

        sizes = [sum(value**2 for value in column) ** 0.5 for column in columns]
        seen = [abs(sum(column)) / size for column, size in zip(columns, sizes, strict=True)]
        order = sorted(range(3), key=lambda index: -seen[index])
        counts = [0, 0, 0]
        for signs in itertools.product((1, -1), repeat=6):
            flipped = [
                abs(sum(sign * value for sign, value in zip(signs, column, strict=True))) / size
                for column, size in zip(columns, sizes, strict=True)
            ]
            for rank, index in enumerate(order):
                counts[index] += max(flipped[each] for each in order[rank:]) >= seen[index] - 1e-12
        shares = list(itertools.accumulate((counts[index] / 64 for index in order), max))
        assert [found[index].adjusted_p for index in order] == shares

    def test_copies_of_a_comparison_cost_nothing(self) -> None:
        found = differing(*[1.0] * 6, *[0.0] * 3)

        assert [one.adjusted_p for one in verdicts([found] * 50)] == [found.p_value] * 50

    def test_many_candidates_make_a_verdict_harder(self) -> None:
        strong, others = (
            differing(*[1.0] * 6, -0.5),
            [differing(*np.roll([1.0] * 5 + [-1.0, 0.0], turn).tolist()) for turn in range(7)],
        )

        assert verdicts([strong])[0].finding is Finding.BETTER
        assert verdicts([strong, *others])[0].finding is Finding.NO_EVIDENCE
        assert "among 8 comparisons on score" in verdicts([strong, *others])[0].reason

    def test_lower_is_better_where_it_is(self) -> None:
        faster, slower = differing(*[-1.0] * 7, metric=LATENCY), differing(*[1.0] * 7, metric=LATENCY)

        assert [one.finding for one in verdicts([faster, slower])] == [Finding.BETTER, Finding.WORSE]

    def test_needed_cases_are_for_as_many_comparisons(self) -> None:
        found = differing(*[one + 0.3 for one in bell(20)])

        assert verdicts([found])[0].needed_cases == found.needed_cases(0.05)
        assert verdicts([found] * 4)[0].needed_cases == found.needed_cases(0.05 / 4)

    def test_no_comparison_gives_no_verdict(self) -> None:
        assert verdicts([]) == ()

    @pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1])
    def test_a_level_that_is_none_is_refused(self, alpha: float) -> None:
        with pytest.raises(InvalidInput, match="alpha"):
            verdicts([], alpha)

    @given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=30))
    def test_a_winner_has_an_interval_on_its_side_and_the_other_side_is_its_mirror(self, values: list[float]) -> None:
        found, turned = differing(*values), comparison(PLAIN, cases(*[0.0] * len(values)), cases(*values))
        (verdict,), (mirror,) = verdicts([found]), verdicts([turned])

        assert found.p_value == turned.p_value
        assert (found.wins, found.losses) == (turned.losses, turned.wins)
        assert {verdict.finding, mirror.finding} in ({Finding.NO_EVIDENCE}, {Finding.BETTER, Finding.WORSE})
        if found.interval is not None and found.difference is not None:
            assert found.interval.low <= found.difference <= found.interval.high
        if verdict.finding is Finding.BETTER:
            assert ends(found.interval)[0] > 0


class TestNumbers:
    @pytest.mark.parametrize("size", [1e-300, 1e-165, 1e154, 1e300])
    def test_the_size_of_scores_does_not_matter(self, size: float) -> None:
        """Likelihoods are as small as 1e-165; squares of that are 0 to a float."""
        before = [abs(one) + 1 for one in bell(30)]
        found = comparison(PLAIN, cases(*[one * 1.5 * size for one in before]), cases(*[one * size for one in before]))
        low, high = ends(found.interval)

        assert verdicts([found])[0].finding is Finding.BETTER
        assert 0 < low < high < 2 * size

    def test_scores_too_large_to_subtract_are_no_evidence(self) -> None:
        found = comparison(PLAIN, cases(*[1.7e308] * 8), cases(*[-1.7e308] * 8))
        (verdict,) = verdicts([found])

        assert (verdict.finding, verdict.comparison.interval) == (Finding.NO_EVIDENCE, None)
        assert verdict.reason == "the scores are too large to calculate with"

    @pytest.mark.parametrize("unit", [1.0, 0.1, 3.0, 1e-3, 7e-5, 1e12])
    @pytest.mark.parametrize("seed", range(6))
    def test_the_unit_of_scores_with_one_decimal_changes_no_p_value(self, unit: float, seed: int) -> None:
        chance = random.Random(seed)
        tenths = [(chance.randrange(11), chance.randrange(9)) for _ in range(12)]
        ours, theirs = (cases(*[pair[side] / 10 * unit for pair in tenths]) for side in (0, 1))
        found = comparison(PLAIN, ours, theirs)

        apart = [one - other for one, other in tenths]
        reached = [
            abs(sum(sign * one for sign, one in zip(signs, apart, strict=True))) >= abs(sum(apart))
            for signs in itertools.product((1, -1), repeat=12)
        ]
        assert found.p_value == sum(reached) / 2**12

    @pytest.mark.parametrize("seed", range(6))
    def test_thirds_have_the_p_value_of_whole_numbers(self, seed: int) -> None:
        chance = random.Random(seed)
        pairs = [(chance.randrange(4), chance.randrange(4)) for _ in range(11)]
        thirds, whole = (
            comparison(PLAIN, cases(*[one / part for one, _ in pairs]), cases(*[other / part for _, other in pairs]))
            for part in (3, 1)
        )

        assert thirds.p_value == whole.p_value
        assert (thirds.wins, thirds.ties) == (whole.wins, whole.ties)

    def test_an_error_on_a_huge_scale_does_not_hide_the_other_differences(self) -> None:
        metric = Metric(name="seconds", direction=Direction.LOWER, worst=1e12)
        baseline = cases(Absent.ERROR, *[1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7])
        found = comparison(metric, cases(1.0, *[one - 0.1 for one in (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)]), baseline)

        assert (found.wins, found.ties, found.p_value) == (8, 0, 2 / 2**8)

    def test_thousands_of_cases_are_not_too_many(self) -> None:
        found = comparison(PLAIN, cases(*[one + 1 for one in bell(1_100)]), cases(*[0.0] * 1_100))

        assert verdicts([found, found])[0].finding is Finding.BETTER

    def test_the_order_of_the_cases_does_not_matter(self) -> None:
        ours, theirs = cases(*[one + 0.3 for one in bell(40)]), cases(*bell(40, 1))
        turned = [{case: side[case] for case in sorted(side, reverse=True)} for side in (ours, theirs)]

        assert comparison(PLAIN, ours, theirs) == comparison(PLAIN, turned[0], turned[1])


class TestErrors:
    def test_a_candidate_that_always_fails_is_worse(self) -> None:
        found = comparison(PLAIN, cases(*[Absent.ERROR] * 12), cases(*[1.0] * 12))
        (verdict,) = verdicts([found])

        assert (found.wins, found.ties, found.losses) == (0, 0, 12)
        assert (found.difference, found.candidate_scores) == (None, ())
        assert verdict.finding is Finding.WORSE
        assert verdict.reason == "12 cases are decided by failed runs"

    def test_without_a_scale_an_error_loses_by_the_largest_difference(self) -> None:
        found = comparison(LATENCY, cases(1.0, 1.0, Absent.ERROR, 2.0), cases(2.0, 4.0, 3.0, Absent.ERROR))

        assert (found.wins, found.losses, found.pairs) == (3, 1, 4)
        assert found.tested is not None
        assert found.tested.in_metric.tolist() == [-1.0, -3.0, 3.0, -3.0]
        assert (found.difference, found.candidate_scores) == (-2.0, (1.0, 1.0))

    def test_whoever_fails_more_often_loses_the_case(self) -> None:
        error = Absent.ERROR
        found = comparison(PLAIN, cases([9.0, error], [error, error]), cases([1.0, 1.0], [error, error]))

        assert (found.wins, found.ties, found.losses) == (0, 1, 1)

    def test_where_both_fail_equally_often_the_other_runs_decide(self) -> None:
        found = comparison(PLAIN, cases([9.0, Absent.ERROR]), cases([Absent.ERROR, 1.0]))

        assert (found.wins, found.difference, found.decided_by_failures) == (1, 8.0, 0)

    def test_the_mean_says_how_many_runs_it_is_of(self) -> None:
        found = summary(LATENCY, cases([1.0, Absent.ERROR], [3.0, 3.0]))

        assert (found.mean, found.scored, found.errors, found.leaves_out_errors) == (2.0, 3, 1, True)
        assert not summary(RIGHT, cases([1.0, Absent.ERROR])).leaves_out_errors

    def test_a_candidate_that_fails_alone_is_not_called_better(self) -> None:
        found = comparison(RIGHT, cases(*[1.0] * 15, Absent.ERROR), cases(*[0.0] * 15, 1.0))
        (strict,), (lenient,) = verdicts([found]), verdicts([found], max_errors=1)

        assert (strict.finding, strict.reason) == (
            Finding.NO_EVIDENCE,
            "it failed on 1 case where the baseline did not",
        )
        assert lenient.finding is Finding.BETTER

    def test_a_candidate_that_fails_on_one_metric_is_better_on_none(self) -> None:
        names = ("old", "new")
        right = ScoreTable(
            metric=RIGHT, combinations=dict(zip(names, (cases(*[0.0] * 9), cases(*[1.0] * 9)), strict=True))
        )
        failing = cases(*[1.0] * 8, Absent.ERROR)
        plain = ScoreTable(metric=PLAIN, combinations=dict(zip(names, (cases(*[1.0] * 9), failing), strict=True)))

        assert verdicts(compare([right], "old"))[0].finding is Finding.BETTER
        assert verdicts(compare([right, plain], "old"))[0].finding is Finding.NO_EVIDENCE

    def test_a_number_of_errors_below_0_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="max_errors must be a number of cases, 0 or more, not -1"):
            verdicts([], max_errors=-1)

    def test_errors_that_contradict_the_scores_are_no_evidence(self) -> None:
        ours: list[Score] = [*[0.9] * 30, *[Absent.ERROR] * 50]
        (verdict,) = verdicts([comparison(LATENCY, cases(*ours), cases(*[1.0] * 80))])

        assert verdict.finding is Finding.NO_EVIDENCE
        assert verdict.reason == "50 cases are decided by failed runs, and the other cases say the opposite"

    @given(
        scores=st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 1.0])] * 2), min_size=6, max_size=12),
        failing=st.sets(st.integers(0, 11), min_size=1),
        metric=st.sampled_from([PLAIN, RIGHT, LATENCY]),
        max_errors=st.sampled_from([0, 12]),
    )
    def test_errors_of_the_candidate_never_make_a_verdict_better(
        self, scores: list[tuple[float, float]], failing: set[int], metric: Metric, max_errors: int
    ) -> None:
        ours, theirs = ([pair[side] for pair in scores] for side in (0, 1))
        spoilt = [Absent.ERROR if at in failing else one for at, one in enumerate(ours)]
        (before,) = verdicts([comparison(metric, cases(*ours), cases(*theirs))], max_errors=max_errors)
        (after,) = verdicts([comparison(metric, cases(*spoilt), cases(*theirs))], max_errors=max_errors)

        if before.finding is not Finding.BETTER and (max_errors == 0 or metric.worst is not None):
            assert after.finding is not Finding.BETTER or not failing & set(range(len(ours)))


class TestClusters:
    CLUSTERS = {f"q{number}": f"doc-{number // 3}" for number in range(9)}  # noqa: RUF012

    def table(self, **combinations: Scores) -> ScoreTable:
        return ScoreTable(metric=PLAIN, combinations=combinations, clusters=self.CLUSTERS)

    def test_the_cases_of_a_cluster_are_averaged_and_count_as_one(self) -> None:
        ours = cases(*[1.0, 2.0, 3.0], *[4.0] * 3, *[5.0] * 3, 7.0)
        (found,) = compare([self.table(old=cases(*[0.0] * 10), new=ours)], "old")

        assert found.candidate_scores == (7.0, 2.0, 4.0, 5.0)  # the case without a cluster is one by itself
        assert (found.pairs, found.wins, found.difference, found.p_value) == (4, 4, 4.5, 2 / 2**4)

    def test_a_mean_is_that_of_cluster_means(self) -> None:
        found = summarise(self.table(new=cases(*[1.0] * 6, *[4.0] * 3)))["new"]

        assert (found.mean, found.cases, found.clusters) == (2.0, 9, 3)

    def test_only_cases_that_both_have_are_averaged(self) -> None:
        ours, theirs = cases(1.0, 5.0, 9.0), cases(1.0, 4.0, Absent.MISSING)
        (found,) = compare([self.table(old=theirs, new=ours)], "old")

        assert (found.difference, found.dropped, found.candidate_scores) == (0.5, 1, (3.0,))

    def test_a_case_lost_to_an_error_is_part_of_its_cluster(self) -> None:
        (found,) = compare([self.table(old=cases(*[1.0] * 6), new=cases(*[2.0] * 4, *[Absent.ERROR] * 2))], "old")

        assert found.tested is not None
        assert found.tested.in_metric.tolist() == pytest.approx([1.0, -1 / 3])


class TestFamilies:
    def tables(self, *shifts: float) -> list[ScoreTable]:
        """A metric a shift, each with three candidates."""
        return [
            ScoreTable(
                metric=Metric(name=f"m{number}"),
                combinations={
                    name: cases(*[one + shift * (name != "old") for one in bell(40, 10 * number + seed)])
                    for seed, name in enumerate(("old", "a", "b", "c"))
                },
            )
            for number, shift in enumerate(shifts)
        ]

    def test_the_primary_metric_is_a_family_of_its_own(self) -> None:
        found = verdicts(compare(self.tables(0.5, 0.0, 0.0), "old"))
        alone = verdicts(compare(self.tables(0.5), "old"))

        assert [one.adjusted_p for one in found[:3]] == [one.adjusted_p for one in alone]
        assert (found[0].family.is_primary, str(found[0].family)) == (True, "3 comparisons on m0")
        assert (found[3].family.is_primary, str(found[3].family)) == (False, "6 comparisons on 2 metrics")

    def test_another_metric_can_be_the_primary_one(self) -> None:
        found = verdicts(compare(self.tables(0.5, 0.0, 0.0), "old"), primary="m1")

        assert [one.family.is_primary for one in found] == [False] * 3 + [True] * 3 + [False] * 3

    def test_hundreds_of_comparisons_do_not_hide_what_is_plain(self) -> None:
        scores = {f"m{number}": bell(30, number) for number in range(26)}
        tables = [
            ScoreTable(
                metric=Metric(name=name),
                combinations={"old": cases(*own)}
                | {f"c{each}": cases(*[one + 3 + noise for one, noise in zip(own, bell(30, 100 + each), strict=True)])
                   for each in range(20)},
            )
            for name, own in scores.items()
        ]  # fmt: skip

        found = verdicts(compare(tables, "old"))
        assert len(found) == 520
        assert all(one.finding is Finding.BETTER for one in found)


class TestReasons:
    def reason(self, *values: float) -> str:
        return verdicts([differing(*values)])[0].reason

    def test_no_evidence_says_why(self) -> None:
        assert self.reason(1.0, 1.0, 1.0, 1.0) == "only 4 cases differ: too few to rule out chance"
        assert self.reason(0.0, 0.0) == "no case differs"
        assert self.reason(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0) == "it may be chance"
        assert verdicts([comparison(PLAIN, {}, {})])[0].reason == "no case has a score on both sides"

    def test_a_winner_needs_no_reason(self) -> None:
        assert self.reason(*[1.0] * 8) == ""


class TestAgreement:
    def test_the_interval_leaves_0_out_where_the_test_does(self) -> None:
        """Six wins among twenty cases: pseudo-cases alone would hold 0, and the exact p is 3 %."""
        found = differing(*[1.0] * 6, *[0.0] * 14)
        low, high = ends(found.interval)

        assert found.p_value == 2 / 2**6
        assert 0 < low < 0.3 < high

    @given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 9.0]), min_size=2, max_size=40))
    def test_an_interval_and_its_p_value_say_the_same(self, values: list[float]) -> None:
        found = differing(*values)

        if found.interval is not None:
            assert found.interval.holds(0) is (found.p_value > 0.05)
            assert found.difference is not None
            assert found.interval.low <= found.difference <= found.interval.high


def test_a_combination_is_shown_to_be_better_where_chance_is_ruled_out() -> None:
    table = ScoreTable(
        metric=RIGHT,
        combinations={"good": cases(*[1.0] * 9), "bad": cases(*[0.0] * 9), "close": cases(*[1.0] * 8, 0.0)},
    )

    pairs = [("good", "bad"), ("good", "close"), ("bad", "good")]
    assert beyond_chance([table], pairs) == {("good", "bad")}
    assert beyond_chance([table], []) == set()
