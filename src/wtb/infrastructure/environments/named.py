"""Find an environment by name: `subprocess`, `grpc`, `ray`, or one that a package offers."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from wtb.domain.environment import IN_PROCESS, EnvironmentConfig
from wtb.domain.errors import InvalidInput
from wtb.domain.ports import Environment
from wtb.infrastructure.environments.grpc import GrpcEnvironment
from wtb.infrastructure.environments.ray import RayEnvironment
from wtb.infrastructure.environments.subprocess import SubprocessEnvironment

ENTRY_POINTS = "wtb.environments"
"""The entry point group in which packages offer environments: functions of a config and the bench's folder."""

_OWN: dict[str, Callable[[EnvironmentConfig, Path], Environment]] = {
    "subprocess": SubprocessEnvironment,
    "grpc": GrpcEnvironment,
    "ray": RayEnvironment,
}


def make_environment(config: EnvironmentConfig, home: Path) -> Environment:
    """Return a new environment; raise InvalidInput, naming the known ones, if there is none of this kind."""
    if config.kind in _OWN:
        return _OWN[config.kind](config, home)
    check_known(config.kind)
    made: Environment = _offered()[config.kind].load()(config, home)
    return made


def check_known(kind: str) -> None:
    """Raise InvalidInput, naming the known ones, if there is no environment of this kind."""
    known = {IN_PROCESS, *_OWN, *_offered()}
    if kind not in known:
        raise InvalidInput(f"there is no environment {kind!r}; there are {', '.join(sorted(known))}")


def _offered() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=ENTRY_POINTS)}
