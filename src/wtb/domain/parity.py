"""Parity: whether a batch has the same results on different runners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MOST_NAMED = 5
"""How many keys or paths a difference names."""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """The facts about a finished job that must not depend on the runner. Times may, so they are not among them."""

    status: str
    error: str | None = None
    """The type and the message of its error."""
    state: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)
    """What tells the content of each file, by path."""


@dataclass(frozen=True, kw_only=True)
class ParityDifference:
    """A difference between the same job on two runners."""

    combination: str
    case: str
    repeat: int
    runners: tuple[str, str]
    what: str
    """`status`, `error`, `state`, `scores` or `files`."""
    detail: str

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "combination": self.combination,
            "case": self.case,
            "repeat": self.repeat,
            "runners": list(self.runners),
            "what": self.what,
            "detail": self.detail,
        }


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """The differences between runners; none if they agree."""

    batches: Mapping[str, str]
    """The name of the batch that each runner ran."""
    jobs: int
    """How many jobs each runner ran."""
    differences: tuple[ParityDifference, ...]
    took_s: Mapping[str, float]
    """How long each runner took. It is reported, and never a difference."""

    @property
    def is_equal(self) -> bool:
        """Whether all runners had the same results."""
        return not self.differences

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "equal": self.is_equal,
            "jobs": self.jobs,
            "batches": dict(self.batches),
            "took_s": {runner: round(took, 3) for runner, took in self.took_s.items()},
            "differences": [each.to_data() for each in self.differences],
        }


JobKey = tuple[str, str, int]
"""Combination, case and repeat."""


def parity_differences(found: Mapping[str, Mapping[JobKey, JobFacts]]) -> tuple[ParityDifference, ...]:
    """Compare the jobs of each runner with those of the first one."""
    first, *others = found
    return tuple(
        difference
        for other in others
        for key in dict.fromkeys((*found[first], *found[other]))
        for difference in _of_job(key, (first, other), found[first].get(key), found[other].get(key))
    )


def _of_job(
    key: JobKey, runners: tuple[str, str], old: JobFacts | None, new: JobFacts | None
) -> Iterator[ParityDifference]:
    combination, case, repeat = key
    for what, detail in _compared(old, new):
        yield ParityDifference(
            combination=combination, case=case, repeat=repeat, runners=runners, what=what, detail=detail
        )


def _compared(old: JobFacts | None, new: JobFacts | None) -> Iterator[tuple[str, str]]:
    if old is None or new is None:
        yield "status", f"{'not run' if old is None else old.status}, {'not run' if new is None else new.status}"
        return
    if old.status != new.status:
        yield "status", f"{old.status}, {new.status}"
    if old.error != new.error:
        yield "error", f"{old.error}, {new.error}"
    parts: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = (
        ("state", old.state, new.state),
        ("scores", old.scores, new.scores),
        ("files", old.files, new.files),
    )
    for what, mine, theirs in parts:
        if names := _unequal(mine, theirs):
            yield what, ", ".join(names[:_MOST_NAMED]) + (", …" if names[_MOST_NAMED:] else "")


def _unequal(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, or that only one side has."""
    return [
        key
        for key in dict.fromkeys((*old, *new))
        if (key in old) != (key in new) or not _is_equal(old.get(key), new.get(key))
    ]


def _is_equal(old: Any, new: Any) -> bool:
    try:
        return bool(old == new)
    except ValueError:  # arrays, which compare element by element
        return repr(old) == repr(new)
