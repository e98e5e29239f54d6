"""Watched: tells which items of a list have stayed as they were, without encoding them again.

An item that is another object than before is encoded and compared. One that is the same object may still have been
changed in place: its shape, taken when it was stored, holds every value inside it, and is compared all the way down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from wtb.domain.state import Append, Change, SetValue, Splice, same
from wtb.infrastructure.codecs.foreign import Encoded

StoreItem = Callable[[Any], Any]

_IMMUTABLE = frozenset({
    str, int, float, bool, bytes, complex, type(None), datetime, date, time, timedelta, Decimal, UUID
})  # fmt: skip
_DEEPEST = 50


class _Unwatchable(Exception):
    """A value whose inside cannot be seen: it is encoded anew each time."""


class _Shape(tuple[Any, ...]):
    """What a mutable value held: its type, its keys or fields, and the shapes of what is inside."""

    __slots__ = ()


def shape_of(value: Any, depth: int = 0) -> Any:
    """Return what tells later whether a value was changed in place; immutable ones stand for themselves."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if depth > _DEEPEST:
        raise _Unwatchable
    if kind is dict:
        return _Shape((dict, tuple(value), *(shape_of(item, depth + 1) for item in value.values())))
    if kind is list or kind is tuple:
        return _Shape((kind, None, *(shape_of(item, depth + 1) for item in value)))
    if isinstance(value, Enum):
        return value
    return _Shape((kind, None, *(shape_of(item, depth + 1) for item in _inside(value))))


def _inside(value: Any) -> Sequence[Any]:
    """Return everything that an object is stored from; _Unwatchable when that cannot be told."""
    try:
        return _parts_of(type(value))(value)  # type: ignore[arg-type]
    except AttributeError as error:
        raise _Unwatchable from error


@lru_cache(maxsize=1024)
def _parts_of(kind: Any) -> Callable[[Any], Sequence[Any]]:
    if issubclass(kind, BaseModel) and not kind.model_computed_fields:
        return attrgetter("__dict__", "__pydantic_extra__")
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return lambda value: [getattr(value, name) for name in names]
    return _unwatchable


def _unwatchable(value: Any) -> Sequence[Any]:
    raise _Unwatchable


def is_unchanged(value: Any, shape: Any) -> bool:
    """Whether a value holds the very same as when the shape was taken."""
    if value is shape:
        return True
    kind = type(value)
    if type(shape) is not _Shape:
        return kind in _IMMUTABLE and same(value, shape)
    if kind is not shape[0]:
        return False
    if kind is dict:
        return tuple(value) == shape[1] and _all_unchanged(list(value.values()), shape)
    return _all_unchanged(value if kind is list or kind is tuple else _inside(value), shape)


def _all_unchanged(parts: Sequence[Any], shape: _Shape) -> bool:
    if len(parts) != len(shape) - 2:
        return False
    number = 2
    for part in parts:
        known = shape[number]
        if part is not known and not is_unchanged(part, known):
            return False
        number += 1
    return True


def shape_or_unknown(value: Any) -> Any:
    """Return the shape of a value; a new object, which nothing is like, when it has none."""
    try:
        return shape_of(value)
    except (_Unwatchable, RecursionError):
        return _UNKNOWN


def is_as_it_was(value: Any, shape: Any) -> bool:
    """Whether a value holds the very same as when its shape, which may be unknown, was taken."""
    try:
        return shape is not _UNKNOWN and is_unchanged(value, shape)
    except _Unwatchable:
        return False


_UNKNOWN = object()


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
        watched._items = [_UNKNOWN] * len(items)
        watched._shapes = [_UNKNOWN] * len(items)
        watched._marks = [_mark(encode(item)) for item in items]
        return watched

    def change(self, value: list[Any], store: StoreItem) -> Change | None:
        """Return what makes the new list of the old one, and watch the new one; None when nothing does."""
        start = self._first_difference(value, store)
        before = len(self._marks)
        if start == before == len(value):
            return None
        added = [store(item) for item in value[start:]]
        self._items[start:] = value[start:]
        self._shapes[start:] = [shape_or_unknown(item) for item in value[start:]]
        self._marks[start:] = [_mark(item) for item in added]
        if start == before and before:
            return Append(tuple(added))
        return Splice(start, before - start, tuple(added)) if start else SetValue(added)

    def _first_difference(self, value: list[Any], store: StoreItem) -> int:
        items, shapes, marks = self._items, self._shapes, self._marks
        for position in range(min(len(value), len(marks))):
            item = value[position]
            if item is items[position] and is_as_it_was(item, shapes[position]):
                continue
            if not same(_mark(store(item)), marks[position]):
                return position
            items[position], shapes[position] = item, shape_or_unknown(item)
        return min(len(value), len(marks))
