"""Telemetry: counts and times of WTB's own work, for people who measure it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Measure(StrEnum):
    """What is measured; each docstring ends with the meaning of the span's name."""

    STEP = "step"
    """A superstep of a run, with its nodes and its transaction; by workflow."""
    SAVE = "save"
    """The transaction that stores a step, or a checkpoint inside a node; by workflow."""
    CHECKPOINT_BYTES = "checkpoint_bytes"
    """The bytes that a checkpoint takes in the store; only counted; by workflow."""
    NODE = "node"
    """One attempt of a node; by node."""
    CALL = "call"
    """An external call that a node really makes, with its records; by tool or key."""
    JOB = "job"
    """One turn of a batch job, until it ends or waits for another job's result; by combination."""
    BATCH = "batch"
    """The jobs of a batch, from the first to the last; by name of the batch."""
    BATCH_COMPLETED = "batch_completed"
    """A batch that completed without an error; only counted; by name of the batch."""
    BATCH_FAILED = "batch_failed"
    """A batch that ended with errors, or could not continue; only counted; by name of the batch."""
    COMPLETED = "completed"
    """A job that completed; only counted; by combination."""
    FAILED = "failed"
    """A job that failed; only counted; by combination."""
    WORKERS = "workers"
    """Worker processes of a batch: counted with 1 when one is ready, with -1 when it ends; by runner, as `ray`."""
    ROLLBACK = "rollback"
    """A rollback or a redo, or taking external calls back; by direction."""
    SWEEP = "sweep"
    """A sweep of unused data; it has no name."""
    POOL = "pool"
    """The wait for a database connection, and for the turn to write; by `read` or `write`."""
    CONNECTIONS = "connections"
    """The open connections to Postgres; a level; by process, as `host/pid`."""
    RETRY = "retry"
    """A new try because the database went away, only counted; by `connect`, `unit` (of work) or `commit`."""


class Telemetry(Protocol):
    """Spans, counters and levels.

    `is_on` never changes. Callers check it first, so that measuring costs one branch when nobody listens. Spans and
    counters come from many threads, in the middle of a step: an implementation returns at once and never raises.
    A span lets every exception through. Names hold no content of states, arguments or files.
    """

    @property
    def is_on(self) -> bool:
        """Whether anybody listens."""
        ...

    def span(self, measure: Measure, name: str = "") -> AbstractContextManager[None]:
        """Return a context manager that measures its block."""
        ...

    def count(self, measure: Measure, name: str = "", amount: int = 1) -> None:
        """Count something whose duration is not known."""
        ...

    def took(self, measure: Measure, name: str, took_s: float, *, raised: bool = False) -> None:
        """Record a span that a worker process measured; `raised`: an exception ended it."""
        ...

    def level(self, measure: Measure, name: str, value: int) -> None:
        """Say how much of something there is now. The last value counts."""
        ...


class NoTelemetry:
    """Measures nothing."""

    is_on = False

    def span(self, measure: Measure, name: str = "") -> AbstractContextManager[None]:
        """Return a block that does nothing."""
        return nullcontext()

    def count(self, measure: Measure, name: str = "", amount: int = 1) -> None:
        """Do nothing."""

    def took(self, measure: Measure, name: str, took_s: float, *, raised: bool = False) -> None:
        """Do nothing."""

    def level(self, measure: Measure, name: str, value: int) -> None:
        """Do nothing."""


NO_TELEMETRY: Telemetry = NoTelemetry()


def measured(
    telemetry: Telemetry, measure: Measure, name: str, function: Callable[Given, Result]
) -> Callable[Given, Result]:
    """Return the function itself if nobody listens; otherwise one that calls it inside a span."""
    return _inside_span(telemetry, measure, name, function) if telemetry.is_on else function


def _inside_span(
    telemetry: Telemetry, measure: Measure, name: str, function: Callable[Given, Result]
) -> Callable[Given, Result]:
    def inside_span(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with telemetry.span(measure, name):
            return function(*args, **kwargs)

    return inside_span
