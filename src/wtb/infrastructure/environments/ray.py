"""RayEnvironment: runs nodes on a machine of a Ray cluster, in a process below an actor."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed, MissingLibrary, WTBError
from wtb.infrastructure.environments.ray_actor import EnvironmentActor
from wtb.infrastructure.environments.remote_link import RemoteLink
from wtb.infrastructure.environments.subprocess import remote_config_data
from wtb.infrastructure.runners.ray_cluster import RayCluster

_PLACED_WITHIN_S = 60.0
_STARTED_WITHIN_S = 600.0
"""How long an environment may take to start; it may have to install packages."""
_ANSWERED_WITHIN_S = 60.0
_GIB = 1024**3
_GROUPS = {"put": "incoming", "take": "outgoing"}
_THREADS = {"incoming": 1, "outgoing": 1, "control": 2}
"""The actor's threads: a call that waits for messages must not keep others waiting."""
_CLUSTERS = threading.Lock()


class RayEnvironment:
    """An actor, and below it a guard and the process that runs nodes.

    The actor takes no processor from others: while its node runs, the worker of the run waits.
    """

    def __init__(self, config: EnvironmentConfig, home: Path) -> None:
        with _CLUSTERS:
            self._cluster = _connected(config.address)
        self._ray = self._cluster.ray
        self._lock = threading.Lock()
        self._link: RemoteLink | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix="wtb-ray-"))
        memory = {} if config.memory_gb is None else {"memory": int(config.memory_gb * _GIB)}
        make = self._ray.remote(num_cpus=0, max_restarts=0, concurrency_groups=_THREADS, **memory)
        self._actor = make(EnvironmentActor).remote()
        try:
            self._check_placed(config)
            given = {
                "config": remote_config_data(config),
                "wtb": version("workflow-test-bench"),
                "path": sys.path,
                "folder": str(Path.cwd()),
            }
            host = self._answer("create", given, timeout_s=_STARTED_WITHIN_S)
        except BaseException:
            self._release()
            raise
        self.name = f"ray {self._actor._actor_id.hex()[:12]} on {host}"

    def start(self) -> RemoteLink:
        with self._lock:
            if self._link is None:
                number = self._answer("open", timeout_s=_ANSWERED_WITHIN_S)
                self._link = RemoteLink(lambda messages: _RayStream(self, number, messages), self._scratch)
            return self._link

    def clean(self) -> None:
        self._answer("clean", timeout_s=_ANSWERED_WITHIN_S)

    def kill(self) -> str:
        with self._lock:
            link, self._link = self._link, None
        try:
            return str(self._answer("kill", timeout_s=_ANSWERED_WITHIN_S))
        finally:
            if link is not None:
                link.close()

    def close(self) -> None:
        with self._lock:
            if self._link is not None:
                self._link.close()
        with suppress(EnvironmentFailed):
            self._answer("end", timeout_s=_ANSWERED_WITHIN_S)
        self._release()

    def _release(self) -> None:
        """End the actor. The guard below it then ends everything."""
        self._ray.kill(self._actor)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _check_placed(self, config: EnvironmentConfig) -> None:
        try:
            self._ray.get(self.call("ping"), timeout=_PLACED_WITHIN_S)
        except self._ray.exceptions.GetTimeoutError as error:
            need = "" if config.memory_gb is None else f" with {config.memory_gb:g} GB of free memory"
            raise EnvironmentFailed(
                f"the Ray cluster has found no machine{need} for an environment within {_PLACED_WITHIN_S:.0f} s"
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
        """Wait for the answer of a call; return None if the actor is gone."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError:
            return None


class _RayStream:
    """Messages by calls: a thread sends those of an iterator; each `next` asks the actor for what has come."""

    def __init__(self, environment: RayEnvironment, number: int, messages: Iterator[Mapping[str, Any]]) -> None:
        self._environment = environment
        self._number = number
        self._received: list[Mapping[str, Any]] = []
        self._is_cancelled = False
        threading.Thread(target=self._send, args=(messages,), name="wtb-ray-send", daemon=True).start()

    def _send(self, messages: Iterator[Mapping[str, Any]]) -> None:
        for message in messages:
            self._environment.got(self._environment.call("put", self._number, message))

    def __next__(self) -> Mapping[str, Any]:
        while not self._received and not self._is_cancelled:
            found = self._environment.got(self._environment.call("take", self._number))
            if found is None:
                raise StopIteration
            self._received = found
        if self._is_cancelled:
            raise StopIteration
        return self._received.pop(0)

    def cancel(self) -> None:
        self._is_cancelled = True


def _connected(address: str | None) -> RayCluster:
    """Return the cluster that this process uses, or connect it to one. It stays connected until the process ends."""
    if importlib.util.find_spec("ray") is None:
        raise MissingLibrary(
            'environment "ray" needs Ray, which is not installed: pip install "workflow-test-bench[ray]"'
        )
    try:
        return RayCluster(os.cpu_count() or 1, address, Path.cwd())
    except WTBError as error:
        raise EnvironmentFailed(str(error)) from error
