"""ThreadRunner: runs the jobs of a batch on threads of this process."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable

from wtb.domain.runner import JobBroke, JobReport, RunJob, RunnerReport


class ThreadRunner:
    """Runs one thread per worker."""

    def __init__(self) -> None:
        self._submitted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        for number in range(workers):
            around = contextvars.copy_context()  # it names the event loop for async nodes
            work = (self._work, run, report)
            thread = threading.Thread(target=around.run, args=work, name=f"wtb-job-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, number: int) -> None:
        self._submitted.put(number)

    def close(self) -> None:
        for _ in self._threads:
            self._submitted.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, run: RunJob, report: Callable[[RunnerReport], None]) -> None:
        while (number := self._submitted.get()) is not None:
            try:
                found: JobReport = run(number)
            except BaseException as error:  # noqa: BLE001  nobody else would hear of it, and the batch would wait
                found = JobBroke(number, error)
            report(found)
