"""Makes private copies of values, so that a node can change them without changing the state."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from enum import Enum, auto
from itertools import chain
from typing import Any

IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of values that need no copy. Some others need none either, but telling costs as much."""


class Shape(Enum):
    """What the items of a list or the values of a mapping have in common; decides how they are copied."""

    IMMUTABLE = auto()
    RECORDS = auto()
    """Mappings of immutable values."""
    MIXED = auto()

    def joined(self, other: Shape) -> Shape:
        """Return the shape of these and others together."""
        return self if self is other else Shape.MIXED


def shape_of(values: Collection[Any]) -> Shape | None:
    """Return what the values have in common; None of no values."""
    kinds = set(map(type, values))
    if not kinds:
        return None
    if kinds <= IMMUTABLE:
        return Shape.IMMUTABLE
    if kinds == {dict} and IMMUTABLE.issuperset(map(type, chain.from_iterable(map(dict.values, values)))):
        return Shape.RECORDS
    return Shape.MIXED


def grown_shape(shape: Shape | None, added: Collection[Any]) -> Shape | None:
    """Return the shape of values that had this one, after some were added."""
    more = shape_of(added)
    return more if shape is None else shape if more is None else shape.joined(more)


def copied_all(values: Collection[Any], shape: Shape | None) -> list[Any]:
    """Return copies of values of this shape."""
    if shape is None or shape is Shape.IMMUTABLE:
        return list(values)
    return list(map(dict.copy if shape is Shape.RECORDS else copied, values))


def copied(value: Any) -> Any:
    """Return a copy that shares nothing that can change. Lists and mappings are copied here: deepcopy is slow."""
    kind = type(value)
    if kind is list:
        return [item if type(item) in IMMUTABLE else copied(item) for item in value]
    if kind is dict:  # what can be a key does not change
        return {key: item if type(item) in IMMUTABLE else copied(item) for key, item in value.items()}
    return value if kind in IMMUTABLE else deepcopy(value)
