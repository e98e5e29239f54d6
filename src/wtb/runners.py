"""Find a runner by name: `threads`, `processes`, `ray`, one of a package, or your own as `file.py:Runner`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from wtb.domain.errors import InvalidInput
from wtb.domain.runner import Runner
from wtb.infrastructure.runners.processes import ProcessRunner
from wtb.infrastructure.runners.threads import ThreadRunner
from wtb.loading import load_named

ENTRY_POINTS = "wtb.runners"
"""The entry point group in which packages offer runners."""

_OWN: dict[str, Callable[[], Runner]] = {"threads": ThreadRunner, "processes": ProcessRunner}
RAY = "ray"


def load_runner(name: str, *, ray_address: str | None = None) -> Runner:
    """Return a new runner; raise InvalidInput, naming the known ones, if there is none of this name."""
    if not isinstance(name, str):
        raise InvalidInput(f"runner={name!r}: give the name of a runner, such as 'processes', or file.py:Runner")
    if name == RAY:
        return _ray_runner(ray_address)
    if ray_address is not None:
        raise InvalidInput(f"a Ray address is for runner='ray', not for {name!r}; leave it out, or use runner='ray'")
    if ":" in name:
        return _made(name, load_named(name, callable, "runner", "Runner")[0])
    if name in _OWN:
        return _OWN[name]()
    offered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
    if name in offered:
        return _made(name, offered[name].load())
    known = ", ".join(sorted({*_OWN, RAY, *offered}))
    raise InvalidInput(f"there is no runner {name!r}; there are {known}; name your own as file.py:Runner")


def _ray_runner(address: str | None) -> Runner:
    from wtb.infrastructure.runners.ray import RayRunner
    from wtb.infrastructure.runners.ray_cluster import check_ray

    check_ray(address)
    return RayRunner(_ray_worker, address)


def _ray_worker() -> type:
    """Return the class of the actors. Importing it imports Ray, which takes a second."""
    from wtb.ray_worker import RayWorker

    return RayWorker


def _made(name: str, make: Callable[[], Runner]) -> Runner:
    made = make()
    lacking = [each for each in ("start", "submit", "close") if not callable(getattr(made, each, None))]
    if lacking:
        raise InvalidInput(f"runner {name!r} has no {', '.join(lacking)}: see wtb.domain.runner.Runner")
    return made
