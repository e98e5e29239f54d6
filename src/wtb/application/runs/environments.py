"""Environments: runs the functions of nodes outside this process, and keeps the environments for the next node."""

from __future__ import annotations

import inspect
import math
import os
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from wtb.application.dependencies.own_code import project_root
from wtb.application.runs.code_digests import code_digests
from wtb.application.runs.context import Context
from wtb.application.runs.environment_call import EnvironmentCall
from wtb.application.runs.function_caller import least
from wtb.application.runs.remote_errors import error_from_data
from wtb.application.runs.state_view import StateView
from wtb.domain.engine import Runs
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentAway, EnvironmentFailed, InvalidInput, WTBError
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import EnvironmentCreated, EnvironmentDestroyed
from wtb.domain.events import Event
from wtb.domain.node_work import NodeFacts, NodeWork
from wtb.domain.observation import Observation, ObservedSource, SourceKind
from wtb.domain.ports import Clock, Codec, DependencyObserver, Environment, Storage
from wtb.domain.secrets import masked_logger
from wtb.domain.workflow import Node
from wtb.domain.workflow_data import reference_of

_log = masked_logger(__name__)

_MOST_IDLE = 8
"""How many idle environments are kept. Each of them takes about as much memory as this process."""

_IDLE_S = 10.0
"""How long an idle environment is kept that takes room which others may wait for."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
"""How long a node that waits for an environment pauses before it tries again, unless one is given back here."""

MakeEnvironment = Callable[[EnvironmentConfig], Environment]


class _Idle(NamedTuple):
    """An environment that waits for its next node."""

    config: EnvironmentConfig
    environment: Environment
    since_s: float


class Environments:
    """The environments of this process, by their config. Each runs one node at a time."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        codec: Codec,
        observer: DependencyObserver,
        *,
        make: MakeEnvironment,
        imports: Callable[[], Iterable[str]],
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._codec = codec
        self._observer = observer
        self._make = make
        self._imports = imports
        self._lock = threading.Lock()
        self._given_back = threading.Condition(self._lock)
        self._idle: list[_Idle] = []
        self._all: dict[int, tuple[EnvironmentConfig, Environment]] = {}
        self._is_closed = False
        self._has_watcher = False

    def call(
        self, node: Node, state: StateView, context: Context | None, timeout_s: float | None, caller: Runs
    ) -> Mapping[str, Any]:
        """Run the function of a node in its environment, and return its update."""
        assert node.environment is not None
        config = _with_values(node.environment)
        work = self._work_of(node, state, context)
        limit_s = least(timeout_s, config.timeout_s)
        environment = self._taken(config, limit_s)
        call = EnvironmentCall(node, config, environment, limit_s)
        try:
            ended = call.made(work, context, self._codec, caller)
        except BaseException:
            self._give_back_after(call)
            raise
        self._observe(ended.get("observed", ()))
        if "failed" in ended:
            self._raise(call, ended["failed"])
        self._give_back(config, environment)
        state.assigned.update(ended["assigned"])
        returned: Mapping[str, Any] = self._codec.decode(b64decode(ended["returned"]))
        return returned

    def _raise(self, call: EnvironmentCall, data: Mapping[str, Any]) -> NoReturn:
        """Raise the error of a node. A process that ran out of memory gives way to a new one."""
        try:
            error = error_from_data(data, self._codec)
        except WTBError:  # a class that only the environment knows
            self._give_back_after(call)
            raise
        if isinstance(error, MemoryError) and call.config.memory_limit_gb is not None:
            call.has_ended_well = False
            self._give_back_after(call)
            raise call.out_of_memory() from error
        self._give_back(call.config, call.environment)
        raise error

    def _work_of(self, node: Node, state: StateView, context: Context | None) -> NodeWork:
        function = node.function
        assert function is not None
        return NodeWork(
            node=node.name,
            reference=_reference(node, function),
            code=code_digests(function),
            imports=tuple(sorted(self._imports())),
            root=str(project_root()),
            state=self._codec.encode({key: state[key] for key in state}, "state")[0],
            reads=node.reads,
            facts=None if context is None else self._facts(context),
        )

    def _facts(self, context: Context) -> NodeFacts:
        run = context.run
        return NodeFacts(
            execution_id=run.execution_id,
            branch_id=run.branch_id,
            node_run_id=run.id,
            visit=run.visit,
            attempt=run.attempt,
            seed=context.seed,
            config=self._codec.encode(context.config, "config")[0],
        )

    def _observe(self, data: Iterable[list[str]]) -> None:
        """Let what the node read count as read by this process: its result depends on it."""
        found = [
            Observation(reader, ObservedSource(SourceKind(kind), name), digest) for reader, kind, name, digest in data
        ]
        if found:
            self._observer.add(found)

    # The environments that exist

    def _taken(self, config: EnvironmentConfig, limit_s: float | None) -> Environment:
        """Return an idle environment with this config, or a new one; if its server is full or away, wait for it."""
        began, pause_s = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return self._taken_now(config)
            except EnvironmentAway as error:
                if self._has_made_room(config):
                    continue
                waited_s = time.monotonic() - began
                if waited_s + pause_s > min(error.worth_waiting_s, math.inf if limit_s is None else limit_s):
                    raise
            with self._given_back:
                self._given_back.wait(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _taken_now(self, config: EnvironmentConfig) -> Environment:
        with self._lock:
            if self._is_closed:
                raise EnvironmentFailed("the bench is closed: it starts no more environments")
        while (idle := self._idle_one(config)) is not None:
            if idle.is_alive():
                return idle
            self._destroy(config, idle, "its process or its server has ended")
        environment = self._make(config)
        with self._lock:
            self._all[id(environment)] = config, environment
        self._tell(EnvironmentCreated(kind=config.kind, name=environment.name))
        return environment

    def _idle_one(self, config: EnvironmentConfig) -> Environment | None:
        with self._lock:
            at = next((at for at, each in enumerate(self._idle) if each.config == _without_timeout(config)), None)
            return None if at is None else self._idle.pop(at).environment

    def _has_made_room(self, config: EnvironmentConfig) -> bool:
        """End an idle environment of this process on the same server, if there is one; it has another config."""
        place = config.kind, config.address
        with self._lock:
            there = [each for each in self._idle if (each.config.kind, each.config.address) == place]
            if not there:
                return False
            if any(each.config == _without_timeout(config) for each in there):
                return True  # it was given back at this moment
            self._idle.remove(there[0])
        self._destroy(there[0].config, there[0].environment, "others are needed more")
        return True

    def _give_back(self, config: EnvironmentConfig, environment: Environment) -> None:
        """Keep an environment for the next node, without anything that the last one left running."""
        try:
            environment.clean()
        except EnvironmentAway:
            self._destroy(config, environment, "others wait for its room")
            return
        except EnvironmentFailed:
            self._destroy(config, environment, "it did not answer")
            return
        config = _without_timeout(config)
        with self._lock:
            self._idle.append(_Idle(config, environment, time.monotonic()))
            surplus = self._idle.pop(0) if len(self._idle) > _MOST_IDLE else None
            self._given_back.notify_all()
            starts_watcher = config.takes_room and not self._has_watcher
            self._has_watcher |= starts_watcher
        if surplus is not None:
            self._destroy(surplus.config, surplus.environment, "others are needed more")
        if starts_watcher:
            threading.Thread(target=self._end_idle, name="wtb-idle-environments", daemon=True).start()

    def _end_idle(self) -> None:
        """End environments that take room which others may wait for, once they are idle for a while."""
        while True:
            with self._given_back:
                kept = [each for each in self._idle if each.config.takes_room]
                if not kept:
                    self._has_watcher = False
                    return
                rest_s = kept[0].since_s + _IDLE_S - time.monotonic()
                if rest_s > 0:
                    self._given_back.wait(rest_s)
                    continue
                self._idle.remove(kept[0])
            self._destroy(kept[0].config, kept[0].environment, "no node needed it any more")

    def _give_back_after(self, call: EnvironmentCall) -> None:
        """Keep an environment whose node did not return; a node that has not ended is killed first."""
        try:
            if not call.has_ended_well:
                call.environment.kill()
            self._give_back(call.config, call.environment)
        except EnvironmentFailed:
            self._destroy(call.config, call.environment, "it did not answer")

    def _destroy(self, config: EnvironmentConfig, environment: Environment, reason: str) -> None:
        with self._lock:
            if self._all.pop(id(environment), None) is None:
                return
        environment.close()
        self._tell(EnvironmentDestroyed(kind=config.kind, name=environment.name, reason=reason))

    def _tell(self, body: EventBody) -> None:
        """Store an event; a node must not fail because of it."""
        try:
            with self._storage.unit_of_work() as uow:
                uow.events.append(Event.of(body, at=self._clock.now()))
                uow.commit()
        except WTBError as error:
            _log.warning("an event about an environment could not be stored: %s", error)

    def close(self) -> None:
        """End all environments."""
        with self._lock:
            self._is_closed = True
            every = list(self._all.values())
            self._idle.clear()
            self._given_back.notify_all()
        for config, environment in every:
            self._destroy(config, environment, "the bench was closed")


def _with_values(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return a config with the values that variables have here now: another value needs another environment."""
    given = config.variables.items()
    return replace(config, variables={name: os.environ.get(name) if value is None else value for name, value in given})


def _without_timeout(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return what makes an environment fit for a node; the time that a node may take does not."""
    return replace(config, timeout_s=None)


def _reference(node: Node, function: Callable[..., Any]) -> str:
    """Return where the other process imports the function; raise InvalidInput if it cannot."""
    reference = node.reference or reference_of(function)
    if reference is None or ":" not in reference:
        raise InvalidInput(
            f"node {node.name!r} runs in an environment, which imports its function by name: define the function at "
            "the top level of a module, or leave environment out"
        )
    if not _is_importable(reference, function):
        raise InvalidInput(
            f"node {node.name!r} runs in an environment, which would import {reference}, and that is another object: "
            "give the function a name of its own at the top level of its module"
        )
    return reference


def _is_importable(reference: str, function: Callable[..., Any]) -> bool:
    """Whether this process finds the same function under its name, as far as it can tell."""
    found: Any = sys.modules.get(getattr(function, "__module__", ""))
    for part in reference.partition(":")[2].split("."):
        found = getattr(found, part, None)
    return found is function or inspect.unwrap(found) is inspect.unwrap(function) if callable(found) else False
