"""JobRunner: runs the jobs of one attempt at a batch, one call per job."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from wtb.application.batch_driving import report_driver
from wtb.application.batches.job_reversals import JobReversals, WorkedOnElsewhere
from wtb.application.batches.lost_workers import over_limit, with_lost_worker
from wtb.application.batches.plan import BatchPlan, Prints
from wtb.application.batches.planner import BatchPlanner
from wtb.application.batches.scoring import Scoring, scored_by
from wtb.application.batches.worker_events import worker_event
from wtb.application.dependencies.traces import Traces
from wtb.application.evaluation_engine import EvaluationEngine
from wtb.application.node_cache import AttemptRef, NodeCache, Sharing
from wtb.application.runs.execution_controller import ExecutionController, WaitsForResult
from wtb.application.runs.run_figures import measured_runs
from wtb.application.runs.run_limits import BATCH_LIMITS, RunLimits
from wtb.application.store_time import store_time
from wtb.domain.batch import Batch, BatchStatus, Job, JobStatus
from wtb.domain.cases import Case
from wtb.domain.errors import (
    AlreadyExists,
    Conflict,
    ConnectionLost,
    DatabaseAway,
    ExecutionNotFound,
    InvalidTransition,
    WTBError,
)
from wtb.domain.event_catalogue import EventType, NodeCompleted
from wtb.domain.events import Event, bodies
from wtb.domain.execution import Execution, ExecutionStatus, Failure
from wtb.domain.figures import NO_FIGURES
from wtb.domain.job_attempt import AttemptEnd, JobAttempt, RayIds, WorkerName
from wtb.domain.job_limits import JOB_TIMEOUT_S
from wtb.domain.job_origin import JobOrigin
from wtb.domain.job_record import JobRecord
from wtb.domain.observation import Window
from wtb.domain.options import RunOptions
from wtb.domain.ports import NO_TELEMETRY, Clock, Codec, Ids, Measure, ObjectStore, Owners, Storage, Telemetry, measured
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
from wtb.domain.secrets import Masker, text_of
from wtb.domain.spending import Spent
from wtb.domain.tool_answers import External
from wtb.domain.tools import CallStatus

_log = logging.getLogger(__name__)

_UNENDED = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


class _RunsElsewhere(Exception):
    """Another process is running the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchServices:
    """The services that are needed to run batches."""

    storage: Storage
    clock: Clock
    ids: Ids
    codec: Codec
    controller: ExecutionController
    cache: NodeCache
    evaluation: EvaluationEngine
    scoring: Scoring
    masker: Masker
    planner: BatchPlanner
    traces: Traces
    reversals: JobReversals
    owners: Owners
    objects: ObjectStore
    limits: RunLimits
    """The limits of the settings."""
    telemetry: Telemetry = NO_TELEMETRY
    user: str | None = None
    """Who runs the batches."""
    settings: Mapping[str, Any] | None = None
    """The settings with which another process opens the same store; None if no other process can."""
    job_timeout_s: float = JOB_TIMEOUT_S
    """How long a job may take, unless its batch says otherwise."""

    def new_attempt(self) -> AttemptRef:
        """Return a new attempt at a batch or a job. Failures are final within an attempt."""
        return AttemptRef(id=self.ids.new(), began_at=store_time(self.storage))


@dataclass(slots=True)
class _Work:
    """A job in progress, what its run shares, and when this attempt at it started."""

    job: Job
    sharing: Sharing | None = None
    begun: bool = False
    started: datetime | None = None


