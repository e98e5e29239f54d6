"""Tracked lists: what changed in a list since it was last stored, without encoding every item again.

An item that is another object than before is stored and compared. The same object may have been changed in place: its
shape, taken just before it was stored, tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel

from wtb.domain.sameness import same
from wtb.domain.state import Append, Change, SetValue, Splice
from wtb.infrastructure.codecs.foreign import Encoded, Foreign
from wtb.infrastructure.langgraph.change_tracking import UNKNOWN, is_unchanged, shape_of

StoreItem = Callable[[Any], Any]


class TrackedList:
    """A list as it was last stored."""

    __slots__ = ("_is_absent", "_items", "_shapes", "_stored")

    def __init__(self, stored: Iterable[Any] | None = None) -> None:
        """Begin with the stored items; None when no list is stored yet, which an empty list changes."""
        self._is_absent = stored is None
        self._stored = [_comparable(each) for each in stored or ()]
        self._items: list[Any] = [UNKNOWN] * len(self._stored)
        self._shapes: list[Any] = [UNKNOWN] * len(self._stored)

    def change(self, value: list[Any], store: StoreItem) -> Change | None:
        """Return the change from the stored list to this one, which becomes the stored list; None if there is none."""
        start = self._first_difference(value, store)
        before = len(self._stored)
        if start == before == len(value) and not self._is_absent:
            return None
        self._is_absent = False
        new = value[start:]
        shapes = list(map(shape_of, new))  # before they are stored: a later change is noticed the next time
        added = [store(item) for item in new]
        self._items[start:] = new
        self._shapes[start:] = map(self._usable, shapes, new, added)
        self._stored[start:] = map(_comparable, added)
        if start == before and before:
            return Append(tuple(added))
        return Splice(start, before - start, tuple(added)) if start else SetValue(added)

    def _first_difference(self, value: list[Any], store: StoreItem) -> int:
        items, shapes = self._items, self._shapes
        for position, item in enumerate(value[: len(items)]):
            if item is items[position] and is_unchanged(item, shapes[position]):
                continue
            shape = shape_of(item)  # before it is stored, as above
            stored = store(item)
            if not same(_comparable(stored), self._stored[position]):
                return position
            items[position], shapes[position] = item, self._usable(shape, item, stored)
        return min(len(value), len(self._stored))

    def _usable(self, shape: Any, item: Any, stored: Any) -> Any:
        """Return the shape of an item that was stored; UNKNOWN makes sure that the item is not used again."""
        return shape


def _comparable(stored: Any) -> Any:
    """Return what is compared of a stored item: a digest of encoded ones, which would take much memory."""
    return blake2b(stored.canonical, digest_size=16).digest() if type(stored) is Encoded else stored


class LiveList(TrackedList):
    """A list of a run's state, with the objects that nodes see; an object that nobody changed is used again."""

    __slots__ = ("_is_compared", "_restore")

    def __init__(self, stored: Iterable[Any] | None, restore: Callable[[Any], Any]) -> None:
        super().__init__(stored)
        self._restore = restore
        self._is_compared = False
        """Whether all items were compared with the stored ones, and no node has seen them since."""

    def restored(self) -> list[Any]:
        """Return the list as it is stored."""
        for position, item in enumerate(() if self._is_compared else self._items):
            if not is_unchanged(item, self._shapes[position]):
                stored = self._stored[position]
                restored = self._items[position] = self._restore(stored)
                self._shapes[position] = self._usable(shape_of(restored), restored, stored)
        self._is_compared = False
        return list(self._items)

    def change(self, value: list[Any], store: StoreItem) -> Change | None:
        change = super().change(value, store)
        self._is_compared = all(shape is not UNKNOWN for shape in self._shapes)
        return change

    def _usable(self, shape: Any, item: Any, stored: Any) -> Any:
        """Return UNKNOWN for objects that the serialiser might restore as something slightly different."""
        return shape if type(stored) is not Foreign or isinstance(item, BaseModel) else UNKNOWN
