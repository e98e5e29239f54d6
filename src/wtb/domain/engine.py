"""Engine: the port that moves a run from one step to the next. WTB has its own engine; other libraries bring theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from wtb.domain.state import State, StateDelta

Call = Callable[[Any, float | None], Mapping[str, Any]]
"""Runs a node's function with its context and time limit, and returns its update."""

Make = Callable[[int, Mapping[str, Any], Call], Mapping[str, Any] | None]
"""Runs the node at a position of `next_nodes` with the part of the state that it may see.

Returns its update, or None if the node failed or waits for a person; the superstep then has no result.
May be called from several threads.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standpoint:
    """The position of a run between two supersteps."""

    state: State
    next_nodes: tuple[str, ...]
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    """Data that the engine keeps besides the state."""
    run_id: str = ""
    steps_left: int = 1_000
    """How many supersteps the run may still take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The result of a superstep."""

    delta: StateDelta
    state: State
    returned: tuple[Mapping[str, Any], ...]
    """What each node returned, before reducers, in the order of the superstep's `next_nodes`."""
    next_nodes: tuple[str, ...]
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Runs(Protocol):
    """Calls functions, sync or async, within a time limit."""

    def run(self, name: str, function: Callable[[], Any], timeout_s: float | None) -> Any:
        """Call a node's function and return its result, awaiting it if needed."""
        ...


class Engine(Protocol):
    """Drives one run of a workflow, one superstep at a time; the standpoint holds all that it needs to continue."""

    has_memory: bool
    """Whether it keeps data besides the state with each step: `Advance.memory`."""
    hosts_functions: bool
    """Whether WTB passes its context to node functions that ask for it; otherwise the engine passes it itself."""

    def begin(self, given: Mapping[str, Any]) -> Standpoint:
        """Return the first position of a run with this input. Its state must share no values with anything else."""
        ...

    def accepted(self, update: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a person's update in the form that the state keeps; raise InvalidInput for keys that do not exist."""
        ...

    def step(self, at: Standpoint, make: Make) -> Advance | None:
        """Run the due nodes, apply their updates and return the next position; None if a node returned no update."""
        ...


@runtime_checkable
class ShowsFinished(Protocol):
    """An engine that can show, at a pause, the updates of nodes that ran beside the waiting one."""

    def with_finished(self, at: Standpoint, returned: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state as nodes see it, including the updates of finished nodes of an unfinished superstep.

        The keys of `returned` are the nodes' positions in `next_nodes`.
        """
        ...
