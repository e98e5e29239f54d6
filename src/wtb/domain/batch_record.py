"""BatchRecord: the plan of a batch, and the notes made while it ran; its jobs are stored separately."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wtb.domain.evaluation import Metric
from wtb.domain.limits import Limit
from wtb.domain.statistics.near_copies import NearCopies
from wtb.domain.work_order import WorkOrder

Words = Mapping[str, tuple[str, ...]]
"""Sentences or names by node."""


@dataclass(frozen=True, kw_only=True)
class MadeOf:
    """The dependencies of a batch's results, stored with the batch so that WTB can later name the changes."""

    workflows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each digest that jobs carry: the nodes, and SETUP, each with the digest of its parts."""
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each digest of parts: the parts with their own digests."""
    changing: frozenset[str] = frozenset()
    """Values that runs change themselves, such as counters; they are no dependencies."""

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"workflows": self.workflows, "parts": self.parts, "changing": sorted(self.changing)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any] | None) -> MadeOf:
        """Read it from plain data; empty data is allowed, as in batches of earlier versions."""
        data = data or {"workflows": {}, "parts": {}, "changing": ()}
        return cls(workflows=data["workflows"], parts=data["parts"], changing=frozenset(data["changing"]))

    def only(self, used: Iterable[str]) -> MadeOf:
        """Return only the part that jobs still refer to."""
        workflows = {each: self.workflows[each] for each in used if each in self.workflows}
        wanted = {digest for nodes in workflows.values() for digest in nodes.values()}
        return replace(
            self, workflows=workflows, parts={each: self.parts[each] for each in self.parts if each in wanted}
        )

    def with_more(self, other: MadeOf) -> MadeOf:
        """Return both together."""
        return MadeOf(
            workflows={**self.workflows, **other.workflows},
            parts={**self.parts, **other.parts},
            changing=self.changing | other.changing,
        )


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """The plan of a batch (combinations, cases, metrics), and notes made when it was planned and run."""

    combinations: tuple[str, ...]
    """All combinations, the baseline first."""
    baseline: str
    """The combination that others are compared with."""
    cases: tuple[str, ...]
    repeats: int
    metrics: tuple[Metric, ...]
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight of each metric in the overall score."""
    primary: str | None = None
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The cluster of each case that belongs to one."""
    expected: bytes | None = None
    """The expected result and tags of each case, encoded, for evaluators that are added later."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The input of each case as people read it: masked, and cut if it is very long."""
    expected_texts: Mapping[str, str] = field(default_factory=dict)
    """The expected value of each case that has one, likewise: a later process may not know all secrets."""
    near_copies: NearCopies | None = None
    workers: int = 0
    cores: int = 1
    source: str | None = None
    """Where the workflow can be loaded from."""
    bools: frozenset[str] = frozenset()
    """The metrics whose scores were all true or false before the batch was last run."""
    trace: str | None = None
    """The trace of the process that last ran the batch."""
    made_of: MadeOf = field(default_factory=MadeOf)
    changes: Words = field(default_factory=dict)
    """The changes since the previous run, by node, in words."""
    coarse: Words = field(default_factory=dict)
    """Why a node depends on more than it may need, by node, in words."""
    changing: tuple[str, ...] = ()
    """Values that runs change themselves."""
    outside: Words = field(default_factory=dict)
    """The servers and programs that nodes used."""
    pooled: tuple[str, ...] = ()
    """For a baseline: the batches whose results it holds."""
    copies: tuple[str, ...] = ()
    """For a baseline: the batches that executed nothing and only repeat another batch's results."""
    work: WorkOrder | None = None
    """For workers in other processes; None if the batch last ran in threads."""
    runner: str = "threads"
    """The name of the runner that ran it last."""
    limits: Mapping[str, Limit] = field(default_factory=dict)
    """How many calls may run at a time, by the names that tools and nodes use; without the users' functions."""
    cores_used: float | None = None
    """How many cores were computing on average when it last ran in threads."""

    @property
    def jobs(self) -> int:
        """How many jobs the batch has."""
        return len(self.combinations) * len(self.cases) * self.repeats

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics that evaluators give."""
        return [metric.name for metric in self.metrics]

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "combinations": list(self.combinations),
            "baseline": self.baseline,
            "cases": list(self.cases),
            "repeats": self.repeats,
            "metrics": [metric.to_dict() for metric in self.metrics],
            "weights": dict(self.weights),
            "primary": self.primary,
            "clusters": dict(self.clusters),
            "expected": None if self.expected is None else b64encode(self.expected).decode(),
            "inputs": dict(self.inputs),
            "expected_texts": dict(self.expected_texts),
            "near_copies": None if self.near_copies is None else self.near_copies.to_data(),
            "workers": self.workers,
            "cores": self.cores,
            "source": self.source,
            "bools": sorted(self.bools),
            "trace": self.trace,
            "made_of": self.made_of.to_data(),
            "changes": _lists(self.changes),
            "coarse": _lists(self.coarse),
            "changing": list(self.changing),
            "outside": _lists(self.outside),
            "pooled": list(self.pooled),
            "copies": list(self.copies),
            "work": None if self.work is None else self.work.to_data(),
            "runner": self.runner,
            "limits": {name: limit.to_data() for name, limit in self.limits.items()},
            "cores_used": self.cores_used,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> BatchRecord:
        """Read it from plain JSON; earlier versions kept less."""
        copies, expected = data.get("near_copies"), data.get("expected")
        return cls(
            combinations=tuple(data["combinations"]),
            baseline=data["baseline"],
            cases=tuple(data["cases"]),
            repeats=data["repeats"],
            metrics=tuple(Metric.from_dict(each) for each in data["metrics"]),
            weights=data.get("weights", {}),
            primary=data.get("primary"),
            clusters=data.get("clusters", {}),
            expected=None if expected is None else b64decode(expected),
            inputs=data.get("inputs", {}),
            expected_texts=data.get("expected_texts", {}),
            near_copies=None if copies is None else NearCopies.from_data(copies),
            workers=data.get("workers", 0),
            cores=data.get("cores", 1),
            source=data.get("source"),
            bools=frozenset(data.get("bools", ())),
            trace=data.get("trace"),
            made_of=MadeOf.from_data(data.get("made_of")),
            changes=_tuples(data.get("changes", {})),
            coarse=_tuples(data.get("coarse", {})),
            changing=tuple(data.get("changing", ())),
            outside=_tuples(data.get("outside", {})),
            pooled=tuple(data.get("pooled", ())),
            copies=tuple(data.get("copies", ())),
            work=None if data.get("work") is None else WorkOrder.from_data(data["work"]),
            runner=data.get("runner", "threads"),
            limits={name: Limit.from_data(each) for name, each in data.get("limits", {}).items()},
            cores_used=data.get("cores_used"),
        )


def _lists(words: Words) -> dict[str, list[str]]:
    return {name: list(each) for name, each in words.items()}


def _tuples(words: Mapping[str, Iterable[str]]) -> Words:
    return {name: tuple(each) for name, each in words.items()}
