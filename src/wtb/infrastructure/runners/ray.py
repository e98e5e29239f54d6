"""RayRunner: the jobs of a batch on a Ray cluster, one actor a worker.

One thread does everything, so there are no locks: submitted jobs, answers of workers and failures come to it through a
queue. A worker has up to two jobs: one runs, and the next one waits there, so that the worker need not wait for it.
`ray_slot.py` says what happens to one worker; here are the jobs that no worker has, and the workers together.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from wtb.application.batches.worker_messages import report_from
from wtb.domain.errors import WorkerFailed
from wtb.domain.job_limits import JobLimits
from wtb.domain.runner import Assignment, JobBroke, RunJob, RunnerReport
from wtb.infrastructure.runners.ray_cluster import RayCluster, needs_of
from wtb.infrastructure.runners.ray_messages import BeginWork, packed
from wtb.infrastructure.runners.ray_slot import RaySlot, SlotState
from wtb.infrastructure.runners.shared_store import machine_here
from wtb.infrastructure.runners.worker_actor import WorkerActor, start_actor

_log = logging.getLogger(__name__)

_PLACED_WITHIN_S = 60.0
"""How long Ray may take to find a machine for any worker, at the start and after all machines were lost."""
_ENDS_WITHIN_S = 10.0
_LOOK_S = 1.0
_JOBS_A_WORKER = 2
_LONG_S = 0.5
"""A job that takes longer than this does not hold up the one behind it, if another worker is free."""


class RayRunner:
    """Workers as actors on a Ray cluster, which starts with the first job. `worker_class` returns their class."""

    limits: JobLimits

    def __init__(self, worker_class: Callable[[], type], address: str | None = None) -> None:
        self._worker_class = worker_class
        self._address = address
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._queued: deque[int] = deque()
        self._slots: list[RaySlot] = []
        self._cluster: RayCluster | None = None
        self._error: BaseException | None = None
        self._is_closed = False

    def assign(self, assignment: Assignment) -> None:
        self._carried: object = None
        self._packed: bytes | None = None
        self.limits = assignment.limits
        self._work_to_do = BeginWork(
            assignment=assignment,
            machine=machine_here(),
            folder=str(Path.cwd()),
            path=sys.path,
        )

    def carry(self, code: object) -> None:
        self._carried = code

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        self._workers, self._pass_on = workers, report
        self._thread = threading.Thread(target=self._work, name="wtb-ray", daemon=True)
        self._thread.start()

    def capacity(self, *, ahead: bool) -> int:
        ready = sum(slot.state is SlotState.READY for slot in self._slots)
        return max(1, ready * (_JOBS_A_WORKER if ahead else 1))

    def submit(self, number: int) -> None:
        self._events.put(partial(self._submitted, number))

    def close(self) -> None:
        self._events.put(self._closed)
        self._thread.join()

    # From here on, everything happens in one thread

    def _work(self) -> None:
        try:
            while not self._is_closed or self._queued or any(slot.jobs for slot in self._slots):
                try:
                    with suppress(queue.Empty):
                        self._events.get(timeout=_LOOK_S)()
                    self._look()
                    self._share_out()
                except Exception as error:  # noqa: BLE001  nobody else would hear of it, and the batch would wait
                    self.give_up(error)
        finally:
            self._end()

    def _submitted(self, number: int) -> None:
        self._queued.append(number)
        if self._cluster is None and self._error is None:
            try:
                self._connect()
            except Exception as error:  # noqa: BLE001  the batch stops and raises it
                self.give_up(error)

    def _closed(self) -> None:
        self._is_closed = True

    def _connect(self) -> None:
        self._cluster = RayCluster(self._workers, self._address, Path(self._work_to_do.folder), self.limits.resources)
        if self._carried is not None:
            self._packed = packed(self._cluster.ray, self._carried)
        self._slots = [RaySlot(self) for _ in range(self._workers)]

    # For the slots

    @property
    def errors(self) -> Any:
        assert self._cluster is not None
        return self._cluster.ray.exceptions

    def soon(self, act: Callable[[], None], after_s: float = 0.0) -> None:
        if not after_s:
            self._events.put(act)
            return
        timer = threading.Timer(after_s, lambda: self._events.put(act))
        timer.daemon = True
        timer.start()

    def report(self, report: RunnerReport) -> None:
        self._pass_on(report)

    def send_elsewhere(self, numbers: Iterable[int]) -> None:
        self._queued.extendleft(reversed(list(numbers)))

    def start_actor(self) -> WorkerActor:
        assert self._cluster is not None
        return start_actor(self._cluster.ray, self._worker_class(), self.limits.resources)

    def kill(self, actor: WorkerActor) -> None:
        assert self._cluster is not None
        with suppress(Exception):  # Ray may have ended it
            self._cluster.ray.kill(actor.handle)

    def work_to_do(self) -> tuple[dict[str, Any], bytes | None]:
        return self._work_to_do.to_data(), self._packed

    def worker_ended(self, error: BaseException) -> None:
        ended = sum(slot.state is SlotState.ENDED for slot in self._slots)
        if ended == 1:  # the others probably fail likewise, and there may be fifty
            _log.warning("a worker on Ray could not begin, and is not started again: %s", error)
        if ended == len(self._slots):
            self.give_up(WorkerFailed(f"a worker on Ray ended before it was ready: {error}"))

    def give_up(self, error: BaseException) -> None:
        self._error = self._error or error
        self._share_out()

    # Jobs that no worker has

    def _share_out(self) -> None:
        """Send jobs to workers, first to those that have none."""
        if self._error is not None:
            while self._queued:
                self.report(JobBroke(self._queued.popleft(), self._error))
            return
        ready = [slot for slot in self._slots if slot.state is SlotState.READY]
        while self._queued and ready:
            slot = min(ready, key=lambda slot: len(slot.jobs))
            if len(slot.jobs) >= _JOBS_A_WORKER:
                return
            slot.run(self._queued.popleft())
        if any(not slot.jobs for slot in ready):
            self._withdraw_one(ready)

    def _withdraw_one(self, ready: list[RaySlot]) -> None:
        """Take back a job that waits behind a long one, for a worker that has none."""
        for slot in ready:
            last = slot.jobs.last_behind(longer_than_s=_LONG_S)
            if last is not None and not last.is_wanted_back:
                slot.withdraw(last)
                return

    # The workers together

    def _look(self) -> None:
        """Look after each worker, and give up if Ray finds no machine for any."""
        for slot in self._slots:
            slot.look()
        left = [slot for slot in self._slots if slot.state is not SlotState.ENDED]
        if left and self._error is None and all(slot.waits_for_machine(_PLACED_WITHIN_S) for slot in left):
            self.give_up(WorkerFailed(self._why_no_machine(was_ready=any(slot.was_ready for slot in left))))

    def _why_no_machine(self, *, was_ready: bool) -> str:
        assert self._cluster is not None
        resources = self.limits.resources
        lacking = self._cluster.what_is_lacking(resources)
        needs = f"A worker needs {needs_of(resources)}, and {lacking}."
        if was_ready:
            return (
                "the batch lost all its workers, and Ray found no machine for another one within "
                f"{_PLACED_WITHIN_S:g} s. {needs} Add machines and run the same command again: the batch continues "
                "where it stopped"
            )
        return (
            f"Ray found no machine for a worker within {_PLACED_WITHIN_S:g} s. {needs} Change `resources`, add "
            "machines, or end what uses the cluster"
        )

    # The end

    def _end(self) -> None:
        """Let the workers report what they have seen; end them, and the cluster if it is ours."""
        if self._cluster is None:
            return
        ready = [slot for slot in self._slots if slot.state is SlotState.READY]
        for call in [slot.actor.end() for slot in ready]:
            with suppress(self.errors.RayError):
                self.report(report_from(self._cluster.ray.get(call, timeout=_ENDS_WITHIN_S)))
        for slot in self._slots:
            self.kill(slot.actor)
        self._cluster.close()
