"""Scoring: scores the finished runs of a batch with new or changed evaluators, without running anything again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wtb.application.evaluation_engine import EvaluationEngine, OutputReader, Restore, check_cases, digests
from wtb.domain.batch import Batch, BatchStatus, Job, JobStatus, end_of
from wtb.domain.batch_record import BatchRecord
from wtb.domain.cases import Case
from wtb.domain.errors import BatchNotFound, ExecutionNotFound, InvalidInput
from wtb.domain.evaluation import Evaluator, metric_of
from wtb.domain.event_catalogue import BatchScored
from wtb.domain.events import Event
from wtb.domain.ports import Clock, Codec, Storage
from wtb.domain.runner import ParallelMap
from wtb.domain.spending import Spent


class Scoring:
    """Scores the runs of a batch."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        codec: Codec,
        evaluation: EvaluationEngine,
        parallel_map: ParallelMap,
        *,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._codec = codec
        self._evaluation = evaluation
        self._user = user
        self._parallel_map = parallel_map

    def score_batch(
        self,
        batch: Batch,
        evaluators: Sequence[Evaluator],
        cases: Sequence[Case] | None,
        workers: int,
        *,
        by: str | None = None,
    ) -> None:
        """Add these scores to the completed jobs of a batch; other metrics stay."""
        self._check_stored(batch)
        known = {case.id: case for case in cases} if cases is not None else kept_cases(batch.record, self._codec)
        absent = [case for case in batch.record.cases if case not in known]
        if absent:
            raise InvalidInput(f"case {absent[0]!r} of batch {batch.name!r} is not among the cases that are given")
        check_cases(evaluators, [known[case] for case in batch.record.cases])
        wanted = set(batch.record.cases)
        with self._storage.unit_of_work(readonly=True) as uow:
            jobs = [
                job
                for job in uow.batches.list_jobs(batch.id)
                if job.case_id in wanted and job.status is JobStatus.COMPLETED
            ]
        by_name = digests(evaluators)

        def score(job: Job) -> Job | None:
            return self.scored(job, known[job.case_id], evaluators, by_name)

        scored = [job for job in self._parallel_map(score, jobs, workers) if job is not None]
        names, now = tuple(each.name for each in evaluators), self._clock.now()
        metrics = {each.name: each for each in (*batch.record.metrics, *map(metric_of, evaluators))}
        with self._storage.unit_of_work() as uow:
            uow.batches.save_jobs(scored)
            status = _status_after(batch, wanted, uow.batches.list_jobs(batch.id), metrics)
            scored_batch = batch.noted(metrics=tuple(metrics.values()))
            uow.batches.save(replace(scored_batch, status=status, updated_at=now))
            body = BatchScored(evaluators=names, jobs=len(scored), by=by or self._user)
            uow.events.append(Event.of(body, stream=batch.id, at=now))
            uow.commit()

    def _check_stored(self, batch: Batch) -> None:
        try:
            with self._storage.unit_of_work(readonly=True) as uow:
                uow.batches.get(batch.id)
        except BatchNotFound as error:
            raise InvalidInput(
                f"there is no batch {batch.name!r} to add scores to: it was deleted, or it is a baseline, and its "
                "results do not change; score the batch that it came from, then `wtb baseline set` it again"
            ) from error

    def scored(
        self,
        job: Job,
        case: Case,
        evaluators: Sequence[Evaluator],
        by_name: Mapping[str, str],
        restore: Restore | None = None,
        *,
        output: tuple[OutputReader, str] | None = None,
        timeout_s: float | None = None,
    ) -> Job | None:
        """Return a finished job with its missing, failed or outdated scores made; None if its run is gone.

        `output` reads the output of the run, too; the digest beside it says whether the known output is outdated.
        """
        assert job.execution_id is not None
        known = true_scores(job, scored_by(case, by_name, self._codec))
        lacking = [evaluator for evaluator in evaluators if evaluator.name in known.lacking]
        try:
            whole = self._evaluation.with_input(case, job.execution_id, restore)
            head_id, context = self._evaluation.head_context(job.execution_id, whole, restore)
        except ExecutionNotFound:
            # An output that can no longer be read is no reason to run the job again.
            return None if lacking else replace(job, status=JobStatus.COMPLETED)
        new = self._evaluation.scored(context, lacking, timeout_s)
        # The caller notes the window in which the evaluators read what the new scores depend on.
        read = {name: window for name, window in job.record.scored_in.items() if name not in known.lacking}
        record = replace(
            job.record,
            scores={**known.scores, **new.scores},
            bools=(*known.bools, *new.bools),
            scored_by={**job.record.scored_by, **known.wanted},
            checkpoint=head_id,
            scored_in=read,
            output=job.record.output if output is None else self._evaluation.output(context, *output),
            spent=job.record.spent + Spent.of(new.spent.totals()),
            judging=job.record.judging + new.spent,
            paid=tuple(dict.fromkeys((*job.record.paid, *new.paid))),
        )
        return job.ended(JobStatus.COMPLETED, job.execution_id, record)


