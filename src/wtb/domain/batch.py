"""Batch and Job: combinations × cases × repeats; what a job is, what came of it, and how a batch stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.ids import ExecutionId
from wtb.domain.values import evolve

_MOST = 20
"""How many faults are named at once."""


class BatchStatus(StrEnum):
    """How a batch stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobStatus(StrEnum):
    """How one job stands; a failed one is counted apart and scores worst."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input with what is expected of it; `place` is where it was read, for messages.

    Cases of one `cluster` are no independent evidence, as questions about one document: they are averaged, and count as
    one.
    """

    id: str
    input: Mapping[str, Any]
    expected: Any = None
    tags: tuple[str, ...] = ()
    cluster: str | None = None
    place: str = field(default="case", compare=False)


def cases_of(rows: Iterable[tuple[str, Any]]) -> tuple[Case, ...]:
    """Read cases from plain data, each with its place; every fault is named by place and field, all at once."""
    faults: list[str] = []
    cases: dict[str, Case] = {}
    for place, row in rows:
        found = list(_faults(place, row))
        if not found:
            case = _case(place, row)
            if case.id in cases:
                found = [f"{place} has the id {case.id!r} of {cases[case.id].place}"]
            cases.setdefault(case.id, case)
        faults += found
    if not cases and not faults:
        faults.append("there are no cases")
    raise_faults(faults)
    return tuple(cases.values())


def _faults(place: str, row: Any) -> Iterator[str]:
    if isinstance(row, Case):
        return
    if not isinstance(row, Mapping):
        yield f"{place} is {row!r}, not a mapping with id and input"
        return
    unknown = row.keys() - {"id", "input", "expected", "tags", "cluster"}
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        yield f"{place} has the unknown field {names}; fields are id, input, expected, tags and cluster"
    case_id, tags, cluster = row.get("id"), row.get("tags"), row.get("cluster")
    if case_id is None or case_id == "":
        yield f"{place} has no id"
    elif not isinstance(case_id, str):
        yield f"{place}: id must be a text, not {case_id!r}"
    if "input" not in row:
        yield f"{place} has no input"
    elif not isinstance(row["input"], Mapping):
        yield f"{place}: input must be a mapping of keys to values, not {row['input']!r}"
    if tags is not None and not (isinstance(tags, list | tuple) and all(isinstance(tag, str) for tag in tags)):
        yield f"{place}: tags must be a list of texts, not {tags!r}"
    if cluster is not None and not isinstance(cluster, str):
        yield f"{place}: cluster must be a text, not {cluster!r}"


def _case(place: str, row: Any) -> Case:
    if isinstance(row, Case):
        return evolve(row, place=place if row.place == "case" else row.place)
    tags = tuple(row.get("tags") or ())
    return Case(
        id=row["id"],
        input=dict(row["input"]),
        expected=row.get("expected"),
        tags=tags,
        cluster=row.get("cluster") or None,
        place=place,
    )


def clustered(cases: Sequence[Case], cluster: str | Callable[[Case], Any] | None) -> tuple[Case, ...]:
    """Return the cases in their clusters: those that they name, or what `cluster` says.

    `cluster` is a function of the case, or a key of its input; a case for which it gives None is by itself.
    """
    if cluster is None:
        return tuple(cases)
    found = []
    for case in cases:
        if isinstance(cluster, str) and cluster not in case.input:
            raise InvalidInput(f"cluster={cluster!r}: {case.place} ({case.id}) has no {cluster!r} in its input")
        name = case.input[cluster] if isinstance(cluster, str) else cluster(case)
        found.append(evolve(case, cluster=None if name is None else str(name)))
    return tuple(found)


