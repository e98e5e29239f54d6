"""Engine: the port that takes a workflow from one step to the next; WTB has its own, other libraries theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from wtb.domain.state import State, StateDelta

Call = Callable[[Any, float | None], Mapping[str, Any]]
"""Runs the function of a node, with its context and within its time, and returns its update."""

Make = Callable[[int, Mapping[str, Any], Call], Mapping[str, Any] | None]
"""Makes the node run at a position of `next_nodes`, which sees this much of the state.

Returns its update; None when it has none, since it failed or waits for somebody: the superstep then leads to nothing.
May be called from several threads.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standpoint:
    """The position of a run between two supersteps."""

    state: State
    next_nodes: tuple[str, ...]
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    """What the engine keeps beside the state."""
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
    """What calls functions, sync or async, within their time."""

    def run(self, name: str, function: Callable[[], Any], timeout_s: float | None) -> Any:
        """Return what the function of a node gives, awaited if need be."""
        ...


class Engine(Protocol):
    """Drives one run of a workflow, one superstep at a time; the standpoint holds all that it needs to continue."""

    has_memory: bool
    """Whether it keeps something with each step beside the state: `Advance.memory`."""
    hosts_functions: bool
    """Whether a node's function takes WTB's context when it says so; otherwise the engine passes it on by itself."""

    def begin(self, given: Mapping[str, Any]) -> Standpoint:
        """Return the first position of a run with this input; nobody else may hold the values of its state."""
        ...

    def accepted(self, update: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a person puts into the state as it is kept; InvalidInput names keys that have no place."""
        ...

    def step(self, at: Standpoint, make: Make) -> Advance | None:
        """Run the nodes that are due, apply what they return, and say what comes next; None if one gave nothing."""
        ...


@runtime_checkable
class ShowsFinished(Protocol):
    """An engine whose users expect to see, at a pause, what the nodes beside the waiting one have written."""

    def with_finished(self, at: Standpoint, returned: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state as nodes see it, with what these nodes of an unfinished superstep returned.

        They are named by their positions in `next_nodes`.
        """
        ...
