"""Replay: applies the current workflow to recorded results, and compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from wtb.domain.checkpoint import Checkpoint, Snapshot, Trigger
from wtb.domain.engine import Engine, Standpoint
from wtb.domain.errors import StateNotSerialisable
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Codec, Conditions
from wtb.domain.routing import Finished, Router
from wtb.domain.state import MISSING, State, StateDelta
from wtb.domain.workflow import WorkflowDefinition


class ReplayVerdict(StrEnum):
    """The result of replaying one step."""

    SAME = "same"
    DIFFERENT = "different"
    TAKEN = "taken"
    """No node made the step, for example because a person changed the state; the recorded state is used."""
    UNKNOWN = "unknown"
    """The step or the one before it was deleted, or the results of its nodes were not recorded."""


class Aspect(StrEnum):
    """The part of a step that differs."""

    NODE = "node"
    STATE = "state"
    NEXT_NODES = "next nodes"
    JOINS = "waiting joins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where the recorded run and the current workflow differ, or why the workflow gave nothing.

    `nodes` are the nodes whose results caused it. `key` is the state key that differs; an absent value is MISSING.
    """

    step: int
    nodes: tuple[str, ...]
    aspect: Aspect
    key: str | None = None
    recorded: Any
    replayed: Any = MISSING
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedStep:
    """One checkpoint of the line; `visits` are the node visits that ended with it, as (node, visit)."""

    step: int
    checkpoint_id: CheckpointId
    trigger: Trigger
    visits: tuple[tuple[str, int], ...]
    verdict: ReplayVerdict
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The result of a replay: every step of the active branch, from the input to the head."""

    execution_id: ExecutionId
    steps: tuple[ReplayedStep, ...]

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All differences, in the order of the steps."""
        return tuple(difference for step in self.steps for difference in step.differences)

    @property
    def same(self) -> bool:
        """Whether the current workflow gives the recorded results, as far as that can be checked."""
        return not self.differences


class StepReplay:
    """A workflow's reducers, order and routing, without its nodes."""

    def __init__(self, definition: WorkflowDefinition, conditions: Conditions, codec: Codec) -> None:
        self._router = Router(definition, conditions)
        self._reducers = definition.reducers
        self._names = tuple(node.name for node in definition.nodes)
        self._codec = codec

    def verdict(
        self, before: Snapshot | None, recorded: Snapshot | None
    ) -> tuple[ReplayVerdict, tuple[Difference, ...]]:
        """Replay one step from the record of the step before it; None means that a record was deleted."""
        if recorded is None:
            return ReplayVerdict.UNKNOWN, ()
        trigger = recorded.checkpoint.trigger
        if trigger is Trigger.START:
            return _judged(self._start(recorded.checkpoint))
        if trigger is not Trigger.NODE_END:
            return ReplayVerdict.TAKEN, ()
        if before is None or not recorded.returned:
            return ReplayVerdict.UNKNOWN, ()
        return _judged(self._after(before, recorded))

    def _start(self, recorded: Checkpoint) -> Iterable[Difference]:
        if recorded.next_nodes != self._router.start:
            yield Difference(
                step=recorded.step,
                nodes=(),
                aspect=Aspect.NEXT_NODES,
                recorded=recorded.next_nodes,
                replayed=self._router.start,
            )

    def _after(self, before: Snapshot, recorded: Snapshot) -> Iterable[Difference]:
        lost = [node for node in recorded.returned if node not in self._names]
        if lost:
            return [self._lost(recorded.checkpoint.step, node) for node in lost]
        returned = {name: recorded.returned[name] for name in self._names if name in recorded.returned}
        state, differences = self._state_after(before, recorded, returned)
        return [*differences, *self._route_after(before, recorded, returned, state)]

    def _lost(self, step: int, node: str) -> Difference:
        error = f"the workflow has no node {node!r}; it has {', '.join(self._names)}"
        return Difference(step=step, nodes=(node,), aspect=Aspect.NODE, recorded=node, error=error)

    def _state_after(
        self, before: Snapshot, recorded: Snapshot, returned: Mapping[str, Mapping[str, Any]]
    ) -> tuple[State, list[Difference]]:
        """Return the state that the results give, or the recorded state if they give none."""
        step = recorded.checkpoint.step
        try:
            state = before.state.apply(StateDelta.of_updates(before.state, returned, self._reducers))
        except Exception as error:  # noqa: BLE001  a reducer of the user's may raise anything
            written = {key: recorded.state.get(key, MISSING) for update in returned.values() for key in update}
            differs = partial(Difference, step=step, nodes=tuple(returned), aspect=Aspect.STATE)
            return recorded.state, [differs(recorded=written, error=_said(error))]
        keys = sorted(StateDelta.between(recorded.state, state).changes)
        found = (self._value(step, key, recorded.state, state, returned) for key in keys)
        return state, [difference for difference in found if difference is not None]

    def _value(
        self, step: int, key: str, recorded: State, state: State, returned: Mapping[str, Mapping[str, Any]]
    ) -> Difference | None:
        """Compare values as the store would: values that it encodes in the same way are the same."""
        was, now = recorded.get(key, MISSING), state.get(key, MISSING)
        nodes = tuple(node for node, update in returned.items() if key in update)
        differs = partial(Difference, step=step, nodes=nodes, aspect=Aspect.STATE, key=key, recorded=was)
        if was is MISSING or now is MISSING:
            return differs(replayed=now)
        path = f"state.{key}"
        try:
            alike = self._codec.encode(was, path)[1] == self._codec.encode(now, path)[1]
        except StateNotSerialisable as error:
            return differs(error=_said(error))
        return None if alike else differs(replayed=now)

    def _route_after(
        self, before: Snapshot, recorded: Snapshot, returned: Mapping[str, Mapping[str, Any]], state: State
    ) -> Iterable[Difference]:
        was = recorded.checkpoint
        differs = partial(Difference, step=was.step, nodes=tuple(returned))
        finished = [Finished(node, update) for node, update in returned.items()]
        try:
            now = self._router.after(finished, state, before.checkpoint.joins)
        except Exception as error:  # noqa: BLE001  a condition of the user's may raise anything
            yield differs(aspect=Aspect.NEXT_NODES, recorded=was.next_nodes, error=_said(error))
            return
        # The order of nodes that run at the same time does not matter here: it shows in the state, or nowhere.
        if set(now.next_nodes) != set(was.next_nodes):
            yield differs(aspect=Aspect.NEXT_NODES, recorded=was.next_nodes, replayed=now.next_nodes)
        if now.joins != was.joins:
            yield differs(aspect=Aspect.JOINS, recorded=was.joins, replayed=now.joins)


