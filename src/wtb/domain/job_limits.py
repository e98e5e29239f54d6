"""Resources and JobLimits: what a job may use, and what happened if it used more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from wtb.domain.amounts import is_amount, is_positive
from wtb.domain.errors import InvalidInput

GB = 1_000_000_000
_INSTEAD: Mapping[object, str] = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory_gb"}
"""Ray's names of resources that have an option of their own."""

JOB_TIMEOUT_S = 3_600.0
"""How many seconds a job may take if nobody says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a worker needs while it runs a job: `wtb.Resources(num_cpus=2, memory_gb=8)`.

    Ray looks for a machine with room for all of it. In processes and on Ray, a worker that uses more memory than
    `memory_gb` is ended, and its job fails. Threads share one process, so nothing of this applies to them.
    """

    num_cpus: float = 1.0
    """CPUs of the machine."""
    num_gpus: float = 0.0
    """Graphics cards of the machine."""
    memory_gb: float | None = 2.0
    """Resident memory of the worker and the processes that it starts, in GB (10^9 bytes); None for no limit."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Resources that your Ray cluster defines, by name."""

    def __post_init__(self) -> None:
        """Refuse amounts that make no sense."""
        self._check_custom()
        for name, amount in {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, **self.custom}.items():
            if not is_amount(amount):
                raise InvalidInput(f"resources: {name} must be a finite number from 0, not {amount!r}")
        if self.num_gpus > 1 and self.num_gpus % 1:
            raise InvalidInput(f"resources: num_gpus above 1 must be a whole number for Ray, not {self.num_gpus!r}")
        if self.memory_gb is not None and not is_positive(self.memory_gb):
            raise InvalidInput(
                f"resources: memory_gb must be a finite number above 0, or None for no limit, not {self.memory_gb!r}"
            )

    def _check_custom(self) -> None:
        custom: object = self.custom
        if not isinstance(custom, Mapping):
            raise InvalidInput(f"resources: custom maps names to amounts, such as {{'tpu': 1}}, not {custom!r}")
        for name in custom:
            if name in _INSTEAD:
                raise InvalidInput(f"resources: write {_INSTEAD[name]} instead of {name!r} in custom")
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"resources: a custom resource cannot be called {name!r}")

    @classmethod
    def of(cls, given: Resources | Mapping[str, Any] | None) -> Resources:
        """Return the resources that a user named, as an object or as a dictionary."""
        if isinstance(given, Resources):
            return given
        unknown = sorted(set(given or {}) - set(cls.__dataclass_fields__))
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise InvalidInput(f"resources: there is no {', '.join(unknown)}; there are {known}; name others in custom")
        return cls(**(given or {}))

    @property
    def memory_bytes(self) -> int | None:
        """The most memory, in bytes; None for no limit."""
        return None if self.memory_gb is None else int(self.memory_gb * GB)


class LimitKind(StrEnum):
    """Which limit a job exceeded; also the type of the job's error."""

    TIME = "JobTimeout"
    MEMORY = "JobMemoryExceeded"


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """A limit that a job exceeded, in words."""

    kind: LimitKind
    happened: str
    """What the job did, after "the job"."""
    advice: str

    @classmethod
    def time(cls, limit_s: float) -> ExceededLimit:
        """Return that a job took too long."""
        advice = "Raise job_timeout_s if it needs longer"
        return cls(LimitKind.TIME, f"took longer than {limit_s:,g} s, the limit of job_timeout_s", advice)

    @classmethod
    def memory(cls, used_bytes: int, limit_bytes: int) -> ExceededLimit:
        """Return that the worker of a job used too much memory."""
        used, limit = (f"{size / GB:,.3g} GB" for size in (used_bytes, limit_bytes))
        advice = (
            f"Raise memory_gb of its resources if it needs more, as in wtb.Resources(memory_gb={_more(used_bytes)})"
        )
        return cls(LimitKind.MEMORY, f"used {used} of memory, more than {limit}, the limit of memory_gb", advice)


def _more(used_bytes: int) -> int:
    """Return whole gigabytes with some room above what was used."""
    return int(used_bytes * 1.25 / GB) + 1


@dataclass(frozen=True, kw_only=True)
class JobLimits:
    """The limits of each job of a batch."""

    timeout_s: float | None = JOB_TIMEOUT_S
    """None for no limit."""
    resources: Resources = field(default_factory=Resources)

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"timeout_s": self.timeout_s, "resources": asdict(self.resources)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> JobLimits:
        """Read it from plain JSON."""
        return cls(timeout_s=data["timeout_s"], resources=Resources(**data["resources"]))
