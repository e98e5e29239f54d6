"""Tracked lists: what changed in a list since it was last stored, without encoding every item again.

An item that is another object than before is stored and compared. The same object may have been changed in place: its
imprint, taken just before it was stored, shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel

from wtb.domain.sameness import same
from wtb.domain.state import Append, Change, SetValue, Splice
from wtb.infrastructure.codecs.foreign import Encoded, Foreign
from wtb.infrastructure.langgraph.change_tracking import UNKNOWN, imprint_of, is_unchanged

StoreItem = Callable[[Any], Any]


class TrackedList:
    """A list as it was last stored."""

    __slots__ = ("_imprints", "_is_absent", "_items", "_stored")

    def __init__(self, stored: Iterable[Any] | None = None) -> None:
        """Begin with the stored items; None when no list is stored yet, which an empty list changes."""
        self._is_absent = stored is None
        self._stored = [_comparable(each) for each in stored or ()]
        self._items: list[Any] = [UNKNOWN] * len(self._stored)
        self._imprints: list[Any] = [UNKNOWN] * len(self._stored)

    def change(self, value: list[Any], store: StoreItem) -> Change | None:
        """Return the change from the stored list to this one, which becomes the stored list; None if there is none."""
        start = self._first_difference(value, store)
        before = len(self._stored)
        if start == before == len(value) and not self._is_absent:
            return None
        self._is_absent = False
        new = value[start:]
        imprints = list(map(imprint_of, new))  # before they are stored: a later change is noticed the next time
        added = [store(item) for item in new]
        self._items[start:] = new
        self._imprints[start:] = map(self._usable, imprints, new, added)
        self._stored[start:] = map(_comparable, added)
        if start == before and before:
            return Append(tuple(added))
        return Splice(start, before - start, tuple(added)) if start else SetValue(added)

    def _first_difference(self, value: list[Any], store: StoreItem) -> int:
        items, imprints = self._items, self._imprints
        for position, item in enumerate(value[: len(items)]):
            if item is items[position] and is_unchanged(item, imprints[position]):
                continue
            imprint = imprint_of(item)  # before it is stored, as above
            stored = store(item)
            if not same(_comparable(stored), self._stored[position]):
                return position
            items[position], imprints[position] = item, self._usable(imprint, item, stored)
        return min(len(value), len(self._stored))

    def _usable(self, imprint: Any, item: Any, stored: Any) -> Any:
        """Return the imprint of an item that was stored; with UNKNOWN the item itself is not used again."""
        return imprint


def _comparable(stored: Any) -> Any:
    """Return the part of a stored item to compare: for bytes a digest, which takes less memory."""
    return blake2b(stored.canonical, digest_size=16).digest() if type(stored) is Encoded else stored


class LiveList(TrackedList):
    """A list of a run's state, with the objects that nodes see; an unchanged object is used again."""

    __slots__ = ("_is_compared", "_restore")

    def __init__(self, stored: Iterable[Any] | None, restore: Callable[[Any], Any]) -> None:
        super().__init__(stored)
        self._restore = restore
        self._is_compared = False
        """Whether all items were compared with the stored ones, and no node has seen them since."""

    def restored(self) -> list[Any]:
        """Return the list as it is stored."""
        for position, item in enumerate(() if self._is_compared else self._items):
            if not is_unchanged(item, self._imprints[position]):
                stored = self._stored[position]
                restored = self._items[position] = self._restore(stored)
                self._imprints[position] = self._usable(imprint_of(restored), restored, stored)
        self._is_compared = False
        return list(self._items)

    def change(self, value: list[Any], store: StoreItem) -> Change | None:
        change = super().change(value, store)
        self._is_compared = all(imprint is not UNKNOWN for imprint in self._imprints)
        return change

    def _usable(self, imprint: Any, item: Any, stored: Any) -> Any:
        """Return UNKNOWN for objects that the serialiser might restore as something slightly different."""
        return imprint if type(stored) is not Foreign or isinstance(item, BaseModel) else UNKNOWN
