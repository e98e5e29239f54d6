"""The lists and mappings inside a state; the next state shares the parts that did not change."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from operator import is_
from typing import Any

from wtb.domain.copies import Shape, copied, copied_all, grown_shape
from wtb.domain.sameness import Records, differing, same, unlike

_growing = threading.Lock()

_ABSENT = object()

SMALLEST_MERGE = 32
"""A mapping with fewer keys is stored as one value: handling its keys one by one would cost more than it saves."""


class _Backing:
    """The items that successive versions of a list share, and their shape as far as it is known."""

    __slots__ = ("items", "known", "records")

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.records = Records()
        self.known: tuple[int, Shape | None] = (0, None)
        """How many items were inspected, and their shape; one tuple, because threads share it."""


class HeldList:
    """A list that successive states share: each sees the first `length` items of one backing list.

    Appending to the longest of them is O(1); appending to a shorter one (a branch) copies first.
    """

    __slots__ = ("_backing", "_length")

    def __init__(self, items: list[Any]) -> None:
        self._backing = _Backing(items)
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    def value(self) -> list[Any]:
        """Return the items in a new list."""
        return self._backing.items[: self._length]

    def copy_out(self) -> list[Any]:
        """Return a copy that shares nothing that can change."""
        return copied_all(self.value(), self._shape())

    def begins(self, others: list[Any]) -> bool:
        """Whether a list begins with these items, or with equal ones."""
        if len(others) < self._length:
            return False
        items = self.value()
        suspects = self._record_suspects(others)
        found = differing(items, others) if suspects is None else unlike(items, others, suspects)
        return next(found, None) is None

    def _record_suspects(self, others: list[Any]) -> list[int] | None:
        if self._shape() is not Shape.RECORDS:
            return None
        records = self._backing.records
        with _growing:
            if len(records) < self._length:
                records.extend(self._backing.items[len(records) : self._length])
            return records.suspects(others[: self._length]) if len(records) == self._length else None

    def _shape(self) -> Shape | None:
        """Return the shape of the items; only items that were not inspected before are inspected."""
        count, shape = self._backing.known
        if count < self._length:
            shape = grown_shape(shape, self._backing.items[count : self._length])
            self._backing.known = (self._length, shape)
        return shape  # it may be the shape of a longer list, which is true of these items, too

    def grown(self, items: tuple[Any, ...]) -> HeldList:
        """Return the list with items at its end."""
        with _growing:  # two threads that continue from one state must not both append to the backing list
            longer = object.__new__(HeldList)
            is_longest = len(self._backing.items) == self._length
            longer._backing = self._backing if is_longest else _Backing(self.value())
            longer._backing.items.extend(items)
        longer._length = self._length + len(items)
        return longer


class HeldMapping:
    """A mapping whose values do not change."""

    __slots__ = ("_items", "_records", "_shape")

    def __init__(self, items: dict[Any, Any], shape: Shape | None = None) -> None:
        self._items = items
        self._shape = shape
        self._records: Records | None = None

    def value(self) -> dict[Any, Any]:
        """Return the mapping itself."""
        return self._items

    def copy_out(self) -> dict[Any, Any]:
        """Return a copy that shares nothing that can change."""
        if self._shape is None:
            self._shape = grown_shape(None, self._items.values())
        copy = self._items.copy()
        if self._shape is not Shape.IMMUTABLE:  # setting existing keys is quicker than building the mapping
            each = dict.copy if self._shape is Shape.RECORDS else copied
            copy.update(zip(self._items, map(each, self._items.values()), strict=True))
        return copy

    def merged(self, items: Mapping[Any, Any], removed: Collection[Any]) -> HeldMapping:
        """Return the mapping with some keys removed and others set."""
        shape = None if self._shape is None else grown_shape(self._shape, items.values())
        after = HeldMapping(merged(self._items, items, removed), shape)
        if shape is Shape.RECORDS and self._records is not None and len(items) == 1 and not removed:
            ((key, value),) = items.items()
            known = key in self._items
            at = list(self._items).index(key) if known else len(self._records)
            after._records = self._records.replaced(at, value) if known else self._records.extended(value)
        return after

    def merge_to(self, new: dict[Any, Any]) -> tuple[dict[Any, Any], tuple[Any, ...]] | None:
        """Return the items to set and the keys to remove to get to another mapping.

        None if that is half of the mapping or more, or if the new keys have another order than this would give.
        """
        old = self._items
        if len(old) < SMALLEST_MERGE or len(new) < len(old) // 2:
            return None
        keys, values, most = list(new), list(new.values()), len(new) // 2
        in_order = len(new) >= len(old) and all(map(is_, old, new))  # nearly always true: no key was removed or moved
        before = list(old.values()) if in_order else [old.get(key, _ABSENT) for key in keys]
        found = self._differing(before, values) if in_order else differing(before, values)
        at = [*islice(found, most + 1), *range(len(before), len(new))]
        removed = () if in_order else tuple(key for key in old if key not in new)
        if len(at) + len(removed) > most:
            return None
        items = {keys[position]: values[position] for position in at}
        if not in_order and not same(list(merged(old, items, removed)), keys):
            return None
        return items, removed

    def _differing(self, own: list[Any], others: list[Any]) -> Iterator[int]:
        suspects = None
        if self._shape is Shape.RECORDS:
            self._records = self._records or Records(own)
            suspects = self._records.suspects(others[: len(own)])
        return differing(own, others) if suspects is None else unlike(own, others, suspects)


def merged(old: Mapping[Any, Any], items: Mapping[Any, Any], removed: Collection[Any]) -> dict[Any, Any]:
    """Return the mapping with some keys removed and others set; new keys come last."""
    after = dict(old)
    for key in removed:
        after.pop(key, None)
    after.update(items)
    return after
