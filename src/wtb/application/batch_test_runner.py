"""BatchTestRunner: every combination over every case, in parallel; what is there already is not run again."""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from wtb.application.batch_floor import Floor, Progress, RunsElsewhere, Work
from wtb.application.batch_plan import BatchPlan, plan_data
from wtb.application.batch_planner import ALONE, BatchPlanner, Forecast, MadeOf, PlannedJobs, Prints
from wtb.application.dependencies.traces import Traces, Window
from wtb.application.evaluation_engine import EvaluationEngine
from wtb.application.execution_controller import ExecutionController, WaitsForResult
from wtb.application.leases import store_time
from wtb.application.node_cache import Go, NodeCache, Sharing
from wtb.application.run_figures import measured_runs
from wtb.application.scoring import Scoring, scored_by
from wtb.domain.batch import Batch, BatchStatus, Case, Job, JobStatus, Spent, bool_metrics, end_of
from wtb.domain.errors import AlreadyExists, Conflict, ExecutionNotFound, InvalidTransition, WTBError
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.figures import NO_FIGURES
from wtb.domain.measurement import apart_from_baseline
from wtb.domain.options import RunOptions
from wtb.domain.ports import Clock, Codec, Ids, Storage, UnitOfWork
from wtb.domain.secrets import Masker
from wtb.domain.variants import label

_NODE_ENDS = (EventType.NODE_COMPLETED, EventType.NODE_FAILED)
_UNENDED = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


