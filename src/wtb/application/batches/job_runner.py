"""JobRunner: runs the jobs of one attempt at a batch, one call per job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from wtb.application.batch_driving import report_driver
from wtb.application.batches.batch_services import BatchServices
from wtb.application.batches.job_execution import JobExecution, JobWork, RunsElsewhere, waiting_or_reversed
from wtb.application.batches.job_reversals import WorkedOnElsewhere
from wtb.application.batches.lost_workers import over_limit, with_lost_worker
from wtb.application.batches.plan import BatchPlan, Fingerprints
from wtb.application.batches.worker_events import worker_event
from wtb.application.node_cache import AttemptRef, Sharing
from wtb.application.runs.execution_controller import WaitsForResult
from wtb.application.runs.run_limits import BATCH_LIMITS, RunLimits
from wtb.domain.batch import Batch, BatchStatus, Job, JobStatus
from wtb.domain.cases import Case
from wtb.domain.errors import ConnectionLost, ExecutionNotFound, WTBError
from wtb.domain.events import Event
from wtb.domain.job_attempt import AttemptEnd, JobAttempt, RayIds, WorkerName
from wtb.domain.ports import Measure, measured
from wtb.domain.runner import (
    JobEnded,
    JobFailedForNow,
    JobLost,
    JobOverLimit,
    JobReport,
    JobRunsElsewhere,
    JobWaits,
    WorkerReady,
    WorkerReport,
)
from wtb.domain.spending import Spent
from wtb.domain.tool_answers import External

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class JobRunner:
    """Runs the jobs of one attempt at a batch; an error inside a job becomes its result."""

    services: BatchServices
    plan: BatchPlan
    batch: Batch
    fingerprints: Fingerprints
    trace_id: str
    jobs: Sequence[Job]
    attempt: AttemptRef
    """The attempt at the batch, which all its workers share."""
    spent_s: Callable[[], float] = lambda: 0.0
    """How long the batch has taken so far."""
    ray: Callable[[], RayIds | None] = lambda: None
    """Returns Ray's ids for the job that runs in this thread; None if Ray does not run it."""
    _work: dict[int, JobWork] = field(init=False)
    _cases: Mapping[str, Case] = field(init=False)
    _limits: RunLimits = field(init=False)
    _execution: JobExecution = field(init=False)

    def __post_init__(self) -> None:
        self._work = {job.number: JobWork(job) for job in self.jobs}
        self._cases = {case.id: case for case in self.plan.cases}
        self._limits = self.services.limits.of_batch(self.batch.id, self.plan.limits)
        self._execution = JobExecution(services=self.services, plan=self.plan, limits=self._limits)

    def take(self, job: Job) -> None:
        """Accept a job as it is stored."""
        self._work[job.number] = JobWork(job)

    def forget(self, number: int) -> None:
        """Forget a job that has ended here, or that any process may try again."""
        self._work.pop(number, None)

    def let_go(self, number: int) -> None:
        """Let any process continue a waiting job: give up its claims and the lease of its run."""
        work = self._work.pop(number)
        if work.sharing is not None:
            work.sharing.close()
        if work.job.execution_id is not None:
            self.services.controller.release(work.job.execution_id)

    def run(self, number: int) -> JobReport:
        """Run a job until it ends or has to wait, and save the result."""
        token = BATCH_LIMITS.set(self._limits)
        try:
            return self._run(number)
        finally:
            BATCH_LIMITS.reset(token)

    def _run(self, number: int) -> JobReport:
        work = self._work[number]
        sharing = work.sharing = work.sharing or self._sharing(work.job)
        begun, work.begun = work.begun, True
        work.started = work.started or self.services.clock.now()
        try:
            if not begun:
                work.job = self.services.reversals.of_earlier_runs(work.job)
            run = measured(self.services.telemetry, Measure.JOB, work.job.combination, self._execution.ended)
            job = run(work, self._cases[work.job.case_id], sharing, begun=begun)
            job = self.services.reversals.of_own_run(job)
        except WaitsForResult as waiting:
            return JobWaits(number, waiting.key)
        except (RunsElsewhere, WorkedOnElsewhere):
            self._leave(work, sharing)
            return JobRunsElsewhere(number)
        except ConnectionLost:  # not the fault of the job, which goes on from its last checkpoint
            self._leave(work, sharing)
            return JobFailedForNow(number)
        sharing.close()
        return self._kept(work, sharing, job)

    def _leave(self, work: JobWork, sharing: Sharing) -> None:
        """Forget what this process has done for a job, so that the job is taken up again as it is stored."""
        sharing.close()
        work.sharing, work.begun, work.started = None, False, None

    def _kept(self, work: JobWork, sharing: Sharing, job: Job) -> JobReport:
        """Save the result of a job, unless the job will be tried again."""
        if not work.job.has_run or job.status is JobStatus.FAILED:
            job = job.noted(attempts=(*work.job.record.attempts, self._attempted(work, job)))
        if self._is_tried_again(job):
            work.sharing = replace(
                sharing,
                attempt=self.services.new_attempt(),
                claimed=set(),
                begun_elsewhere=False,
                spent=Spent(),
                failed=0,
            )
            work.job = self._queued_again(job.noted(executed=sharing.executed, shared=sharing.shared))
            work.begun, work.started = False, None
            self._save(work.job, 0.0)
            return JobFailedForNow(job.number, sharing.failed)
        self._save(job, self.spent_s())
        return JobEnded(
            job.number,
            job.status,
            job.spent,
            executed=sharing.executed,
            shared=sharing.shared,
            failed_nodes=sharing.failed,
        )

    def _is_tried_again(self, job: Job) -> bool:
        has_tries_left = len(job.record.failed_attempts) <= self.plan.retries
        return job.status is JobStatus.FAILED and job.record.waits is None and has_tries_left

    def _queued_again(self, job: Job) -> Job:
        """Return a failed job that is tried again at once."""
        record = job.record
        job = self.services.planner.queued_again(job).noted(
            attempts=record.attempts, executed=record.executed, shared=record.shared
        )
        return job.taking_back() if self.plan.external is External.REVERSE else job

    def _attempted(self, work: JobWork, job: Job) -> JobAttempt:
        """Return the attempt that has just ended."""
        return JobAttempt(
            worker=self.services.owners.me(),
            end=AttemptEnd.COMPLETED if job.status is JobStatus.COMPLETED else AttemptEnd.FAILED,
            started=work.started,
            ended=self.services.clock.now(),
            ray=self.ray(),
        )

    def _save(self, job: Job, spent_s: float) -> None:
        """Save a job and how long its batch has taken so far, so that a killed batch keeps both."""
        with self.services.storage.unit_of_work() as uow:
            uow.batches.save_jobs([job])
            uow.batches.took(job.batch_id, spent_s)
            uow.commit()

    def drop(self, number: int) -> None:
        """Release what this process holds for a job that stays unfinished."""
        sharing = self._work[number].sharing
        if sharing is not None:
            sharing.close()

    def find_ended(self, number: int) -> JobEnded | None:
        """Return the end of a job that another process has finished."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            found = uow.batches.get_job(self.batch.id, number)
        return None if found.status is JobStatus.PENDING else JobEnded(number, found.status, found.spent)

    def lost(self, report: JobLost) -> JobEnded | None:
        """Record that a job lost its worker; return its end if that happened too often, None if it continues."""
        with self.services.storage.unit_of_work() as uow:
            job = uow.batches.get_job(self.batch.id, report.number)
            if job.status is not JobStatus.PENDING:  # the worker stored the result, and ended before it could report it
                return JobEnded(job.number, job.status, job.spent)
            job = waiting_or_reversed(self.plan, with_lost_worker(uow, job, report, self.services.clock.now()))
            uow.batches.save_jobs([job])
            uow.commit()
        _log.warning(
            "worker process %s %s while it ran %s on %s; %s",
            WorkerName(report.worker).pid,
            report.reason,
            job.combination,
            job.case_id,
            "another one continues the job" if job.status is JobStatus.PENDING else "the job is given up",
        )
        if job.status is JobStatus.PENDING:
            return None
        self._stop_run(job)
        return JobEnded(job.number, job.status, job.spent)

    def over_limit(self, report: JobOverLimit) -> JobReport:
        """Record that a job failed because it exceeded a limit; return its end, or that it is tried again."""
        self._count_worker(report.worker, -1)
        with self.services.storage.unit_of_work() as uow:
            now = self.services.clock.now()
            uow.events.append(Event.of(worker_event(report), stream=self.batch.id, at=now))
            job = uow.batches.get_job(self.batch.id, report.number)
            if job.status is not JobStatus.PENDING:  # the worker stored the result just before it was ended
                uow.commit()
                return JobEnded(job.number, job.status, job.spent)
            failed = waiting_or_reversed(self.plan, over_limit(uow, job, report, now))
            again = self._is_tried_again(failed)
            kept = self._queued_again(failed) if again else failed
            uow.batches.save_jobs([kept])
            uow.commit()
        self._stop_run(failed)
        _log.warning("%s on %s failed: the job %s", job.combination, job.case_id, report.limit.happened)
        if not again:
            return JobEnded(job.number, failed.status, failed.spent)
        self._work[report.number].job = kept
        return JobFailedForNow(report.number)

    def _count_worker(self, worker: str, amount: int) -> None:
        """Count a worker that is ready or has ended; one that was killed cannot say that its connections are closed."""
        telemetry = self.services.telemetry
        if telemetry.is_on:
            telemetry.count(Measure.WORKERS, self.batch.record.runner, amount)
            if amount < 0:
                telemetry.level(Measure.CONNECTIONS, WorkerName(worker).label, 0)

    def _stop_run(self, job: Job) -> None:
        """End the run of a job that was given up, unless it will be continued; else it would seem to run for ever."""
        if job.execution_id is not None and job.record.waits is None:
            with suppress(WTBError):
                self.services.controller.request(job.execution_id, "stop")

    def worker_changed(self, report: WorkerReport) -> None:
        """Record that a worker started, ended or was lost."""
        if not report.worker:
            return  # a runner of another package that does not name its workers
        self._count_worker(report.worker, 1 if isinstance(report, WorkerReady) else -1)
        with self.services.storage.unit_of_work() as uow:
            uow.events.append(Event.of(worker_event(report), stream=self.batch.id, at=self.services.clock.now()))
            uow.commit()

    def is_left(self, number: int) -> bool:
        """Whether the process that ran a job is gone."""
        execution_id = self._work[number].job.execution_id
        assert execution_id is not None
        try:
            return self.services.controller.is_free(execution_id)
        except ExecutionNotFound:  # somebody has deleted it meanwhile
            return True

    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the batch."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            return uow.batches.get(self.batch.id).status is BatchStatus.CANCELLED

    def took(self, spent_s: float) -> None:
        """Save how long the batch has taken so far, and that this process still runs it."""
        with self.services.storage.unit_of_work() as uow:
            uow.batches.took(self.batch.id, spent_s)
            report_driver(uow, self.batch.id, self.services.owners)
            uow.commit()

    def _sharing(self, job: Job) -> Sharing:
        """Return the Sharing of a job."""
        again = bool(job.record.failed_attempts) and not job.has_run
        return Sharing(
            cache=self.services.cache,
            codec=self.services.codec,
            fingerprints=self.fingerprints[job.combination],
            traces=self.services.traces,
            trace_id=self.trace_id,
            begun_at=self.services.traces.position(),
            case_id=job.case_id,
            repeat=job.repeat,
            seed=self.plan.seed,
            attempt=self.services.new_attempt() if again else self.attempt,
            executed=(job.record.executed or 0) if again else 0,
            shared=job.record.shared if again else 0,
            enabled=self.plan.share and not job.record.alone,
            fresh=self.plan.fresh_nodes,
            external=self.plan.external,
        )
