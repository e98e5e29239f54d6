"""Frozen values that change by giving a new one."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def evolve(value: T, **changes: Any) -> T:
    """Return a copy of a frozen dataclass (one without slots) with some fields changed.

    What `dataclasses.replace` does, without going through __init__: the other fields were checked when they were
    set. A step changes five values, and a tenth of its time went there.
    """
    fields = value.__dict__
    if not changes.keys() <= fields.keys():
        raise TypeError(f"{type(value).__name__} has no {', '.join(changes.keys() - fields.keys())}")
    copy = object.__new__(type(value))
    copy.__dict__.update(fields, **changes)
    return copy
