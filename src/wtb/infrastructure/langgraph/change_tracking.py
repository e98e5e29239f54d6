"""Watched: tells which items of a list have stayed as they were, without encoding them again.

An item that is another object than before is encoded and compared. One that is the same object may still have been
changed in place: its shape, taken just before it was stored, holds every value inside it, and is compared all the way
down.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from wtb.domain.sameness import same
from wtb.domain.state import Append, Change, SetValue, Splice
from wtb.infrastructure.codecs.foreign import Encoded

StoreItem = Callable[[Any], Any]

_IMMUTABLE = frozenset({
    str, int, float, bool, bytes, complex, type(None), datetime, date, time, timedelta, Decimal, UUID
})  # fmt: skip
_DEEPEST = 50

UNKNOWN = object()
"""The shape of what cannot be looked into: it is never unchanged."""


class _Unwatchable(Exception):
    """A value whose inside cannot be seen."""


class _Held(NamedTuple):
    """One mutable thing inside a value, or the value itself: how its parts are read, and those that it had."""

    owner: Any
    read: Callable[[Any], Collection[Any]]
    parts: Sequence[Any]
    keys: tuple[Any, ...] | None


class _Shape(list[_Held]):
    """Every mutable thing in a value. As long as each holds the same objects, nothing inside it was changed."""


def shape_of(value: Any) -> Any:
    """Return what tells later whether a value was changed in place; immutable ones stand for themselves."""
    shape = _Shape()
    try:
        _look_into(value, shape, 0)
    except Exception:  # noqa: BLE001  a class of somebody else's may raise anything when it is looked into
        return UNKNOWN
    return shape or value


def _look_into(value: Any, shape: _Shape, depth: int) -> None:
    kind: Any = type(value)
    if kind in _IMMUTABLE or isinstance(value, Enum):
        return
    if depth > _DEEPEST:
        raise _Unwatchable
    read = _reader_of(kind)
    parts = tuple(read(value))
    shape.append(_Held(value, read, parts, tuple(value) if kind is dict else None))
    for part in parts:
        _look_into(part, shape, depth + 1)


@lru_cache(maxsize=1024)
def _reader_of(kind: Any) -> Callable[[Any], Collection[Any]]:
    """Return what gives everything that a value is stored from."""
    if kind is dict:
        return dict.values
    if kind is list or kind is tuple:
        return _itself
    if issubclass(kind, BaseModel) and not kind.model_computed_fields:
        return attrgetter("__dict__", "__pydantic_extra__")
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return lambda value: [getattr(value, name) for name in names]
    raise _Unwatchable


def _itself(value: Collection[Any]) -> Collection[Any]:
    return value


def is_unchanged(value: Any, shape: Any) -> bool:
    """Whether a value holds the very same objects as when its shape was taken, all the way down."""
    if type(shape) is not _Shape:
        return value is shape and shape is not UNKNOWN
    if value is not shape[0].owner:
        return False
    try:
        for owner, read, parts, keys in shape:
            now = read(owner)
            if len(now) != len(parts) or (parts and not all(map(operator.is_, now, parts))):
                return False
            if keys and tuple(owner) != keys:
                return False
    except Exception:  # noqa: BLE001  as above
        return False
    return True


def _mark(stored: Any) -> Any:
    """Return what tells one stored item from others: immutable ones by themselves, the rest by their bytes."""
    return blake2b(stored.canonical, digest_size=16).digest() if type(stored) is Encoded else stored


class Watched:
    """The items of a list as they were last stored."""

    __slots__ = ("_items", "_marks", "_shapes")

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._shapes: list[Any] = []
        self._marks: list[Any] = []

    @classmethod
    def stored(cls, items: Sequence[Any], encode: Callable[[Any], Any]) -> Watched:
        """Return a list of which only what is stored is known."""
        watched = cls()
        watched._items = [UNKNOWN] * len(items)
        watched._shapes = [UNKNOWN] * len(items)
        watched._marks = [_mark(encode(item)) for item in items]
        return watched

    def change(self, value: list[Any], store: StoreItem) -> Change | None:
        """Return what makes the new list of the old one, and watch the new one; None when nothing does."""
        start = self._first_difference(value, store)
        before = len(self._marks)
        if start == before == len(value):
            return None
        new = value[start:]
        shapes = list(map(shape_of, new))  # before they are stored: a change in between is one of the next time
        added = [store(item) for item in new]
        self._items[start:] = new
        self._shapes[start:] = shapes
        self._marks[start:] = [_mark(item) for item in added]
        if start == before and before:
            return Append(tuple(added))
        return Splice(start, before - start, tuple(added)) if start else SetValue(added)

    def _first_difference(self, value: list[Any], store: StoreItem) -> int:
        marks = self._marks
        for position, (item, held, shape) in enumerate(zip(value, self._items, self._shapes, strict=False)):
            if item is held and is_unchanged(item, shape):
                continue
            now = shape_of(item)  # before it is stored, as above
            if not same(_mark(store(item)), marks[position]):
                return position
            self._items[position], self._shapes[position] = item, now
        return min(len(value), len(marks))
