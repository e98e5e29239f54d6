"""BatchTestRunner: runs every combination over every case in parallel, and keeps results that are still valid."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from wtb.application.batch_driving import driving, report_driver
from wtb.application.batches.attempt import BatchAttempt, Progress
from wtb.application.batches.batch_services import BatchServices
from wtb.application.batches.forecast import Forecast
from wtb.application.batches.job_runner import JobRunner
from wtb.application.batches.plan import BatchPlan, record_of, work_order_of
from wtb.application.batches.planner import PlannedJobs
from wtb.application.batches.probe_object import check_probe, probe_object
from wtb.application.batches.processor_use import ProcessorUse
from wtb.application.batches.worker import BatchWorker, assignment, check_for_workers, check_same, load_work
from wtb.application.node_cache import AttemptRef
from wtb.application.runs.run_figures import measured_runs
from wtb.domain.batch import Batch, BatchStatus, Job, JobStatus, bool_metrics, end_of
from wtb.domain.batch_record import MadeOf
from wtb.domain.cases import Case
from wtb.domain.errors import DatabaseAway, WTBError
from wtb.domain.event_catalogue import BatchCancelled, BatchCompleted, BatchFailed, BatchStarted
from wtb.domain.events import Event
from wtb.domain.job_attempt import RayIds, WorkerName
from wtb.domain.observation import worker_trace
from wtb.domain.ports import Measure, UnitOfWork, measured
from wtb.domain.runner import Assignment, CarryingRunner, Runner, WorkerRunner
from wtb.domain.spending import Spent
from wtb.domain.statistics.measurement import apart_from_baseline
from wtb.domain.tool_answers import External
from wtb.domain.variants import label
from wtb.domain.work_order import WorkOrder

_MEASURES = {
    BatchStatus.COMPLETED: Measure.BATCH_COMPLETED,
    BatchStatus.COMPLETED_WITH_ERRORS: Measure.BATCH_FAILED,
}


class BatchTestRunner:
    """Runs jobs, each as an execution whose id is known before it begins.

    The process that holds the lease of that execution runs the job. So a process that continues a batch takes over
    unfinished jobs, and several processes can divide the jobs of one batch.
    """

    def __init__(self, services: BatchServices) -> None:
        self._services = services
        self._storage = services.storage
        self._clock = services.clock
        self._planner = services.planner
        self._changing: frozenset[str] = frozenset()
        """Values that were seen to change during runs in this process."""

    def check(self, plan: BatchPlan) -> None:
        """Raise InvalidInput if the workers of a plan could not open this store."""
        if plan.code is not None:
            check_for_workers(plan, self._services)

    def run(
        self,
        plan: BatchPlan,
        runner: Runner,
        *,
        stop: threading.Event,
        on_planned: Callable[[Forecast], None] = lambda forecast: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Batch:
        """Run the missing jobs until they are done, stopped, cancelled from elsewhere, or the budget is used up.

        `on_planned` gets the forecast before the first job starts.
        """
        if isinstance(runner, WorkerRunner):
            check_for_workers(plan, self._services)
        trace_id = self._services.ids.new()
        self._services.traces.begin(trace_id)
        recorded = self._recorded(plan, trace_id)
        with driving(recorded[0].id):
            return self._run_recorded(
                plan, runner, recorded, trace_id=trace_id, stop=stop, on_planned=on_planned, on_progress=on_progress
            )

    def _run_recorded(
        self,
        plan: BatchPlan,
        runner: Runner,
        recorded: tuple[Batch, PlannedJobs, Spent],
        *,
        trace_id: str,
        stop: threading.Event,
        on_planned: Callable[[Forecast], None],
        on_progress: Callable[[Progress], None],
    ) -> Batch:
        batch, planned, spent = recorded
        on_planned(planned.forecast)
        pending = _in_order(planned.jobs, plan.seed)
        attempt = BatchAttempt(
            pending,
            self._services.cache,
            progress=Progress.of(planned.jobs, spent),
            budget=plan.budget,
            is_scoring_free=_is_scoring_free(plan, planned.jobs),
            workers=plan.workers,
            stop=stop,
            on_progress=on_progress,
            telemetry=self._services.telemetry,
        )
        jobs = JobRunner(
            services=self._services,
            plan=plan,
            batch=batch,
            fingerprints=planned.fingerprints,
            trace_id=trace_id,
            jobs=pending,
            attempt=self._services.new_attempt(),
            spent_s=lambda: attempt.spent().s,
        )
        numbers = {job.number for job in planned.jobs}
        usage = ProcessorUse()
        try:
            with self._assigned(runner, jobs), usage:
                measured(self._services.telemetry, Measure.BATCH, batch.name, attempt.run)(jobs, runner)
        except BaseException as error:
            with suppress(WTBError):  # report the first error, not this one
                if isinstance(error, Exception):
                    self._failed(batch, error)
                if not isinstance(error, DatabaseAway):  # after an outage, the batch has only paused
                    self._ended(batch, attempt, numbers)
            if isinstance(error, Exception) and not isinstance(error, DatabaseAway):
                self._count(Measure.BATCH_FAILED, batch)
            raise
        batch = self._with_changing(batch, plan, planned, attempt, trace_id)
        if pending and not isinstance(runner, WorkerRunner):
            batch = batch.noted(cores_used=usage.cores())
        batch = self._ended(batch, attempt, numbers)
        if batch.status in _MEASURES:
            self._count(_MEASURES[batch.status], batch)
        return batch

    def _count(self, measure: Measure, batch: Batch) -> None:
        if self._services.telemetry.is_on:
            self._services.telemetry.count(measure, batch.name)

    @contextmanager
    def _assigned(self, runner: Runner, jobs: JobRunner) -> Iterator[None]:
        """Give the workers of a runner their task, and keep the probe object that each of them reads."""
        if not isinstance(runner, WorkerRunner):
            yield
            return
        with probe_object(self._services.objects, jobs.attempt.id) as probe:
            runner.assign(assignment(jobs, probe))
            if jobs.plan.carried is not None and isinstance(runner, CarryingRunner):
                runner.carry(replace(jobs.plan.carried, fingerprints=jobs.fingerprints))
            yield

    def join(
        self,
        given: Assignment,
        plan_of: Callable[[Batch, WorkOrder, Sequence[Case]], BatchPlan],
        ray: Callable[[], RayIds | None] = lambda: None,
    ) -> BatchWorker:
        """Join a batch that another process runs, as one of its workers; `plan_of` loads the code of the batch.

        `ray` returns Ray's ids for the job that runs.

        Raise InvalidInput if the code here differs from the code of that process, or its files are not here.
        """
        services = self._services
        check_probe(services.objects, given.probe, given.attempt_id, WorkerName(services.owners.me()).host)
        trace_id = worker_trace(given.trace_id, services.ids.new()[-12:])
        services.traces.begin(trace_id)
        batch, order, cases = load_work(services, given.batch_id)
        plan = plan_of(batch, order, cases)
        if plan.carried is not None:  # the very code that was planned, so there is nothing to compare
            fingerprints = plan.carried.fingerprints
        else:
            fingerprints = self._planner.fingerprints(plan, batch.record.made_of.changing)
            check_same(order, batch.record.made_of, plan, fingerprints)
        attempt = AttemptRef(id=given.attempt_id, began_at=given.attempt_began_at)
        jobs = JobRunner(
            services=services,
            plan=plan,
            batch=batch,
            fingerprints=fingerprints,
            trace_id=trace_id,
            jobs=(),
            attempt=attempt,
            ray=ray,
        )
        return BatchWorker(services, jobs)

    def _with_changing(
        self, batch: Batch, plan: BatchPlan, planned: PlannedJobs, attempt: BatchAttempt, trace_id: str
    ) -> Batch:
        """Return the batch with the names of values that its runs changed: these will be ignored."""
        workers = attempt.workers_ended
        # If workers ran the jobs, no run has changed anything in this process.
        here = frozenset[str]() if plan.code is not None else self._planner.changing(plan, planned.fingerprints)
        changing = here.union(*(each.changing for each in workers))
        outside = self._planner.outside(plan, planned.fingerprints, [trace_id, *(each.trace_id for each in workers)])
        batch = batch.noted(outside={**planned.forecast.outside, **outside})
        if not changing:
            return batch
        self._changing |= changing
        made_of = replace(planned.made_of, changing=planned.made_of.changing | changing)
        return batch.noted(made_of=made_of, changing=tuple(sorted(made_of.changing)))

    def forecast(self, plan: BatchPlan) -> Forecast:
        """Return what running a batch would do, without running it."""
        with self._storage.unit_of_work(readonly=True) as uow:
            before = uow.batches.list_batches(name=plan.name, limit=1)
            known = uow.batches.list_jobs(before[0].id) if before else ()
        return self._planner.planned(plan, "", known, self._made_of(before)).forecast

    def _made_of(self, before: Sequence[Batch]) -> MadeOf:
        """Return what the jobs of the last batch of this name depended on, and which values its runs changed."""
        kept = before[0].record.made_of if before else MadeOf()
        return replace(kept, changing=kept.changing | self._changing)

    def _recorded(self, plan: BatchPlan, trace_id: str) -> tuple[Batch, PlannedJobs, Spent]:
        """Save the batch and its jobs, keeping valid results of the last batch of this name.

        Also return what that batch has spent.
        """
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            uow.batches.lock(plan.name)
            before = uow.batches.list_batches(name=plan.name, limit=1)
            known = uow.batches.list_jobs(before[0].id) if before else ()
            spent = sum((job.spent for job in known), Spent(s=before[0].spent_s if before else 0.0))
            batch_id = before[0].id if before else self._services.ids.new()
            planned = self._planner.planned(plan, batch_id, known, self._made_of(before))
            bools = bool_metrics(known, before[0].record.bools if before else ())
            batch = Batch(
                id=batch_id,
                name=plan.name,
                workflow_name=plan.definition.name,
                status=BatchStatus.RUNNING,
                record=replace(
                    record_of(plan, known, self._services.codec, self._services.masker),
                    work=work_order_of(plan, planned.workflows, self._services.codec, self._planner.modules_of_states())
                    or _work_under_way(before),
                    bools=bools,
                    trace=trace_id,
                    made_of=planned.made_of,
                    changes=planned.forecast.changes,
                    coarse=planned.forecast.coarse,
                    changing=planned.forecast.changing,
                ),
                created_at=before[0].created_at if before else now,
                updated_at=now,
                spent_s=spent.s,
            )
            left = {job.number: job for job in known if _is_to_run(job)}
            jobs = [_charged(uow, job, left.get(job.number)) for job in planned.jobs]
            spent += sum((job.spent - left[job.number].spent for job in jobs if job.number in left), Spent())
            if plan.remeasure:
                jobs = self._side_by_side(jobs, label(plan.baseline))
            if plan.external is External.REVERSE:
                jobs = [job.taking_back() if _is_to_run(job) else job for job in jobs]
            planned = replace(planned, jobs=jobs)
            uow.batches.save(batch)
            report_driver(uow, batch.id, self._services.owners)
            self._services.limits.begin_batch(uow, batch.id, plan.limits)
            same = set(map(id, known))
            uow.batches.save_jobs([job for job in planned.jobs if id(job) not in same])
            body = BatchStarted(
                name=batch.name,
                jobs=len(planned.jobs),
                workflow=batch.workflow_name,
                variants=tuple(plan.by_label),
                cases=len(batch.record.cases),
                by=self._services.user,
            )
            uow.events.append(Event.of(body, stream=batch.id, at=now))
            uow.commit()
        return batch, planned, spent

    def _side_by_side(self, jobs: list[Job], baseline: str) -> list[Job]:
        """Queue all jobs, unshared, if some are still to run or were not measured together with the baseline."""
        if not any(map(_is_to_run, jobs)) and not apart_from_baseline(jobs, baseline):
            return jobs
        return [job.noted(alone=True) for job in map(self._planner.anew, jobs)]

    def _failed(self, batch: Batch, error: Exception) -> None:
        """Record that this process could not continue the batch."""
        text = self._services.masker.error(error)
        with self._storage.unit_of_work() as uow:
            body = BatchFailed(error=text, by=self._services.user)
            uow.events.append(Event.of(body, stream=batch.id, at=self._clock.now()))
            uow.commit()

    def _ended(self, batch: Batch, attempt: BatchAttempt, planned: set[int]) -> Batch:
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            uow.batches.lock(batch.name)
            every = uow.batches.list_jobs(batch.id)
            jobs = [job for job in every if job.number in planned]
            status = end_of(jobs, batch.record.metric_names)
            if any(job.has_calls_left and job.status is not JobStatus.PENDING for job in every):
                status = BatchStatus.COMPLETED_WITH_ERRORS  # calls of combinations that did not run now count too
            ended_as: type[BatchCompleted] | type[BatchCancelled] = BatchCompleted
            if any(job.status is JobStatus.PENDING for job in jobs):
                was_resumed = attempt.progress.is_cancelled and uow.batches.get(batch.id).status is BatchStatus.RUNNING
                if attempt.is_left_to_others or not attempt.dropped or was_resumed:
                    return batch  # another process continues it
                status, ended_as = BatchStatus.CANCELLED, BatchCancelled
            batch = replace(batch.moved_to(status, now), spent_s=attempt.spent().s)
            uow.batches.save(batch)
            done = attempt.progress
            body = ended_as(
                executed=done.executed,
                shared=done.shared,
                failed=done.failed,
                usd=done.spent.usd,
                by=self._services.user,
            )
            uow.events.append(Event.of(body, stream=batch.id, at=now))
            uow.commit()
        return batch


def _is_scoring_free(plan: BatchPlan, jobs: Sequence[Job]) -> bool:
    """Whether scoring is expected to be free: no evaluator is a judge, and none has reported usage before."""
    paid = {name for job in jobs for name in job.record.paid}
    return not any(hasattr(evaluator, "asked") or evaluator.name in paid for evaluator in plan.evaluators)


def _is_to_run(job: Job) -> bool:
    return job.status is JobStatus.PENDING and not job.has_run


def _work_under_way(before: Sequence[Batch]) -> WorkOrder | None:
    """Return the work order of a batch that another process may be running: its workers may still need it."""
    return before[0].record.work if before and before[0].status is BatchStatus.RUNNING else None


def _in_order(jobs: Sequence[Job], seed: int) -> list[Job]:
    """Return the jobs to run, shuffled; those that only need scores come first, because they need no budget."""
    pending = [job for job in jobs if job.status is JobStatus.PENDING]
    random.Random(seed).shuffle(pending)
    return sorted(pending, key=lambda job: not job.has_run)


def _charged(uow: UnitOfWork, job: Job, left: Job | None) -> Job:
    """Return a job that runs again, charged with what its last run spent before it was killed."""
    if left is None or left.execution_id is None or left.execution_id == job.execution_id:
        return job
    runs = measured_runs(uow, left.execution_id)
    lost = sum((Spent.of(run.figures.spent.totals()) for run in runs if run.figures is not None), Spent())
    return job.noted(spent=job.spent + lost)
