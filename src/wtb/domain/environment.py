"""EnvironmentConfig: where the function of a node runs, and within which limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from wtb.domain.amounts import is_positive
from wtb.domain.errors import InvalidInput
from wtb.domain.job_limits import GB, Resources
from wtb.domain.secrets import Secret

IN_PROCESS = "in_process"
LAST_PORT = 65_535

_PLACE = frozenset({"python", "packages", "variables", "working_folder", "timeout_s", "memory_gb", "resources"})
HONOURED: Mapping[str, frozenset[str]] = {
    IN_PROCESS: frozenset({"timeout_s"}),
    "subprocess": _PLACE,
    "ray": _PLACE | {"address"},
    "grpc": _PLACE | {"address", "token", "certificate"},
}
"""The options that each kind of environment honours. It refuses the others by name."""

_MEMORY_ONLY = frozenset({"subprocess", "grpc"})
"""The kinds that honour nothing of `resources` but memory_gb."""

_REASONS = {
    "container_image": "WTB starts no containers",
    "network_isolation": "WTB cannot cut off the network of a process",
    "filesystem_isolation": "WTB cannot keep a process from reading and writing other files of its user",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentConfig:
    """The environment of a node: where its function runs, with which packages and variables, and within which limits.

    - `kind`: `in_process` (the default for nodes), `subprocess`, `ray`, `grpc`, or the name of an environment that a
      package offers.
    - `python`: the path of another Python interpreter, for example the one of a virtual environment.
    - `packages`: what to install for the node, as for pip: `["numpy==2.1.0"]`. They come before those of this process.
      The installation is kept and used again for the same list.
    - `variables`: the environment variables that the node sees, besides PATH, HOME and LANG. None as a value means
      that the variable has the same value as here. A `wtb.Secret` is never stored.
    - `working_folder`: the current folder of the node; without one, it is the same as here.
    - `memory_gb`: the most memory that each process of the node may take, in GB (10^9 bytes), besides what an empty
      interpreter takes.
    - `resources`: a `wtb.Resources` instead of memory_gb. Ray looks for a machine with room for all of it;
      `subprocess` and `grpc` honour its memory_gb, and refuse the rest by name.
    - `timeout_s`: the node is ended if it takes longer than this.
    - `address`: for `grpc`, the address of a `wtb environment-server`; for `ray`, that of a cluster. Without one, Ray
      uses the cluster that this process is connected to, or starts one on this machine.
    - `token`, `certificate`: for `grpc`, the server's token (by default `WTB_ENVIRONMENT_TOKEN`), and the file with the
      certificate that it is trusted by; without one, the connection is not encrypted.
    - `container_image`, `network_isolation`, `filesystem_isolation`: no environment of WTB honours them; they are
      refused by name.
    """

    kind: str = IN_PROCESS
    python: str | None = None
    packages: tuple[str, ...] = ()
    variables: Mapping[str, str | Secret | None] = field(default_factory=dict)
    working_folder: str | None = None
    memory_gb: float | None = None
    resources: Resources | None = None
    timeout_s: float | None = None
    address: str | None = None
    token: Secret | None = None
    certificate: str | None = None
    container_image: str | None = None
    network_isolation: bool = False
    filesystem_isolation: bool = False

    def __post_init__(self) -> None:
        packages: object = self.packages
        if not isinstance(packages, tuple | list):
            raise InvalidInput(f"packages is a list, such as ['numpy==2.1.0'], not {packages!r}")
        variables: object = self.variables
        if not isinstance(variables, Mapping):
            raise InvalidInput(f"variables is a mapping of names to values, not {variables!r}")
        resources: object = self.resources
        if not isinstance(resources, Resources | Mapping | None):
            raise InvalidInput(f"resources is a wtb.Resources, such as wtb.Resources(memory_gb=4), not {resources!r}")
        object.__setattr__(self, "resources", None if resources is None else Resources.of(resources))
        object.__setattr__(self, "packages", tuple(packages))
        object.__setattr__(self, "variables", dict(variables))

    def __hash__(self) -> int:
        return hash((self.kind, self.python, self.packages, tuple(sorted(self.variables))))

    @property
    def is_in_process(self) -> bool:
        """Whether the node runs in this process, as a node without an environment does."""
        return self.kind == IN_PROCESS

    @property
    def takes_room(self) -> bool:
        """Whether it takes room that others may wait for: on a server, or resources of a cluster."""
        asks = self.resources is not None or self.memory_gb is not None
        return self.kind == "grpc" or (self.kind == "ray" and asks)

    @property
    def memory_limit_gb(self) -> float | None:
        """The most memory for each process of the node; None for no limit."""
        return self.memory_gb if self.resources is None else self.resources.memory_gb

    @property
    def memory_bytes(self) -> int | None:
        """The same in bytes."""
        return None if self.memory_limit_gb is None else int(self.memory_limit_gb * GB)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with it, and every option that its kind does not honour."""
        for name in ("memory_gb", "timeout_s"):
            if (value := getattr(self, name)) is not None and not is_positive(value):
                yield f"{name} must be positive and finite, not {value!r}"
        if self.kind == "grpc" and self.address is None:
            yield "environment 'grpc' needs the address of a wtb environment-server: address='host:7878'"
        elif self.kind == "grpc" and not _has_port(self.address):
            yield f"the address of a server is a host and a port, such as 'host:7878', not {self.address!r}"
        yield from _variable_faults(self.variables)
        yield from self._resource_faults()
        honoured = HONOURED.get(self.kind)
        for option in self._given() if honoured is not None else ():
            if option != "kind" and option not in (honoured or ()):
                reason = _REASONS.get(option) or _other_kind(option)
                yield f"environment {self.kind!r} cannot honour {option}: {reason}. Leave {option} out"

    def _resource_faults(self) -> Iterator[str]:
        if self.resources is None:
            return
        if self.memory_gb is not None:
            yield "memory_gb and resources are both given; write the memory into resources"
        for name in _asked_beside_memory(self.resources) if self.kind in _MEMORY_ONLY else ():
            yield (
                f"environment {self.kind!r} cannot honour {name} of resources: its processes share the machine with "
                f"others. Leave {name} out, or use environment 'ray'"
            )

    def _given(self) -> list[str]:
        """Return the options that differ from their defaults."""
        empty = EnvironmentConfig(kind=self.kind)
        names = [each.name for each in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(empty, name)]

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON. A secret is left out: whoever runs the node has the variable or the token."""
        data: dict[str, Any] = {"kind": self.kind} | {name: getattr(self, name) for name in self._given()}
        data.pop("token", None)
        if self.resources is not None:
            data["resources"] = asdict(self.resources)
        if self.packages:
            data["packages"] = list(self.packages)
        if self.variables:
            data["variables"] = {
                name: value if isinstance(value, str) else None for name, value in self.variables.items()
            }
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> EnvironmentConfig:
        """Read what `to_data` wrote; raise InvalidInput for an unknown option."""
        unknown = data.keys() - {each.name for each in fields(cls)}
        if unknown:
            known = ", ".join(each.name for each in fields(cls))
            raise InvalidInput(f"an environment has no option {', '.join(sorted(unknown))}; it has {known}")
        return cls(**data)


def _has_port(address: object) -> bool:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    return bool(host) and port.isdecimal() and 0 < int(port) <= LAST_PORT


def _other_kind(option: str) -> str:
    return f"it is for {', '.join(kind for kind, options in HONOURED.items() if option in options)}"


def _asked_beside_memory(resources: Resources) -> list[str]:
    """Return the resources that a user asks for, besides memory."""
    usual = Resources()
    return [name for name in ("num_cpus", "num_gpus", "custom") if getattr(resources, name) != getattr(usual, name)]


def _variable_faults(variables: Mapping[Any, Any]) -> Iterator[str]:
    for name, value in variables.items():
        if not isinstance(name, str) or not name or "=" in name:
            yield f"a variable cannot be called {name!r}"
        if not isinstance(value, str | Secret | None):
            yield f"variable {name!r} is a text, a wtb.Secret, or None for its value here; not {value!r}"


def environment_of(given: object) -> EnvironmentConfig | None:
    """Return the environment that a user gives: a kind, a config, or a config as data; None means in this process."""
    if given is None or isinstance(given, EnvironmentConfig):
        return given
    if isinstance(given, str):
        return EnvironmentConfig(kind=given)
    if isinstance(given, Mapping):
        return EnvironmentConfig.from_data(given)
    raise InvalidInput(f"environment is a kind such as 'subprocess', or a wtb.EnvironmentConfig, not {given!r}")
