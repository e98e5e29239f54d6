"""RaySlot: the place of one worker on Ray. It starts an actor, sends it jobs, and replaces it when it is lost.

A failed call does not say whether the job has run. So the worker gets no more jobs, and is asked whether it lives:

- The same process answers, and runs the job: the job stays there. Nobody hears its end, so when the process no longer
  runs it, the job is reported as running elsewhere, and the store says how it ended.
- Another process answers, or none: the first of its jobs has lost its worker, and the next one had not begun.

A worker whose job takes too long or too much memory is ended. That job fails, and the next one goes to another worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from typing import Any

from wtb.application.batches.worker_messages import error_from, report_from
from wtb.domain.errors import InvalidInput, WorkerFailed
from wtb.domain.job_attempt import RayIds
from wtb.domain.job_limits import ExceededLimit
from wtb.domain.runner import (
    JobBroke,
    JobLost,
    JobOverLimit,
    JobRunsElsewhere,
    WorkerLost,
    WorkerReady,
)
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.runners.sent_jobs import SentJob, SentJobs
from wtb.infrastructure.runners.slot_host import SlotHost

_log = logging.getLogger(__name__)

_ANSWERS_WITHIN_S = 60.0
"""How long a worker in doubt may take to answer, and the calls of a lost one to fail."""
_ASK_AGAIN_S = 1.0
_MOST_FAILED_STARTS = 2
"""How often a worker may end before it is ready, and is started again."""
_PROCESS_ENDED = "its process ended"


class SlotState(StrEnum):
    """What is known of a worker."""

    STARTING = "starting"
    READY = "ready"
    IN_DOUBT = "in doubt"
    """A call failed. The worker is asked whether it lives; until it answers, it gets no job."""
    OCCUPIED = "occupied"
    """The process lives, and runs a job whose call failed. Until that job ends, it gets no other."""
    LOST = "lost"
    """The process is gone; its calls have still to fail."""
    ENDED = "ended"


class RaySlot:
    """One worker: its actor, or the next actor if that is lost."""

    def __init__(self, host: SlotHost, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self.jobs = SentJobs(clock)
        self.state = SlotState.STARTING
        self.has_answered = False
        """Whether its process has answered since it was started, so that it has a machine."""
        self.was_ready = False
        """Whether it has ever been ready."""
        self._owners = ProcessOwners()
        self._since = clock()
        self._era = 0
        """Counts the changes of state. What was asked in another state is not answered in this one."""
        self._token = ""
        """Tells the process from one that Ray started in its place."""
        self._next_token = ""
        """The token of the process that Ray started in its place, if it has answered."""
        self._name = ""
        """The name of the process, as leases have it."""
        self._failed_starts = 0
        self._reason = ""
        """How the process was lost."""
        self._exceeded: tuple[SentJob | None, ExceededLimit] | None = None
        """The limit for which the worker is being ended, and the job that exceeded it."""
        self.actor = host.start_actor()
        self._ask()

    # For the runner

    def has_been(self, state: SlotState, longer_than_s: float) -> bool:
        """Whether it has been in a state for so long."""
        return self.state is state and self._clock() - self._since > longer_than_s

    def waits_for_machine(self, longer_than_s: float) -> bool:
        """Whether it has waited for so long until Ray starts its process somewhere."""
        return not self.has_answered and self.has_been(SlotState.STARTING, longer_than_s)

    def run(self, number: int) -> None:
        """Send a job to the worker."""
        call = self.actor.run(number)
        job = self.jobs.add(number, RayIds(actor=self.actor.id, task=call.task_id().hex()))
        self._when_answered(call, partial(self._done, job), lambda: job in self.jobs)

    def withdraw(self, job: SentJob) -> None:
        """Ask for a job that has not begun."""
        job.is_wanted_back = True
        self._when_answered(self.actor.withdraw(job.number), partial(self._withdrew, job), lambda: job in self.jobs)

    def look(self) -> None:
        """End a worker whose job takes too long, and replace a lost one."""
        limit_s = self._host.limits.timeout_s
        if limit_s is not None and self.state in (SlotState.READY, SlotState.OCCUPIED):
            late = self.jobs.late(limit_s)
            if late is not None:
                self._end(late, ExceededLimit.time(limit_s))
        if any(self.has_been(state, _ANSWERS_WITHIN_S) for state in (SlotState.IN_DOUBT, SlotState.OCCUPIED)):
            self._move(SlotState.LOST)
        is_over = not self.jobs.unanswered and self._owners.is_gone(self._name) is not False
        if self.state is SlotState.LOST and (is_over or self.has_been(SlotState.LOST, _ANSWERS_WITHIN_S)):
            self._replace()

    # Questions and answers

    def _move(self, state: SlotState) -> None:
        self.state, self._since = state, self._clock()
        self._era += 1

    def _when_answered(self, call: Any, then: Callable[[Future[Any]], None], still_matters: Callable[[], bool]) -> None:
        """Let the thread of the runner handle an answer, if it still matters: its worker may have been replaced."""

        def handle(future: Future[Any]) -> None:
            if still_matters():
                then(future)

        call.future().add_done_callback(lambda future: self._host.soon(partial(handle, future)))

    def _is_same_era(self) -> Callable[[], bool]:
        era = self._era
        return lambda: self._era == era

    def _ask(self) -> None:
        """Ask the worker which process it is, and which job it runs."""
        self._when_answered(self.actor.ping(), self._answered, self._is_same_era())

    def _ask_later(self) -> None:
        is_same = self._is_same_era()
        self._host.soon(lambda: self._ask() if is_same() else None, after_s=_ASK_AGAIN_S)

    def _answered(self, future: Future[Any]) -> None:
        error = future.exception()
        if isinstance(error, self._host.errors.ActorUnavailableError):
            if self.state is SlotState.OCCUPIED:
                self._move(SlotState.IN_DOUBT)
            self._ask_later()
        elif self.state is SlotState.STARTING:
            self._placed(future)
        elif error is None and future.result()["token"] == self._token:
            self._lives(future.result()["job"])
        else:
            self._next_token = "" if error is not None else future.result()["token"]
            if self._next_token:
                self._reason = _PROCESS_ENDED
            self._move(SlotState.LOST)

    # The start of a worker

    def _placed(self, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self._token, self.has_answered = future.result()["token"], True
            self._begin()
        elif isinstance(error, self._host.errors.RayActorError):
            self._start_failed(error)
        else:
            self._host.give_up(WorkerFailed(f"Ray could not start a worker: {error}"))

    def _begin(self) -> None:
        self._when_answered(self.actor.begin(*self._host.work_to_do()), self._began, self._is_same_era())

    def _began(self, future: Future[Any]) -> None:
        error = future.exception()
        if error is None and "refused" in future.result():
            error = error_from(future.result()["refused"])
        if error is None:
            self._name = future.result()["ready"]
            self._failed_starts, self.was_ready = 0, True
            self._ready()
            self._host.report(WorkerReady(self._name, self.actor.id))
        elif isinstance(error, InvalidInput):  # other code or another store: each worker would refuse
            self._move(SlotState.ENDED)
            self._host.give_up(error)
        else:
            self._start_failed(error)

    def _start_failed(self, error: BaseException) -> None:
        """Start another worker in the place of one that could not begin, but not for ever."""
        if self._failed_starts >= _MOST_FAILED_STARTS:
            self._move(SlotState.ENDED)
            self._host.worker_ended(error)
            return
        self._failed_starts += 1
        self._start_again()

    def _start_again(self) -> None:
        """Start another actor in the place of one, which is killed if it still lives."""
        self._host.kill(self.actor)
        self.actor, self._token, self.has_answered = self._host.start_actor(), "", False
        self._move(SlotState.STARTING)
        self._ask()

    def _ready(self) -> None:
        self._move(SlotState.READY)
        self._watch()

    # Jobs

    def _done(self, job: SentJob, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self.jobs.remove(job)
            self._heard(job, future.result())
        elif isinstance(error, self._host.errors.RayTaskError):  # the worker ran it, and raised
            self.jobs.remove(job)
            self._host.report(JobBroke(job.number, WorkerFailed(f"Ray could not run job {job.number}: {error}")))
        else:
            job.failed = True
            self._doubt(self._in_words(error))

    def _heard(self, job: SentJob, said: dict[str, Any]) -> None:
        if "withdrawn" in said:
            self._given_back(job)
        elif "restarted" in said:
            self._given_back(job)
            self._doubt(_PROCESS_ENDED)
        else:
            for each in (*said["more"], said["report"]):
                self._host.report(report_from(each))

    def _withdrew(self, job: SentJob, future: Future[Any]) -> None:
        if future.exception() is None and future.result():
            self._given_back(job)

    def _given_back(self, job: SentJob) -> None:
        if not job.withdrawn:
            job.withdrawn = True
            self._host.send_elsewhere([job.number])

    # Limits and losses

    def _watch(self) -> None:
        """Ask the worker to say when it uses too much memory. This call also fails when a process without jobs ends."""
        limit = self._host.limits.resources.memory_bytes
        self._when_answered(self.actor.watch(limit), self._watched, self._is_same_era())

    def _watched(self, future: Future[Any]) -> None:
        error = future.exception()
        if isinstance(error, self._host.errors.RayTaskError):
            _log.warning("worker %s cannot watch its memory, so `memory_gb` does not hold there: %s", self._name, error)
            return
        if error is not None:
            self._doubt(self._in_words(error))
            return
        limit, found = self._host.limits.resources.memory_bytes, future.result()
        if limit is None or found is None:
            return  # it ended
        guilty = [job for job in self.jobs if job.number == found["job"]]
        self._end(guilty[0] if guilty else None, ExceededLimit.memory(found["used"], limit))

    def _end(self, guilty: SentJob | None, limit: ExceededLimit) -> None:
        """Begin to end a worker because of one of its jobs."""
        self._exceeded, self._reason = (guilty, limit), f"it {limit.happened}, and was ended"
        self._move(SlotState.LOST)
        self._host.kill(self.actor)

    def _doubt(self, reason: str) -> None:
        """Give a worker no more jobs until it is known whether it lives."""
        if self.state in (SlotState.READY, SlotState.OCCUPIED):
            self._reason = reason
            self._move(SlotState.IN_DOUBT)
            self._ask()

    def _lives(self, running: int | None) -> None:
        """Go on with a worker that was in doubt, at the latest when it has ended the jobs whose calls failed."""
        for job in [job for job in self.jobs if job.failed and job.number != running]:
            self.jobs.remove(job)
            if not job.withdrawn:
                self._host.report(JobRunsElsewhere(job.number))
        if running is None or any(job.number == running for job in self.jobs.unanswered):
            self._ready()
            return
        if self.state is SlotState.IN_DOUBT:
            self._move(SlotState.OCCUPIED)
            self._watch()
        self._since = self._clock()  # it has answered just now
        self._ask_later()

    def _replace(self) -> None:
        """Report the job that ran on a lost worker, send the others elsewhere, and start another worker."""
        mine = self.jobs.take_all()
        guilty, limit = self._exceeded or (None, None)
        self._exceeded = None
        if guilty is not None and limit is not None and guilty in mine:
            mine.remove(guilty)
            self._host.report(JobOverLimit(guilty.number, self._name, limit, guilty.ids))
        else:
            self._host.report(WorkerLost(self._name, f"was lost: {self._reason}", self.actor.id))
        if limit is None:
            for job in mine[:1]:
                self._host.report(JobLost(job.number, self._name, f"was lost: {self._reason}", job.ids))
            del mine[:1]
        self._host.send_elsewhere(job.number for job in mine)
        if self._next_token:
            self._token, self._next_token = self._next_token, ""
            self._move(SlotState.STARTING)
            self._begin()
        else:
            self._start_again()

    def _in_words(self, error: BaseException) -> str:
        """Say why a call failed: in Ray's first sentence, unless that has only ids and codes of the connection."""
        if isinstance(error, self._host.errors.ActorUnavailableError):
            return "it did not answer"
        return str(error).strip().partition("\n")[0].partition(". ")[0]
