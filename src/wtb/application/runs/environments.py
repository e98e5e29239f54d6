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
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from wtb.application.dependencies.own_code import project_root
from wtb.application.dependencies.workflow_code import listed
from wtb.application.runs.code_digests import code_digests
from wtb.application.runs.context import Context
from wtb.application.runs.context_desk import ContextDesk
from wtb.application.runs.function_caller import NodeTimeout, least
from wtb.application.runs.node_host import is_message_about_end
from wtb.application.runs.remote_errors import error_from_data
from wtb.application.runs.state_view import StateView
from wtb.domain.engine import Runs
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentAway, EnvironmentFailed, InvalidInput, OutOfMemory, WTBError
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import EnvironmentCreated, EnvironmentDestroyed
from wtb.domain.events import Event
from wtb.domain.node_work import NodeFacts, NodeWork
from wtb.domain.observation import Observation, ObservedSource, SourceKind
from wtb.domain.ports import Clock, Codec, DependencyObserver, Environment, MessageLink, Storage
from wtb.domain.secrets import masked_logger
from wtb.domain.workflow import Node
from wtb.domain.workflow_data import reference_of

_log = masked_logger(__name__)

_MOST_IDLE = 8
"""How many idle environments are kept. Each of them takes about as much memory as this process."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
"""How long a node that waits for an environment pauses before it tries again, unless one is given back here."""

MakeEnvironment = Callable[[EnvironmentConfig], Environment]


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
        self._idle: list[tuple[EnvironmentConfig, Environment]] = []
        self._all: dict[int, tuple[EnvironmentConfig, Environment]] = {}
        self._is_closed = False

    def call(
        self, node: Node, state: StateView, context: Context | None, timeout_s: float | None, caller: Runs
    ) -> Mapping[str, Any]:
        """Run the function of a node in its environment, and return its update."""
        assert node.environment is not None
        config = _with_values(node.environment)
        work = self._work_of(node, state, context)
        limit_s = least(timeout_s, config.timeout_s)
        environment = self._taken(config, limit_s)
        call = _EnvironmentCall(node, config, environment, limit_s)
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

    def _raise(self, call: _EnvironmentCall, data: Mapping[str, Any]) -> NoReturn:
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
            at = next((at for at, (each, _) in enumerate(self._idle) if each == _without_timeout(config)), None)
            return None if at is None else self._idle.pop(at)[1]

    def _give_back(self, config: EnvironmentConfig, environment: Environment) -> None:
        """Keep an environment for the next node, without anything that the last one left running."""
        try:
            environment.clean()
        except EnvironmentFailed:
            self._destroy(config, environment, "it did not answer")
            return
        config = _without_timeout(config)
        with self._lock:
            self._idle.append((config, environment))
            surplus = self._idle.pop(0) if len(self._idle) > _MOST_IDLE else None
            self._given_back.notify()
        if surplus is not None:
            self._destroy(*surplus, "others are needed more")

    def _give_back_after(self, call: _EnvironmentCall) -> None:
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
        except WTBError:
            _log.warning("an event about an environment could not be stored", exc_info=True)

    def close(self) -> None:
        """End all environments."""
        with self._lock:
            self._is_closed = True
            every = list(self._all.values())
            self._idle.clear()
        for config, environment in every:
            self._destroy(config, environment, "the bench was closed")


class _EnvironmentCall:
    """One call of a node's function in an environment."""

    def __init__(
        self, node: Node, config: EnvironmentConfig, environment: Environment, timeout_s: float | None
    ) -> None:
        self._node = node
        self.config = config
        self.environment = environment
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._is_late = False
        self.has_ended_well = False
        """Whether the process has said that the node has ended, so that it can run another one."""

    def made(self, work: NodeWork, context: Context | None, codec: Codec, caller: Runs) -> Mapping[str, Any]:
        """Make the call, answer what the node asks for, and return the message about its end."""
        ended: Mapping[str, Any] = {}
        for _ in range(2):
            ended = self._talked(self.environment.start(), work, context, codec, caller)
            if "other_code" not in ended:
                return ended
            self.has_ended_well = False
            self.environment.kill()  # it may have loaded the file before it was edited; a new process has not
        raise EnvironmentFailed(
            f"node {self._node.name!r} cannot run in {self.environment.name}, which has other code than this process: "
            f"{listed(ended['other_code'])}. Start your program again if you have edited it; else copy the code there"
        )

    def _talked(
        self, link: MessageLink, work: NodeWork, context: Context | None, codec: Codec, caller: Runs
    ) -> Mapping[str, Any]:
        desk = None if context is None else ContextDesk(context, link, codec, caller)
        timer = self._timer()
        try:
            link.send({"execute": work.to_data()})
            ended = _converse(link, desk)
            with self._lock:
                self.has_ended_well = ended is not None and not self._is_late
        finally:
            if timer is not None:
                timer.cancel()
                if not self.has_ended_well:
                    timer.join()  # its kill must not hit the next node of this environment
            if desk is not None:
                desk.end()
        if desk is not None and desk.interruption is not None:
            raise desk.interruption
        if self._is_late:
            raise NodeTimeout(f"node {self._node.name!r} took longer than its {self._timeout_s:g} s, and was ended")
        if ended is None:
            self._lost()
        return ended

    def _timer(self) -> threading.Timer | None:
        if self._timeout_s is None:
            return None
        timer = threading.Timer(self._timeout_s, self._end_late)
        timer.daemon = True
        timer.start()
        return timer

    def _end_late(self) -> None:
        with self._lock:
            if self.has_ended_well:
                return  # the environment may run another node by now
            self._is_late = True
        with suppress(EnvironmentFailed):  # it does not answer; its link is closed, so the node has ended for us
            self.environment.kill()

    def _lost(self) -> NoReturn:
        """Raise the error of a node whose process ended by itself."""
        how = self.environment.kill()
        limit = self.config.memory_limit_gb
        hint = "" if limit is None else f" (it may take {limit:g} GB)"
        raise EnvironmentFailed(f"node {self._node.name!r} was ended: its process {how}{hint}")

    def out_of_memory(self) -> OutOfMemory:
        """Return the error of a node that took too much memory."""
        return OutOfMemory(f"node {self._node.name!r} was ended: it took more than {self.config.memory_limit_gb:g} GB")


def _with_values(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return a config with the values that variables have here now: another value needs another environment."""
    given = config.variables.items()
    return replace(config, variables={name: os.environ.get(name) if value is None else value for name, value in given})


def _without_timeout(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return what makes an environment fit for a node; the time that a node may take does not."""
    return replace(config, timeout_s=None)


def _converse(link: MessageLink, desk: ContextDesk | None) -> Mapping[str, Any] | None:
    """Answer requests until the node has ended; return the message about that, or None if the process has ended."""
    while (message := link.receive()) is not None:
        if is_message_about_end(message):
            return message
        assert desk is not None
        desk.take(message)
    return None


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
