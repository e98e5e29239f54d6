"""Makes private copies of values, so that a node can change them without changing the state."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from copy import deepcopy
from datetime import date, datetime, timedelta
from enum import Enum, auto
from itertools import chain
from typing import Any

IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose values need no copy. Some others need none either, but finding that out costs as much as a copy."""


COPIES: dict[type, Callable[[Any], Any]] = {}
"""Copy functions for some types; values of other types are copied by `deepcopy`."""

_PYTHON_TYPES = frozenset({bool, int, float, str, bytes, date, datetime, timedelta})
"""Python types that a numpy scalar can become without loss."""


class Shape(Enum):
    """What the items of a list or the values of a mapping have in common; decides how they are copied."""

    IMMUTABLE = auto()
    RECORDS = auto()
    """Mappings of immutable values."""
    MIXED = auto()

    def joined(self, other: Shape) -> Shape:
        """Return the common shape of values with this shape and values with the other."""
        return self if self is other else Shape.MIXED


def shape_of(values: Collection[Any]) -> Shape | None:
    """Return the common shape of the values; None if there are none."""
    kinds = set(map(type, values))
    if not kinds:
        return None
    if kinds <= IMMUTABLE:
        return Shape.IMMUTABLE
    if kinds == {dict} and IMMUTABLE.issuperset(map(type, chain.from_iterable(map(dict.values, values)))):
        return Shape.RECORDS
    return Shape.MIXED


def grown_shape(shape: Shape | None, added: Collection[Any]) -> Shape | None:
    """Return the new shape of values that had this shape, after some were added."""
    more = shape_of(added)
    return more if shape is None else shape if more is None else shape.joined(more)


def copied_all(values: Collection[Any], shape: Shape | None) -> list[Any]:
    """Return copies of values of this shape."""
    if shape is None or shape is Shape.IMMUTABLE:
        return list(values)
    return list(map(dict.copy if shape is Shape.RECORDS else copied, values))


def copied(value: Any) -> Any:
    """Return a copy that shares no mutable parts with the value; numpy scalars become Python values.

    Lists, mappings, tuples and sets are copied here: deepcopy is slow.
    """
    kind = type(value)
    if kind is list:
        return [item if type(item) in IMMUTABLE else copied(item) for item in value]
    if kind is dict:
        return {
            key if type(key) is str else _key(key): item if type(item) in IMMUTABLE else copied(item)
            for key, item in value.items()
        }
    if kind in IMMUTABLE:
        return value
    if kind is tuple or kind is set or kind is frozenset:
        return kind(map(copied, value))
    if kind.__module__ == "numpy":
        return as_python(value)
    copy = COPIES.get(kind)
    return deepcopy(value) if copy is None else copy(value)


def _key(key: Any) -> Any:
    """Return a copy of a mapping's key: a key cannot change, but it may be a numpy scalar, or contain one."""
    return copied(key) if type(key) is tuple or type(key).__module__ == "numpy" else key


def as_python(value: Any) -> Any:
    """Return a copy of a numpy value; a scalar becomes the Python value, if there is an equivalent one."""
    if not is_numpy_scalar(value):
        return deepcopy(value)
    plain = value.item()
    if type(plain) is float and math.isnan(plain):
        return math.nan  # the sign of a NaN depends on the processor, and would change a digest
    return plain if type(plain) in _PYTHON_TYPES and not _is_count_of_time(value, plain) else value


def is_numpy_scalar(value: Any) -> bool:
    """Whether a value is a numpy number, text or time; this does not import numpy."""
    return any(base.__module__ == "numpy" and base.__name__ == "generic" for base in type(value).__mro__)


def _is_count_of_time(value: Any, plain: Any) -> bool:
    """Whether a numpy time became a bare count, as nanoseconds do, which would lose its unit."""
    return type(plain) is int and value.dtype.kind in "Mm"
