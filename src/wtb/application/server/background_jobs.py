"""BackgroundJobs: does what is due beside the requests of a server; one of several servers does each job."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from wtb.domain.background import JOB_LEASE, BackgroundJob
from wtb.domain.errors import BackgroundJobNotFound, LeaseLost, WTBError
from wtb.domain.event_catalogue import BackgroundCompleted, BackgroundFailed
from wtb.domain.events import Event
from wtb.domain.ports import Clock, Owners, Storage, UnitOfWork
from wtb.domain.secrets import Masker, masked_logger

_log = masked_logger(__name__)

LOOK_S = 1.0
"""How often a server looks which jobs are due."""
LAST_MOMENT_S = 5.0
"""How long a server that stops waits for its jobs; the rest of them is done by the next run."""


@dataclass(slots=True, kw_only=True)
class JobRun:
    """One run of a job. The job looks at `stopped` between its parts, and ends soon after it is set."""

    stopped: threading.Event = field(default_factory=threading.Event)
    figures: Counter[str] = field(default_factory=Counter)
    notes: dict[str, Any] = field(default_factory=dict)
    """What the job remembers from one run to the next; it may change them."""
    by: str | None = None
    """Who asked for this run."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, **figures: int) -> None:
        """Add to the figures; jobs may do so from several threads."""
        with self._lock:
            self.figures.update(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job that servers do: what it does, and how often."""

    name: str
    summary: str
    every: timedelta | None
    """The time between two runs; None runs it only if somebody asks for it."""
    work: Callable[[JobRun], None]
    is_standing: bool = False
    """Whether it runs nearly all the time; it is told only if it did something, and an error only once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job, as people see it."""

    plan: JobPlan
    job: BackgroundJob | None
    """None if no server has looked at it yet."""

    @property
    def next_at(self) -> datetime | None:
        """When the next run is due; None if it is turned off, or not known yet."""
        if self.job is None or self.plan.every is None:
            return None
        return self.job.due_at(self.plan.every)


@dataclass(slots=True, kw_only=True)
class _Running:
    """A run under way in this server."""

    token: int
    run: JobRun
    thread: threading.Thread
    renewed_at: float


class BackgroundJobs:
    """The jobs of one server. `start` begins to look after them, `stop` ends all of them.

    Each job that is due is taken in the database and runs in a thread of its own, so that none waits for another and no
    request waits for any. Its lease is extended meanwhile. A server that loses it ends the run.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        owners: Owners,
        masker: Masker,
        plans: Sequence[JobPlan],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        self.plans = {plan.name: plan for plan in plans}
        self._storage = storage
        self._clock = clock
        self._owners = owners
        self._masker = masker
        self._look_s = look_s
        self._wake = threading.Event()
        self._has_ended = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look which jobs are due."""
        self._has_ended.clear()
        self._thread = threading.Thread(target=self._keep_looking, name="wtb-background", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all runs of this server, and wait for them for some seconds."""
        self._has_ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(LAST_MOMENT_S)
        with self._lock:
            running = list(self._running.values())
        for each in running:
            each.run.stopped.set()
        until = time.monotonic() + LAST_MOMENT_S
        for each in running:
            each.thread.join(max(until - time.monotonic(), 0.0))

    def request(self, name: str, *, by: str) -> JobView:
        """Ask for a run ahead of time, also of a job that is turned off; whichever server looks first does it."""
        plan = self._plan(name)
        with self._storage.unit_of_work() as uow:
            job = (uow.background_jobs.lock(name) or _registered(name, uow)).requested(by)
            uow.background_jobs.save(job)
            uow.commit()
        self._wake.set()
        return JobView(plan=plan, job=job)

    def list_jobs(self) -> tuple[JobView, ...]:
        """Return all jobs, by name."""
        return self._read()[0]

    def _read(self) -> tuple[tuple[JobView, ...], datetime]:
        """Return all jobs, and the time."""
        with self._storage.unit_of_work(readonly=True) as uow:
            known = {job.name: job for job in uow.background_jobs.list_jobs()}
            now = uow.now()
        return tuple(JobView(plan=plan, job=known.get(name)) for name, plan in sorted(self.plans.items())), now

    def get(self, name: str) -> JobView:
        """Return one job; raise BackgroundJobNotFound if there is none."""
        plan = self._plan(name)
        return next(view for view in self.list_jobs() if view.plan is plan)

    def _plan(self, name: str) -> JobPlan:
        if name not in self.plans:
            raise BackgroundJobNotFound(name, f"this server, which has {', '.join(sorted(self.plans))}")
        return self.plans[name]

    def _keep_looking(self) -> None:
        told = ""
        while not self._has_ended.is_set():
            try:
                self.look()
            except WTBError as error:
                if str(error) != told:  # once, not every second
                    _log.warning("background jobs wait for the database: %s", error)
                told = str(error)
            else:
                told = ""
            self._wake.wait(self._look_s)
            self._wake.clear()

    def look(self) -> None:
        """Extend the leases of this server's runs, and begin what is due."""
        for name in list(self._running):
            self._renew(name)
        views, now = self._read()
        for view in views:
            if view.plan.name not in self._running and self._is_worth_a_try(view, now):
                self._begin(view.plan)

    def _is_worth_a_try(self, view: JobView, now: datetime) -> bool:
        """Whether the job may be due and free, by what was just read: taking it looks again."""
        return view.job is None or (_is_due(view.plan, view.job, now) and self._is_free(view.job, now))

    def _is_free(self, job: BackgroundJob, now: datetime) -> bool:
        gone = None if job.owner is None else self._owners.is_gone(job.owner)
        return job.is_free(self._owners.me(), now, gone)

    def _begin(self, plan: JobPlan) -> None:
        taken = None if self._has_ended.is_set() else self._take(plan)
        if taken is None:
            return
        job, by = taken
        run = JobRun(notes=dict(job.notes), by=by)
        thread = threading.Thread(
            target=self._carry_out, args=(plan, job, run), name=f"wtb-background-{plan.name}", daemon=True
        )
        with self._lock:
            self._running[plan.name] = _Running(token=job.token, run=run, thread=thread, renewed_at=time.monotonic())
        thread.start()

    def _take(self, plan: JobPlan) -> tuple[BackgroundJob, str | None] | None:
        with self._storage.unit_of_work() as uow:
            job = uow.background_jobs.lock(plan.name)
            now = uow.now()
            if job is None:
                uow.background_jobs.save(_registered(plan.name, uow))
                uow.commit()
                return None
            if not _is_due(plan, job, now) or not self._is_free(job, now):
                return None
            by, job = job.requested_by, job.taken(self._owners.me(), now)
            uow.background_jobs.save(job)
            uow.commit()
        return job, by

    def _renew(self, name: str) -> None:
        running = self._running.get(name)
        if running is None or time.monotonic() - running.renewed_at < JOB_LEASE.total_seconds() / 3:
            return
        try:
            with self._storage.unit_of_work() as uow:
                job = uow.background_jobs.lock(name)
                if job is not None:
                    uow.background_jobs.save(job.renewed(running.token, uow.now()))
                    uow.commit()
            running.renewed_at = time.monotonic()
        except LeaseLost as error:
            _log.warning("%s", error)
            running.run.stopped.set()

    def _carry_out(self, plan: JobPlan, job: BackgroundJob, run: JobRun) -> None:
        began, error = time.monotonic(), None
        try:
            plan.work(run)
        except Exception as caught:  # noqa: BLE001  whatever it is must not end the other jobs
            error = self._masker.error(caught)
            if not isinstance(caught, WTBError):
                _log.exception("background job %s failed", plan.name)
        finally:
            try:
                self._end(plan, job, run, error, time.monotonic() - began)
            except WTBError as caught:
                _log.warning("the end of background job %s was not stored: %s", plan.name, caught)
            with self._lock:
                self._running.pop(plan.name, None)

    def _end(self, plan: JobPlan, taken: BackgroundJob, run: JobRun, error: str | None, duration_s: float) -> None:
        with self._storage.unit_of_work() as uow:
            job = uow.background_jobs.lock(plan.name)
            if job is None:
                return
            figures = {name: count for name, count in sorted(run.figures.items()) if count}
            if run.stopped.is_set():
                uow.background_jobs.save(job.given_back(taken.token, notes=run.notes))
            else:
                ended = job.ended(taken.token, uow.now(), figures=figures, notes=run.notes, error=error)
                uow.background_jobs.save(ended)
                body = _told(plan, run, error, figures, duration_s)
                if not plan.is_standing or (figures if error is None else error != job.last_error):
                    uow.events.append(Event.of(body, at=self._clock.now()))
            uow.commit()


def _told(
    plan: JobPlan, run: JobRun, error: str | None, figures: dict[str, int], duration_s: float
) -> BackgroundCompleted | BackgroundFailed:
    if error is not None:
        return BackgroundFailed(job=plan.name, error=error, figures=figures or None, by=run.by)
    return BackgroundCompleted(job=plan.name, figures=figures or None, duration_s=round(duration_s, 3), by=run.by)


def _is_due(plan: JobPlan, job: BackgroundJob, now: datetime) -> bool:
    return job.requested_by is not None or (plan.every is not None and job.is_due(plan.every, now))


def _registered(name: str, uow: UnitOfWork) -> BackgroundJob:
    return BackgroundJob(name=name, registered_at=uow.now())
