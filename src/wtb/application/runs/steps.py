"""Position, Step and Ending: where a run stands, what a step did, and why a run stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeRun
from wtb.domain.execution import Branch, Execution, ExecutionStatus, Failure, Pause, PauseKind
from wtb.domain.ports import UnitOfWork
from wtb.domain.state import StateDelta

SaveFiles = Callable[[UnitOfWork], str | None]
"""Saves the files of a step in its transaction, and returns their commit, None for no files."""

Also = Callable[[UnitOfWork, str | None], None]
"""Writes what belongs to a step in its transaction; given the commit of its files."""

INTERRUPTED = Pause(reason="interrupted", kind=PauseKind.REQUESTED)
"""Somebody interrupted the process that runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a run stands: its execution, the branch that it is on and the head of that branch."""

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

    @classmethod
    def requested(cls, request: str) -> Ending:
        """Return the ending that somebody requested: `pause` or `stop`."""
        if request == "stop":
            return cls(status=ExecutionStatus.CANCELLED)
        return cls(status=ExecutionStatus.PAUSED, pause=Pause(reason="asked to pause", kind=PauseKind.REQUESTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one superstep did: the runs of its nodes, what they change and returned, and what comes next.

    `memory` is what the engine keeps with it, `data` what is said of each run in its event. `missed` are runs of
    earlier steps whose checkpoint could not be written: their changes are in the delta of this one, and they have no
    checkpoint of their own.
    """

    runs: tuple[NodeRun, ...]
    delta: StateDelta
    returned: Mapping[str, Mapping[str, Any]] | None = None
    next_nodes: tuple[str, ...] = ()
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: Mapping[str, Any] | None = None
    data: tuple[Mapping[str, Any], ...] = ()
    ending: Ending | None = None
    files: SaveFiles | None = None
    also: tuple[Also, ...] = ()
    missed: tuple[NodeRun, ...] = ()

    def followed_by(self, later: Step) -> Step:
        """Return one step that does what this one, which could not be stored, and the later one did."""
        return replace(
            later,
            delta=self.delta.compose(later.delta),
            returned={**(self.returned or {}), **(later.returned or {})},
            also=(*self.also, *later.also),
            missed=(*self.missed, *self.runs, *later.missed),
        )
