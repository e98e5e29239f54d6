"""Baselines: what a combination scored, kept as it was; and how another one is held against it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wtb.batch_results import BatchResult, compare_results
from wtb.domain.batch import Baseline, JobStatus
from wtb.domain.errors import InvalidInput
from wtb.domain.variants import label, parse_label

if TYPE_CHECKING:
    from wtb.bench import Bench
    from wtb.domain.gate import Gate
    from wtb.domain.statistics import Comparison

KEPT = "baseline/"
"""How the names of the batches begin that hold what was kept."""


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What a gate says, and the comparison behind it."""

    baseline: Baseline
    comparison: Comparison
    gate: Gate


def keep(bench: Bench, name: str, result: BatchResult, combination: str | None) -> Baseline:
    """Copy what a combination scored into a batch of its own: the batch itself changes when it is run again."""
    if not name.strip():
        raise InvalidInput("a baseline needs a name, as main")
    chosen = known_combination(result, combination)
    now, batch_id = bench.services.clock.now(), bench.services.ids.new()
    with bench.services.storage.unit_of_work() as uow:
        jobs = [
            replace(job, batch_id=batch_id)
            for job in uow.batches.list_jobs(result.id)
            if job.combination == chosen and job.outcome is not JobStatus.PENDING
        ]
        if not jobs:
            raise InvalidInput(f"{chosen} of batch {result.batch.name!r} has no results yet")
        plan = {**result.batch.plan, "combinations": [chosen], "baseline": chosen}
        copy = replace(result.batch, id=batch_id, name=f"{KEPT}{name}", plan=plan, created_at=now, updated_at=now)
        baseline = Baseline(name=name, batch_id=batch_id, combination=chosen, created_at=now)
        for before in uow.batches.list_batches(name=copy.name):
            uow.batches.delete(before.id)
        uow.batches.save(copy)
        uow.batches.save_jobs(jobs)
        uow.batches.save_baseline(baseline)
        uow.commit()
    return baseline


def known_combination(result: BatchResult, combination: str | None) -> str:
    """Return a combination as the batch calls it, its baseline when none is named; InvalidInput when it has none."""
    chosen = result.baseline if combination is None else label(parse_label(combination))
    if chosen not in result.combinations:
        known = "; ".join(result.combinations)
        raise InvalidInput(f"batch {result.batch.name!r} has no combination {chosen!r}; it has {known}")
    return chosen


def held_against(candidate: BatchResult, combination: str | None, kept: BatchResult, metric: str) -> Comparison:
    """Compare a combination with a kept one on the cases that both have."""
    pair = (kept.baseline, known_combination(candidate, combination))
    (verdict,) = compare_results(kept, candidate, [metric], pairs=[pair])
    return verdict.comparison


def judge(baseline: Baseline, comparison: Comparison, max_drop: float, *, non_inferior: bool) -> GateResult:
    """Say whether the candidate lost more than is allowed."""
    from wtb.domain import gate

    ask = gate.non_inferior if non_inferior else gate.regression
    return GateResult(baseline=baseline, comparison=comparison, gate=ask(comparison, max_drop))