class BatchTestRunner:
    """Runs jobs, each as an execution of its own whose id is known before it begins.

    Whoever holds the lease of that execution runs the job: a process that goes on with a batch takes up what another
    one left, and several processes at the same batch divide its jobs among them.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        codec: Codec,
        controller: ExecutionController,
        cache: NodeCache,
        evaluation: EvaluationEngine,
        scoring: Scoring,
        masker: Masker,
        planner: BatchPlanner,
        traces: Traces,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._codec = codec
        self._controller = controller
        self._cache = cache
        self._evaluation = evaluation
        self._scoring = scoring
        self._masker = masker
        self._planner = planner
        self._traces = traces
        self._changing: frozenset[str] = frozenset()
        """Values that runs in this process were seen to change."""

    def run(
        self,
        plan: BatchPlan,
        *,
        workers: int,
        stop: threading.Event,
        told: Callable[[Progress], None] = lambda progress: None,
    ) -> Batch:
        """Run what is missing until it is done, stopped, cancelled from elsewhere, or the budget is used up."""
        trace_id = self._ids.new()
        self._traces.begin(trace_id)
        batch, planned, spent = self._recorded(plan, trace_id)
        jobs = planned.jobs
        pending = [job for job in jobs if job.status is JobStatus.PENDING]
        random.Random(plan.seed).shuffle(pending)
        pending.sort(key=lambda job: not job.has_run)  # scores can be had when the budget is used up: they come first
        go, progress = _Go(self, plan, batch, planned.prints, trace_id), Progress.of(jobs, spent)
        floor = Floor(go, self._cache, pending, progress=progress, budget=plan.budget, stop=stop, told=told)
        numbers = {job.number for job in jobs}
        try:
            floor.work(workers)
        except BaseException:
            with suppress(WTBError):  # what went wrong first is what is told
                self._ended(batch, floor, numbers)
            raise
        return self._ended(self._with_changing(batch, plan, planned), floor, numbers)

    def _with_changing(self, batch: Batch, plan: BatchPlan, planned: PlannedJobs) -> Batch:
        """Return the batch with the names of the values that its runs have changed: they will not count."""
        changing = self._planner.changing(plan, planned.prints)
        outside = self._planner.outside_of(plan, planned.prints, batch.plan["trace"])
        batch = replace(batch, plan={**batch.plan, "outside": {**planned.forecast.outside, **outside}})
        if not changing:
            return batch
        self._changing |= changing
        made_of = replace(planned.made_of, changing=planned.made_of.changing | changing)
        return replace(batch, plan={**batch.plan, "made_of": made_of.to_data(), "changing": sorted(made_of.changing)})

    def forecast(self, plan: BatchPlan) -> Forecast:
        """Return what running a batch would do, without doing it."""
        with self._storage.unit_of_work(readonly=True) as uow:
            before = uow.batches.list_batches(name=plan.name, limit=1)
            known = uow.batches.list_jobs(before[0].id) if before else ()
        return self._planner.planned(plan, "", known, self._made_of(before)).forecast

    def _made_of(self, before: Sequence[Batch]) -> MadeOf:
        """Return what the jobs of an earlier batch of this name depend on, and which values runs change."""
        kept = MadeOf.from_data(before[0].plan.get("made_of") if before else None)
        return replace(kept, changing=kept.changing | self._changing)

    def _recorded(self, plan: BatchPlan, trace_id: str) -> tuple[Batch, PlannedJobs, Spent]:
        """Record the batch and its jobs: of an earlier batch of this name, what is still true is kept.

        Also return what the earlier one has taken.
        """
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            uow.batches.lock(plan.name)
            before = uow.batches.list_batches(name=plan.name, limit=1)
            known = uow.batches.list_jobs(before[0].id) if before else ()
            spent = sum((job.spent for job in known), Spent(s=before[0].spent_s if before else 0.0))
            batch_id = before[0].id if before else self._ids.new()
            planned = self._planner.planned(plan, batch_id, known, self._made_of(before))
            bools = bool_metrics(known, before[0].plan.get("bools", ()) if before else ())
            batch = Batch(
                id=batch_id,
                name=plan.name,
                workflow_name=plan.definition.name,
                status=BatchStatus.RUNNING,
                plan={
                    **plan_data(plan, self._codec),
                    "bools": sorted(bools),
                    "trace": trace_id,
                    "made_of": planned.made_of.to_data(),
                    **_notes(planned.forecast),
                },
                created_at=before[0].created_at if before else now,
                updated_at=now,
                spent_s=spent.s,
            )
            left = {job.number: job for job in known if job.status is JobStatus.PENDING and not job.has_run}
            jobs = [_charged(uow, job, left.get(job.number)) for job in planned.jobs]
            spent += sum((job.spent - left[job.number].spent for job in jobs if job.number in left), Spent())
            if plan.remeasure:
                jobs = self._side_by_side(jobs, label(plan.baseline))
            planned = replace(planned, jobs=jobs)
            uow.batches.save(batch)
            same = set(map(id, known))
            uow.batches.save_jobs([job for job in planned.jobs if id(job) not in same])
            data = {"name": batch.name, "jobs": len(planned.jobs)}
            uow.events.append(Event(type=EventType.BATCH_STARTED, stream=batch.id, at=now, data=data))
            uow.commit()
        return batch, planned, spent

    def _side_by_side(self, jobs: list[Job], baseline: str) -> list[Job]:
        """Run all jobs anew, each by itself, when some are still to run or were measured apart from the baseline."""
        to_run = any(job.status is JobStatus.PENDING and not job.has_run for job in jobs)
        if not to_run and not apart_from_baseline(jobs, baseline):
            return jobs
        return [replace(job, result={**job.result, ALONE: True}) for job in map(self._planner.anew, jobs)]

    def _ended(self, batch: Batch, floor: Floor, planned: set[int]) -> Batch:
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            jobs = [job for job in uow.batches.list_jobs(batch.id) if job.number in planned]
            status = end_of(jobs, [metric["name"] for metric in batch.plan["metrics"]])
            kind = EventType.BATCH_COMPLETED
            if any(job.status is JobStatus.PENDING for job in jobs):
                if floor.is_left_to_others or not floor.dropped:
                    return batch  # another process goes on with it
                status, kind = BatchStatus.CANCELLED, EventType.BATCH_CANCELLED
            batch = replace(batch.moved_to(status, now), spent_s=floor.spent().s)
            uow.batches.save(batch)
            done = floor.progress
            data = {"executed": done.executed, "shared": done.shared, "failed": done.failed, "usd": done.spent.usd}
            uow.events.append(Event(type=kind, stream=batch.id, at=now, data=data))
            uow.commit()
        return batch

    def is_cancelled(self, batch: Batch) -> bool:
        """Whether somebody has cancelled the batch meanwhile."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.batches.get(batch.id).status is BatchStatus.CANCELLED

    def save(self, job: Job, spent_s: float = 0.0) -> None:
        """Keep what came of a job, and how long its batch has taken so far: a batch that is killed keeps both."""
        with self._storage.unit_of_work() as uow:
            uow.batches.save_jobs([job])
            uow.batches.took(job.batch_id, spent_s)
            uow.commit()

    def took(self, batch: Batch, spent_s: float) -> None:
        """Keep how long a batch has taken so far."""
        with self._storage.unit_of_work() as uow:
            uow.batches.took(batch.id, spent_s)
            uow.commit()

    def find_ended(self, job: Job) -> Job | None:
        """Return the job as another process has ended it, if one has."""
        with self._storage.unit_of_work(readonly=True) as uow:
            found = uow.batches.get_job(job.batch_id, job.number)
        return None if found.status is JobStatus.PENDING else found

    def is_left(self, job: Job) -> bool:
        """Whether nobody who is alive runs a job that was begun."""
        assert job.execution_id is not None
        try:
            return self._controller.is_free(job.execution_id)
        except ExecutionNotFound:  # deleted meanwhile
            return True

    def again(self, job: Job) -> Job:
        """Return a job that is to be run anew, with a run of its own."""
        anew = self._planner.queued_again(job)
        self.save(anew)
        return anew

    def new_go(self) -> Go:
        """Return a new go at a batch or a job: failures are final within it."""
        return Go(id=self._ids.new(), began_at=store_time(self._storage))

    def sharing(self, plan: BatchPlan, job: Job, prints: Prints, go: Go, trace_id: str) -> Sharing:
        """Return what a job shares with others."""
        return Sharing(
            cache=self._cache,
            codec=self._codec,
            fingerprints=prints[job.combination],
            traces=self._traces,
            trace_id=trace_id,
            begun_at=self._traces.position(),
            case_id=job.case_id,
            repeat=job.repeat,
            seed=plan.seed,
            go=go,
            enabled=plan.share and not job.result.get(ALONE),
            fresh=plan.fresh_nodes,
        )

    def run_job(self, plan: BatchPlan, job: Job, case: Case, sharing: Sharing, *, begun: bool) -> Job:
        """Take a job to its end.

        Raises WaitsForResult when it needs what another one is making, and RunsElsewhere when another process is at
        it. Whatever else goes wrong is what came of the job.
        """
        try:
            if job.has_run and (scored := self._scored_again(job, case, plan, sharing)) is not None:
                return scored
            execution = None if begun else self._run_new(plan, job, case, sharing)
            if execution is None:
                execution = self._taken_up(job, sharing, begun=begun)
            if execution.status in _UNENDED:
                execution = self._controller.run(execution.id, plan.definition, sharing=sharing)
            return self._scored(job, execution, case, plan, sharing)
        except (WaitsForResult, RunsElsewhere):
            raise
        except (Conflict, InvalidTransition) as error:
            if self._has_run(job):
                raise RunsElsewhere from error
            return self._failed(job, error, sharing)
        except Exception as error:  # noqa: BLE001  the failure of one job is recorded, and the batch goes on
            return self._failed(job, error, sharing)

    def _scored_again(self, job: Job, case: Case, plan: BatchPlan, sharing: Sharing) -> Job | None:
        """Give a job that has run the scores that are missing or have changed; None when its run is gone."""
        begin = sharing.begin()
        scored = self._scoring.scored(job, case, plan.evaluators, plan.digests, plan.definition.restored)
        if scored is None:
            return None
        read = scored.result["scored_in"]
        window = sharing.read_since(begin)
        now = {name: window for name in plan.digests if name not in read}
        return replace(scored, result={**scored.result, "scored_in": {**read, **now}})

    def _run_new(self, plan: BatchPlan, job: Job, case: Case, sharing: Sharing) -> Execution | None:
        """Begin the run of a job and take it to its end; None when somebody has begun it before."""
        assert job.execution_id is not None
        options = RunOptions(variants=dict(plan.by_label[job.combination]), seed=plan.seed_of(job))
        try:
            return self._controller.run_new(
                plan.definition,
                case.input,
                options,
                execution_id=job.execution_id,
                sharing=sharing,
                source=plan.source,
                metadata=_origin(job),
            )
        except AlreadyExists:
            return None

    def _taken_up(self, job: Job, sharing: Sharing, *, begun: bool) -> Execution:
        """Return the run of a job where this process or another one left it."""
        assert job.execution_id is not None
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(job.execution_id)
            if not begun:
                if uow.batches.get_job(job.batch_id, job.number).status is not JobStatus.PENDING:
                    raise RunsElsewhere
                sharing.begun_elsewhere = True
        return execution

    def _recount(self, execution: Execution, sharing: Sharing) -> None:
        """Count all node runs of a run that another process began: what that one did is in the record only."""
        with self._storage.unit_of_work(readonly=True) as uow:
            runs = measured_runs(uow, execution.id)
            ends = uow.events.list_events(stream=execution.id, types=_NODE_ENDS, limit=1_000_000)
        sharing.windows += [Window.from_data(event.data["trace"]) for event in ends if "trace" in event.data]
        figures = [run.figures or NO_FIGURES for run in runs]
        sharing.count_anew([{"shared": each.is_shared, "usage": each.spent.totals()} for each in figures])

    def _has_run(self, job: Job) -> bool:
        """Whether the run of a job is there: somebody else was first with what this process wanted to do with it."""
        assert job.execution_id is not None
        try:
            with self._storage.unit_of_work(readonly=True) as uow:
                uow.executions.get(job.execution_id)
        except ExecutionNotFound:
            return False
        return True

    def _failed(self, job: Job, error: Exception, sharing: Sharing) -> Job:
        told = self._masker.text("".join(traceback.format_exception(error)))
        failure = {"type": type(error).__qualname__, "message": self._masker.text(str(error)), "traceback": told}
        return job.ended(JobStatus.FAILED, job.execution_id, {"error": failure, **_counts(job, sharing)})

    def _scored(self, job: Job, execution: Execution, case: Case, plan: BatchPlan, sharing: Sharing) -> Job:
        if sharing.begun_elsewhere:
            self._recount(execution, sharing)
        if execution.status is not ExecutionStatus.COMPLETED:
            return job.ended(JobStatus.FAILED, execution.id, {"error": _why(execution), **_counts(job, sharing)})
        context = self._evaluation.context(execution.id, case, plan.definition.restored)
        begin = sharing.begin()
        result = {
            **self._evaluation.scored(context, plan.evaluators).to_data(),
            "scored_in": dict.fromkeys(plan.digests, sharing.read_since(begin)),
            "scored_by": scored_by(case, plan.digests, self._codec),
            "latency_s": context.latency_s,
            "usage": dict(context.usage),
            "unpriced": list(context.unpriced),
            **({"measured": sharing.measured.to_data()} if sharing.measured else {}),
            **_counts(job, sharing),
        }
        return job.ended(JobStatus.COMPLETED, execution.id, result)


