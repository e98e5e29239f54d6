"""NativeEngine: drives WTB's own workflows by their edges, joins and reducers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from wtb.application.runs.engine_context import CURRENT, EngineContext
from wtb.application.runs.function_caller import FunctionCaller
from wtb.application.runs.state_view import StateView
from wtb.domain.copies import copied
from wtb.domain.engine import Advance, Call, Make, Standpoint
from wtb.domain.ports import Conditions
from wtb.domain.routing import Finished, Router
from wtb.domain.secrets import masked_logger
from wtb.domain.state import State, StateDelta
from wtb.domain.workflow import Node, WorkflowDefinition

_log = masked_logger(__name__)

_MOST_MEMBERS = 32
"""The most threads of one parallel superstep."""


class NativeEngine:
    """Runs the nodes of a superstep at the same time, and applies their results in the order of definition."""

    has_memory = False
    hosts_functions = True

    def __init__(
        self,
        definition: WorkflowDefinition,
        conditions: Conditions,
        caller: FunctionCaller,
        *,
        warn_of_changes: bool = False,
    ) -> None:
        self._definition = definition
        self._nodes = {node.name: node for node in definition.nodes}
        self._router = Router(definition, conditions)
        self._caller = caller
        self._warn_of_changes = warn_of_changes

    def begin(self, given: Mapping[str, Any]) -> Standpoint:
        return Standpoint(state=State(_owned(given)), next_nodes=self._router.start)

    def accepted(self, update: Mapping[str, Any]) -> Mapping[str, Any]:
        return update

    def step(self, at: Standpoint, make: Make) -> Advance | None:
        returned = self._returned(at, make)
        if any(update is None for update in returned):
            return None
        updates = {node: update or {} for node, update in zip(at.next_nodes, returned, strict=True)}
        delta = StateDelta.of_updates(at.state, updates, self._definition.reducers)
        state = at.state.apply(delta)
        finished = [Finished(node, update) for node, update in updates.items()]
        route = self._router.after(finished, state, at.joins)
        return Advance(
            delta=delta,
            state=state,
            returned=tuple(updates.values()),
            next_nodes=route.next_nodes,
            joins=route.joins,
            notes=route.notes,
        )

    def _returned(self, at: Standpoint, make: Make) -> list[Mapping[str, Any] | None]:
        nodes = [self._nodes[name] for name in at.next_nodes]
        if len(nodes) == 1:
            return [make(0, at.state, self._call(nodes[0], at.state))]
        with ThreadPoolExecutor(min(len(nodes), _MOST_MEMBERS), thread_name_prefix="wtb-member") as pool:
            calls = [self._call(node, at.state) for node in nodes]
            around = [copy_context() for _ in nodes]  # context variables name the event loop for async nodes

            def made(position: int) -> Mapping[str, Any] | None:
                return around[position].run(make, position, at.state, calls[position])

            return list(pool.map(made, range(len(nodes))))

    def _call(self, node: Node, state: State) -> Call:
        def call(context: EngineContext | None, timeout_s: float | None) -> Mapping[str, Any]:
            view = StateView(state, node.name, node.reads)
            given = None if context is None else context.context
            token = CURRENT.set(context)
            try:
                returned = self._caller.call(node, view, given, timeout_s)
            finally:
                CURRENT.reset(token)
            if lost := self._lost(view, returned):
                _log.warning("node %s changed %s in place; only what it returns has an effect", node.name, lost)
            return returned

        return call

    def _lost(self, view: StateView, returned: Mapping[str, Any]) -> str:
        """Return the keys that a node changed in place and did not return, for a warning.

        Unless all changes must be reported, only a node that returned nothing is, with the keys that it assigned.
        """
        if self._warn_of_changes:
            return ", ".join(key for key in view.changed_in_place() if key not in returned)
        return "" if returned else ", ".join(sorted(view.assigned))


def _owned(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of an input that the caller can no longer change."""
    try:
        return {key: copied(value) for key, value in given.items()}
    except Exception:  # noqa: BLE001  what cannot be copied (a lock) cannot be stored: the codec says where it lies
        return given
