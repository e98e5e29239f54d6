"""Values of channels, as they are stored and as LangGraph and its nodes see them.

Plain data is stored as it is, so that everybody can read and compare it. Other objects are stored as LangGraph's
serialiser writes them. A list is stored item by item, so that a longer one costs only what it grew by.

The saver and the engine differ in one thing: the form of what they store. A checkpoint of the saver goes straight to
the database, so `ChannelValues` gives bytes. A state of a run stays in memory, where conditions, evaluators and people
read it, so `StateValues` gives copies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.domain.errors import DamagedData, InvalidInput, StateNotSerialisable, WTBError
from wtb.infrastructure.checkpoints.manifest import packed_array
from wtb.infrastructure.codecs.foreign import Encoded, Foreign
from wtb.infrastructure.codecs.msgpack import is_valid_text, kind_of
from wtb.infrastructure.langgraph.change_tracking import imprint_of, is_unchanged
from wtb.infrastructure.langgraph.classes import find_script_classes, is_importable, objects_in
from wtb.infrastructure.langgraph.plain_data import (
    IMMUTABLE,
    PACKABLE,
    NotPlain,
    copied,
    encoded_foreign,
    packed,
    packed_once,
)

_MOST_RECENT = 256


class Values(ABC):
    """Stores values with the semantics of a LangGraph serialiser, and restores them."""

    _if_unreadable = "run `wtb doctor`, and install the versions of the packages that wrote it"

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def store(self, value: Any, where: str) -> Any:
        """Return a value as it is stored; StateNotSerialisable, naming where it is, when it cannot be stored."""
        if type(value) is list:
            return [self.store_item(item, where) for item in value]
        return self.store_item(value, where)

    @abstractmethod
    def store_item(self, value: Any, where: str) -> Any:
        """Return a value as it is stored in one piece."""

    @abstractmethod
    def restore(self, stored: Any) -> Any:
        """Return the value that was stored."""

    def foreign(self, value: Any, where: str) -> Foreign:
        """Return a value as the serialiser writes it."""
        try:
            encoding, data = self.serde.dumps_typed(value)
        except WTBError:
            raise
        except Exception as error:  # a serialiser of the user's may raise anything
            reason = f"{kind_of(value)} cannot be stored: {error.__cause__ or error}"
            raise StateNotSerialisable(where, f"{reason}; keep it out of the state, or make it plain data") from error
        if encoding.partition("+")[0] == "pickle":
            raise StateNotSerialisable(
                where, f"{kind_of(value)} would be pickled, and WTB stores no pickles; leave out pickle_fallback"
            )
        return Foreign(encoding, bytes(data))

    def load(self, stored: Foreign) -> Any:
        """Return the value that the serialiser wrote."""
        try:
            return self.serde.loads_typed((stored.encoding, stored.data))
        except WTBError:
            raise
        except Exception as error:
            reader = type(self.serde).__name__
            raise DamagedData(
                f"{reader} cannot read a stored value ({stored.encoding}): {error}; {self._if_unreadable}"
            ) from error


class ChannelValues(Values):
    """Values of the saver: bytes, ready for the database.

    A serialiser of the user's own, for example one that encrypts, writes every item, plain data included.
    """

    _if_unreadable = "give the saver the serde that wrote it"

    def __init__(self, serde: SerializerProtocol) -> None:
        super().__init__(serde)
        self.keeps_plain = type(serde) is JsonPlusSerializer
        self._recent: dict[int, tuple[Any, Any, Encoded]] = {}
        """What tasks wrote last, with its imprint: the next checkpoint holds the same objects."""

    def store_item(self, value: Any, where: str) -> Any:
        """Return a value in one piece, encoded unless it is immutable plain data."""
        if self.keeps_plain:
            if type(value) in IMMUTABLE:
                if type(value) is not str or value.isascii() or is_valid_text(value):
                    return value
            elif type(value) in PACKABLE:
                plain = packed(value)
                if plain is not None:
                    return plain
        known = self._recent.pop(id(value), None)
        if known is not None and known[0] is value and is_unchanged(value, known[1]):
            return known[2]
        return encoded_foreign(self.foreign(value, where))

    def store_write(self, value: Any, where: str) -> Any:
        """Return what a task wrote as it is stored, in one piece."""
        if self.keeps_plain and (type(value) in PACKABLE or type(value) in IMMUTABLE):
            data = packed_once(value)
            if data is not None:
                return Encoded(data, data)
        if type(value) is not list:
            return self._noted(value, where)
        items = [self._noted(item, where) for item in value]
        data = packed_array([item.data if type(item) is Encoded else ormsgpack.packb(item) for item in items])
        return Encoded(data, data)

    def _noted(self, value: Any, where: str) -> Any:
        """Store a value, and remember its bytes for the next checkpoint."""
        # The imprint comes first: a change while the value is being encoded is then noticed.
        imprint = None if type(value) in PACKABLE or type(value) in IMMUTABLE else imprint_of(value)
        stored = self.store_item(value, where)
        if type(stored) is Encoded and imprint is not None:
            if len(self._recent) > _MOST_RECENT:
                self._recent.clear()
            self._recent[id(value)] = value, imprint, stored
        return stored

    def restore(self, stored: Any) -> Any:
        """Return the value that was stored; plain data comes back uncopied, as it was read from the database."""
        if type(stored) is not list:
            return self.load(stored) if type(stored) is Foreign else stored
        kinds = set(map(type, stored))
        if Foreign not in kinds:
            return stored
        if len(kinds) == 1 and self.keeps_plain and {item.encoding for item in stored} == {"msgpack"}:
            return self.load(Foreign("msgpack", packed_array([item.data for item in stored])))
        return [self.load(item) if type(item) is Foreign else item for item in stored]


class StateValues(Values):
    """Values of a run's state: copies, which no node can change in place."""

    def __init__(self, serde: SerializerProtocol | None = None, *, home: str | None = None) -> None:
        """`home` is the graph's module; it has the classes of the script that began a run."""
        super().__init__(serde or JsonPlusSerializer())
        self._home = home
        self._restorable: set[type] = set()

    def store_item(self, value: Any, where: str) -> Any:
        """Return a value in one piece: a copy of plain data, or what the serialiser writes and can read again."""
        try:
            return copied(value)
        except (NotPlain, RecursionError):
            stored = self.foreign(value, where)
            for each in objects_in(value):
                self._check_restorable(each, where)
            return stored

    def as_plain_data(self, value: Any, where: str) -> Any:
        """Return a value as plain data for people: an object as its fields, or as its text if it has none."""
        try:
            return copied(value)
        except (NotPlain, RecursionError):
            stored = self.foreign(value, where)
        try:
            return copied(stored.legible())
        except (NotPlain, RecursionError):
            return repr(value)

    def _check_restorable(self, value: Any, where: str) -> None:
        """Refuse an object that the serialiser would return as data: it cannot import a class inside a function."""
        kind = type(value)
        if kind in self._restorable:
            return
        if not self._is_restorable(value, where):
            remedy = (
                "LangGraph builds only classes that the schema names: annotate the channel with it"
                if is_importable(kind)
                else "define its class at the top of a module, where it can be imported"
            )
            raise StateNotSerialisable(where, f"a {kind.__qualname__} would come back as data; {remedy}")
        self._restorable.add(kind)

    def _is_restorable(self, value: Any, where: str) -> bool:
        stored = self.foreign(value, where)
        try:
            return type(self.restore_item(stored)) is type(value)
        except InvalidInput:  # a class inside a function of the script itself
            return False

    def restore(self, stored: Any) -> Any:
        """Return a private copy of the value that was stored."""
        return [self.restore_item(item) for item in stored] if type(stored) is list else self.restore_item(stored)

    def restore_item(self, stored: Any) -> Any:
        """Return a private copy of a value that was stored in one piece."""
        if type(stored) is not Foreign:
            return copied(stored)
        find_script_classes(stored.data, self._home)
        return self.load(stored)
