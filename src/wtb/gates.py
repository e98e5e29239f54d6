"""Gates: whether a combination lost more than is allowed against a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wtb.application.batches.baselines import known_combination
from wtb.batch_results import BatchResult, compare_results
from wtb.domain.batch import Baseline
from wtb.domain.evaluation import Absent, Score
from wtb.domain.statistics.measurement import is_measured, measured_apart

if TYPE_CHECKING:
    from wtb.domain.statistics.comparisons import Comparison
    from wtb.domain.statistics.gate import Allowance, Gate


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The outcome of a gate, the comparison behind it, and the cases that lost, largest loss first.

    If the gate is about latency or cost, `apart` says why the two were not measured together: the drop may come from
    that.
    """

    baseline: Baseline
    comparison: Comparison
    gate: Gate
    lost: tuple[str, ...] = ()
    apart: str | None = None


def judge(
    baseline: Baseline,
    kept: BatchResult,
    candidate: BatchResult,
    *,
    combination: str | None,
    metric: str,
    max_drop: Allowance | float | str,
    max_errors: int,
    non_inferior: bool,
) -> GateResult:
    """Say whether a combination lost more than is allowed on the cases that it and the baseline have."""
    from wtb.domain.statistics import gate

    chosen = known_combination(candidate.batch, combination)
    allowed = gate.Allowance.of(max_drop)
    (verdict,) = compare_results(kept, candidate, [metric], pairs=[(kept.baseline, chosen)])
    ask = gate.non_inferior if non_inferior else gate.regression
    new, old = candidate.table(metric).combinations[chosen], kept.table(metric).combinations[kept.baseline]
    return GateResult(
        baseline=baseline,
        comparison=verdict.comparison,
        gate=ask(verdict.comparison, allowed, max_errors=max_errors, unfinished=_unfinished(new, old)),
        lost=_lost(candidate, chosen, kept, metric),
        apart=_apart(candidate, chosen, kept, metric),
    )


def _apart(candidate: BatchResult, chosen: str, kept: BatchResult, metric: str) -> str | None:
    if not is_measured(metric, candidate.weights):
        return None
    return measured_apart(candidate._jobs_of(chosen), kept._jobs_of(kept.baseline))


def _unfinished(candidate: Mapping[str, Sequence[Score]], baseline: Mapping[str, Sequence[Score]]) -> int:
    """Return how many cases with baseline scores the candidate has not finished."""
    scored = {case for case, runs in baseline.items() if any(not isinstance(run, Absent) for run in runs)}
    return sum(case in scored and Absent.MISSING in runs for case, runs in candidate.items())


def _lost(candidate: BatchResult, chosen: str, kept: BatchResult, metric: str) -> tuple[str, ...]:
    table = candidate.table(metric)
    new, old = table.case_means(chosen), kept.table(metric).case_means(kept.baseline)
    losses = {case: table.metric.direction.sign * (old[case] - new[case]) for case in new if case in old}
    return tuple(sorted((case for case, loss in losses.items() if loss > 0), key=lambda case: -losses[case]))