def raise_faults(faults: Sequence[str]) -> None:
    """Raise InvalidInput with what is wrong, if anything is; of very many faults the first."""
    if faults:
        raise InvalidInput("; ".join(faults[:_MOST]) + (f"; and {len(faults) - _MOST} more" if faults[_MOST:] else ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a batch took in fact: money, tokens, and seconds by the clock. What is shared was spent once."""

    usd: float = 0.0
    tokens: int = 0
    s: float = 0.0

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> Spent:
        """Return what a node run reported."""
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return cls(usd=usage.get("cost_usd", 0.0), tokens=tokens)

    def __add__(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(usd=self.usd + other.usd, tokens=self.tokens + other.tokens, s=self.s + other.s)

    def __sub__(self, other: Spent) -> Spent:
        """Return what came after the other."""
        return Spent(usd=self.usd - other.usd, tokens=self.tokens - other.tokens, s=self.s - other.s)

    def to_dict(self) -> dict[str, float]:
        """Return the figures as plain JSON."""
        return {"usd": self.usd, "tokens": self.tokens, "s": self.s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a batch may take in all, over all the times that it is run; once it is reached no job is begun."""

    usd: float | None = None
    tokens: int | None = None
    s: float | None = None

    def __post_init__(self) -> None:
        """Refuse figures that make no sense."""
        given: Mapping[str, Any] = self.limits()
        for name, limit in given.items():
            if not (isinstance(limit, int | float) and limit >= 0):
                raise InvalidInput(f"budget: {name} must be a number from 0 up, not {limit!r}")

    @classmethod
    def of(cls, given: Any) -> Budget:
        """Return what a person means by `{"usd": 5}`, a budget, or nothing."""
        if isinstance(given, Budget):
            return given
        names = ("usd", "tokens", "s")
        if given is None or (isinstance(given, Mapping) and given.keys() <= set(names)):
            return cls(**(given or {}))
        raise InvalidInput(f"budget={given!r} is unknown; say {{'usd': 5}}, with any of {', '.join(names)}")

    def limits(self) -> dict[str, float]:
        """Return what is limited, and to how much."""
        given = {"usd": self.usd, "tokens": self.tokens, "s": self.s}
        return {name: limit for name, limit in given.items() if limit is not None}

    def reached(self, spent: Spent) -> tuple[str, ...]:
        """Return what is used up: `usd`, `tokens`, `s`."""
        return tuple(name for name, limit in self.limits().items() if getattr(spent, name) >= limit)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One combination on one case, once; `result` is what was measured: scores, times, usage, or the error."""

    batch_id: str
    number: int
    combination: str
    case_id: str
    repeat: int
    fingerprint: str
    status: JobStatus = JobStatus.PENDING
    execution_id: ExecutionId | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spent(self) -> Spent:
        """What it took, over all the times that it was run."""
        return Spent(**self.result.get("spent", {}))

    @property
    def has_run(self) -> bool:
        """Whether there is a finished run, so that at most scores are missing."""
        return "scores" in self.result

    @property
    def outcome(self) -> JobStatus:
        """How it stands for somebody who reads results: queued again, it stays what it was until it has run.

        One that failed stays failed, and one that only waits for scores has run; both may be stopped on the way.
        """
        if self.status is not JobStatus.PENDING:
            return self.status
        if "error" in self.result:
            return JobStatus.FAILED
        return JobStatus.COMPLETED if self.has_run else JobStatus.PENDING

    @property
    def score_errors(self) -> dict[str, str]:
        """Why evaluators gave no score, by their names."""
        scores = self.result.get("scores", {})
        return {name: str(score["error"]) for name, score in scores.items() if isinstance(score, Mapping)}

    def ended(self, status: JobStatus, execution_id: ExecutionId | None, result: Mapping[str, Any]) -> Job:
        """Return the job with what came of it."""
        return evolve(self, status=status, execution_id=execution_id, result=result)


def end_of(jobs: Sequence[Job], metrics: Iterable[str]) -> BatchStatus:
    """Return how a batch stands whose jobs have all ended; a failed job and a failed evaluator are errors."""
    wanted = set(metrics)
    if any(job.status is JobStatus.FAILED or wanted & job.score_errors.keys() for job in jobs):
        return BatchStatus.COMPLETED_WITH_ERRORS
    return BatchStatus.COMPLETED


def bool_metrics(jobs: Iterable[Job], earlier: Iterable[str]) -> frozenset[str]:
    """Return the metrics whose scores are all true or false; one without any score is what it was `earlier`."""
    bools: set[str] = set()
    others: set[str] = set()
    for job in jobs:
        own = set(job.result.get("bools", ()))
        numbers = job.result.get("scores", {}).keys() - job.score_errors.keys()
        bools |= numbers & own
        others |= numbers - own
    return frozenset({*bools, *earlier} - others)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch test; `plan` holds its combinations, cases, repeats, evaluators and baseline as plain data.

    `spent_s` is how long it has taken by the clock, over all the times that it was run.
    """

    id: str
    name: str
    workflow_name: str
    status: BatchStatus = BatchStatus.PENDING
    plan: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    spent_s: float = 0.0

    def moved_to(self, status: BatchStatus, now: datetime) -> Batch:
        """Return the batch in another status."""
        return evolve(self, status=status, updated_at=now)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A combination of a batch that others are held against, by a name."""

    name: str
    batch_id: str
    combination: str
    created_at: datetime


class CacheStatus(StrEnum):
    """How far a shared node run has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """The result of a node run that others may share, or who is making it."""

    key: bytes
    status: CacheStatus
    owner: str
    attempt: str
    expires_at: datetime
    value: Mapping[str, Any] | None = None
