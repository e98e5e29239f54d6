"""RayRunner: the jobs of a batch on a Ray cluster, one actor a worker.

One thread does everything, so there are no locks: submitted jobs, answers of workers and failures come to it through a
queue. A worker has up to two jobs: one runs, and the next one waits there, so that the worker need not wait for it.

A failed call does not say whether the job has run. So the worker gets no more jobs, and is asked whether it lives:

- The same process answers: the job may be running there. It is reported as running elsewhere, and its lease decides.
- Another process answers, or none: the first of its jobs has lost its worker, and the next one had not begun.

A worker whose job takes too long or too much memory is ended. That job fails, and the next one goes to another worker.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from wtb.application.batches.worker_messages import error_from, report_from
from wtb.domain.errors import InvalidInput, WorkerFailed
from wtb.domain.job_limits import ExceededLimit
from wtb.domain.runner import (
    Assignment,
    JobBroke,
    JobLost,
    JobOverLimit,
    JobRunsElsewhere,
    RunJob,
    RunnerReport,
    WorkerLost,
    WorkerReady,
)
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.runners.ray_cluster import RayCluster, needs_of
from wtb.infrastructure.runners.ray_messages import BeginWork
from wtb.infrastructure.runners.ray_slot import RaySlot, SentJob, SlotState, new_actor
from wtb.infrastructure.runners.shared_store import machine_here

_log = logging.getLogger(__name__)

_PLACED_WITHIN_S = 60.0
"""How long Ray may take to find a machine for the first worker."""
_ANSWERS_WITHIN_S = 60.0
"""How long a worker in doubt may take to answer."""
_ENDS_WITHIN_S = 10.0
_LOOK_S = 1.0
_JOBS_A_WORKER = 2
_MOST_FAILED_STARTS = 2
"""How often a worker may end before it is ready, and is started again."""
_LONG_S = 0.5
"""A job that takes longer than this does not hold up the one behind it, if another worker is free."""


class RayRunner:
    """Workers as actors on a Ray cluster, which starts with the first job. `worker_class` returns their class."""

    def __init__(self, worker_class: Callable[[], type], address: str | None = None) -> None:
        self._worker_class = worker_class
        self._address = address
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._queued: deque[int] = deque()
        self._slots: list[RaySlot] = []
        self._cluster: RayCluster | None = None
        self._error: BaseException | None = None
        self._owners = ProcessOwners()
        self._ready = 0
        self._is_closed = False

    def assign(self, assignment: Assignment) -> None:
        self._carried: object = None
        self._limits = assignment.limits
        self._work_to_do = BeginWork(
            assignment=assignment,
            machine=machine_here(),
            folder=str(Path.cwd()),
            path=sys.path,
        )

    def carry(self, code: object) -> None:
        self._carried = code

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        self._workers, self._report = workers, report
        self._thread = threading.Thread(target=self._work, name="wtb-ray", daemon=True)
        self._thread.start()

    def capacity(self, *, ahead: bool) -> int:
        return max(1, self._ready * (_JOBS_A_WORKER if ahead else 1))

    def submit(self, number: int) -> None:
        self._events.put(partial(self._submitted, number))

    def close(self) -> None:
        self._events.put(self._closed)
        self._thread.join()

    # From here on, everything happens in one thread

    def _work(self) -> None:
        try:
            while not self._is_closed or self._queued or any(slot.sent for slot in self._slots):
                try:
                    with suppress(queue.Empty):
                        self._events.get(timeout=_LOOK_S)()
                    self._look()
                    self._share_out()
                except Exception as error:  # noqa: BLE001  nobody else would hear of it, and the batch would wait
                    self._broke(error)
        finally:
            self._end()

    def _submitted(self, number: int) -> None:
        self._queued.append(number)
        if self._cluster is None and self._error is None:
            try:
                self._connect()
            except Exception as error:  # noqa: BLE001  the batch stops and raises it
                self._broke(error)

    def _closed(self) -> None:
        self._is_closed = True

    def _connect(self) -> None:
        self._cluster = RayCluster(self._workers, self._address, Path(self._work_to_do.folder), self._limits.resources)
        self._slots = [self._started() for _ in range(self._workers)]

    def _started(self) -> RaySlot:
        assert self._cluster is not None
        slot = RaySlot(self._new_actor())
        self._ask(slot)
        return slot

    def _new_actor(self) -> Any:
        assert self._cluster is not None
        return new_actor(self._cluster.ray, self._worker_class(), self._limits.resources)

    def _ask(self, slot: RaySlot) -> None:
        """Ask a worker for its token."""
        slot.ping(self._later(partial(self._answered, slot)))

    def _later(self, handle: Callable[[Future[Any]], None]) -> Callable[[Future[Any]], None]:
        """Return a function that any thread may call, and that lets this one handle the outcome of a call."""
        return lambda future: self._events.put(partial(handle, future))

    # Jobs

    def _share_out(self) -> None:
        """Send jobs to workers, first to those that have none."""
        if self._error is not None:
            while self._queued:
                self._report(JobBroke(self._queued.popleft(), self._error))
            return
        ready = [slot for slot in self._slots if slot.state is SlotState.READY]
        while self._queued and ready:
            slot = min(ready, key=lambda slot: len(slot.sent))
            if len(slot.sent) >= _JOBS_A_WORKER:
                return
            slot.run(self._queued.popleft(), self._job_done(slot))
        if any(not slot.sent for slot in ready):
            self._withdraw_one(ready)

    def _job_done(self, slot: RaySlot) -> Callable[[SentJob, Future[Any]], None]:
        return lambda job, future: self._events.put(partial(self._done, slot, job, future))

    def _withdraw_one(self, ready: list[RaySlot]) -> None:
        """Take back a job that waits behind a long one, for a worker that has none."""
        for slot in ready:
            if len(slot.sent) < _JOBS_A_WORKER or time.monotonic() - slot.sent[0].sent_at < _LONG_S:
                continue
            last = slot.sent[-1]
            if not last.is_wanted_back:
                slot.withdraw(last, self._later(partial(self._withdrew, slot, last)))
                return

    def _withdrew(self, slot: RaySlot, job: SentJob, future: Future[Any]) -> None:
        if future.exception() is None and future.result() and job in slot.sent:
            self._given_back(job)

    def _given_back(self, job: SentJob) -> None:
        if not job.withdrawn:
            job.withdrawn = True
            self._queued.append(job.number)

    def _done(self, slot: RaySlot, job: SentJob, future: Future[Any]) -> None:
        if job not in slot.sent:
            return  # its worker was ended, and the job was reported or sent elsewhere
        error = future.exception()
        if error is None:
            slot.reported(job)
            self._heard(slot, job, future.result())
        elif isinstance(error, self._errors.RayActorError):
            job.failed = True
            self._doubt(slot, error)
        else:
            slot.reported(job)
            self._report(JobBroke(job.number, WorkerFailed(f"Ray could not run job {job.number}: {error}")))

    def _heard(self, slot: RaySlot, job: SentJob, said: dict[str, Any]) -> None:
        if "withdrawn" in said or "restarted" in said:
            self._given_back(job)
            if "restarted" in said and slot.state is SlotState.READY:  # its process ended while it had no job
                self._move(slot, SlotState.STARTING)
                self._ask(slot)
            return
        for each in (*said["more"], said["report"]):
            self._report(report_from(each))

    # Workers

    @property
    def _errors(self) -> Any:
        assert self._cluster is not None
        return self._cluster.ray.exceptions

    def _answered(self, slot: RaySlot, future: Future[Any]) -> None:
        """Handle the answer of a worker that starts, or is in doubt."""
        error = future.exception()
        if slot.state is SlotState.STARTING:
            self._placed(slot, error, future)
        elif slot.state is SlotState.IN_DOUBT and error is None and future.result() == slot.token:
            self._move(slot, SlotState.READY)
            for job in [job for job in slot.sent if job.failed]:
                slot.sent.remove(job)
                if not job.withdrawn:
                    self._report(JobRunsElsewhere(job.number))
        elif slot.state is SlotState.IN_DOUBT:
            if isinstance(error, self._errors.ActorUnavailableError):
                self._ask_later(slot)
                return
            slot.is_restarted = error is None
            slot.token = future.result() if error is None else ""
            self._move(slot, SlotState.LOST)

    def _ask_later(self, slot: RaySlot) -> None:
        timer = threading.Timer(_LOOK_S, lambda: self._events.put(partial(self._ask, slot)))
        timer.daemon = True
        timer.start()

    def _placed(self, slot: RaySlot, error: BaseException | None, future: Future[Any]) -> None:
        if error is not None:
            if isinstance(error, self._errors.ActorUnavailableError):
                self._ask_later(slot)
            else:
                self._broke(WorkerFailed(f"Ray could not start a worker: {error}"))
            return
        slot.token, slot.is_placed = future.result(), True
        self._begin(slot)

    def _begin(self, slot: RaySlot) -> None:
        try:
            slot.begin(self._work_to_do.to_data(), self._carried, self._later(partial(self._began, slot)))
        except TypeError as error:  # what cloudpickle raises
            self._broke(
                InvalidInput(
                    f"this workflow cannot be sent to Ray: {error}. Put it at the top level of a file, and what cannot "
                    "be copied (connections, locks) into a function that makes it when a node needs it"
                )
            )

    def _began(self, slot: RaySlot, future: Future[Any]) -> None:
        error = future.exception()
        if error is None and "refused" in future.result():
            error = error_from(future.result()["refused"])
        if isinstance(error, InvalidInput):  # other code or another store: each worker would refuse
            self._move(slot, SlotState.ENDED)
            self._broke(error)
        elif isinstance(error, self._errors.RayActorError) and slot.failed_starts < _MOST_FAILED_STARTS:
            slot.failed_starts += 1
            self._ask_later(slot)  # Ray starts the process again
        elif error is not None:
            self._start_failed(slot, error)
        else:
            slot.failed_starts = 0
            slot.name = future.result()["ready"]
            self._move(slot, SlotState.READY)
            limit = self._limits.resources.memory_bytes
            if limit is not None:
                slot.watch(limit, self._later(partial(self._watched, slot, slot.token)))
            self._report(WorkerReady(slot.name, slot.actor_id))

    def _start_failed(self, slot: RaySlot, error: BaseException) -> None:
        """Start another worker in the place of one whose machine has a fault; give up if no worker is left."""
        if slot.failed_starts < _MOST_FAILED_STARTS:
            slot.failed_starts += 1
            self._start_again(slot)
            return
        self._move(slot, SlotState.ENDED)
        _log.warning("a worker on Ray could not begin, and is not started again: %s", error)
        if all(each.state is SlotState.ENDED for each in self._slots):
            self._broke(WorkerFailed(f"a worker on Ray ended before it was ready: {error}"))

    def _watched(self, slot: RaySlot, token: str, future: Future[Any]) -> None:
        """Handle the answer of a worker that uses too much memory."""
        if future.exception() is not None or slot.token != token or slot.state is not SlotState.READY:
            return  # the worker is gone or in doubt, and its jobs with it
        limit, found = self._limits.resources.memory_bytes, future.result()
        if limit is None or found is None:
            return  # it ended
        guilty = [job for job in slot.sent if job.number == found["job"]]
        self._end_worker(slot, guilty[0] if guilty else None, ExceededLimit.memory(found["used"], limit))

    def _end_worker(self, slot: RaySlot, guilty: SentJob | None, limit: ExceededLimit) -> None:
        """Begin to end a worker because of one of its jobs."""
        assert self._cluster is not None
        slot.exceeded, slot.reason = (guilty, limit), f"it {limit.happened}, and was ended"
        self._move(slot, SlotState.LOST)
        self._cluster.ray.kill(slot.actor)

    def _doubt(self, slot: RaySlot, error: BaseException) -> None:
        """Give a worker no more jobs until it is known whether it lives."""
        if slot.state is SlotState.READY:
            slot.reason = _first_sentence(error)
            self._move(slot, SlotState.IN_DOUBT)
            self._ask(slot)

    def _move(self, slot: RaySlot, state: SlotState) -> None:
        slot.move(state)
        self._ready = sum(slot.state is SlotState.READY for slot in self._slots)

    def _look(self) -> None:
        """Replace lost workers, and give up if Ray finds no machine for any."""
        for slot in self._slots:
            late = None if self._limits.timeout_s is None else slot.runs_longer_than(self._limits.timeout_s)
            if late is not None:
                self._end_worker(slot, late, ExceededLimit.time(self._limits.timeout_s or 0.0))
            if slot.has_been(SlotState.IN_DOUBT, _ANSWERS_WITHIN_S):
                self._move(slot, SlotState.LOST)
            is_over = not slot.unanswered and self._owners.is_gone(slot.name) is not False
            if slot.state is SlotState.LOST and (is_over or slot.has_been(SlotState.LOST, _ANSWERS_WITHIN_S)):
                self._replace(slot)
        left = [slot for slot in self._slots if slot.state is not SlotState.ENDED]
        unplaced = [not slot.is_placed and slot.has_been(SlotState.STARTING, _PLACED_WITHIN_S) for slot in left]
        if unplaced and all(unplaced) and self._error is None:
            assert self._cluster is not None
            lacking = self._cluster.what_is_lacking(self._limits.resources)
            self._broke(
                WorkerFailed(
                    f"Ray found no machine for a worker within {_PLACED_WITHIN_S:g} s. A worker needs "
                    f"{needs_of(self._limits.resources)}, and {lacking}. Change `resources`, add machines, or end what "
                    "uses the cluster"
                )
            )

    def _replace(self, slot: RaySlot) -> None:
        """Report the job that ran on a lost worker, send the others elsewhere, and start another worker."""
        mine = [job for job in slot.sent if not job.withdrawn]
        guilty, limit = slot.exceeded or (None, None)
        slot.sent.clear()
        slot.exceeded = None
        if guilty in mine and limit is not None:
            mine.remove(guilty)
            self._report(JobOverLimit(guilty.number, slot.name, limit, guilty.ids))
        else:
            self._report(WorkerLost(slot.name, f"was lost: {slot.reason}", slot.actor_id))
        if limit is None:
            for job in mine[:1]:
                self._report(JobLost(job.number, slot.name, f"was lost: {slot.reason}", job.ids))
            del mine[:1]
        self._queued.extendleft(job.number for job in reversed(mine))
        if slot.is_restarted:
            slot.is_restarted = False
            self._move(slot, SlotState.STARTING)
            self._begin(slot)
        else:
            self._start_again(slot)

    def _start_again(self, slot: RaySlot) -> None:
        """Start another actor in the place of one, which is killed if it still lives."""
        assert self._cluster is not None
        with suppress(Exception):  # Ray may have ended it
            self._cluster.ray.kill(slot.actor)
        slot.actor, slot.token = self._new_actor(), ""
        self._move(slot, SlotState.STARTING)
        self._ask(slot)

    def _broke(self, error: BaseException) -> None:
        self._error = self._error or error
        self._share_out()

    # The end

    def _end(self) -> None:
        """Let the workers report what they have seen; end them, and the cluster if it is ours."""
        if self._cluster is None:
            return
        ray = self._cluster.ray
        ready = [slot for slot in self._slots if slot.state is SlotState.READY]
        for call in [slot.actor.end.remote() for slot in ready]:
            with suppress(self._errors.RayError):
                self._report(report_from(ray.get(call, timeout=_ENDS_WITHIN_S)))
        for slot in self._slots:
            with suppress(Exception):  # it may have ended
                ray.kill(slot.actor)
        self._cluster.close()


def _first_sentence(error: BaseException) -> str:
    """Return the first line of what Ray says, without the rest of its advice."""
    return str(error).strip().partition("\n")[0].partition(". ")[0]
