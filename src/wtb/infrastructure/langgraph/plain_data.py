"""Plain data: text, numbers, None, and lists and mappings of them. It is stored as it is, not by a serialiser."""

from __future__ import annotations

from typing import Any

import ormsgpack

from wtb.infrastructure.codecs.foreign import Encoded, Foreign
from wtb.infrastructure.codecs.msgpack import FOREIGN, holds_buffer

IMMUTABLE = frozenset({str, float, bool, type(None)})
"""Plain values that are stored without encoding them first."""
_MUTABLE = frozenset({dict, list})
PACKABLE = _MUTABLE.union({int, bytes})
"""Other plain values, unless something inside them is not plain; integers may be too big."""
_COPIED_AS_THEY_ARE = IMMUTABLE.union({int, bytes})

_PLAIN_ONLY = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


class NotPlain(Exception):
    """A value that only a serialiser can write."""


def copied(value: Any) -> Any:
    """Return a deep copy of plain data; NotPlain when a value inside it is not plain."""
    kind = type(value)
    if kind in _COPIED_AS_THEY_ARE:
        return value
    if kind is list:
        return [copied(item) for item in value]
    if kind is not dict or not all(type(key) is str for key in value):
        raise NotPlain
    return {key: copied(item) for key, item in value.items()}


def packed(value: Any) -> Encoded | None:
    """Return plain data encoded; None when a value inside it is not plain."""
    data = packed_once(value)
    if data is None or type(value) not in _MUTABLE:
        return None if data is None else Encoded(data, data)
    # Sorted from the data, not from the value: another thread may have changed the value since.
    return Encoded(data, ormsgpack.packb(ormsgpack.unpackb(data), None, _PLAIN_ONLY | ormsgpack.OPT_SORT_KEYS))


def packed_once(value: Any) -> bytes | None:
    """Return plain data as bytes that are not compared with others; None when a value inside it is not plain."""
    try:
        data = ormsgpack.packb(value, None, _PLAIN_ONLY)
    except (TypeError, ValueError, RecursionError):
        return None
    # Buffers are written like bytes. Few values contain the codes of bytes, so few are searched.
    if (b"\xc4" in data or b"\xc5" in data or b"\xc6" in data) and holds_buffer(value):
        return None
    return data


def encoded_foreign(value: Foreign) -> Encoded:
    """Return the bytes of a serialiser under our tag for them."""
    data = ormsgpack.packb(ormsgpack.Ext(FOREIGN, b"%s\0%s" % (value.encoding.encode(), value.data)))
    return Encoded(data, data)


def encoded(stored: Any) -> Any:
    """Return a value that was read from the store in the form in which it was put there."""
    if type(stored) is Foreign:
        return encoded_foreign(stored)
    return stored if type(stored) in IMMUTABLE else packed(stored)
