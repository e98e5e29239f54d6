"""Baselines: saves the results of a combination under a name, and deletes them. Queries read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from wtb.domain.batch import Baseline, Batch, Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.errors import InvalidInput
from wtb.domain.event_catalogue import BaselineDeleted, BaselineKept
from wtb.domain.events import Event
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.variants import label, parse_label


class Baselines:
    """Saves and deletes baselines."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids, *, user: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._user = user

    def save(self, name: str, batches: Sequence[Batch], combination: str | None, *, by: str | None = None) -> Baseline:
        """Copy the results of a combination. A batch changes when it runs again; a baseline does not.

        The runs of a case in several batches count as its repeats. A case that only some of them have is saved too.
        """
        if not name.strip():
            raise InvalidInput("a baseline needs a name, such as main")
        _check_pool(batches)
        chosen = known_combination(batches[0], combination)
        for batch in batches:
            known_combination(batch, chosen)
        batch_id = self._ids.new()
        with self._storage.unit_of_work() as uow:
            jobs = [_results_of(uow, batch, chosen) for batch in batches]
            results = [*_pooled(batches, jobs, batch_id)]
            baseline = Baseline(
                name=name,
                batch_id=batch_id,
                workflow_name=batches[0].workflow_name,
                combination=chosen,
                record=replace(_pooled_record(batches, chosen), copies=_copies(batches, jobs)),
                results=len(results),
                created_at=self._clock.now(),
            )
            uow.baselines.save(baseline, results)
            names = tuple(batch.name for batch in batches)
            body = BaselineKept(name=name, combination=chosen, batches=names, by=by or self._user)
            uow.events.append(Event.of(body, at=baseline.created_at))
            uow.commit()
        return baseline

    def delete(self, name: str, *, by: str | None = None) -> Baseline:
        """Delete a baseline with its results and return it; the batches that it came from stay."""
        with self._storage.unit_of_work() as uow:
            found = uow.baselines.get(name)
            uow.baselines.delete(name)
            uow.events.append(Event.of(BaselineDeleted(name=name, by=by or self._user), at=self._clock.now()))
            uow.commit()
        return found


def known_combination(batch: Batch, combination: str | None) -> str:
    """Return the label of a combination, by default the baseline; raise InvalidInput if the batch does not have it."""
    record = batch.record
    chosen = record.baseline if combination is None else label(parse_label(combination))
    if chosen not in record.combinations:
        known = "; ".join(record.combinations)
        raise InvalidInput(f"batch {batch.name!r} has no combination {chosen!r}; it has {known}")
    return chosen


def _check_pool(batches: Sequence[Batch]) -> None:
    if not batches:
        raise InvalidInput("name at least one batch to make a baseline of")
    names = [batch.name for batch in batches]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidInput(f"batch {twice[0]!r} is named twice: its runs would count twice")
    workflows = {batch.workflow_name for batch in batches}
    if len(workflows) > 1:
        raise InvalidInput(f"these batches are of different workflows: {', '.join(sorted(workflows))}")


def _results_of(uow: UnitOfWork, batch: Batch, chosen: str) -> list[Job]:
    """Return the ended jobs of a combination that still belong to the batch."""
    cases, repeats = set(batch.record.cases), batch.record.repeats
    jobs = [
        job
        for job in uow.batches.list_jobs(batch.id)
        if job.combination == chosen and job.case_id in cases and job.repeat < repeats
    ]
    ended = [job for job in jobs if job.outcome is not JobStatus.PENDING]
    if not ended:
        raise InvalidInput(f"{chosen} of batch {batch.name!r} has no results yet: run the batch first")
    return ended


def _pooled(batches: Sequence[Batch], jobs: Sequence[Sequence[Job]], batch_id: str) -> Iterator[Job]:
    """Yield copies of all jobs; the repeats of each batch follow those of the batch before."""
    done, numbers = 0, count()
    for batch, own in zip(batches, jobs, strict=True):
        for job in own:
            yield replace(job, batch_id=batch_id, number=next(numbers), repeat=done + job.repeat)
        done += batch.record.repeats


def _copies(batches: Sequence[Batch], jobs: Sequence[Sequence[Job]]) -> tuple[str, ...]:
    """Return the names of batches that executed nothing: they only repeat what another batch measured."""
    pairs = zip(batches, jobs, strict=True)
    return tuple(batch.name for batch, own in pairs if all(job.record.executed == 0 for job in own))


def _pooled_record(batches: Sequence[Batch], chosen: str) -> BatchRecord:
    records = [batch.record for batch in batches]
    metrics = tuple(metric for metric in records[0].metrics if all(metric in record.metrics for record in records))
    if not metrics:
        raise InvalidInput("these batches have no metric in common: score them with the same evaluators")
    names, weights = {metric.name for metric in metrics}, records[0].weights
    return replace(
        records[0],
        combinations=(chosen,),
        baseline=chosen,
        cases=tuple(dict.fromkeys(case for record in records for case in record.cases)),
        inputs={case: text for record in reversed(records) for case, text in record.inputs.items()},
        repeats=sum(record.repeats for record in records),
        metrics=metrics,
        weights=weights if weights.keys() <= names else {},
        pooled=tuple(batch.name for batch in batches),
        work=None,
    )