class _Go:
    """One go at a batch: what the floor asks of the runner, with the plan that it is about."""

    def __init__(self, runner: BatchTestRunner, plan: BatchPlan, batch: Batch, prints: Prints, trace_id: str) -> None:
        self._trace_id = trace_id
        self._runner = runner
        self._plan = plan
        self._batch = batch
        self._prints = prints
        self._cases = {case.id: case for case in plan.cases}
        self._go = runner.new_go()

    def run(self, work: Work) -> Job:
        """Take a job to its end, or to where it has to wait."""
        if work.sharing is None:
            work.sharing = self._runner.sharing(self._plan, work.job, self._prints, self._go, self._trace_id)
        begun, work.begun = work.begun, True
        try:
            return self._runner.run_job(self._plan, work.job, self._cases[work.job.case_id], work.sharing, begun=begun)
        except RunsElsewhere:
            work.sharing.close()
            work.sharing, work.begun = None, False
            raise

    def took(self, spent_s: float) -> None:
        """Keep how long the batch has taken so far."""
        self._runner.took(self._batch, spent_s)

    def ended(self, work: Work, job: Job, spent_s: float) -> bool:
        """Keep what came of a job, and the time; False when it is to be tried again."""
        work.attempts += 1
        if job.status is JobStatus.FAILED and work.attempts <= self._plan.retries:
            assert work.sharing is not None
            go = self._runner.new_go()
            work.sharing = replace(work.sharing, go=go, claimed=set(), begun_elsewhere=False, spent=Spent())
            work.job, work.begun = self._runner.again(job), False
            return False
        self._runner.save(job, spent_s)
        return True

    def find_ended(self, work: Work) -> Job | None:
        """Return the job as another process has ended it, if one has."""
        return self._runner.find_ended(work.job)

    def is_left(self, work: Work) -> bool:
        """Whether the process that was at a job is there no more."""
        return self._runner.is_left(work.job)

    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the batch meanwhile."""
        return self._runner.is_cancelled(self._batch)


def _charged(uow: UnitOfWork, job: Job, left: Job | None) -> Job:
    """Return a job that is run anew with what its last run had spent when it was killed: nobody has counted that."""
    if left is None or left.execution_id is None or left.execution_id == job.execution_id:
        return job
    runs = measured_runs(uow, left.execution_id)
    lost = sum((Spent.of(run.figures.spent.totals()) for run in runs if run.figures is not None), Spent())
    return replace(job, result={**job.result, "spent": (job.spent + lost).to_dict()})


def _counts(job: Job, sharing: Sharing) -> dict[str, Any]:
    return {
        "executed": sharing.executed,
        "shared": sharing.shared,
        "unshared": dict(sharing.unshared),
        "trace": sharing.trace_id,
        "traces": sharing.windows_data(),
        "spent": (job.spent + sharing.spent).to_dict(),
    }


def _notes(forecast: Forecast) -> dict[str, Any]:
    """Return what is kept of a forecast, to be told after the run too."""
    return {
        "changes": {node: list(words) for node, words in forecast.changes.items()},
        "coarse": {node: list(words) for node, words in forecast.coarse.items()},
        "changing": list(forecast.changing),
    }


def _why(execution: Execution) -> dict[str, Any]:
    failure = execution.failure
    if failure is not None:
        return {"type": failure.type, "message": failure.message, "node": failure.node, "traceback": failure.traceback}
    reason = execution.pause.reason if execution.pause is not None else str(execution.status)
    if execution.pause is not None and execution.pause.question is not None:
        reason = f"it asked {execution.pause.question.get('question')!r}, and a batch has nobody to answer"
    return {
        "type": "NotCompleted",
        "message": reason,
        "node": None if execution.pause is None else execution.pause.node,
    }


def _origin(job: Job) -> dict[str, Any]:
    return {"batch": job.batch_id, "combination": job.combination, "case": job.case_id, "repeat": job.repeat}
