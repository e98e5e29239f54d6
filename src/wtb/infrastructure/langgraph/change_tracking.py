"""Change tracking: tells whether a value was changed in place, without encoding it again.

The imprint of a value lists every object inside it. As long as the value holds the same objects, it is unchanged.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

_IMMUTABLE = frozenset({
    str, int, float, bool, bytes, complex, type(None), datetime, date, time, timedelta, Decimal, UUID
})  # fmt: skip
_DEEPEST = 50

UNKNOWN = object()
"""The imprint of a value that cannot be looked into: it always counts as changed."""


class _Opaque(Exception):
    """A value that cannot be looked into."""


class _Part(NamedTuple):
    """A mutable object inside a value, or the value itself: how to read what it holds, and what it held."""

    owner: Any
    read: Callable[[Any], Collection[Any]]
    parts: Sequence[Any]
    keys: tuple[Any, ...] | None


class _Imprint(list[_Part]):
    """Every mutable object in a value, the value itself first."""


def imprint_of(value: Any) -> Any:
    """Return the imprint of a value, for `is_unchanged`; an immutable value is its own imprint."""
    imprint = _Imprint()
    try:
        _look_into(value, imprint, 0)
    except Exception:  # noqa: BLE001  a class of the user's may raise anything when it is looked into
        return UNKNOWN
    return imprint or value


def _look_into(value: Any, imprint: _Imprint, depth: int) -> None:
    kind: Any = type(value)
    if kind in _IMMUTABLE or isinstance(value, Enum):
        return
    if depth > _DEEPEST:
        raise _Opaque
    read = _reader_of(kind)
    parts = tuple(read(value))
    imprint.append(_Part(value, read, parts, tuple(value) if kind is dict else None))
    for part in parts:
        _look_into(part, imprint, depth + 1)


@lru_cache(maxsize=1024)
def _reader_of(kind: Any) -> Callable[[Any], Collection[Any]]:
    """Return a function that reads everything that a value of this class is stored from."""
    if kind is dict:
        return dict.values
    if kind is list or kind is tuple:
        return _itself
    if issubclass(kind, BaseModel) and not kind.model_computed_fields:
        return attrgetter("__dict__", "__pydantic_extra__")
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return lambda value: [getattr(value, name) for name in names]
    raise _Opaque


def _itself(value: Collection[Any]) -> Collection[Any]:
    return value


def is_unchanged(value: Any, imprint: Any) -> bool:
    """Whether a value holds the same objects as when its imprint was taken, all the way down."""
    if type(imprint) is not _Imprint:
        return value is imprint and imprint is not UNKNOWN
    if value is not imprint[0].owner:
        return False
    try:
        for owner, read, parts, keys in imprint:
            now = read(owner)
            if len(now) != len(parts) or (parts and not all(map(operator.is_, now, parts))):
                return False
            if keys and tuple(owner) != keys:
                return False
    except Exception:  # noqa: BLE001  as above
        return False
    return True
