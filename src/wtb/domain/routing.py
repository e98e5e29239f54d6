"""Routing: decides which nodes come next after a superstep."""

from __future__ import annotations

import inspect
from collections import ChainMap, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wtb.domain.errors import InvalidCondition
from wtb.domain.ports import Conditions
from wtb.domain.workflow import END, Edge, WorkflowDefinition

Predicate = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Takes the state and what the node returned (`last`)."""


class Finished(NamedTuple):
    """A completed node with its update."""

    node: str
    returned: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What comes next: the nodes of the next superstep, the arrivals at waiting joins, and notes for people."""

    next_nodes: tuple[str, ...]
    joins: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Exits:
    """The edges that leave one node; the conditional ones are in the order in which they are tried."""

    plain: list[str] = field(default_factory=list)
    conditional: list[tuple[Edge, Predicate]] = field(default_factory=list)
    otherwise: str | None = None
    joins: list[Edge] = field(default_factory=list)


class Router:
    """A workflow's edges, compiled once: conditions are parsed, edges are sorted."""

    def __init__(self, definition: WorkflowDefinition, conditions: Conditions) -> None:
        self.start = (definition.start.name,)
        self._order = {node.name: position for position, node in enumerate(definition.nodes)}
        self._exits: dict[str, _Exits] = defaultdict(_Exits)
        for edge in sorted(definition.edges, key=lambda edge: -edge.priority):
            self._add(edge, conditions)

    def _add(self, edge: Edge, conditions: Conditions) -> None:
        if edge.is_join:
            for source in edge.sources:
                self._exits[source].joins.append(edge)
            return
        exits = self._exits[edge.sources[0]]
        if edge.when is not None:
            exits.conditional.append((edge, _predicate(edge, conditions)))
        elif edge.otherwise:
            exits.otherwise = edge.target
        else:
            exits.plain.append(edge.target)

    def after(
        self, finished: Sequence[Finished], state: Mapping[str, Any], joins: Mapping[str, tuple[str, ...]]
    ) -> Route:
        """Return the route after a superstep whose results are already in the state."""
        targets: set[str] = set()
        waiting = dict(joins)
        notes: list[str] = []
        for node, returned in finished:
            targets |= self._follow(node, returned, state, notes)
            targets |= self._arrive(node, waiting)
        targets.discard(END)
        if not targets:
            notes += [f"join {name} is still waiting, only {', '.join(came)} arrived" for name, came in waiting.items()]
        return Route(next_nodes=tuple(sorted(targets, key=self._order.__getitem__)), joins=waiting, notes=tuple(notes))

    def _follow(self, node: str, returned: Mapping[str, Any], state: Mapping[str, Any], notes: list[str]) -> set[str]:
        exits = self._exits[node]
        for edge, holds in exits.conditional:
            if holds(state, returned):
                return {edge.target}
        if exits.otherwise is not None:
            return {exits.otherwise}
        if exits.conditional:
            notes.append(f"no edge of {node!r} held")
        return set(exits.plain)

    def _arrive(self, node: str, waiting: dict[str, tuple[str, ...]]) -> set[str]:
        """Record the node's arrival at the joins that wait for it; return the targets of joins that are complete."""
        complete: set[str] = set()
        for edge in self._exits[node].joins:
            arrived = {*waiting.pop(str(edge), ()), node}
            if arrived.issuperset(edge.sources):
                complete.add(edge.target)
            else:
                waiting[str(edge)] = tuple(source for source in edge.sources if source in arrived)
        return complete


def _predicate(edge: Edge, conditions: Conditions) -> Predicate:
    if callable(edge.when):
        return _of_function(edge, edge.when)
    condition = conditions.compile(str(edge.when))

    def holds(state: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
        try:
            return condition(ChainMap({"last": dict(last)}, state))  # type: ignore[arg-type]  # only read, never written
        except InvalidCondition as error:
            raise InvalidCondition(f"edge {edge}: {error}") from error

    return holds


def _of_function(edge: Edge, function: Callable[..., Any]) -> Predicate:
    parameters = inspect.signature(function).parameters.values()
    wants_last = sum(parameter.default is parameter.empty for parameter in parameters) > 1

    def holds(state: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
        try:
            result = function(state, last) if wants_last else function(state)
        except Exception as error:
            raise InvalidCondition(f"edge {edge}: its function raised {type(error).__name__}: {error}") from error
        if not isinstance(result, bool):
            raise InvalidCondition(f"edge {edge}: its function returned {result!r}; it must return True or False")
        return result

    return holds
