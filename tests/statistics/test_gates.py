"""Gates are wrong as seldom as docs/verdict-rates.md says, in simulated batches whose truth is known.

Every bound is what chance allows once in ten thousand for this number of batches; `make soak` simulates more of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.statistics import simulate_gate as simulate
from tests.statistics.chance import least, most
from tests.statistics.simulate import BINARY, LOGNORMAL, NORMAL, TIED
from tests.statistics.simulate_gate import EDITS, RARE, Edit
from wtb.domain.statistics import gate, gate_bounds
from wtb.domain.statistics.comparisons import Comparison
from wtb.domain.statistics.gate import GateOutcome, regression
from wtb.domain.statistics.gate_bounds import Drops

BATCHES = 4_000 if os.environ.get("WTB_SOAK") else 200


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with simulate.draws_kept(999):
        yield


def named(edit: Edit) -> str:
    return edit.name


def edit_of(kind: object) -> Edit:
    return next(edit for edit in EDITS if edit.kind is kind)


@pytest.mark.parametrize("cases", simulate.SIZES)
@pytest.mark.parametrize("edit", EDITS, ids=named)
def test_a_harmless_edit_fails_once_in_twenty_times_at_most(edit: Edit, cases: int) -> None:
    comparisons = simulate.compared(edit, batches=BATCHES, cases=cases, drop=0.0)

    assert simulate.not_fine(comparisons) <= most(0.05, BATCHES)


def test_a_gate_that_passes_only_where_no_drop_is_seen_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_before(judged: gate._Judged) -> gate.Judgement | None:
        lost = judged.drops.seen is not None and judged.drops.seen > judged.allowed.value
        return (GateOutcome.INCONCLUSIVE, gate.GateReason.TOO_FEW_CASES) if lost else None

    monkeypatch.setattr(gate._Judged, "doubt", as_before)
    with pytest.raises(AssertionError):
        test_a_harmless_edit_fails_once_in_twenty_times_at_most(edit_of(BINARY), 80)


@pytest.mark.parametrize(("kind", "found"), [(NORMAL, 0.7), (BINARY, 0.57), (TIED, 0.49)])
def test_every_drop_that_the_test_shows_is_a_regression(kind: object, found: float) -> None:
    edit = edit_of(kind)
    comparisons = simulate.compared(edit, batches=BATCHES, cases=80, drop=edit.margin)

    for one in comparisons:
        shown = one.bounds is not None and one.bounds.high < 0
        assert (regression(one).outcome is GateOutcome.REGRESSION) is shown
    assert simulate.share(map(regression, comparisons), GateOutcome.REGRESSION) >= least(found, BATCHES)


@pytest.mark.parametrize("edit", EDITS, ids=named)
def test_a_drop_that_is_just_allowed_fails_once_in_twenty_times_at_most(edit: Edit) -> None:
    comparisons = simulate.compared(edit, batches=BATCHES, cases=80, drop=edit.margin, seed=2)
    gates = (regression(one, edit.margin) for one in comparisons)

    assert simulate.share(gates, GateOutcome.REGRESSION) <= most(0.05, BATCHES)


@pytest.mark.parametrize("cases", [20, 80])
@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit.kind.metric.best is not None], ids=named)
def test_a_proof_on_a_declared_scale_is_wrong_once_in_twenty_times_at_most(edit: Edit, cases: int) -> None:
    comparisons = simulate.compared(edit, batches=BATCHES, cases=cases, drop=edit.margin, seed=2)

    assert simulate.proven(comparisons, edit.margin) <= most(0.05, BATCHES)
    assert simulate.proven(comparisons, simulate.percent(edit)) <= most(0.05, BATCHES)


@pytest.mark.parametrize("cases", simulate.SIZES)
def test_a_proof_in_percent_of_skewed_scores_is_wrong_once_in_twenty_times_at_most(cases: int) -> None:
    edit = edit_of(LOGNORMAL)
    comparisons = simulate.compared(edit, batches=BATCHES, cases=cases, drop=edit.margin, seed=2)

    assert simulate.proven(comparisons, simulate.percent(edit)) <= most(0.05, BATCHES)


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit.kind.metric.best is None], ids=named)
def test_a_proof_without_a_scale_is_wrong_as_often_as_the_documentation_says(edit: Edit) -> None:
    """Few cases do not show the whole of a long tail."""
    comparisons = simulate.compared(edit, batches=BATCHES, cases=80, drop=edit.margin, seed=2)

    assert simulate.proven(comparisons, edit.margin) <= most(0.05 if edit.kind is NORMAL else 0.09, BATCHES)


def test_a_proof_by_the_interval_alone_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_interval(comparison: Comparison) -> Drops:
        assert comparison.bounds is not None
        return Drops(seen=0.0, at_most=-comparison.bounds.low)

    monkeypatch.setattr(gate, "drops_in_units", by_the_interval)
    with pytest.raises(AssertionError):
        test_a_proof_on_a_declared_scale_is_wrong_once_in_twenty_times_at_most(edit_of(RARE), 20)


def test_a_proof_in_percent_without_the_sign_flips_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_bounds, "ALPHA", 0.15)
    with pytest.raises(AssertionError):
        test_a_proof_in_percent_of_skewed_scores_is_wrong_once_in_twenty_times_at_most(80)


def test_enough_cases_do_prove_that_a_harmless_edit_is_harmless() -> None:
    edit = edit_of(BINARY)
    comparisons = simulate.compared(edit, batches=BATCHES, cases=80, drop=0.0)

    assert simulate.proven(comparisons, 2 * edit.margin) >= 0.9
