"""Position, Step and Ending: where a run stands, what a step did, and why a run stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeRun
from wtb.domain.event_catalogue import NodeInside
from wtb.domain.execution import Branch, Execution, ExecutionStatus, Failure, Pause, PauseKind
from wtb.domain.ports import UnitOfWork
from wtb.domain.state import StateDelta

SaveFiles = Callable[[UnitOfWork], str | None]
"""Saves the files of a step in its transaction, and returns their commit; None if there are no files."""

Also = Callable[[UnitOfWork, str | None], None]
"""Writes further data of a step in its transaction, given the commit of its files."""

INTERRUPTED = Pause(reason="interrupted", kind=PauseKind.REQUESTED)
"""The pause after somebody interrupted the process that runs the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a run stands: its execution, its current branch and the head of that branch."""

    execution: Execution
    branch: Branch
    head: Checkpoint

    @property
    def token(self) -> int | None:
        """The token of the lease that this process holds."""
        return None if self.execution.lease is None else self.execution.lease.token


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ends or pauses here, and why."""

    status: ExecutionStatus
    pause: Pause | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    nodes: int | None = None
    """How many node visits a completed run made."""
    by: str | None = None
    """Who ended it, if a person did so here."""

    @classmethod
    def requested(cls, request: str, by: str | None = None) -> Ending:
        """Return the ending that somebody requested: `pause` or `stop`."""
        if request == "stop":
            return cls(status=ExecutionStatus.CANCELLED, by=by)
        pause = Pause(reason="asked to pause", kind=PauseKind.REQUESTED)
        return cls(status=ExecutionStatus.PAUSED, pause=pause, by=by)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Facts about a completed node beside its result: what it used, what it read, and what ran inside it."""

    usage: Mapping[str, Any] | None = None
    shared: bool = False
    """Whether the result was taken from another run of a batch."""
    tool_errors: int = 0
    trace: Sequence[Any] | None = None
    """For batches: the part of the trace that shows what the node read beside its input."""
    inside: tuple[NodeInside, ...] = ()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> NodeReport:
        """Read what `to_data` returned, now or in an earlier version."""
        return cls(
            usage=data.get("usage"),
            shared=data.get("shared", False),
            tool_errors=data.get("tool_errors", 0),
            trace=data.get("trace"),
            inside=tuple(NodeInside.from_data(each) for each in data.get("inside", ())),
        )

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON, without empty fields."""
        data: dict[str, Any] = {"usage": self.usage, "shared": self.shared, "tool_errors": self.tool_errors}
        data |= {"trace": self.trace, "inside": [each.to_data() for each in self.inside]}
        return {key: value for key, value in data.items() if value}


NO_REPORT = NodeReport()
"""The report on a node that nothing is known about beside its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one superstep did: its node runs, their changes and results, and the nodes that come next.

    `memory` is the engine's memory after it. `reports` has one entry for each run, or none at all. `missed` are runs of
    earlier steps whose checkpoint could not be written: their changes are in this step's delta, and they have no
    checkpoint of their own.
    """

    runs: tuple[NodeRun, ...]
    delta: StateDelta
    returned: Mapping[str, Mapping[str, Any]] | None = None
    next_nodes: tuple[str, ...] = ()
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: Mapping[str, Any] | None = None
    reports: tuple[NodeReport, ...] = ()
    ending: Ending | None = None
    files: SaveFiles | None = None
    also: tuple[Also, ...] = ()
    missed: tuple[NodeRun, ...] = ()

    def followed_by(self, later: Step) -> Step:
        """Return this step, which could not be stored, and the later one as a single step."""
        return replace(
            later,
            delta=self.delta.compose(later.delta),
            returned={**(self.returned or {}), **(later.returned or {})},
            also=(*self.also, *later.also),
            missed=(*self.missed, *self.runs, *later.missed),
        )