@dataclass(kw_only=True)
class JobRunner:
    """Runs the jobs of one attempt at a batch; an error inside a job becomes its result."""

    services: BatchServices
    plan: BatchPlan
    batch: Batch
    prints: Prints
    trace_id: str
    jobs: Sequence[Job]
    attempt: AttemptRef
    """The attempt at the batch, which all its workers share."""
    spent_s: Callable[[], float] = lambda: 0.0
    """How long the batch has taken so far."""
    ray: Callable[[], RayIds | None] = lambda: None
    """Returns Ray's ids for the job that runs in this thread; None if Ray does not run it."""
    _work: dict[int, _Work] = field(init=False)
    _cases: Mapping[str, Case] = field(init=False)
    _limits: RunLimits = field(init=False)

    def __post_init__(self) -> None:
        self._work = {job.number: _Work(job) for job in self.jobs}
        self._cases = {case.id: case for case in self.plan.cases}
        self._limits = self.services.limits.of_batch(self.batch.id, self.plan.limits)

    def take(self, job: Job) -> None:
        """Accept a job as it is stored."""
        self._work[job.number] = _Work(job)

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
            run = measured(self.services.telemetry, Measure.JOB, work.job.combination, self._ended)
            job = run(work.job, self._cases[work.job.case_id], sharing, begun=begun)
            job = self.services.reversals.of_own_run(job)
        except WaitsForResult as waiting:
            return JobWaits(number, waiting.key)
        except (_RunsElsewhere, WorkedOnElsewhere):
            self._leave(work, sharing)
            return JobRunsElsewhere(number)
        except ConnectionLost:  # not the fault of the job, which goes on from its last checkpoint
            self._leave(work, sharing)
            return JobFailedForNow(number)
        sharing.close()
        return self._kept(work, sharing, job)

    def _leave(self, work: _Work, sharing: Sharing) -> None:
        """Forget what this process has done for a job, so that the job is taken up again as it is stored."""
        sharing.close()
        work.sharing, work.begun, work.started = None, False, None

    def _kept(self, work: _Work, sharing: Sharing, job: Job) -> JobReport:
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

    def _attempted(self, work: _Work, job: Job) -> JobAttempt:
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
            job = self._waiting_or_reversed(with_lost_worker(uow, job, report, self.services.clock.now()))
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
            failed = self._waiting_or_reversed(over_limit(uow, job, report, now))
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

    def _waiting_or_reversed(self, job: Job) -> Job:
        """Return a failed job; calls that are taken back need no answer, so its run is not continued."""
        return job.noted(waits=None) if self.plan.external is External.REVERSE else job

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

    # One job

    def _sharing(self, job: Job) -> Sharing:
        """Return the Sharing of a job."""
        again = bool(job.record.failed_attempts) and not job.has_run
        return Sharing(
            cache=self.services.cache,
            codec=self.services.codec,
            fingerprints=self.prints[job.combination],
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

    def _ended(self, job: Job, case: Case, sharing: Sharing, *, begun: bool) -> Job:
        """Return the job with its result."""
        try:
            if job.has_run and (scored := self._scored_again(job, case, sharing)) is not None:
                return scored
            execution = self._execution(job, case, sharing, begun=begun)
            with self.services.reversals.held(job):
                return self._scored(job, execution, case, sharing)
        except (WaitsForResult, _RunsElsewhere, DatabaseAway):  # an outage is no result of a job
            raise
        except (Conflict, InvalidTransition) as error:
            if self._has_execution(job):  # another process was faster
                raise _RunsElsewhere from error
            return self._failed(job, error, sharing)
        except Exception as error:  # noqa: BLE001  the failure of one job is recorded, and the batch continues
            return self._failed(job, error, sharing)

    def _execution(self, job: Job, case: Case, sharing: Sharing, *, begun: bool) -> Execution:
        """Return the finished run of a job."""
        execution = None if begun else self._run_new(job, case, sharing)
        if execution is None:
            execution = self._taken_up(job, sharing, begun=begun)
        if execution.status in _UNENDED:
            run = self.services.controller.run
            execution = run(execution.id, self.plan.definition, sharing=sharing, limits=self._limits)
        return execution

    def _scored_again(self, job: Job, case: Case, sharing: Sharing) -> Job | None:
        """Make the missing and outdated scores of a finished job; return None if its run is gone."""
        plan, begin = self.plan, sharing.begin()
        scoring, output = self.services.scoring, (plan.output, plan.output_digest)
        more: Any = {"output": output, "timeout_s": plan.run_timeout_s}
        scored = scoring.scored(job, case, plan.evaluators, plan.digests, plan.definition.restored, **more)
        if scored is None:
            return None
        read, window = scored.record.scored_in, sharing.read_since(begin)
        now = {name: window for name in plan.digests if name not in read}
        return scored.noted(scored_in={**read, **now})

    def _run_new(self, job: Job, case: Case, sharing: Sharing) -> Execution | None:
        """Start the run of a job and run it to the end; return None if another process has started it."""
        assert job.execution_id is not None
        variants = dict(self.plan.by_label[job.combination])
        try:
            return self.services.controller.start(
                self.plan.definition,
                case.input,
                RunOptions(variants=variants, seed=self.plan.seed_of(job), timeout_s=self.plan.run_timeout_s),
                execution_id=job.execution_id,
                sharing=sharing,
                limits=self._limits,
                source=self.plan.source,
                metadata=_origin(job).to_data(),
            )
        except AlreadyExists:
            return None

    def _taken_up(self, job: Job, sharing: Sharing, *, begun: bool) -> Execution:
        """Return the run of a job as this or another process left it."""
        assert job.execution_id is not None
        with self.services.storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(job.execution_id)
            if not begun:
                if uow.batches.get_job(job.batch_id, job.number).status is not JobStatus.PENDING:
                    raise _RunsElsewhere
                sharing.begun_elsewhere = True
        return execution

    def _has_execution(self, job: Job) -> bool:
        assert job.execution_id is not None
        try:
            with self.services.storage.unit_of_work(readonly=True) as uow:
                uow.executions.get(job.execution_id)
        except ExecutionNotFound:
            return False
        return True

    def _recount(self, job: Job, execution: Execution, sharing: Sharing) -> None:
        """Count all node runs of a run that another process began; only the stored record shows its work.

        Earlier failed attempts count, too.
        """
        with self.services.storage.unit_of_work(readonly=True) as uow:
            runs = measured_runs(uow, execution.id)
            ends = uow.events.list_events(stream=execution.id, types=[EventType.NODE_COMPLETED], limit=1_000_000)
        sharing.windows += [Window.from_data(end.trace) for end in bodies(ends, NodeCompleted) if end.trace is not None]
        executed, shared = (job.record.executed or 0, job.record.shared) if job.record.failed_attempts else (0, 0)
        sharing.count_anew([run.figures or NO_FIGURES for run in runs])
        if not job.record.attempts:  # otherwise an earlier attempt began the run, and this one continues it
            self._work[job.number].started = execution.created_at
        sharing.executed += executed
        sharing.shared += shared

    def _failed(self, job: Job, error: Exception, sharing: Sharing) -> Job:
        text = "".join(traceback.format_exception(error))
        failure = Failure(type=type(error).__qualname__, message=text_of(error), traceback=text)
        masked = self.services.masker.failure(failure)
        return job.ended(JobStatus.FAILED, job.execution_id, replace(_counted(job, sharing), error=masked))

    def _counted_calls(self, job: Job, execution: Execution, sharing: Sharing) -> JobRecord:
        """Return the record of a job: what it executed, shared, spent, and called externally."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            calls = uow.tool_calls.list_calls(execution.id)
        external = Counter(call.tool for call in calls if call.may_have_happened or call.status is CallStatus.REVERSED)
        return replace(_counted(job, sharing), external=dict(external))

    def _scored(self, job: Job, execution: Execution, case: Case, sharing: Sharing) -> Job:
        if sharing.begun_elsewhere:
            self._recount(job, execution, sharing)
        if execution.status is not ExecutionStatus.COMPLETED:
            waits = sharing.spent if execution.pause is not None and execution.pause.question is not None else None
            failed = replace(self._counted_calls(job, execution, sharing), error=_why(execution), waits=waits)
            return self._waiting_or_reversed(job.ended(JobStatus.FAILED, execution.id, failed))
        plan, evaluation = self.plan, self.services.evaluation
        head_id, context = evaluation.head_context(execution.id, case, plan.definition.restored)
        begin = sharing.begin()
        scored = evaluation.scored(context, plan.evaluators, plan.run_timeout_s)
        counted = self._counted_calls(job, execution, sharing)
        record = replace(
            counted,
            output=evaluation.output(context, plan.output, plan.output_digest),
            spent=counted.spent + Spent.of(scored.spent.totals()),
            judging=scored.spent,
            paid=scored.paid,
            scores=dict(scored.scores),
            bools=scored.bools,
            scored_in=dict.fromkeys(plan.digests, sharing.read_since(begin)),
            scored_by=scored_by(case, plan.digests, self.services.codec),
            checkpoint=head_id,
            latency_s=context.latency_s,
            usage=dict(context.usage),
            unpriced=tuple(context.unpriced),
            measured=sharing.measured,
        )
        return job.ended(JobStatus.COMPLETED, execution.id, record)


def _counted(job: Job, sharing: Sharing) -> JobRecord:
    """Return the record of a job before it is scored: what it executed, shared and spent."""
    return JobRecord(
        executed=sharing.executed,
        shared=sharing.shared,
        unshared=dict(sharing.unshared),
        trace=sharing.trace_id,
        traces=sharing.all_windows(),
        spent=job.spent + sharing.spent,
        take_back=job.record.take_back,
    )


def _why(execution: Execution) -> Failure:
    if execution.failure is not None:
        return execution.failure
    pause = execution.pause
    reason = pause.reason if pause is not None else str(execution.status)
    if pause is not None and pause.question is not None:
        reason = (
            f"it asked {pause.question.get('question')!r}, and a batch has nobody to answer; answer it with "
            f"`wtb resume {execution.id} --answer …`, then run the batch again"
        )
    return Failure(type="NotCompleted", message=reason, node=None if pause is None else pause.node)


def _origin(job: Job) -> JobOrigin:
    return JobOrigin(batch_id=job.batch_id, combination=job.combination, case_id=job.case_id, repeat=job.repeat)