class EngineReplay:
    """Replays a workflow that another library drives: its engine makes each step from the recorded results."""

    def __init__(self, engine: Engine, names: tuple[str, ...], codec: Codec) -> None:
        self._engine = engine
        self._names = names
        self._codec = codec
        self._memory: Mapping[str, Any] = {}

    def verdict(
        self, before: Snapshot | None, recorded: Snapshot | None
    ) -> tuple[ReplayVerdict, tuple[Difference, ...]]:
        """Replay one step, as `StepReplay.verdict` does; steps are given one after the other."""
        if recorded is None:
            return ReplayVerdict.UNKNOWN, ()
        memory = self._memory
        self._memory = memory if recorded.memory is None else recorded.memory
        if recorded.checkpoint.trigger is not Trigger.NODE_END:
            return ReplayVerdict.TAKEN, ()
        if before is None or not memory:
            return ReplayVerdict.UNKNOWN, ()
        return _judged(self._after(before, recorded, memory))

    def _after(self, before: Snapshot, recorded: Snapshot, memory: Mapping[str, Any]) -> Iterable[Difference]:
        was, nodes = recorded.checkpoint, before.checkpoint.next_nodes
        differs = partial(Difference, step=was.step, nodes=nodes)
        lost = [node for node in nodes if node not in self._names]
        if lost:
            error = f"the workflow has no node {lost[0]!r}; it has {', '.join(self._names)}"
            yield differs(aspect=Aspect.NODE, recorded=lost[0], error=error)
            return
        returned = _by_position(nodes, recorded.returned)
        at = Standpoint(state=before.state, next_nodes=nodes, memory=memory, run_id=was.execution_id)
        try:
            now = self._engine.step(at, lambda position, state, call: returned[position])
        except Exception as error:  # noqa: BLE001  a reducer or a condition of the user's may raise anything
            yield differs(aspect=Aspect.STATE, recorded=dict(recorded.state), error=_said(error))
            return
        assert now is not None
        for key in sorted(StateDelta.between(recorded.state, now.state).changes):
            old, new = recorded.state.get(key, MISSING), now.state.get(key, MISSING)
            if MISSING in (old, new) or self._encoded(old) != self._encoded(new):
                yield differs(aspect=Aspect.STATE, key=key, recorded=old, replayed=new)
        if set(now.next_nodes) != set(was.next_nodes):
            yield differs(aspect=Aspect.NEXT_NODES, recorded=was.next_nodes, replayed=now.next_nodes)

    def _encoded(self, value: Any) -> bytes:
        return self._codec.encode(value, "state")[1]


def _by_position(nodes: tuple[str, ...], returned: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the recorded result of each due node; a node that was due several times has one entry for each."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for name, update in returned.items():
        found.setdefault(name.partition("#")[0], []).append(update)
    return [found[node].pop(0) for node in nodes]


def _judged(differences: Iterable[Difference]) -> tuple[ReplayVerdict, tuple[Difference, ...]]:
    found = tuple(differences)
    return ReplayVerdict.DIFFERENT if found else ReplayVerdict.SAME, found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
