"""The result of a gate: text for the log of a CI job, data for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wtb.application.queries.batch_data import interval_data
from wtb.domain.display import counted, figure_or_dash
from wtb.gates import GateResult

if TYPE_CHECKING:
    from wtb.domain.statistics.gate import Gate

_FEW = 5
"""How many cases are listed."""


def said(found: GateResult) -> str:
    """Return the result as text: the outcome first, then the reason, then the figures."""
    comparison = found.comparison
    names = f"{comparison.metric.name} of {comparison.candidate} against baseline {found.baseline.name}"
    lines = [why(found), *_drop_lines(found.gate), *_case_lines(found)]
    if found.apart is not None:
        lines.append(f"note: the two were measured {found.apart}, which may explain the difference")
    return "\n  ".join([f"{found.gate.outcome.value.upper()}: {names}", *lines])


def why(found: GateResult) -> str:
    """Return the reason for the outcome in a sentence."""
    gate, cases = found.gate, counted(found.comparison.pairs, "case")
    allowed = amount(gate.allowed, gate)
    absent = "no case has a score on both sides: do both use the same case ids?"
    if found.comparison.pairs:
        absent = "every case has a failed run on both sides: nothing could be compared"
    return {
        "drop_shown": "the drop is larger than allowed, and not due to chance (5 %)",
        "more_errors": _errors(gate),
        "nothing_to_compare": absent,
        "unfinished": f"{counted(gate.unfinished, 'case')} did not finish: run the batch again",
        "too_few_cases": f"the drop is larger than allowed, but with {cases} it may be chance: run at least 5",
        "no_proof": f"no proof that the drop is smaller than {allowed}: run more cases, or allow a larger drop",
        "proven": f"the drop is smaller than {allowed}: proven at 5 %",
        "no_drop_shown": _not_shown(gate),
    }[gate.reason.value]


def _not_shown(gate: Gate) -> str:
    if gate.at_most is not None and gate.at_most < 0:
        return f"it is better, by at least {amount(-gate.at_most, gate)} (95 %)"
    beyond = f" beyond {amount(gate.allowed, gate)}" if gate.allowed else ""
    hidden = "" if gate.at_most is None else f"; it may be up to {amount(gate.at_most, gate)} (95 %)"
    return f"no drop{beyond} was shown{hidden}; --non-inferior asks for proof"


def _errors(gate: Gate) -> str:
    new, old = gate.errors.candidate_only, gate.errors.baseline_only
    verb = "fails" if new == 1 else "fail"
    counts = f"{counted(new, 'case')} {verb} only with the candidate, {old:,} only with the baseline"
    chance = "beyond chance" if gate.outcome.value == "regression" else "which may be chance"
    return f"{counts}: {chance} (p = {figure_or_dash(gate.errors_p)}), and at most {gate.max_errors:,} may fail"


def _drop_lines(gate: Gate) -> Iterator[str]:
    if gate.drop is None:
        return
    change = "worse" if gate.drop > 0 else "better"
    seen = f"{change} by {amount(abs(gate.drop), gate)}" if gate.drop else "equal on average"
    yield f"{seen}; {amount(gate.allowed, gate)} worse is allowed"
    known = {"at least": gate.at_least, "at most": gate.at_most}
    if gate.reason.value == "no_drop_shown":
        return  # `_not_shown` has already given the upper limit
    limits = [f"{name} {amount(limit, gate)}" for name, limit in known.items() if limit is not None]
    if limits:
        yield f"the true drop is {', '.join(limits)} (95 %{' each' if len(limits) > 1 else ''})"


def _case_lines(found: GateResult) -> Iterator[str]:
    comparison, errors = found.comparison, found.gate.errors
    dropped = f", {comparison.dropped:,} more not on both sides" if comparison.dropped else ""
    yield (
        f"{counted(comparison.pairs, 'case')}{dropped}: "
        f"{comparison.wins} better, {comparison.ties} equal, {comparison.losses} worse"
    )
    if found.lost:
        yield f"worse on {', '.join(found.lost[:_FEW])}{', …' if found.lost[_FEW:] else ''}"
    if found.gate.reason.value != "more_errors" and (errors.candidate_only or errors.baseline_only or errors.both):
        yield (
            f"failed cases: {errors.candidate_only:,} only with the candidate, "
            f"{errors.baseline_only:,} only with the baseline, {errors.both:,} with both"
        )


def amount(value: float | None, gate: Gate) -> str:
    """Return a drop in units of the metric, or in percent."""
    return f"{100 * value:.1f} %" if value is not None and gate.is_share else figure_or_dash(value)


def gate_data(found: GateResult) -> dict[str, Any]:
    """Return the result for programs."""
    gate, comparison = found.gate, found.comparison
    return {
        "outcome": gate.outcome.value,
        "reason": gate.reason.value,
        "why": why(found),
        "baseline": found.baseline.name,
        "candidate": comparison.candidate,
        "metric": comparison.metric.name,
        "drop": gate.drop,
        "allowed": gate.allowed,
        "is_share": gate.is_share,
        "at_least": gate.at_least,
        "at_most": gate.at_most,
        "difference": comparison.difference,
        "interval": interval_data(comparison.interval),
        "cases": comparison.pairs,
        "dropped": comparison.dropped,
        "unfinished": gate.unfinished,
        "wins": comparison.wins,
        "ties": comparison.ties,
        "losses": comparison.losses,
        "worse_on": list(found.lost),
        "measured_apart": found.apart,
        "errors": {
            "candidate_only": gate.errors.candidate_only,
            "baseline_only": gate.errors.baseline_only,
            "both": gate.errors.both,
            "allowed": gate.max_errors,
            "p_value": gate.errors_p,
        },
    }
