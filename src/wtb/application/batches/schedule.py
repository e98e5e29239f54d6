"""JobSchedule: decides which job runs next, which jobs wait, and when the batch is over; it runs nothing itself."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from wtb.domain.batch import Job
from wtb.domain.spending import Budget, Spent


class JobSchedule:
    """The jobs of one attempt at a batch, by number.

    A job is ready, running, waiting for a result of another job, or run by another process. Once the schedule is
    stopped or the budget is used up, no job starts; those that have started continue to their ends.
    """

    def __init__(self, jobs: Sequence[Job], *, workers: int, budget: Budget, is_scoring_free: bool = True) -> None:
        self.workers = workers
        """How many jobs run at a time."""
        self._budget = budget
        self._only_scored = {job.number for job in jobs if job.has_run and is_scoring_free}
        self._calls_left = {job.number for job in jobs if job.has_run and job.has_calls_left}
        self._ready = deque(job.number for job in jobs)
        self._begun: set[int] = set()
        self._running: set[int] = set()
        self._waiting: dict[bytes, list[int]] = defaultdict(list)
        self._elsewhere: deque[int] = deque()
        self._left = len(jobs)
        self.is_stopped = False
        self.dropped: list[int] = []
        """Jobs that are left for a later attempt."""

    @property
    def is_done(self) -> bool:
        """Whether every job has ended or was dropped."""
        return self._left == 0

    @property
    def awaited(self) -> tuple[bytes, ...]:
        """The results that jobs wait for."""
        return tuple(self._waiting)

    def is_awaited(self, key: bytes) -> bool:
        """Whether a job waits for this result; may be asked from any thread."""
        return key in self._waiting

    def stop(self) -> None:
        """Start no more jobs."""
        self.is_stopped = True

    def begin(self, spent: Spent) -> Iterator[int]:
        """Yield the jobs to run now, one for each free worker; `spent` is what the batch has used so far."""
        while self._ready and len(self._running) < self.workers:
            number = self._ready.popleft()
            if number not in self._begun and self._may_not_begin(number, spent):
                self.stop()
                self._drop(number)
                continue
            self._begun.add(number)
            self._running.add(number)
            yield number

    def _may_not_begin(self, number: int, spent: Spent) -> bool:
        """Whether a job must not start. The budget does not stop a job that only needs scores, which are free.

        Nor does it stop one that has calls left to take back.
        """
        is_free = number in self._only_scored or number in self._calls_left
        return self.is_stopped or (not is_free and bool(self._budget.reached(spent)))

    def scored_at_a_cost(self, number: int) -> None:
        """Note that a job has used something. If it only needed scores, scoring other jobs may cost something, too."""
        if number in self._only_scored:
            self._only_scored.clear()

    def ended(self, number: int) -> None:
        """Note that a job has ended."""
        self._running.discard(number)
        self._left -= 1

    def again(self, number: int) -> None:
        """Queue a job that failed and will be tried again."""
        self._running.discard(number)
        self._begun.discard(number)
        self._ready.append(number)

    def lost(self, number: int) -> None:
        """Queue a job that lost its worker ahead of all others. It has begun, so it continues even after a stop."""
        self._running.discard(number)
        self._ready.appendleft(number)

    def waits_for(self, number: int, key: bytes) -> None:
        """Note that a job needs a result that another job is making; its worker is free meanwhile."""
        self._running.discard(number)
        self._waiting[key].append(number)

    def wake(self, key: bytes) -> None:
        """Queue the jobs that waited for a result."""
        self._ready.extend(self._waiting.pop(key, ()))

    def runs_elsewhere(self, number: int) -> None:
        """Note that another process is running a job."""
        self._running.discard(number)
        self._begun.discard(number)
        self._elsewhere.append(number)

    def look_elsewhere(self, most: int) -> Iterator[int]:
        """Yield jobs of other processes, starting with those whose last check is longest ago.

        Call `ended_elsewhere`, `come_back` or `leave_elsewhere` for each that is no longer elsewhere.
        """
        for _ in range(min(most, len(self._elsewhere))):
            number = self._elsewhere[0]
            self._elsewhere.rotate(-1)
            yield number

    def come_back(self, number: int) -> None:
        """Queue a job that another process has left."""
        self._elsewhere.remove(number)
        self._ready.append(number)

    def ended_elsewhere(self, number: int) -> None:
        """Note that another process has ended a job."""
        self._elsewhere.remove(number)
        self._left -= 1

    def leave_elsewhere(self, number: int) -> None:
        """Leave a job to the process that is running it."""
        self._elsewhere.remove(number)
        self._drop(number)

    def broke(self, number: int) -> None:
        """Stop, and drop a job whose progress is unknown."""
        self.stop()
        self._running.discard(number)
        self._drop(number)

    def _drop(self, number: int) -> None:
        self.dropped.append(number)
        self._left -= 1
