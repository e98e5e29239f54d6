"""Measurements: the time and machine of measured times and costs, and whether two sides can be compared.

A job may reuse results of nodes from earlier runs, which keep their times. So a job was measured over a span, from its
oldest node run to its newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from wtb.domain.evaluation import OVERALL

if TYPE_CHECKING:
    from wtb.domain.batch import Job

_MEASURED = ("latency", "cost")
_SLACK = timedelta(minutes=10)
"""Two sides that were measured at most this far apart count as measured together."""
_ENOUGH = 0.9
"""The share of each side's jobs that must fall into the time of the other side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The time and the machines on which the figures of a node run, or of a whole job, were measured."""

    begun_at: datetime
    ended_at: datetime
    machines: frozenset[str]

    @classmethod
    def once(cls, at: datetime, owner: str) -> Self:
        """Return a measurement at one moment by a process, named `machine/pid/start`."""
        return cls(begun_at=at, ended_at=at, machines=frozenset({owner.partition("/")[0]}))

    def __or__(self, other: Measured) -> Measured:
        """Return the span and the machines of both."""
        return Measured(
            begun_at=min(self.begun_at, other.begun_at),
            ended_at=max(self.ended_at, other.ended_at),
            machines=self.machines | other.machines,
        )

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read it from plain data."""
        begun_at, ended_at = (datetime.fromisoformat(data[name]) for name in ("begun_at", "ended_at"))
        return cls(begun_at=begun_at, ended_at=ended_at, machines=frozenset(data["machines"]))

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data, times in ISO format."""
        times = {"begun_at": self.begun_at.isoformat(), "ended_at": self.ended_at.isoformat()}
        return {**times, "machines": sorted(self.machines)}


def is_measured(metric: str, weights: Mapping[str, float] | None = None) -> bool:
    """Whether a metric depends on the time and the machine: latency, cost, and an overall score with one of them."""
    if metric == OVERALL.name and weights:
        return any(is_measured(name) for name in weights)
    return metric.startswith(_MEASURED)


def measured_apart(candidate: Iterable[Job], baseline: Iterable[Job]) -> str | None:
    """Return in words how two sides were measured apart, in time or on different machines; None if they were not.

    Jobs of older releases do not record when they were measured: if no job of a side does, return None.
    """
    new, old = _taken(candidate), _taken(baseline)
    if not new or not old:
        return None
    if not (_on_machines_of(new, old) and _on_machines_of(old, new)):
        return "on different machines"
    for ends in (lambda each: each.begun_at, lambda each: each.ended_at):
        first, second = sorted(map(ends, new)), sorted(map(ends, old))
        if not (_within(first, second) and _within(second, first)):
            return f"at different times ({_day(first)} and {_day(second)} UTC)"
    return None


def apart_from_baseline(jobs: Sequence[Job], baseline: str) -> dict[str, str]:
    """Return the combinations of a batch that were measured apart from the baseline, each with the way in words."""
    sides: dict[str, list[Job]] = {}
    for job in jobs:
        sides.setdefault(job.combination, []).append(job)
    against = sides.pop(baseline, [])
    found = {name: measured_apart(own, against) for name, own in sides.items()}
    return {name: how for name, how in found.items() if how is not None}


def _taken(jobs: Iterable[Job]) -> list[Measured]:
    return [job.record.measured for job in jobs if job.record.measured is not None]


def _on_machines_of(side: Sequence[Measured], other: Sequence[Measured]) -> bool:
    """Whether most of these were measured on machines of the other side."""
    known = frozenset[str]().union(*(each.machines for each in other))
    return sum(each.machines <= known for each in side) >= _ENOUGH * len(side)


def _within(times: Sequence[datetime], others: Sequence[datetime]) -> bool:
    """Whether most of these times lie in the span of the others."""
    inside = sum(others[0] - _SLACK <= time <= others[-1] + _SLACK for time in times)
    return inside >= _ENOUGH * len(times)


def _day(times: Sequence[datetime]) -> str:
    """Return the median time."""
    return f"{times[len(times) // 2]:%Y-%m-%d %H:%M}"
