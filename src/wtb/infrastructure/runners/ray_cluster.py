"""RayCluster: a Ray cluster that runs the workers of a batch, on this machine or at an address."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from wtb.domain.errors import InvalidInput, WorkerFailed
from wtb.domain.job_limits import GB, Resources
from wtb.infrastructure.runners.project_folder import project_runtime

_OPTIONS: Mapping[str, Any] = {"namespace": "wtb", "logging_level": logging.ERROR}
_ANSWERS_WITHIN_S = 60.0
"""How long a cluster at an address may take to answer; Ray itself tries for ever."""
_OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""Ray's least. Only ids and short reports pass through Ray, and its default takes a third of the memory."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns about its next release
    "RAY_SCHEDULER_EVENTS": "0",  # else Ray prints tips about the cluster between the lines of `--json`
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # else Ray prints addresses of the machine code at a SIGTERM
}


def check_ray(address: str | None) -> None:
    """Raise InvalidInput if Ray is not installed, or cannot be used at this address."""
    if importlib.util.find_spec("ray") is None:
        raise InvalidInput('runner="ray" needs Ray, which is not installed: pip install "workflow-test-bench[ray]"')
    if address is not None and address.startswith("ray://"):
        raise InvalidInput(
            f"{address} is the address of a Ray Client server, which WTB does not use. Start the batch on a machine of "
            "the cluster with the address `auto`, or with HOST:6379"
        )


class RayCluster:
    """Our own cluster on this machine, one at an address, or the one that this process uses already."""

    def __init__(
        self,
        workers: int,
        address: str | None,
        folder: Path,
        resources: Resources = Resources(),  # noqa: B008  frozen
    ) -> None:
        address = address or os.environ.get("RAY_ADDRESS")
        check_ray(address)
        self.ray = _imported(is_local=_is_local(address))
        self._is_ours = not self.ray.is_initialized()
        if not self._is_ours:
            return
        if address is None:
            connect = partial(self._start, workers, resources)
        else:
            connect = partial(self._join, address, project_runtime(folder))
        try:
            connect()
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise WorkerFailed(_no_cluster(address, error)) from error

    def _join(self, address: str, project: dict[str, Any]) -> None:
        _within(_ANSWERS_WITHIN_S, lambda: self.ray.init(address=address, runtime_env=project, **_OPTIONS))

    def _start(self, workers: int, resources: Resources) -> None:
        """Start a cluster with room for the workers, and beside them for environments that take all of this machine.

        Ray only counts: several workers may share a core, and the watchdog sees to the memory.
        """
        self.ray.init(
            address="local",
            _node_ip_address="127.0.0.1",
            num_cpus=ceil(workers * resources.num_cpus) + (os.cpu_count() or 1),
            _memory=workers * (resources.memory_bytes or 0) + _memory_here(),
            _system_config={"prestart_worker_first_driver": False},  # else Ray starts a process for each CPU
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            **_OPTIONS,
        )

    def what_is_lacking(self, resources: Resources) -> str:
        """Say which resource no machine has enough of, or what is free if only other work is in the way."""
        wanted = _as_ray_names(resources)
        machines = [each["Resources"] for each in self.ray.nodes() if each["Alive"]]
        most = {name: max((each.get(name, 0.0) for each in machines), default=0.0) for name in wanted}
        lacking = [
            f"{_amount(name, amount)} (the most is {_amount(name, most[name])})"
            for name, amount in wanted.items()
            if most[name] < amount
        ]
        if lacking:
            return f"no machine has {' or '.join(lacking)}"
        free = [_amount(name, left) for name, left in self.ray.available_resources().items() if ":" not in name]
        return f"other work uses the machines; free now: {', '.join(free) or 'nothing'}"

    def close(self) -> None:
        """Leave the cluster; end it if it is our own."""
        if self._is_ours:
            self.ray.shutdown()


def _memory_here() -> int:
    """Return how much memory this machine has, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _no_cluster(address: str | None, error: Exception) -> str:
    if address is None:
        return f"there is no Ray cluster on this machine: {error}"
    return (
        f"there is no Ray cluster at {address} that accepts this process: {error}. If the cluster was started with a "
        "token, set RAY_AUTH_MODE=token here, too. `ray start` uses a token if there is one in ~/.ray/auth_token"
    )


def _as_ray_names(resources: Resources) -> dict[str, float]:
    """Return the resources of a worker by the names that Ray has for them."""
    named = {"CPU": resources.num_cpus, "GPU": resources.num_gpus, "memory": float(resources.memory_bytes or 0)}
    return {name: amount for name, amount in {**named, **resources.custom}.items() if amount}


def needs_of(resources: Resources) -> str:
    """Return what a worker needs, in words."""
    return ", ".join(_amount(name, amount) for name, amount in _as_ray_names(resources).items()) or "nothing"


def _amount(name: str, amount: float) -> str:
    return f"{amount / GB:,.3g} GB of {name}" if "memory" in name else f"{name} {amount:g}"


def _within(timeout_s: float, call: Callable[[], object]) -> None:
    """Call a function that may never return; raise ConnectionError if it takes too long."""
    done: Future[None] = Future()

    def work() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  raised below
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=work, name="wtb-ray-connect", daemon=True).start()
    try:
        done.result(timeout_s)
    except TimeoutError as error:
        raise ConnectionError(f"nobody answered within {timeout_s:.0f} s; check the address") from error


def _is_local(address: str | None) -> bool:
    """Whether a cluster is on this machine only, and so listens on 127.0.0.1."""
    return address is None or address.startswith(("127.0.0.1:", "localhost:"))


def _imported(*, is_local: bool) -> Any:
    """Import Ray. It reads variables when it is imported; a local cluster listens on 127.0.0.1 only."""
    logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)  # in a notebook it asks for ipywidgets
    kept = _QUIET if _shows_colours() else {**_QUIET, "RAY_COLOR_PREFIX": "0"}
    quiet = {**kept, **({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} if is_local else {})}
    added = [name for name in quiet if name not in os.environ]
    os.environ.update({name: quiet[name] for name in added})
    try:
        import ray
    finally:
        for name in added:
            if name not in kept:
                del os.environ[name]
    return ray


def _shows_colours() -> bool:
    """Whether what workers print goes to a terminal, where Ray may write their names in colours."""
    return sys.stderr is not None and sys.stderr.isatty() and "NO_COLOR" not in os.environ
