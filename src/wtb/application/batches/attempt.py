"""BatchAttempt: runs the missing jobs of a batch until they are done or somebody stops it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from wtb.application.batches.schedule import JobSchedule
from wtb.application.node_cache import NodeCache
from wtb.domain.batch import Job, JobStatus
from wtb.domain.errors import StorageUnavailable
from wtb.domain.job_attempt import WorkerName
from wtb.domain.ports import NO_TELEMETRY, Measure, Telemetry
from wtb.domain.runner import (
    ElasticRunner,
    JobBroke,
    JobEnded,
    JobFailedForNow,
    JobLost,
    JobOverLimit,
    JobReport,
    JobRunsElsewhere,
    JobWaits,
    ResultSettled,
    Runner,
    RunnerReport,
    WorkerEnded,
    WorkerLost,
    WorkerReady,
    WorkerReport,
    WorkMeasured,
)
from wtb.domain.spending import Budget, Spent

_log = logging.getLogger(__name__)

_LOOK_S = 0.1
"""How often an attempt checks what other processes have done."""

_AT_A_TIME = 50
"""How many jobs of other processes it checks each time."""

_TOOK_S = 1.0
"""How often it saves the time that the batch has taken, even if no job ends; readers see by this that it lives."""

_CANCELLED_S = 0.5
"""How often it checks whether the batch was cancelled."""


@dataclass(slots=True)
class Progress:
    """How far a batch has come: it has `total` jobs, and `kept` of them had a result already.

    `failed` counts jobs, `failed_nodes` node runs. `by_combination` counts the finished jobs of every combination.
    `spent` is what the batch has used in all, including earlier attempts, but not the time of this one. `is_cancelled`
    says that somebody else cancelled the batch.
    """

    total: int
    kept: int
    completed: int = 0
    failed: int = 0
    executed: int = 0
    shared: int = 0
    failed_nodes: int = 0
    spent: Spent = field(default_factory=Spent)
    by_combination: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    is_cancelled: bool = False

    @classmethod
    def of(cls, jobs: Sequence[Job], spent: Spent) -> Progress:
        """Return the progress before anything has run."""
        found = cls(total=len(jobs), kept=sum(job.status is not JobStatus.PENDING for job in jobs), spent=spent)
        for job in jobs:
            found.by_combination[job.combination] += job.status is not JobStatus.PENDING
        return found


class Jobs(Protocol):
    """The jobs of a batch as its attempt uses them: by number."""

    def run(self, number: int) -> JobReport:
        """Run a job until it ends or has to wait."""
        ...

    def drop(self, number: int) -> None:
        """Release what this process holds for a job that stays unfinished."""
        ...

    def find_ended(self, number: int) -> JobEnded | None:
        """Return the end of a job that another process has finished."""
        ...

    def lost(self, report: JobLost) -> JobEnded | None:
        """Record that a job lost its worker; return its end if that happened too often, None if it continues."""
        ...

    def over_limit(self, report: JobOverLimit) -> JobReport:
        """Record that a job exceeded a limit; return its end, or that it is tried again."""
        ...

    def worker_changed(self, report: WorkerReport) -> None:
        """Record that a worker started, ended or was lost."""
        ...

    def is_left(self, number: int) -> bool:
        """Whether the process that ran a job is gone."""
        ...

    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the batch."""
        ...

    def took(self, spent_s: float) -> None:
        """Save how long the batch has taken so far, and that this process still runs it."""
        ...


