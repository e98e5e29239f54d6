"""Sameness: whether two values are equal and have the same types throughout.

A list that a node returns is compared with the list that it got, item by item. Most items are the very same objects, or
copies that hold the same objects, so identity is checked first, for many items at a time and without a Python loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, chain, compress, count
from operator import is_, is_not, ne
from typing import Any
from uuid import UUID

_EXACT = frozenset({str, int, bool, bytes, date, timedelta, UUID})
"""Types whose == is true only for the same values."""
_BY_TEXT = frozenset({float, Decimal, datetime, time})
"""Types whose == ignores a sign of zero, trailing zeros, a time zone or a fold, and is false for NaN."""

_ONE_BY_ONE = 8
"""Up to this many items are compared one by one."""
_TOGETHER = 512
"""The number of mappings compared together. If one differs, only these are compared again to find it."""
_LEVELS = 8
"""The levels of nesting compared together. A list that holds itself twice would double at each level."""


CONTENTS: dict[str, Callable[[Any], Any]] = {}
"""By type name (`module:name`), the function that returns the data to compare; other objects use their fields."""

_Parts = Callable[[], Iterator[Any]]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and have the same types throughout: True, 1 and 1.0 are three different values."""
    return one is other or (type(one) is type(other) and _are_same((one,), (other,)))


def differing(old: Sequence[Any], new: Sequence[Any]) -> Iterator[int]:
    """Yield the positions, up to the end of the shorter list, where the items are not the same."""
    if all(map(is_, old, new)):
        return
    length = min(len(old), len(new))
    suspects = [*compress(count(), map(is_not, old, new))]
    if len(suspects) > length // 8:
        suspects = _unequal(old, new)
        others = bytearray(b"\1") * length
        for at in suspects:
            others[at] = 0
        if not _are_same([*compress(old, others)], [*compress(new, others)]):
            yield from _differing(old, new, 0, length)
            return
    yield from unlike(old, new, suspects)


def unlike(old: Sequence[Any], new: Sequence[Any], suspects: Iterable[int]) -> Iterator[int]:
    """Yield those of the suspected positions where the items are not the same."""
    return (at for at in suspects if not same(old[at], new[at]))


def _unequal(old: Sequence[Any], new: Sequence[Any]) -> list[int]:
    """Return the positions where items differ by ==; it is quick, but ignores types, and NaN differs from itself."""
    try:
        return [*compress(count(), map(ne, old, new))]
    except Exception:  # noqa: BLE001 an == of the user's own may raise anything, and a bool of it too
        return []


def _differing(old: Sequence[Any], new: Sequence[Any], start: int, end: int) -> Iterator[int]:
    """Compare all items together; if they are not all the same, compare each half in the same way."""
    if end - start <= _ONE_BY_ONE:
        yield from unlike(old, new, range(start, end))
    elif not _are_same(old[start:end], new[start:end]):
        middle = (start + end) // 2
        yield from _differing(old, new, start, middle)
        yield from _differing(old, new, middle, end)


class Records:
    """Mappings with their keys and values laid out in flat lists, which halves the time of a comparison."""

    __slots__ = ("_keys", "_lengths", "_values")

    def __init__(self, mappings: Sequence[Any] = ()) -> None:
        self._lengths: list[int] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self.extend(mappings)

    def __len__(self) -> int:
        return len(self._lengths)

    def extend(self, mappings: Sequence[Any]) -> None:
        """Add mappings, which must not change any more."""
        self._lengths += map(len, mappings)
        self._keys += chain.from_iterable(mappings)
        self._values += _values(mappings)

    def extended(self, mapping: Mapping[Any, Any]) -> Records:
        """Return the records with one more mapping at the end."""
        after = Records()
        after._lengths = [*self._lengths, len(mapping)]
        after._keys = [*self._keys, *mapping]
        after._values = [*self._values, *mapping.values()]
        return after

    def replaced(self, at: int, mapping: Mapping[Any, Any]) -> Records:
        """Return the records with the mapping at one position replaced."""
        start = sum(self._lengths[:at])
        old = slice(start, start + self._lengths[at])
        after = Records()
        after._lengths = [*self._lengths[:at], len(mapping), *self._lengths[at + 1 :]]
        after._keys, after._values = self._keys.copy(), self._values.copy()
        after._keys[old], after._values[old] = mapping, mapping.values()
        return after

    def suspects(self, others: Sequence[Any]) -> list[int] | None:
        """Return the positions whose mappings do not hold the very same keys and values; None if that is slow to tell.

        The mappings at all other positions are the same.
        """
        found: set[int] = set()
        start = 0
        for at in range(0, len(others), _TOGETHER):
            part = others[at : at + _TOGETHER]
            lengths = self._lengths[at : at + _TOGETHER]
            if not {dict}.issuperset(map(type, part)) or lengths != list(map(len, part)):
                return None
            end = start + sum(lengths)
            rows = ((self._keys[start:end], chain.from_iterable), (self._values[start:end], _values))
            for own, parts in rows:
                if not all(map(is_, own, parts(part))):
                    ends = [*accumulate(lengths)]
                    positions = compress(count(), map(is_not, own, parts(part)))
                    found.update(at + bisect_right(ends, position) for position in positions)
            start = end
        return sorted(found)


