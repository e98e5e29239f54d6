"""Errors never pay: a gate that does not pass, does not pass either once more of the candidate's runs have failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from wtb.domain.evaluation import Absent, Direction, Metric, Score, ScoreTable
from wtb.domain.statistics.comparisons import Comparison, compare
from wtb.domain.statistics.gate import GateOutcome, non_inferior, regression

Runs = Mapping[str, Sequence[Score]]

METRICS = (
    Metric(name="right", worst=0.0, best=1.0),
    Metric(name="mistakes", direction=Direction.LOWER, worst=1.0, best=0.0),
    Metric(name="judge"),
    Metric(name="latency_s", direction=Direction.LOWER, best=0.0),
)
SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
RUN = st.one_of(SCORES, SCORES, SCORES, st.just(Absent.ERROR))


@st.composite
def batches(draw: st.DrawFn) -> tuple[Runs, Runs, Runs]:
    """The baseline, the candidate, and the candidate with more errors."""
    size, repeats = draw(st.integers(1, 14)), draw(st.integers(1, 2))
    rows = st.lists(st.lists(RUN, min_size=repeats, max_size=repeats), min_size=size, max_size=size)
    baseline, candidate = draw(rows), draw(rows)
    fails = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    worse = [[Absent.ERROR, *row[1:]] if fail else row for row, fail in zip(candidate, fails, strict=True)]
    return _named(baseline), _named(candidate), _named(worse)


def _named(rows: Sequence[Sequence[Score]]) -> Runs:
    return {str(number): row for number, row in enumerate(rows)}


def _compared(metric: Metric, baseline: Runs, candidate: Runs) -> Comparison:
    table = ScoreTable(metric=metric, combinations={"baseline": baseline, "candidate": candidate})
    (comparison,) = compare([table], "baseline")
    return comparison


def _outcomes(comparison: Comparison, max_drop: float, max_errors: int) -> tuple[GateOutcome, GateOutcome]:
    gates = (ask(comparison, max_drop, max_errors=max_errors) for ask in (regression, non_inferior))
    first, second = (gate.outcome for gate in gates)
    return first, second


@given(batches(), st.sampled_from(METRICS), st.sampled_from([0.0, 0.1, 0.3, 2.0]), st.integers(0, 3))
def test_errors_put_on_the_candidate_never_make_a_gate_fine_that_was_not(
    runs: tuple[Runs, Runs, Runs], metric: Metric, max_drop: float, max_errors: int
) -> None:
    baseline, candidate, worse = runs
    if metric.worst is None:
        # Without a scale an error has no score: nobody knows what it hides where it is tolerated, or where the
        # baseline fails in the same case.
        max_errors = 0
        worse = {case: candidate[case] if Absent.ERROR in baseline[case] else runs for case, runs in worse.items()}
    before = _outcomes(_compared(metric, baseline, candidate), max_drop, max_errors)
    after = _outcomes(_compared(metric, baseline, worse), max_drop, max_errors)

    assert not [
        1 for old, new in zip(before, after, strict=True) if new is GateOutcome.FINE and old is not GateOutcome.FINE
    ]
