"""JobExecution: takes one job to its end: starts or continues its run, and scores it."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from wtb.application.batches.batch_services import BatchServices
from wtb.application.batches.plan import BatchPlan
from wtb.application.batches.scoring import scored_by
from wtb.application.node_cache import Sharing
from wtb.application.runs.execution_controller import WaitsForResult
from wtb.application.runs.run_figures import measured_runs
from wtb.application.runs.run_limits import RunLimits
from wtb.domain.batch import Job, JobStatus
from wtb.domain.cases import Case
from wtb.domain.errors import AlreadyExists, Conflict, DatabaseAway, ExecutionNotFound, InvalidTransition
from wtb.domain.event_catalogue import EventType, NodeCompleted
from wtb.domain.events import bodies
from wtb.domain.execution import Execution, ExecutionStatus, Failure
from wtb.domain.figures import NO_FIGURES
from wtb.domain.job_origin import JobOrigin
from wtb.domain.job_record import JobRecord
from wtb.domain.observation import Window
from wtb.domain.options import RunOptions
from wtb.domain.secrets import text_of
from wtb.domain.spending import Spent
from wtb.domain.tool_answers import External
from wtb.domain.tools import CallStatus

_UNENDED = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


class RunsElsewhere(Exception):
    """Another process is running the job."""


@dataclass(slots=True)
class JobWork:
    """A job in progress, what its run shares, and when this attempt at it started."""

    job: Job
    sharing: Sharing | None = None
    begun: bool = False
    started: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExecution:
    """Runs and scores single jobs; an error inside a job becomes its result."""

    services: BatchServices
    plan: BatchPlan
    limits: RunLimits

    def ended(self, work: JobWork, case: Case, sharing: Sharing, *, begun: bool) -> Job:
        """Return the job with its result. `begun` says that this attempt has already started its run."""
        job = work.job
        try:
            if job.has_run and (scored := self._scored_again(job, case, sharing)) is not None:
                return scored
            execution = self._execution(job, case, sharing, begun=begun)
            with self.services.reversals.held(job):
                return self._scored(work, execution, case, sharing)
        except (WaitsForResult, RunsElsewhere, DatabaseAway):  # an outage is no result of a job
            raise
        except (Conflict, InvalidTransition) as error:
            if self._has_execution(job):  # another process was faster
                raise RunsElsewhere from error
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
            execution = run(execution.id, self.plan.definition, sharing=sharing, limits=self.limits)
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
                limits=self.limits,
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
                    raise RunsElsewhere
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

    def _recount(self, work: JobWork, execution: Execution, sharing: Sharing) -> None:
        """Count all node runs of a run that another process began; only the stored record shows its work.

        Earlier failed attempts count, too.
        """
        job = work.job
        with self.services.storage.unit_of_work(readonly=True) as uow:
            runs = measured_runs(uow, execution.id)
            ends = uow.events.list_events(stream=execution.id, types=[EventType.NODE_COMPLETED], limit=1_000_000)
        sharing.windows += [Window.from_data(end.trace) for end in bodies(ends, NodeCompleted) if end.trace is not None]
        executed, shared = (job.record.executed or 0, job.record.shared) if job.record.failed_attempts else (0, 0)
        sharing.count_anew([run.figures or NO_FIGURES for run in runs])
        if not job.record.attempts:  # otherwise an earlier attempt began the run, and this one continues it
            work.started = execution.created_at
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

    def _scored(self, work: JobWork, execution: Execution, case: Case, sharing: Sharing) -> Job:
        job = work.job
        if sharing.begun_elsewhere:
            self._recount(work, execution, sharing)
        if execution.status is not ExecutionStatus.COMPLETED:
            waits = sharing.spent if execution.pause is not None and execution.pause.question is not None else None
            failed = replace(self._counted_calls(job, execution, sharing), error=_why(execution), waits=waits)
            return waiting_or_reversed(self.plan, job.ended(JobStatus.FAILED, execution.id, failed))
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


def waiting_or_reversed(plan: BatchPlan, job: Job) -> Job:
    """Return a failed job; calls that are taken back need no answer, so its run is not continued."""
    return job.noted(waits=None) if plan.external is External.REVERSE else job


def _counted(job: Job, sharing: Sharing) -> JobRecord:
    """Return the record of a job before it is scored: what it executed, shared and spent."""
    return JobRecord(
        executed=sharing.executed,
        shared=sharing.shared,
        unshared=dict(sharing.unshared),
        trace=sharing.trace_id,
        traces=sharing.all_windows(),
        taken=sharing.taken_windows(),
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
