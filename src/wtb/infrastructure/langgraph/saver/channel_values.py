"""Channel values to what is stored and back: plain data as it is, the rest as LangGraph's serialiser writes it."""

from __future__ import annotations

from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.domain.errors import DamagedData, StateNotSerialisable, WTBError
from wtb.infrastructure.checkpoints.manifest import packed_array
from wtb.infrastructure.codecs.foreign import Encoded, Foreign
from wtb.infrastructure.codecs.msgpack import FOREIGN, holds_buffer, is_valid_text, kind_of
from wtb.infrastructure.langgraph.change_tracking import is_unchanged, shape_of

_ATOMS = frozenset({str, float, bool, type(None)})
_MUTABLE = frozenset({dict, list})
_PLAIN = _MUTABLE.union({int, bytes})
_MOST_RECENT = 256

_PLAIN_ONLY = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


class ChannelValues:
    """Stores values with the semantics of a LangGraph serialiser, so that what comes back is what a peer would give.

    Text, numbers, and lists and mappings of them are stored as they are, so that everybody can read and compare them;
    a list is stored item by item, so that a longer one costs what it grew by. A serialiser of the user's own, such as
    one that encrypts, is asked for every item.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self.keeps_plain = type(serde) is JsonPlusSerializer
        self._recent: dict[int, tuple[Any, Any, Encoded]] = {}
        """What tasks wrote last, with its shape: the same objects come again in the next checkpoint."""

    def store(self, value: Any, where: str) -> Any:
        """Return a value as it is stored; StateNotSerialisable, naming where it is, when it cannot be."""
        if type(value) is list:
            return [self.store_item(item, where) for item in value]
        return self.store_item(value, where)

    def store_item(self, value: Any, where: str) -> Any:
        """Return a value that is not looked into any further, encoded unless it is an immutable one."""
        if self.keeps_plain:
            if type(value) in _ATOMS:
                if type(value) is not str or value.isascii() or is_valid_text(value):
                    return value
            elif type(value) in _PLAIN:
                plain = packed(value)
                if plain is not None:
                    return plain
        known = self._recent.pop(id(value), None)
        if known is not None and known[0] is value and is_unchanged(value, known[1]):
            return known[2]
        return _encoded_foreign(self.foreign(value, where))

    def store_write(self, value: Any, where: str) -> Any:
        """Return a value that is stored once, in one piece."""
        if self.keeps_plain and (type(value) in _PLAIN or type(value) in _ATOMS):
            data = _plain_data(value)
            if data is not None:
                return Encoded(data, data)
        if type(value) is not list:
            return self._noted(value, where)
        items = [self._noted(item, where) for item in value]
        data = packed_array([item.data if type(item) is Encoded else ormsgpack.packb(item) for item in items])
        return Encoded(data, data)

    def _noted(self, value: Any, where: str) -> Any:
        """Store a value that the next checkpoint is likely to hold, and remember what it became."""
        # The shape comes first: what changes while the value is encoded is then seen as a change.
        shape = None if type(value) in _PLAIN or type(value) in _ATOMS else shape_of(value)
        stored = self.store_item(value, where)
        if type(stored) is Encoded and shape is not None:
            if len(self._recent) > _MOST_RECENT:
                self._recent.clear()
            self._recent[id(value)] = value, shape, stored
        return stored

    def foreign(self, value: Any, where: str) -> Foreign:
        """Return a value as the serialiser writes it."""
        try:
            encoding, data = self.serde.dumps_typed(value)
        except WTBError:
            raise
        except Exception as error:  # whatever a serialiser of somebody else's raises
            raise StateNotSerialisable(where, _problem(value, error)) from error
        if encoding.partition("+")[0] == "pickle":
            raise StateNotSerialisable(
                where, f"{kind_of(value)} would be pickled; wtb keeps no pickles: leave out pickle_fallback"
            )
        return Foreign(encoding, bytes(data))

    def restore(self, stored: Any) -> Any:
        """Return the value that was stored."""
        if type(stored) is not list:
            return self._loaded(stored) if type(stored) is Foreign else stored
        kinds = set(map(type, stored))
        if Foreign not in kinds:
            return stored
        if len(kinds) == 1 and self.keeps_plain and {item.encoding for item in stored} == {"msgpack"}:
            return self._loaded(Foreign("msgpack", packed_array([item.data for item in stored])))
        return [self._loaded(item) if type(item) is Foreign else item for item in stored]

    def _loaded(self, stored: Foreign) -> Any:
        try:
            return self.serde.loads_typed((stored.encoding, stored.data))
        except WTBError:
            raise
        except Exception as error:
            raise DamagedData(
                f"a stored value ({stored.encoding}) cannot be read by {type(self.serde).__name__}: {error}; "
                "give the saver the serde that wrote it"
            ) from error


def encoded(stored: Any) -> Any:
    """Return a value that was read from the store as it was put into it."""
    if type(stored) is Foreign:
        return _encoded_foreign(stored)
    return stored if type(stored) in _ATOMS else packed(stored)


def _encoded_foreign(value: Foreign) -> Encoded:
    data = ormsgpack.packb(ormsgpack.Ext(FOREIGN, b"%s\0%s" % (value.encoding.encode(), value.data)))
    return Encoded(data, data)


def packed(value: Any) -> Encoded | None:
    """Return plain data encoded; None of anything that holds more than text, numbers, lists and mappings."""
    data = _plain_data(value)
    if data is None or type(value) not in _MUTABLE:
        return None if data is None else Encoded(data, data)
    # Sorted from the data, not from the value: another thread may have changed that one meanwhile.
    return Encoded(data, ormsgpack.packb(ormsgpack.unpackb(data), None, _PLAIN_ONLY | ormsgpack.OPT_SORT_KEYS))


def _plain_data(value: Any) -> bytes | None:
    try:
        data = ormsgpack.packb(value, None, _PLAIN_ONLY)
    except (TypeError, ValueError, RecursionError):
        return None
    # What begins bytes is rare elsewhere, so that few values are searched for buffers.
    if (b"\xc4" in data or b"\xc5" in data or b"\xc6" in data) and holds_buffer(value):
        return None
    return data


def _problem(value: Any, error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{kind_of(value)} cannot be stored: {cause}; keep it out of the state, or make it data"
