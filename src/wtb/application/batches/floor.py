"""Floor: the threads of one go at a batch, the jobs that are ready, and those that wait."""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from wtb.application.execution_controller import WaitsForResult
from wtb.application.node_cache import NodeCache, Sharing
from wtb.domain.batch import Job, JobStatus
from wtb.domain.errors import StorageUnavailable
from wtb.domain.spending import Budget, Spent

_LOOK_S = 0.1
"""How often somebody looks what other processes have done meanwhile."""

_AT_A_TIME = 50
"""Jobs of other processes that are looked at each time."""

_TOOK_S = 1.0
"""How often the time that a batch has taken is kept, also while no job ends."""

_CANCELLED_S = 0.5
"""How often somebody looks whether the batch was cancelled."""


class RunsElsewhere(Exception):
    """Another process is at a job."""


@dataclass(slots=True)
class Progress:
    """How far a batch has come; `total` jobs, of which some were there already.

    `failed` are jobs, `failed_nodes` are node runs. `by_combination` has every combination, with how many of its jobs
    are done. `spent` is what the batch has taken in all, earlier goes at it included; the time of this one is not.
    `is_cancelled` says that somebody else has cancelled the batch meanwhile.
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
        """Return how far it is before anything is done."""
        found = cls(total=len(jobs), kept=sum(job.status is not JobStatus.PENDING for job in jobs), spent=spent)
        for job in jobs:
            found.by_combination[job.combination] += job.status is not JobStatus.PENDING
        return found


@dataclass(slots=True)
class Work:
    """A job on its way, what its run shares, and what it had taken before."""

    job: Job
    earlier: Spent
    sharing: Sharing | None = None
    begun: bool = False
    attempts: int = 0


class Jobs(Protocol):
    """What a floor needs to know of the jobs of a batch."""

    def run(self, work: Work) -> Job:
        """Take a job to its end; WaitsForResult or RunsElsewhere when it has to wait."""
        ...

    def ended(self, work: Work, job: Job, spent_s: float) -> bool:
        """Keep what came of a job, and the time that the batch has taken; False when it is to be tried again."""
        ...

    def took(self, spent_s: float) -> None:
        """Keep the time that the batch has taken so far."""
        ...

    def find_ended(self, work: Work) -> Job | None:
        """Return the job as another process has ended it, if one has."""
        ...

    def is_left(self, work: Work) -> bool:
        """Whether the process that was at a job is there no more."""
        ...

    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the batch meanwhile."""
        ...


