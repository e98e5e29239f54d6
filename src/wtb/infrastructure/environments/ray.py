"""RayEnvironment: runs nodes on a machine of a Ray cluster, in a process below an actor."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed, MissingLibrary, WTBError
from wtb.domain.job_limits import Resources
from wtb.infrastructure.environments.ray_actor import EnvironmentActor
from wtb.infrastructure.environments.remote import RemoteEnvironment
from wtb.infrastructure.environments.remote_link import OpenStream
from wtb.infrastructure.environments.subprocess import remote_config_data
from wtb.infrastructure.runners.ray_cluster import RayCluster, needs_of

_PLACED_WITHIN_S = 60.0
_STARTED_WITHIN_S = 600.0
"""How long an environment may take to start; it may have to install packages."""
_ANSWERED_WITHIN_S = 60.0
_GROUPS = {"put": "incoming", "take": "outgoing"}
_THREADS = {"incoming": 1, "outgoing": 1, "control": 2}
"""The actor's threads: a call that waits for messages must not keep others waiting."""
_CLUSTERS = threading.Lock()


class RayEnvironment(RemoteEnvironment):
    """An actor, and below it a guard and the process that runs nodes.

    The actor takes no processor from others: while its node runs, the worker of the run waits.
    """

    def __init__(self, config: EnvironmentConfig, home: Path) -> None:
        given = {
            "config": remote_config_data(config),
            "wtb": version("workflow-test-bench"),
            "path": sys.path,
            "folder": str(Path.cwd()),
        }
        with _CLUSTERS:
            self._cluster = _connected(config.address)
        self._ray = self._cluster.ray
        self._actor = _new_actor(self._ray, config)
        super().__init__()
        try:
            self._check_placed(config)
            host = self._created(given)
        except BaseException:
            self._release()
            self._scratch.close()
            raise
        self.name = f"ray {self._actor._actor_id.hex()[:12]} on {host}"

    def _created(self, given: Mapping[str, Any]) -> str:
        try:
            return str(self._answer("create", given, timeout_s=_STARTED_WITHIN_S))
        except EnvironmentFailed:
            with suppress(EnvironmentFailed):
                self._ask("end")  # it removes its files
            raise

    def is_alive(self) -> bool:
        try:
            return bool(self._ray.get(self.call("ping"), timeout=_ANSWERED_WITHIN_S))
        except self._ray.exceptions.RayError:
            return False

    def _new_stream(self) -> OpenStream:
        number = self._ask("open")
        return lambda messages: _RayStream(self, number, messages)

    def _ask(self, what: str) -> Any:
        return self._answer(what, timeout_s=_ANSWERED_WITHIN_S)

    def _release(self) -> None:
        """End the actor. The guard below it then ends everything."""
        self._ray.kill(self._actor)

    def _check_placed(self, config: EnvironmentConfig) -> None:
        needs = _needs(config)
        try:
            self._ray.get(self.call("ping"), timeout=_PLACED_WITHIN_S)
        except self._ray.exceptions.GetTimeoutError as error:
            raise EnvironmentFailed(
                f"Ray found no machine for an environment within {_PLACED_WITHIN_S:g} s. It needs {needs_of(needs)}, "
                f"and {self._cluster.what_is_lacking(needs)}. Change its resources, add machines, or end what uses the "
                "cluster"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise EnvironmentFailed(f"the environment could not be started on Ray: {error}") from error

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the actor; return Ray's reference of the answer."""
        return getattr(self._actor, method).options(concurrency_group=_GROUPS.get(method, "control")).remote(*arguments)

    def _answer(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        try:
            answer = self._ray.get(self.call(method, *arguments), timeout=timeout_s)
        except self._ray.exceptions.RayError as error:
            raise EnvironmentFailed(f"the environment on Ray did not answer: {error}") from error
        if "refused" in answer:
            raise EnvironmentFailed(answer["refused"])
        return answer["answer"]

    def got(self, reference: Any) -> Any:
        """Wait for the answer of a call; raise EnvironmentFailed if there is none."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise EnvironmentFailed(f"the environment on Ray did not answer: {error}") from error


class _RayStream:
    """Messages by calls: a thread sends those of an iterator; each `next` asks the actor for what has come."""

    def __init__(self, environment: RayEnvironment, number: int, messages: Iterator[Mapping[str, Any]]) -> None:
        self._environment = environment
        self._number = number
        self._received: list[Mapping[str, Any]] = []
        self._is_cancelled = False
        self._failure: EnvironmentFailed | None = None
        threading.Thread(target=self._send, args=(messages,), name="wtb-ray-send", daemon=True).start()

    def _send(self, messages: Iterator[Mapping[str, Any]]) -> None:
        try:
            for message in messages:
                self._environment.got(self._environment.call("put", self._number, message))
        except EnvironmentFailed as error:
            self._failure = error

    def __next__(self) -> Mapping[str, Any]:
        while not self._received and not self._is_cancelled:
            if self._failure is not None:  # without the message the node would wait for ever
                raise self._failure
            found = self._taken()
            if found is None:
                raise StopIteration
            self._received = found
        if self._is_cancelled:
            raise StopIteration
        return self._received.pop(0)

    def _taken(self) -> list[Mapping[str, Any]] | None:
        """Return the messages that have come; None if the process or the actor has ended."""
        try:
            found: list[Mapping[str, Any]] | None = self._environment.got(self._environment.call("take", self._number))
        except EnvironmentFailed:
            return None  # `kill` says why
        return found

    def cancel(self) -> None:
        self._is_cancelled = True


def _needs(config: EnvironmentConfig) -> Resources:
    """Return what an environment takes of the cluster; no processor unless the user says so."""
    return config.resources or Resources(num_cpus=0, memory_gb=config.memory_gb)


def _new_actor(ray: Any, config: EnvironmentConfig) -> Any:
    needs = _needs(config)
    make = ray.remote(
        num_cpus=needs.num_cpus,
        num_gpus=needs.num_gpus,
        memory=needs.memory_bytes,
        resources=dict(needs.custom),
        max_restarts=0,
        concurrency_groups=_THREADS,
    )
    return make(EnvironmentActor).remote()


def _connected(address: str | None) -> RayCluster:
    """Return the cluster that this process uses, or connect it to one. It stays connected until the process ends."""
    if importlib.util.find_spec("ray") is None:
        raise MissingLibrary(
            'environment "ray" needs Ray, which is not installed: pip install "workflow-test-bench[ray]"'
        )
    try:
        return RayCluster(0, address, Path.cwd())
    except WTBError as error:
        raise EnvironmentFailed(str(error)) from error
