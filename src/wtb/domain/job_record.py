"""JobRecord: the result of a job: its output, its scores and their dependencies, times, usage, and the error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wtb.domain.execution import Failure
from wtb.domain.figures import NOTHING, Usage
from wtb.domain.job_attempt import AttemptEnd, JobAttempt
from wtb.domain.job_output import JobOutput
from wtb.domain.observation import Window
from wtb.domain.spending import NOTHING_SPENT, Spent
from wtb.domain.statistics.measurement import Measured

Scores = Mapping[str, Any]
"""By evaluator: a number, or `{"error": …}` if it failed."""

WORKER_LOST = "WorkerLost"
"""The error type of a job that lost its worker too often."""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """The result of a job. If the job runs again, it keeps its spending and the calls that it must take back."""

    scores: Scores | None = None
    """None until there is a finished run."""
    bools: tuple[str, ...] = ()
    """The evaluators whose score was true or false."""
    scored_by: Mapping[str, str] = field(default_factory=dict)
    """A digest of each score's dependencies other than the run."""
    checkpoint: str | None = None
    """The checkpoint that was scored; None until then, and for jobs of earlier versions."""
    scored_in: Mapping[str, Window] = field(default_factory=dict)
    """The part of a trace in which each evaluator ran; its score depends on everything read there."""
    error: Failure | None = None
    latency_s: float | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    unpriced: tuple[str, ...] = ()
    """Models without a known price."""
    measured: Measured | None = None
    executed: int | None = None
    """Node runs that were executed; None for jobs of earlier versions."""
    shared: int = 0
    """Node runs whose results came from another job."""
    unshared: Mapping[str, str] = field(default_factory=dict)
    """Nodes that cannot be shared, and why."""
    trace: str | None = None
    """The trace of the process that ran the job."""
    traces: tuple[Window, ...] = ()
    """The parts of traces in which its node runs were executed; its result depends on everything read there."""
    taken: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)
    """By node, the parts of other traces in which results were made that it took over; only that node's reads count
    there. Jobs of earlier versions have these parts among `traces`."""
    external: Mapping[str, int] = field(default_factory=dict)
    """How often its run really called each external tool."""
    spent: Spent = NOTHING_SPENT
    output: JobOutput | None = None
    """None for jobs that failed, and for jobs of earlier versions until their batch runs again."""
    judging: Usage = NOTHING
    """The usage of its evaluators. `spent` includes it; `usage` does not, because the workflow did not cause it."""
    paid: tuple[str, ...] = ()
    """The evaluators that reported usage; running them again may cost money again."""
    take_back: Mapping[str, str] = field(default_factory=dict)
    """The runs whose external calls must be taken back after they end, each with the last error of doing so.

    A run is listed before it begins, so that it is known after a crash, and removed once its calls are taken back.
    """
    alone: bool = False
    """Whether it shares no results, so that its times are its own. A process that continues the job keeps to this."""
    waits: Spent | None = None
    """If its run waits for a person, or made a call that may have happened: the part of `spent` that this run spent.

    The next attempt at the job continues that run. A new run would ask again, and make the call a second time.
    """
    attempts: tuple[JobAttempt, ...] = ()
    """All attempts since the job was last queued, in order; empty for jobs of earlier versions."""

    @property
    def all_traces(self) -> tuple[Window, ...]:
        """The parts of traces in which its results were made, by itself or by other jobs."""
        return (*self.traces, *(window for windows in self.taken.values() for window in windows))

    @property
    def lost_workers(self) -> tuple[JobAttempt, ...]:
        """The attempts whose worker ended before the job did."""
        return tuple(each for each in self.attempts if each.end is AttemptEnd.LOST)

    @property
    def failed_attempts(self) -> tuple[JobAttempt, ...]:
        """The attempts in which the job itself failed."""
        return tuple(each for each in self.attempts if each.end is AttemptEnd.FAILED)

    @property
    def is_dead(self) -> bool:
        """Whether the job was given up because it lost its worker too often."""
        return self.error is not None and self.error.type == WORKER_LOST

    @property
    def numbers(self) -> dict[str, float]:
        """The scores of evaluators that did not fail."""
        return {name: score for name, score in (self.scores or {}).items() if not isinstance(score, Mapping)}

    @property
    def score_errors(self) -> dict[str, str]:
        """The errors of evaluators that failed, by name."""
        scores = self.scores or {}
        return {name: str(score["error"]) for name, score in scores.items() if isinstance(score, Mapping)}

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON, without empty fields."""
        found = {
            "bools": list(self.bools),
            "scored_by": dict(self.scored_by),
            "checkpoint": self.checkpoint,
            "scored_in": {name: window.to_data() for name, window in self.scored_in.items()},
            "error": None if self.error is None else error_data(self.error),
            "latency_s": self.latency_s,
            "usage": dict(self.usage),
            "unpriced": list(self.unpriced),
            "measured": None if self.measured is None else self.measured.to_data(),
            "executed": self.executed,
            "shared": self.shared,
            "unshared": dict(self.unshared),
            "trace": self.trace,
            "traces": [window.to_data() for window in self.traces],
            "taken": {node: [window.to_data() for window in windows] for node, windows in self.taken.items()},
            "spent": None if self.spent == NOTHING_SPENT else self.spent.to_dict(),
            "output": None if self.output is None else self.output.to_data(),
            "external": dict(self.external),
            "judging": None if self.judging == NOTHING else self.judging.to_data(),
            "paid": list(self.paid),
            "take_back": dict(self.take_back),
            "alone": self.alone,
            "waits": None if self.waits is None else self.waits.to_dict(),
            "attempts": [attempt.to_data() for attempt in self.attempts],
        }
        kept = {name: value for name, value in found.items() if value is not False and value not in _EMPTY}
        return kept if self.scores is None else {"scores": dict(self.scores), **kept}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> JobRecord:
        """Read it from plain JSON; earlier versions kept less."""
        error, measured, spent, output = (data.get(name) for name in ("error", "measured", "spent", "output"))
        waits = data.get("waits")
        return cls(
            scores=data.get("scores"),
            bools=tuple(data.get("bools", ())),
            scored_by=data.get("scored_by", {}),
            checkpoint=data.get("checkpoint"),
            scored_in={name: Window.from_data(window) for name, window in data.get("scored_in", {}).items()},
            error=None if error is None else _error(error),
            latency_s=data.get("latency_s"),
            usage=data.get("usage", {}),
            unpriced=tuple(data.get("unpriced", ())),
            measured=None if measured is None else Measured.from_data(measured),
            executed=data.get("executed"),
            shared=data.get("shared", 0),
            unshared=data.get("unshared", {}),
            trace=data.get("trace"),
            traces=tuple(map(Window.from_data, data.get("traces", ()))),
            taken={node: tuple(map(Window.from_data, windows)) for node, windows in data.get("taken", {}).items()},
            spent=NOTHING_SPENT if spent is None else Spent.from_dict(spent),
            output=None if output is None else JobOutput.from_data(output),
            external=data.get("external", {}),
            judging=Usage.from_data(data["judging"]) if "judging" in data else NOTHING,
            paid=tuple(data.get("paid", ())),
            take_back=data.get("take_back", {}),
            alone=data.get("alone", False),
            waits=None if waits is None else Spent.from_dict(waits),
            attempts=tuple(map(JobAttempt.from_data, data.get("attempts", ()))),
        )


NOTHING_YET = JobRecord()

_EMPTY: tuple[Any, ...] = (None, [], {})


def error_data(error: Failure) -> dict[str, Any]:
    """Return why a job failed as plain JSON."""
    return {"type": error.type, "message": error.message, "node": error.node, "traceback": error.traceback}


def _error(data: Mapping[str, Any]) -> Failure:
    return Failure(
        type=data["type"], message=data["message"], node=data.get("node"), traceback=data.get("traceback", "")
    )