@dataclass(frozen=True, kw_only=True)
class TrueScores:
    """The wanted scores of a job: those that are still valid, and the names of those to make."""

    wanted: Mapping[str, str]
    scores: Mapping[str, Any]
    bools: tuple[str, ...]
    lacking: frozenset[str]


def true_scores(job: Job, wanted: Mapping[str, str]) -> TrueScores:
    """Return the scores of a job that are still valid; `wanted` says what each wanted score depends on.

    A score that an evaluator failed to give counts as lacking, so it is made again. Its error stays until then.
    """
    scores, by = job.record.scores or {}, job.record.scored_by
    changed = {name for name, digest in wanted.items() if by.get(name) != digest}
    failed = wanted.keys() & job.record.score_errors.keys()
    absent = wanted.keys() - scores.keys()
    kept = {name: score for name, score in scores.items() if name not in changed}
    bools = tuple(name for name in job.record.bools if name in kept and name not in failed)
    return TrueScores(wanted=wanted, scores=kept, bools=bools, lacking=frozenset(changed | failed | absent))


def waiting_for_scores(job: Job, wanted: Mapping[str, str], output_by: str) -> Job:
    """Return a finished job as pending if it lacks scores, or if the rule that reads its output has changed."""
    known = true_scores(job, wanted)
    if not known.lacking and job.record.output is not None and job.record.output.made_by == output_by:
        return job
    return replace(job, status=JobStatus.PENDING).noted(scores=known.scores, bools=known.bools)


_SCORED = (BatchStatus.COMPLETED, BatchStatus.COMPLETED_WITH_ERRORS)


def _status_after(batch: Batch, cases: Collection[str], jobs: Sequence[Job], metrics: Iterable[str]) -> BatchStatus:
    """Return the status of a batch after scoring: evaluators may have failed, or no longer fail."""
    if batch.status not in _SCORED:
        return batch.status
    return end_of([job for job in jobs if job.case_id in cases], metrics)


def scored_by(case: Case, by_name: Mapping[str, str], codec: Codec) -> dict[str, str]:
    """Return what each score depends on beside the run: the evaluator, the expected value and the tags."""
    about = codec.encode([case.expected, list(case.tags)], f"case {case.id}")[1]
    return {name: codec.digest(digest.encode(), about).hex()[:32] for name, digest in by_name.items()}


def cases_to_keep(cases: Sequence[Case], codec: Codec) -> bytes:
    """Return the part of its cases that a batch stores for later evaluators; the inputs are in the runs."""
    about = {case.id: [case.expected, list(case.tags)] for case in cases}
    return codec.encode(about, "expected")[0]


def kept_cases(record: BatchRecord, codec: Codec) -> dict[str, Case]:
    """Return the cases that a batch has stored, by id."""
    return {case.id: case for case in _read(record, codec)}


def _read(record: BatchRecord, codec: Codec) -> Iterator[Case]:
    about = {} if record.expected is None else codec.decode(record.expected)
    for case_id in record.cases:
        expected, tags = about.get(case_id, (None, ()))
        yield Case(id=case_id, input={}, expected=expected, tags=tuple(tags))