class Floor:
    """A job that needs what another one is making leaves its thread to others meanwhile.

    Once somebody says stop no job is begun any more, and those that have begun are finished.
    """

    def __init__(
        self,
        jobs: Jobs,
        cache: NodeCache,
        pending: Sequence[Job],
        *,
        progress: Progress,
        budget: Budget,
        stop: threading.Event,
        told: Callable[[Progress], None],
    ) -> None:
        self._jobs = jobs
        self._cache = cache
        self._budget = budget
        self._began = time.monotonic()
        self._stop = stop
        self._told = told
        self._lock = threading.Lock()
        self._ready: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._waiting: dict[bytes, list[Work]] = defaultdict(list)
        self._elsewhere: deque[Work] = deque()
        self._left = len(pending)
        self._trouble: BaseException | None = None
        self._done = threading.Event()
        self.progress = progress
        self.is_left_to_others = False
        """Whether another process was at jobs of the batch when this one stopped."""
        self.dropped = 0
        """Jobs that were left as they are, for another go at the batch."""
        for job in pending:
            self._ready.put(Work(job, job.spent))
        if not pending:
            self._done.set()

    def work(self, workers: int) -> None:
        """Run until nothing is left, or somebody says stop and what has begun is finished."""
        stop_listening = self._cache.listen(self._wake)
        threads = [
            threading.Thread(target=self._work, name=f"wtb-job-{number}", daemon=True) for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        try:
            self._look_on()
        except BaseException:
            self._stop.set()
            self._look_on()
            raise
        finally:
            for _ in threads:
                self._ready.put(None)
            for thread in threads:
                thread.join()
            stop_listening()
        self._told(self.progress)
        if self._trouble is not None:
            raise self._trouble

    def _look_on(self) -> None:
        looked_at = kept_at = time.monotonic()
        while not self._done.wait(_LOOK_S):
            with suppress(StorageUnavailable):  # a database that does not answer now is asked again
                if time.monotonic() - kept_at > _TOOK_S:
                    kept_at = time.monotonic()
                    self._jobs.took(self.spent().s)
                self._wake_all()
                self._cache.keep_claims()
                if time.monotonic() - looked_at > _CANCELLED_S:
                    looked_at = time.monotonic()
                    self._heed_others()

    def _heed_others(self) -> None:
        """Stop when somebody else has cancelled the batch, and tell of it."""
        if self._stop.is_set() or not self._jobs.is_cancelled():
            return
        self._stop.set()
        with self._lock:
            self.progress.is_cancelled = True
            self._told(self.progress)

    def _work(self) -> None:
        while (work := self._ready.get()) is not None:
            try:
                self._go_on(work)
            except BaseException as error:  # noqa: BLE001  nobody else would hear of it, and the others would wait
                self._trouble = self._trouble or error
                self._stop.set()
                self._drop(work)

    def _go_on(self, work: Work) -> None:
        if not work.begun and (self._stop.is_set() or self._is_spent(work)):
            self._stop.set()
            self._drop(work)
            return
        try:
            self._end(work, self._jobs.run(work))
        except WaitsForResult as waiting:
            self._park(work, waiting.key)
        except RunsElsewhere:
            with self._lock:
                self._elsewhere.append(work)

    def spent(self) -> Spent:
        """Return what the batch has taken so far, in all."""
        return self.progress.spent + Spent(s=time.monotonic() - self._began)

    def _is_spent(self, work: Work) -> bool:
        """Whether a job may not begin; one that has run and is only scored takes nothing of the budget."""
        return not work.job.has_run and bool(self._budget.reached(self.spent()))

    def _park(self, work: Work, key: bytes) -> None:
        with self._lock:
            self._waiting[key].append(work)
        if not self._cache.is_being_made(key):  # it may have been told of before anybody listened
            self._wake(key)

    def _wake(self, key: bytes) -> None:
        """Take up the jobs that waited for a result which is there now."""
        with self._lock:
            woken = self._waiting.pop(key, [])
        for work in woken:
            self._ready.put(work)

    def _wake_all(self) -> None:
        """Look after what nobody tells of here: results that other processes make, and jobs that they are at."""
        with self._lock:
            keys = list(self._waiting)
        for key in keys:
            if not self._cache.is_being_made(key):
                self._wake(key)
        for _ in range(min(_AT_A_TIME, len(self._elsewhere))):
            work = self._elsewhere[0]  # taken out afterwards, by nobody else: looking may fail
            stays = self._is_still_elsewhere(work)
            with self._lock:
                self._elsewhere.popleft()
                if stays:
                    self._elsewhere.append(work)

    def _is_still_elsewhere(self, work: Work) -> bool:
        """See what has become of a job that another process is at, and what follows from that here."""
        if (job := self._jobs.find_ended(work)) is not None:
            self._count(work, job)
        elif self._stop.is_set():
            self.is_left_to_others = True
            self._drop(work)
        elif self._jobs.is_left(work):
            self._ready.put(work)
        else:
            return True
        return False

    def _end(self, work: Work, job: Job) -> None:
        assert work.sharing is not None
        work.sharing.close()
        if self._jobs.ended(work, job, self.spent().s):
            self._count(work, job)
        else:
            self._ready.put(work)

    def _count(self, work: Work, job: Job) -> None:
        with self._lock:
            progress = self.progress
            if work.sharing is not None:
                progress.executed += work.sharing.executed
                progress.shared += work.sharing.shared
                progress.failed_nodes += work.sharing.failed
            progress.spent += job.spent - work.earlier
            progress.completed += job.status is JobStatus.COMPLETED
            progress.failed += job.status is JobStatus.FAILED
            progress.by_combination[job.combination] += 1
            self._told(progress)
        self._leave()

    def _drop(self, work: Work) -> None:
        """Leave a job as it is, for another go at the batch."""
        if work.sharing is not None:
            work.sharing.close()
        self._leave(dropped=1)

    def _leave(self, dropped: int = 0) -> None:
        with self._lock:
            self.dropped += dropped
            self._left -= 1
            if self._left == 0:
                self._done.set()
