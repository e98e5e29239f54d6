"""Baselines: save the scores of a combination under a name, and gate later batches against them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from wtb.batch_results import BatchResult, compare_results
from wtb.domain.batch import Baseline, Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.errors import BaselineNotFound, InvalidInput
from wtb.domain.evaluation import Absent, Score
from wtb.domain.statistics.measurement import is_measured, measured_apart
from wtb.domain.variants import label, parse_label

if TYPE_CHECKING:
    from wtb.bench import Bench
    from wtb.domain.ports import UnitOfWork
    from wtb.domain.statistics.comparisons import Comparison
    from wtb.domain.statistics.gate import Allowance, Gate

KEPT = "baseline/"
"""The prefix of the names of batches that hold the scores of baselines."""


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


def keep(bench: Bench, name: str, results: Sequence[BatchResult], combination: str | None) -> Baseline:
    """Copy the scores of a combination into a batch of their own, because a batch changes when it runs again.

    With several batches, their runs of a case count as its repeats. A case that only some of them have is kept, too.
    """
    if not name.strip():
        raise InvalidInput("a baseline needs a name, such as main")
    _check_pool(results)
    chosen = known_combination(results[0], combination)
    for result in results:
        known_combination(result, chosen)
    now, batch_id = bench.services.clock.now(), bench.services.ids.new()
    with bench.services.storage.unit_of_work() as uow:
        jobs = [_results_of(uow, result, chosen) for result in results]
        record = replace(_pooled_record(results, chosen), copies=_copies(results, jobs))
        first = results[0].batch
        copy = replace(first, id=batch_id, name=f"{KEPT}{name}", record=record, created_at=now, updated_at=now)
        baseline = Baseline(name=name, batch_id=batch_id, combination=chosen, created_at=now)
        _forget_copies(uow, name)
        uow.batches.save(copy)
        uow.batches.save_jobs([*_pooled(results, jobs, batch_id)])
        uow.batches.save_baseline(baseline)
        uow.commit()
    return baseline


def _check_pool(results: Sequence[BatchResult]) -> None:
    if not results:
        raise InvalidInput("name at least one batch to make a baseline of")
    names = [result.batch.name for result in results]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidInput(f"batch {twice[0]!r} is named twice: its runs would count twice")
    workflows = {result.batch.workflow_name for result in results}
    if len(workflows) > 1:
        raise InvalidInput(f"these batches are of different workflows: {', '.join(sorted(workflows))}")


def _results_of(uow: UnitOfWork, result: BatchResult, chosen: str) -> list[Job]:
    """Return the finished jobs of a combination that the batch still plans."""
    cases, repeats = set(result.batch.record.cases), result.batch.record.repeats
    jobs = [
        job
        for job in uow.batches.list_jobs(result.id)
        if job.combination == chosen and job.case_id in cases and job.repeat < repeats
    ]
    ended = [job for job in jobs if job.outcome is not JobStatus.PENDING]
    if not ended:
        raise InvalidInput(f"{chosen} of batch {result.batch.name!r} has no results yet: run the batch first")
    return ended


def _pooled(results: Sequence[BatchResult], jobs: Sequence[Sequence[Job]], batch_id: str) -> Iterator[Job]:
    """Yield all jobs, numbering the repeats of each batch after those of the batch before."""
    done, numbers = 0, count()
    for result, own in zip(results, jobs, strict=True):
        for job in own:
            yield replace(job, batch_id=batch_id, number=next(numbers), repeat=done + job.repeat)
        done += result.batch.record.repeats


def _copies(results: Sequence[BatchResult], jobs: Sequence[Sequence[Job]]) -> tuple[str, ...]:
    """Return the batches that executed nothing: they repeat what another batch measured and add nothing."""
    pairs = zip(results, jobs, strict=True)
    return tuple(result.batch.name for result, own in pairs if all(job.record.executed == 0 for job in own))


def _pooled_record(results: Sequence[BatchResult], chosen: str) -> BatchRecord:
    records = [result.batch.record for result in results]
    metrics = tuple(metric for metric in records[0].metrics if all(metric in record.metrics for record in records))
    if not metrics:
        raise InvalidInput("these batches have no metric in common: score them with the same evaluators")
    names, weights = {metric.name for metric in metrics}, records[0].weights
    return replace(
        records[0],
        combinations=(chosen,),
        baseline=chosen,
        cases=tuple(dict.fromkeys(case for record in records for case in record.cases)),
        repeats=sum(record.repeats for record in records),
        metrics=metrics,
        weights=weights if weights.keys() <= names else {},
        pooled=tuple(result.batch.name for result in results),
    )


def get(bench: Bench, name: str) -> Baseline:
    """Return a baseline; raise BaselineNotFound, naming the known ones, if there is none of this name."""
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        try:
            return uow.batches.get_baseline(name)
        except BaselineNotFound:
            known = [baseline.name for baseline in uow.batches.list_baselines()]
    raise BaselineNotFound(name, f"this store, which has {', '.join(known)}" if known else "")


def delete(bench: Bench, name: str) -> Baseline:
    """Delete a baseline and its saved scores; the batches it was made from stay."""
    found = get(bench, name)
    with bench.services.storage.unit_of_work() as uow:
        _forget_copies(uow, name)
        uow.batches.delete_baseline(name)
        uow.commit()
    return found


def _forget_copies(uow: UnitOfWork, name: str) -> None:
    for before in uow.batches.list_batches(name=f"{KEPT}{name}"):
        uow.batches.delete(before.id)


def known_combination(result: BatchResult, combination: str | None) -> str:
    """Return a combination by the batch's name for it, by default its baseline; raise InvalidInput if it has none."""
    chosen = result.baseline if combination is None else label(parse_label(combination))
    if chosen not in result.combinations:
        known = "; ".join(result.combinations)
        raise InvalidInput(f"batch {result.batch.name!r} has no combination {chosen!r}; it has {known}")
    return chosen


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
    """Decide whether a combination lost more than is allowed, on the cases that it shares with the baseline."""
    from wtb.domain.statistics import gate

    chosen = known_combination(candidate, combination)
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
    """Return how many cases that the baseline has scored the candidate has not finished."""
    scored = {case for case, runs in baseline.items() if any(not isinstance(run, Absent) for run in runs)}
    return sum(case in scored and Absent.MISSING in runs for case, runs in candidate.items())


def _lost(candidate: BatchResult, chosen: str, kept: BatchResult, metric: str) -> tuple[str, ...]:
    table = candidate.table(metric)
    new, old = table.case_means(chosen), kept.table(metric).case_means(kept.baseline)
    losses = {case: table.metric.direction.sign * (old[case] - new[case]) for case in new if case in old}
    return tuple(sorted((case for case, loss in losses.items() if loss > 0), key=lambda case: -losses[case]))
