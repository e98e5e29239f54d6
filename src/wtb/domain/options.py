"""RunOptions: the options of a run, stored with it so that it continues in the same way after a resume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.workflow import WorkflowDefinition, names_of

DEFAULT_MAX_STEPS = 1_000


class Keep(StrEnum):
    """Which checkpoints of a run are kept after it has ended; until then all are, so that a crash loses nothing.

    The first and the last one stay in any case, and so do those that somebody named or branched from.
    """

    EVERY_NODE = "every_node"
    ON_SUCCESS = "on_success"
    ON_ERROR = "on_error"


class OnFailure(StrEnum):
    """What to do if a checkpoint cannot be written: continue and make up for it later, or stop."""

    WARN = "warn"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Breakpoints, limits and checkpoints of one run."""

    break_before: tuple[str, ...] = ()
    break_after: tuple[str, ...] = ()
    max_steps: int = DEFAULT_MAX_STEPS
    timeout_s: float | None = None
    seed: int = 0
    checkpoints: Keep = Keep.EVERY_NODE
    fine_grained: bool = False
    checkpoint_failure: OnFailure = OnFailure.WARN
    variants: Mapping[str, str] = field(default_factory=dict)

    def check(self, definition: WorkflowDefinition) -> None:
        """Raise InvalidInput with every option that does not fit the workflow."""
        faults = list(self._faults(definition))
        if faults:
            raise InvalidInput("; ".join(faults))

    def _faults(self, definition: WorkflowDefinition) -> Iterator[str]:
        names = {node.name for node in definition.nodes}
        for option in ("break_before", "break_after"):
            for name in getattr(self, option):
                if name not in names:
                    yield f"{option}: there is no node {name!r}; nodes are {', '.join(sorted(names))}"
        if self.max_steps < 1:
            yield f"max_steps must be at least 1, not {self.max_steps}"
        if self.timeout_s is not None and self.timeout_s <= 0:
            yield f"timeout_s must be positive, not {self.timeout_s}"

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain JSON."""
        # `asdict` copies what it finds in depth, and takes 20 µs.
        return {name: getattr(self, name) for name in _NAMES} | {"variants": dict(self.variants)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunOptions:
        """Read what `to_dict` wrote; missing options get their defaults."""
        read: dict[str, Any] = dict(data)
        unknown = read.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise InvalidInput(f"unknown option {', '.join(sorted(unknown))}; a run has {', '.join(cls.__slots__)}")
        for option in ("break_before", "break_after"):
            read[option] = names_of(read.get(option, ()))
        for option, kind in (("checkpoints", Keep), ("checkpoint_failure", OnFailure)):
            if option in read:
                read[option] = _choice(option, kind, read[option])
        return cls(**read)


_NAMES = tuple(field.name for field in fields(RunOptions))


def _choice(option: str, kind: type[StrEnum], value: str) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(f"{option}={value!r} is unknown; it is one of {', '.join(kind)}") from None
