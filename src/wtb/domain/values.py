"""Copies of frozen values with some fields changed, and values that people see in another form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


def evolve(value: T, **changes: Any) -> T:
    """Return a copy of a frozen dataclass (one without slots) with some fields changed.

    It does what `dataclasses.replace` does but skips __init__, because the other fields were checked when they were
    set. A step changes five values; calling __init__ took a tenth of its time.
    """
    fields = value.__dict__
    if not changes.keys() <= fields.keys():
        raise TypeError(f"{type(value).__name__} has no {', '.join(changes.keys() - fields.keys())}")
    copy = object.__new__(type(value))
    copy.__dict__.update(fields, **changes)
    return copy


@runtime_checkable
class Legible(Protocol):
    """A value with its own encoding that people see as plain data."""

    def legible(self) -> Any:
        """Return it as plain data."""
        ...


def legible(value: Any) -> Any:
    """Return a value in the form that people see."""
    return value.legible() if isinstance(value, Legible) else value


_showing = ContextVar("_showing", default=False)


@contextmanager
def showing() -> Iterator[None]:
    """Read stored values only to show them: a value of an unregistered class comes as its class name and fields."""
    before = _showing.set(True)
    try:
        yield
    finally:
        _showing.reset(before)


def is_showing() -> bool:
    """Whether values are only read to be shown."""
    return _showing.get()
