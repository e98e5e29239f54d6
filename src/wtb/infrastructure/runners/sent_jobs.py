"""SentJobs: the jobs that were sent to a worker on Ray and have not come back, in the order in which they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wtb.domain.job_attempt import RayIds


@dataclass(slots=True, eq=False)
class SentJob:
    """A job that was sent to a worker."""

    number: int
    ids: RayIds
    sent_at: float
    """When it was sent, by the monotonic clock."""
    began_at: float | None = None
    """When its turn came, by the monotonic clock; None while it waits behind another job."""
    failed: bool = False
    """Whether the call failed, so that nobody knows whether the job has run."""
    is_wanted_back: bool = False
    """Whether the worker was asked to give the job back, if it has not begun."""
    withdrawn: bool = False
    """Whether the worker gave it back, so that another worker got it."""


class SentJobs:
    """The jobs at one worker. The first one runs, and the others wait for their turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: list[SentJob] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[SentJob]:
        return iter(self._jobs)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs

    @property
    def unanswered(self) -> list[SentJob]:
        """The jobs whose calls have not come back."""
        return [job for job in self._jobs if not job.failed]

    def add(self, number: int, ids: RayIds) -> SentJob:
        """Note that a job was sent."""
        now = self._clock()
        job = SentJob(number, ids, sent_at=now, began_at=None if self._jobs else now)
        self._jobs.append(job)
        return job

    def remove(self, job: SentJob) -> None:
        """Note that a job has come back, so that the next one has its turn."""
        self._jobs.remove(job)
        if self._jobs and self._jobs[0].began_at is None:
            self._jobs[0].began_at = self._clock()

    def take_all(self) -> list[SentJob]:
        """Remove all jobs; return those that no other worker got."""
        jobs, self._jobs = self._jobs, []
        return [job for job in jobs if not job.withdrawn]

    def last_behind(self, longer_than_s: float) -> SentJob | None:
        """Return the last job, if it waits behind one that was sent so long ago."""
        if len(self._jobs) < 2 or self._clock() - self._jobs[0].sent_at < longer_than_s:
            return None
        return self._jobs[-1]

    def late(self, limit_s: float) -> SentJob | None:
        """Return the job that runs now, if it has taken longer than a limit."""
        first = self._jobs[0] if self._jobs else None
        if first is None or first.began_at is None or first.withdrawn:
            return None
        return first if self._clock() - first.began_at > limit_s else None