def _are_same(old: Sequence[Any], new: Sequence[Any]) -> bool:
    try:
        return _all_same(old, new, _LEVELS)
    except RecursionError:  # nested so deeply that it cannot be stored either
        return False


def _all_same(old: Sequence[Any], new: Sequence[Any], levels: int) -> bool:
    """Compare two lists of the same length; all items of one type are compared together."""
    if all(map(is_, old, new)):
        return True
    kinds = set(map(type, old))
    if len(kinds) > 1:  # often only the items of one type are not identical: of texts and lists, the lists
        unlike = list(map(is_not, old, new))
        old, new = list(compress(old, unlike)), list(compress(new, unlike))
        kinds = set(map(type, old))
    if len(kinds) > 1 or kinds != set(map(type, new)) or not levels:
        return all(map(_equal, old, new))
    return _same_contents(kinds.pop(), old, new, levels)


def _same_contents(kind: type, old: Sequence[Any], new: Sequence[Any], levels: int) -> bool:
    """Compare values that are all of one type."""
    if kind in _EXACT:
        return old == new
    if kind is not dict and kind is not list and kind is not tuple:
        return all(map(_equal, old, new))
    if list(map(len, old)) != list(map(len, new)):
        return False
    if not _same_parts(lambda: chain.from_iterable(old), lambda: chain.from_iterable(new), levels):
        return False  # lists have different items, or mappings different keys
    return kind is not dict or _same_parts(lambda: _values(old), lambda: _values(new), levels)


def _same_parts(old: _Parts, new: _Parts, levels: int) -> bool:
    """Compare the contents of many values; make no lists of them if all are the very same objects."""
    return all(map(is_, old(), new())) or _all_same([*old()], [*new()], levels - 1)


def _values(mappings: Sequence[Any]) -> Iterator[Any]:
    return chain.from_iterable(map(dict.values, mappings))


def _equal(one: Any, other: Any) -> bool:
    kind = type(one)
    if one is other or kind is not type(other):
        return one is other
    if kind in _EXACT:
        return bool(one == other)
    if kind in _BY_TEXT:
        return repr(one) == repr(other)
    if kind is set or kind is frozenset:
        return sorted(map(repr, one)) == sorted(map(repr, other)) and bool(one == other)
    mine, others = _parts(one), _parts(other)
    return mine is not None and others is not None and len(mine) == len(others) and all(map(_equal, mine, others))


def _parts(value: Any) -> Sequence[Any] | None:
    """Return the parts of a value, whatever its own == compares; None if they cannot be seen."""
    if type(value) is dict:
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return value
    content = content_function(type(value))
    if content is None:
        fields = value.__getstate__()
        return None if fields is None else (fields,)
    try:
        return (content(value),)
    except Exception:  # noqa: BLE001 a value that cannot become data cannot be stored either: the codec says why
        return None


def content_function(kind: type) -> Callable[[Any], Any] | None:
    """Return the function that gives the data to compare for this type; None if its fields are compared."""
    return CONTENTS.get(f"{kind.__module__}:{kind.__qualname__}")
