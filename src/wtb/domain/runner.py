"""Runner: runs the jobs of a batch side by side, and tells how each attempt at one came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wtb.domain.batch import Job


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has come to its end, and what came of it is stored."""

    number: int
    job: Job


@dataclass(frozen=True, slots=True)
class JobFailedForNow:
    """A job has failed, and is to be tried again."""

    number: int


@dataclass(frozen=True, slots=True)
class JobWaits:
    """A job needs a result that another job is making; run it again when that is there."""

    number: int
    key: bytes


@dataclass(frozen=True, slots=True)
class JobRunsElsewhere:
    """Another process is at a job."""

    number: int


@dataclass(frozen=True, slots=True)
class JobBroke:
    """Something other than the job went wrong: the batch stops, and raises this error."""

    number: int
    error: BaseException


JobReport = JobEnded | JobFailedForNow | JobWaits | JobRunsElsewhere | JobBroke
"""How an attempt at a job came out."""

RunJob = Callable[[int], JobReport]
"""Takes a job, by its number, to its end or to where it has to wait, and stores what came of it."""


class Runner(Protocol):
    """Runs jobs side by side: in threads, in processes, on other machines."""

    def start(self, run: RunJob, workers: int, report: Callable[[JobReport], None]) -> None:
        """Get ready to run so many jobs at a time; `report` takes the report of each, from any thread."""
        ...

    def submit(self, number: int) -> None:
        """Run a job when a worker is free; there are never more than `workers` of them."""
        ...

    def close(self) -> None:
        """Wait for the jobs that were submitted, and end."""
        ...
