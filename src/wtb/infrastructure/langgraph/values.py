"""Channel values to what is stored and back: plain data as it is, everything else as LangGraph's serialiser writes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.domain.errors import DamagedData, StateNotSerialisable, WTBError
from wtb.infrastructure.codecs.foreign import Foreign

_ATOMS = frozenset({str, int, float, bool, type(None)})
_BIGGEST = 1 << 63

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
        self._keeps_plain = type(serde) is JsonPlusSerializer

    def store(self, value: Any, where: str) -> Any:
        """Return a value as it is stored; StateNotSerialisable, naming where it is, when it cannot be."""
        if type(value) is list:
            return [self.store_item(item, where) for item in value]
        return self.store_item(value, where)

    def store_item(self, value: Any, where: str) -> Any:
        """Return a value that is not looked into any further."""
        if self._keeps_plain and self._is_plain(value):
            return value
        try:
            encoding, data = self.serde.dumps_typed(value)
        except WTBError:
            raise
        except Exception as error:  # whatever a serialiser of somebody else's raises
            raise StateNotSerialisable(where, _problem(value, error)) from error
        if encoding.partition("+")[0] == "pickle":
            raise StateNotSerialisable(
                where, f"{_kind(value)} would be pickled; wtb keeps no pickles: leave out pickle_fallback"
            )
        return Foreign(encoding, bytes(data))

    def _is_plain(self, value: Any) -> bool:
        kind = type(value)
        if kind in _ATOMS:
            return (
                kind is not str or value.isascii() or _is_text(value)
                if kind is not int
                else -_BIGGEST <= value < 2 * _BIGGEST
            )
        if kind is not list and kind is not dict:
            return kind is bytes
        try:
            ormsgpack.packb(value, None, _PLAIN_ONLY)
        except (TypeError, ValueError, RecursionError):
            return False
        return not _holds_buffer(value)

    def restore(self, stored: Any, *, shared: bool = False) -> Any:
        """Return the value that was stored; what is `shared` with other readers is copied."""
        if type(stored) is list:
            return [self._restore_item(item, shared=shared) for item in stored]
        return self._restore_item(stored, shared=shared)

    def _restore_item(self, stored: Any, *, shared: bool) -> Any:
        kind = type(stored)
        if kind is Foreign:
            return self._loaded(stored)
        if shared and (kind is dict or kind is list):
            return ormsgpack.unpackb(ormsgpack.packb(stored))
        return stored

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


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _holds_buffer(value: Any) -> bool:
    """Whether a bytearray or memoryview is among plain data: msgpack would take it for bytes."""
    remaining: list[Any] = [value]
    while remaining:
        parts: Iterable[Any] = remaining.pop()
        parts = parts.values() if type(parts) is dict else parts
        for part in parts:
            kind = type(part)
            if kind is bytearray or kind is memoryview:
                return True
            if kind is dict or kind is list:
                remaining.append(part)
    return False


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _problem(value: Any, error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{_kind(value)} cannot be stored: {cause}; keep it out of the state, or make it data"
