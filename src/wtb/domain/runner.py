"""Ports for parallel work: Runner runs the jobs of a batch, ParallelMap calls a plain function with many items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from wtb.domain.batch import JobStatus
from wtb.domain.job_attempt import RayIds
from wtb.domain.job_limits import ExceededLimit, JobLimits
from wtb.domain.spending import Spent

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has ended, and its result is stored."""

    number: int
    status: JobStatus
    spent: Spent
    """What the job has spent in all, over all its runs."""
    executed: int = 0
    """How many node runs this run of the batch executed for the job."""
    shared: int = 0
    failed_nodes: int = 0


@dataclass(frozen=True, slots=True)
class JobFailedForNow:
    """A job failed and will be tried again."""

    number: int
    failed_nodes: int = 0


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


@dataclass(frozen=True, slots=True)
class JobLost:
    """The worker of a job ended before the job did; `worker` names its process, and `reason` says how it ended."""

    number: int
    worker: str
    reason: str
    ray: RayIds | None = None


@dataclass(frozen=True, slots=True)
class JobOverLimit:
    """A job took too long or too much memory, so the runner ended its worker. Only this job fails."""

    number: int
    worker: str
    limit: ExceededLimit
    ray: RayIds | None = None


@dataclass(frozen=True, slots=True)
class ResultSettled:
    """A worker has stored a result that other jobs may wait for, or has given up making it."""

    key: bytes


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker is ready for jobs, so more of them can be submitted; `worker` names its process."""

    worker: str = ""
    ray_actor: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker ended by itself before its work was done; `reason` says how. Its job is reported as JobLost."""

    worker: str
    reason: str
    ray_actor: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker has ended. `changing` names the values that its runs changed and that other workers did not see."""

    trace_id: str
    changing: tuple[str, ...] = ()
    worker: str = ""


JobReport = JobEnded | JobFailedForNow | JobWaits | JobRunsElsewhere | JobBroke
"""The outcome of an attempt at a job."""


class MeasuredSpan(NamedTuple):
    """A span, a count or a level that a worker measured for the Telemetry of the driver."""

    measure: str
    name: str
    took_s: float | None
    """None if it was only counted."""
    amount: int
    """For a count or a level: how many; for a span: 1 if an exception ended it."""
    is_level: bool = False


@dataclass(frozen=True, slots=True)
class WorkMeasured:
    """The measurements of a worker since its last report; it makes them if the driver has a Telemetry that listens."""

    spans: tuple[MeasuredSpan, ...]


WorkerReport = WorkerReady | WorkerLost | WorkerEnded
"""What happened to a worker."""

RunnerReport = JobReport | JobLost | JobOverLimit | ResultSettled | WorkMeasured | WorkerReport
"""Everything that a runner can report; a runner of threads reports only the outcomes of jobs."""

RunJob = Callable[[int], JobReport]
"""Runs a job, by its number, until it ends or has to wait, and stores the result."""


class Runner(Protocol):
    """Runs jobs side by side: in threads, in processes or on other machines."""

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        """Get ready to run this many jobs at a time; pass the report of each to `report`, from any thread."""
        ...

    def submit(self, number: int) -> None:
        """Run a job when a worker is free; there are never more than `workers` submitted jobs."""
        ...

    def close(self) -> None:
        """Wait for the submitted jobs, then end."""
        ...


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The task of a worker in another process: ids and the store's settings. The worker loads the rest itself."""

    batch_id: str
    trace_id: str
    """The trace of this run of the batch. A worker's own trace has a name that begins with it."""
    attempt_id: str
    attempt_began_at: datetime
    probe: str
    """The digest of an object that exists while the batch runs. A worker that reads it shares the files."""
    settings: Mapping[str, Any]
    limits: JobLimits = field(default_factory=JobLimits)
    """The runner keeps to them."""
    is_measured: bool = False
    """Whether the worker measures its work and reports it."""

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "batch": self.batch_id,
            "trace": self.trace_id,
            "attempt": self.attempt_id,
            "began_at": self.attempt_began_at.isoformat(),
            "probe": self.probe,
            "settings": dict(self.settings),
            "limits": self.limits.to_data(),
            "is_measured": self.is_measured,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Assignment:
        """Read it from plain JSON."""
        return cls(
            batch_id=data["batch"],
            trace_id=data["trace"],
            attempt_id=data["attempt"],
            attempt_began_at=datetime.fromisoformat(data["began_at"]),
            probe=data["probe"],
            settings=data["settings"],
            limits=JobLimits.from_data(data["limits"]),
            is_measured=data["is_measured"],
        )


@runtime_checkable
class WorkerRunner(Protocol):
    """A skill of a Runner: its workers are other processes, which load the batch themselves.

    They cannot call the function that `start` gets. They run the jobs of the assignment by number.
    """

    def assign(self, assignment: Assignment) -> None:
        """Give the workers their task; called once, before `start`."""
        ...


@runtime_checkable
class CarryingRunner(Protocol):
    """A skill of a WorkerRunner: it carries code to its workers that they cannot import, as that of a notebook.

    The code goes from process to process, and never into storage.
    """

    def carry(self, code: object) -> None:
        """Give this to each worker together with its assignment; called at most once, before `start`."""
        ...


@runtime_checkable
class ElasticRunner(Protocol):
    """A skill of a Runner: its workers come and go, so the number of jobs that it takes changes."""

    def capacity(self, *, ahead: bool) -> int:
        """Return how many jobs may be submitted and not yet reported; `ahead`: count the next job of each worker too.

        Called from the thread that submits jobs. A WorkerReady report says that the number has grown.
        """
        ...


class ParallelMap(Protocol):
    """Calls a function with many items, several at a time."""

    def __call__(self, function: Callable[[Item], Found], items: Sequence[Item], workers: int) -> list[Found]:
        """Return the results in the order of the items.

        If the function raises, start no more calls, wait for those that run, and raise the error of the first item that
        has one.
        """
        ...