class BatchAttempt:
    """Gives jobs to a runner as the schedule decides, and handles their reports.

    Everything here runs in one thread; runners and the cache send their news through a queue.
    """

    def __init__(
        self,
        pending: Sequence[Job],
        cache: NodeCache,
        *,
        progress: Progress,
        budget: Budget,
        is_scoring_free: bool = True,
        workers: int,
        stop: threading.Event,
        on_progress: Callable[[Progress], None],
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._telemetry = telemetry
        self._cache = cache
        self._workers = workers
        self._stop = stop
        self._on_progress = on_progress
        self._budget = budget
        self._schedule = JobSchedule(pending, workers=workers, budget=budget, is_scoring_free=is_scoring_free)
        self._pending = {job.number: job for job in pending}
        self._news: queue.SimpleQueue[RunnerReport] = queue.SimpleQueue()
        self._began = self._looked_at = self._kept_at = self._asked_at = time.monotonic()
        self._error: BaseException | None = None
        self._elastic: ElasticRunner | None = None
        self.progress = progress
        self.is_left_to_others = False
        """Whether another process was running jobs of the batch when this one stopped."""
        self.workers_ended: list[WorkerEnded] = []
        """What workers in other processes reported when they ended."""

    @property
    def dropped(self) -> int:
        """How many jobs are left for a later attempt."""
        return len(self._schedule.dropped)

    def spent(self) -> Spent:
        """Return everything that the batch has used so far."""
        return self.progress.spent + Spent(s=time.monotonic() - self._began)

    def run(self, jobs: Jobs, runner: Runner) -> None:
        """Run until no job is left, or until it is stopped and the jobs that have started are finished."""
        stop_listening = self._cache.listen(self._result_settled)
        runner.start(jobs.run, max(1, min(self._workers, len(self._pending))), self._reported)
        self._elastic = runner if isinstance(runner, ElasticRunner) else None  # asked once: it takes 30 µs
        try:
            self._go_on(jobs, runner)
        except BaseException:
            self._stop.set()
            self._go_on(jobs, runner)
            raise
        finally:
            runner.close()
            stop_listening()
        self._hear_the_end(jobs)
        self._on_progress(self.progress)
        if self._error is not None:
            raise self._error

    def _go_on(self, jobs: Jobs, runner: Runner) -> None:
        while True:
            self._begin(jobs, runner)
            if self._schedule.is_done:
                return
            self._hear(jobs)
            with suppress(StorageUnavailable):  # if the database does not answer now, ask again later
                self._look_around(jobs)

    def _reported(self, report: RunnerReport) -> None:
        """Take a report of the runner, from any thread."""
        if isinstance(report, ResultSettled):
            self._result_settled(report.key)
        else:
            self._news.put(report)

    def _result_settled(self, key: bytes) -> None:
        """Wake this thread only if a job waits for the result, since each wake-up takes time from the workers.

        A job that begins to wait at this moment checks itself whether the result exists.
        """
        if self._schedule.is_awaited(key):
            self._news.put(ResultSettled(key))

    def _begin(self, jobs: Jobs, runner: Runner) -> None:
        if self._stop.is_set():
            self._schedule.stop()
        dropped = self.dropped
        if self._elastic is not None:
            # A budget is checked before each job begins: a job that waits at a worker would have passed the check.
            self._schedule.workers = self._elastic.capacity(ahead=not self._budget.limits())
        for number in self._schedule.begin(self.spent()):
            runner.submit(number)
        for number in self._schedule.dropped[dropped:]:
            jobs.drop(number)
        if self._schedule.is_stopped:
            self._stop.set()  # the caller's event shows that the budget is used up

    def _hear(self, jobs: Jobs) -> None:
        """Handle the news, waiting a moment for the first."""
        with suppress(queue.Empty):
            news = self._news.get(timeout=_LOOK_S)
            while True:
                self._take(jobs, news)
                news = self._news.get_nowait()

    def _hear_the_end(self, jobs: Jobs) -> None:
        """Handle what workers reported while they ended."""
        with suppress(queue.Empty):
            while True:
                news = self._news.get_nowait()
                if isinstance(news, WorkerReport):
                    self._worker_changed(jobs, news)
                elif isinstance(news, WorkMeasured):
                    self._measure(news)

    def _take(self, jobs: Jobs, news: RunnerReport) -> None:
        match news:
            case ResultSettled(key):
                self._schedule.wake(key)
            case JobEnded(number):
                self._schedule.ended(number)
                if news.spent != self._pending[number].spent:
                    self._schedule.scored_at_a_cost(number)
                self._count(news)
            case JobFailedForNow(number, failed_nodes):
                self.progress.failed_nodes += failed_nodes
                self._schedule.again(number)
            case JobLost() | JobOverLimit():
                self._interrupted(jobs, news)
            case WorkMeasured():
                self._measure(news)
            case WorkerReady() | WorkerLost() | WorkerEnded():
                self._worker_changed(jobs, news)
            case JobWaits(number, key):
                self._schedule.waits_for(number, key)
                if not self._cache.is_being_made(key):  # it was made before this job began to wait
                    self._schedule.wake(key)
            case JobRunsElsewhere(number):
                self._schedule.runs_elsewhere(number)
            case JobBroke(number, error):
                self._error = self._error or error
                self._stop.set()
                self._schedule.broke(number)
                jobs.drop(number)

    def _interrupted(self, jobs: Jobs, report: JobLost | JobOverLimit) -> None:
        """Handle the end of a job's worker. If the store does not answer, the batch stops; the job stays as it is."""
        try:
            if isinstance(report, JobLost):
                self._lost(jobs, report)
            else:
                self._take(jobs, jobs.over_limit(report))
        except StorageUnavailable as error:
            self._take(jobs, JobBroke(report.number, error))

    def _lost(self, jobs: Jobs, report: JobLost) -> None:
        """Let another worker continue a job, unless the job has lost too many workers."""
        ended = jobs.lost(report)
        if ended is None:
            self._schedule.lost(report.number)
        else:
            self._schedule.ended(report.number)
            self._count(ended)

    def _worker_changed(self, jobs: Jobs, report: WorkerReport) -> None:
        if isinstance(report, WorkerEnded):
            self.workers_ended.append(report)
        try:
            jobs.worker_changed(report)
        except StorageUnavailable:  # a job must not fail because of a note about its worker
            _log.warning(
                "the database did not answer, so it has no event about worker %s", WorkerName(report.worker).label
            )

    def _measure(self, found: WorkMeasured) -> None:
        """Pass on what a worker has measured."""
        for span in found.spans:
            measure = Measure(span.measure)
            if span.is_level:
                self._telemetry.level(measure, span.name, span.amount)
            elif span.took_s is None:
                self._telemetry.count(measure, span.name, span.amount)
            else:
                self._telemetry.took(measure, span.name, span.took_s, raised=bool(span.amount))

    def _count(self, ended: JobEnded) -> None:
        progress, before = self.progress, self._pending[ended.number]
        if self._telemetry.is_on:
            completed = ended.status is JobStatus.COMPLETED
            self._telemetry.count(Measure.COMPLETED if completed else Measure.FAILED, before.combination)
        progress.executed += ended.executed
        progress.shared += ended.shared
        progress.failed_nodes += ended.failed_nodes
        progress.spent += ended.spent - before.spent
        progress.completed += ended.status is JobStatus.COMPLETED
        progress.failed += ended.status is JobStatus.FAILED
        progress.by_combination[before.combination] += 1
        self._on_progress(progress)

    # Changes that are not reported to this process

    def _look_around(self, jobs: Jobs) -> None:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        if now - self._kept_at > _TOOK_S:
            self._kept_at = now
            jobs.took(self.spent().s)
        self._look_at_results()
        self._look_at_other_processes(jobs)
        self._cache.keep_claims()
        if now - self._asked_at > _CANCELLED_S:
            self._asked_at = now
            self._heed_others(jobs)

    def _look_at_results(self) -> None:
        """Wake jobs whose result another process has made or given up."""
        for key in self._schedule.awaited:
            if not self._cache.is_being_made(key):
                self._schedule.wake(key)

    def _look_at_other_processes(self, jobs: Jobs) -> None:
        for number in self._schedule.look_elsewhere(_AT_A_TIME):
            if (ended := jobs.find_ended(number)) is not None:
                self._schedule.ended_elsewhere(number)
                self._count(ended)
            elif self._stop.is_set():
                self.is_left_to_others = True
                self._schedule.leave_elsewhere(number)
                jobs.drop(number)
            elif jobs.is_left(number):
                self._schedule.come_back(number)

    def _heed_others(self, jobs: Jobs) -> None:
        """Stop if somebody else has cancelled the batch, and report it."""
        if not self._stop.is_set() and jobs.is_cancelled():
            self._stop.set()
            self.progress.is_cancelled = True
            self._on_progress(self.progress)
