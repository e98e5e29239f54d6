"""Ports for work that is done side by side: Runner for the jobs of a batch, ParallelMap for a plain function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from wtb.domain.batch import Job

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has ended, and its result is stored."""

    number: int
    job: Job


@dataclass(frozen=True, slots=True)
class JobFailedForNow:
    """A job failed and will be tried again."""

    number: int


@dataclass(frozen=True, slots=True)
class JobWaits:
    """A job needs a result that another job is making; run it again when that is there."""

    number: int
    key: bytes


@dataclass(frozen=True, slots=True)
class JobRunsElsewhere:
    """Another process is running the job."""

    number: int


@dataclass(frozen=True, slots=True)
class JobBroke:
    """Something other than the job went wrong: the batch stops and raises this error."""

    number: int
    error: BaseException


JobReport = JobEnded | JobFailedForNow | JobWaits | JobRunsElsewhere | JobBroke
"""The outcome of an attempt at a job."""

RunJob = Callable[[int], JobReport]
"""Runs a job, by its number, until it ends or has to wait, and stores the result."""


class Runner(Protocol):
    """Runs jobs side by side: in threads, in processes or on other machines."""

    def start(self, run: RunJob, workers: int, report: Callable[[JobReport], None]) -> None:
        """Get ready to run this many jobs at a time; call `report` with the report of each, from any thread."""
        ...

    def submit(self, number: int) -> None:
        """Run a job when a worker is free; there are never more than `workers` submitted jobs."""
        ...

    def close(self) -> None:
        """Wait for the submitted jobs, then end."""
        ...


class ParallelMap(Protocol):
    """Calls a function with many items, several at a time."""

    def __call__(self, function: Callable[[Item], Found], items: Sequence[Item], workers: int) -> list[Found]:
        """Return the results in the order of the items.

        If the function raises, start no more calls, wait for those that run, and raise the error of the first item that
        has one.
        """
        ...
