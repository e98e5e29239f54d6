"""ProcessRunner: runs the jobs of a batch in processes of this machine, for nodes that compute.

Each worker process has a thread here that starts it, gives it one job at a time and passes its reports on. The
processes are spawned, not forked: they share only the store with this one. If a worker ends before its job, the thread
reports the job as lost and starts another process. A watchdog thread ends a worker whose job takes too long or too much
memory. When this process ends, in whatever way, the sockets close, and the workers end too.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from wtb.application.batches.worker_messages import error_from, report_from
from wtb.domain.errors import WorkerFailed
from wtb.domain.job_limits import ExceededLimit, JobLimits
from wtb.domain.runner import (
    Assignment,
    JobBroke,
    JobLost,
    JobOverLimit,
    ResultSettled,
    RunJob,
    RunnerReport,
    WorkerLost,
    WorkerReady,
    WorkMeasured,
)
from wtb.infrastructure.runners.channel import Channel
from wtb.infrastructure.runners.process_family import kill_family, memory_above
from wtb.infrastructure.runners.worker_process import how_it_ended, kill_session, started

_STARTS = 3
"""How often a worker is started that ends before it is ready."""

_LAST_WORDS_S = 10.0
"""How long a worker may take to end once its work is done."""

_WATCH_S = 0.2
"""How often the watchdog looks at the workers."""


class ProcessRunner:
    """Runs one process per worker, each started with its first job."""

    def __init__(self) -> None:
        self._submitted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._assignment: Assignment | None = None
        self._slots: list[_WorkerSlot] = []
        self._closed = threading.Event()

    def assign(self, assignment: Assignment) -> None:
        self._assignment = assignment

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        assert self._assignment is not None
        for number in range(workers):
            slot = _WorkerSlot(self._assignment, report)
            self._slots.append(slot)
            thread = threading.Thread(
                target=slot.work, args=(self._submitted,), name=f"wtb-process-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        threading.Thread(target=self._watch, name="wtb-watchdog", daemon=True).start()

    def _watch(self) -> None:
        """End workers whose jobs exceed their limits."""
        while not self._closed.wait(_WATCH_S):
            for slot in self._slots:
                slot.watch()

    def submit(self, number: int) -> None:
        self._submitted.put(number)

    def close(self) -> None:
        for _ in self._threads:
            self._submitted.put(None)
        for thread in self._threads:
            thread.join()
        self._closed.set()


class _WorkerSlot:
    """The place of one worker: its process, or the next process if that is lost."""

    def __init__(self, assignment: Assignment, report: Callable[[RunnerReport], None]) -> None:
        self._assignment = assignment
        self._report = report
        self._process: WorkerProcess | None = None

    def work(self, submitted: queue.SimpleQueue[int | None]) -> None:
        """Run submitted jobs until there is a None, then end the worker."""
        try:
            while (number := submitted.get()) is not None:
                try:
                    self._run(number)
                except BaseException as error:  # noqa: BLE001  nobody else would hear of it, and the batch would wait
                    self._report(JobBroke(number, error))
        finally:
            if self._process is not None:
                self._process.end(self._report)

    def watch(self) -> None:
        """End the worker if its job takes too long or too much memory; called from the watchdog thread."""
        process = self._process
        if process is not None:
            process.watch(self._assignment.limits)

    def _run(self, number: int) -> None:
        process = self._ready()
        if process.run(number, self._report):
            return
        self._process = None
        reason = process.ending()
        if process.exceeded is not None:
            self._report(JobOverLimit(number, process.name, process.exceeded))
            return
        self._report(WorkerLost(process.name, reason))
        self._report(JobLost(number, process.name, reason))

    def _ready(self) -> WorkerProcess:
        """Return a worker that is ready for a job; raise its error if it cannot work on this batch."""
        if self._process is not None and not self._process.is_alive():
            self._report(WorkerLost(self._process.name, self._process.ending()))  # it had no job to lose
            self._process = None
        if self._process is None:
            self._process = self._started()
            self._report(WorkerReady(self._process.name))
        return self._process

    def _started(self) -> WorkerProcess:
        """Return a new worker that is ready."""
        ends: list[str] = []
        while len(ends) < _STARTS:
            process = WorkerProcess()
            how = process.begin(self._assignment)
            if how is None:
                return process
            ends.append(how)
        raise WorkerFailed(f"a worker process {ends[-1]} before it was ready, {_STARTS} times; its output says why")


class WorkerProcess:
    """A worker process, seen from the process that started it."""

    def __init__(self) -> None:
        self._process, here = started("wtb.worker")
        self._channel = Channel(here, self.is_alive)
        self.name = f"/{self._process.pid}/"
        """The name of the process in leases; a worker sends it when it is ready."""
        self.exceeded: ExceededLimit | None = None
        """The limit for which the watchdog has ended it."""
        self._job_since: float | None = None
        self._turn = threading.Lock()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def begin(self, assignment: Assignment) -> str | None:
        """Tell the worker what to work on, and wait until it is ready; if it ended before that, say how.

        Raise the error of a worker that refuses.
        """
        self._channel.send({"assignment": assignment.to_data(), "path": sys.path})
        said = self._channel.receive()
        if said is None:
            return self.ending()
        if "refused" in said:
            self.ending()
            raise error_from(said["refused"])
        self.name = said["ready"]
        return None

    def run(self, number: int, report: Callable[[RunnerReport], None]) -> bool:
        """Let the worker run a job and pass its reports on; return False if it ended before the job did."""
        self._has_job(since=time.monotonic())
        self._channel.send({"run": number})
        while (said := self._channel.receive()) is not None:
            found = report_from(said)
            if not isinstance(found, ResultSettled | WorkMeasured):
                self._has_job(since=None)
                report(found)
                return True
            report(found)
        return False

    def _has_job(self, since: float | None) -> None:
        with self._turn:
            self._job_since = since

    def watch(self, limits: JobLimits) -> None:
        """End the process and its children if its job exceeds a limit; called from the watchdog thread."""
        with self._turn:  # a job that ends at this moment must not take the next one's worker with it
            if self._job_since is not None and self.exceeded is None:
                self.exceeded = _exceeded(limits, self._process.pid, time.monotonic() - self._job_since)
                if self.exceeded is not None:
                    kill_family(self._process.pid)

    def end(self, report: Callable[[RunnerReport], None]) -> None:
        """Let the worker send its last report, and end."""
        if self._channel.send({"end": True}):
            while (said := self._channel.receive()) is not None:
                report(report_from(said))
        self.ending()

    def ending(self) -> str:
        """Wait until the process and its children have ended; return how it ended."""
        try:
            self._process.wait(_LAST_WORDS_S)
            was_ended = False
        except subprocess.TimeoutExpired:
            was_ended = True
        code = self._process.poll()
        if code != 0:
            kill_session(self._process)
        self._process.wait()
        self._channel.close()
        return "did not end and was killed" if was_ended else how_it_ended(code or 0)


def _exceeded(limits: JobLimits, pid: int, took_s: float) -> ExceededLimit | None:
    """Return the limit that a worker exceeds, if any."""
    if limits.timeout_s is not None and took_s > limits.timeout_s:
        return ExceededLimit.time(limits.timeout_s)
    limit = limits.resources.memory_bytes
    used = None if limit is None else memory_above(pid, limit)
    return None if limit is None or used is None else ExceededLimit.memory(used, limit)
