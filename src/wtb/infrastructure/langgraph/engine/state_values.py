"""Kept values: what a run of a graph holds in its state, and the objects that LangGraph and its nodes see of it.

Text, numbers, and lists and mappings of them are kept as they are, so that everybody can read and compare them; other
objects as LangGraph's serialiser writes them. What is kept is nobody else's: a node that changes in place what it was
given, or what it has returned, changes nothing here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from pydantic import BaseModel

from wtb.domain.errors import DamagedData, InvalidInput, StateNotSerialisable
from wtb.domain.sameness import same
from wtb.domain.state import Append, Change, SetValue, Splice
from wtb.infrastructure.codecs.foreign import Foreign
from wtb.infrastructure.langgraph.change_tracking import UNKNOWN, is_unchanged, shape_of

_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})


class _NotPlain(Exception):
    """Something that only a serialiser can write."""


class KeptValues:
    """Keeps values with the semantics of a LangGraph serialiser, and gives them back."""

    def __init__(self, serde: SerializerProtocol | None = None, *, home: str | None = None) -> None:
        """`home` is the module of the graph, where classes of the script that began a run are found in another one."""
        self._serde = serde or JsonPlusSerializer()
        self._home = home
        self._readable: set[type] = set()

    def keep(self, value: Any, where: str) -> Any:
        """Return a value as it is kept; StateNotSerialisable, naming where it is, when it cannot be."""
        return [self.keep_item(item, where) for item in value] if type(value) is list else self.keep_item(value, where)

    def keep_item(self, value: Any, where: str) -> Any:
        """Return a value that is kept in one piece."""
        try:
            return _copied(value)
        except (_NotPlain, RecursionError):
            kept = self._foreign(value, where)
            for each in _objects_in(value):
                self._check_readable(each, where)
            return kept

    def legible(self, value: Any, where: str) -> Any:
        """Return a value as plain data that people can read, with objects as their fields; its text if need be."""
        try:
            return _copied(value)
        except (_NotPlain, RecursionError):
            kept = self._foreign(value, where)
        try:
            return _copied(kept.legible())
        except (_NotPlain, RecursionError):
            return repr(value)

    def _foreign(self, value: Any, where: str) -> Foreign:
        try:
            encoding, data = self._serde.dumps_typed(value)
        except Exception as error:  # whatever a serialiser of somebody else's raises
            reason = f"a {type(value).__qualname__} cannot be stored: {error.__cause__ or error}"
            raise StateNotSerialisable(where, f"{reason}; keep it out of the state, or make it data") from error
        return Foreign(encoding, bytes(data))

    def _check_readable(self, value: Any, where: str) -> None:
        """Refuse an object that comes back as data: a serialiser cannot import a class inside a function."""
        kind = type(value)
        if kind in self._readable:
            return
        if not self._comes_back(value, where):
            is_found = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
            remedy = (
                "LangGraph is told to build no class that the schema does not name: annotate the channel with it"
                if is_found
                else "define its class at the top of a module, where it can be imported"
            )
            raise StateNotSerialisable(where, f"a {kind.__qualname__} would come back as data; {remedy}")
        self._readable.add(kind)

    def _comes_back(self, value: Any, where: str) -> bool:
        kept = self._foreign(value, where)
        try:
            return type(self.restore_item(kept)) is type(value)
        except InvalidInput:  # a class inside a function of the script itself
            return False

    def restore(self, kept: Any) -> Any:
        """Return a value that was kept."""
        return [self.restore_item(item) for item in kept] if type(kept) is list else self.restore_item(kept)

    def restore_item(self, kept: Any) -> Any:
        """Return a value that was kept in one piece."""
        if type(kept) is not Foreign:
            return _copied(kept)
        if _SCRIPT in kept.data:
            self._find_classes(kept.data)
        try:
            return self._serde.loads_typed((kept.encoding, kept.data))
        except Exception as error:
            raise DamagedData(f"a stored value ({kept.encoding}) cannot be read: {error}") from error

    def _find_classes(self, data: bytes) -> None:
        """See that the classes of a script are where the serialiser looks for them: it gives data in their place."""
        script, home = sys.modules["__main__"], sys.modules.get(self._home or "")
        for name in _names_after(_SCRIPT, data):
            if not hasattr(script, name) and not hasattr(home, name):
                raise InvalidInput(
                    f"the state holds a {name} of the script that began the run, which is not here; move {name} to "
                    "a module that the script imports, or go on in the script"
                )
            if not hasattr(script, name):
                setattr(script, name, getattr(home, name))


_SCRIPT = b"\xa8__main__"
"""How the serialiser writes the module of a class that was defined in the script itself; its name follows."""


def _names_after(mark: bytes, data: bytes) -> Iterator[str]:
    """Yield the short texts that follow a mark, as msgpack writes them."""
    for rest in data.split(mark)[1:]:
        start, size = (2, rest[1]) if rest[:1] == b"\xd9" else (1, rest[0] & 0x1F)
        yield rest[start : start + size].decode(errors="replace")


def _objects_in(value: Any) -> Iterator[Any]:
    """Yield the models and dataclasses in a value, down to those that the serialiser writes by themselves.

    The fields of a model it writes as data, and leaves it to the model to build them again.
    """
    if isinstance(value, BaseModel):
        yield value
        return
    inside: Iterable[Any] = ()
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        inside = value
    elif isinstance(value, Send):
        inside = (value.arg,)
    elif is_dataclass(value):
        inside = [getattr(value, field.name) for field in fields(value)]
    for each in inside:
        yield from _objects_in(each)
    if is_dataclass(value):  # after what it holds, which is to be named first
        yield value


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return [_copied(item) for item in value]
    if kind is not dict or not all(type(key) is str for key in value):
        raise _NotPlain
    return {key: _copied(item) for key, item in value.items()}


class LiveList:
    """A list of the state, with the objects that were made of its items: those that nobody changed are used again."""

    def __init__(self, kept: list[Any], values: KeptValues) -> None:
        self._kept = kept
        self._values = values
        self._items: list[Any] = [UNKNOWN] * len(kept)
        self._shapes: list[Any] = [UNKNOWN] * len(kept)
        self._is_compared = False
        """Whether the items were compared with what is kept, and no node has seen them since."""

    def restored(self) -> list[Any]:
        """Return the list as it is kept."""
        for position, item in enumerate(() if self._is_compared else self._items):
            if not is_unchanged(item, self._shapes[position]):
                restored = self._values.restore_item(self._kept[position])
                self._see(position, restored, shape_of(restored))
        self._is_compared = False
        return list(self._items)

    def change(self, value: list[Any], where: str) -> Change | None:
        """Return what makes this list of what is kept, and go on with that; None when they are the same."""
        start = self._first_difference(value, where)
        before = len(self._kept)
        if start == before == len(value):
            self._is_compared = self._is_whole()
            return None
        new = value[start:]
        shapes = list(map(shape_of, new))  # before they are kept: a change in between is one of the next time
        added = [self._values.keep_item(item, where) for item in new]
        self._kept = [*self._kept[:start], *added]
        del self._items[start:], self._shapes[start:]
        self._items += new
        self._shapes += map(_usable, shapes, new, added)
        self._is_compared = self._is_whole()
        if start == before and before:
            return Append(tuple(added))
        return Splice(start, before - start, tuple(added)) if start else SetValue(added)

    def _first_difference(self, value: list[Any], where: str) -> int:
        for position, item in enumerate(value[: len(self._kept)]):
            if item is self._items[position] and is_unchanged(item, self._shapes[position]):
                continue
            shape = shape_of(item)  # before it is kept, as above
            if not same(self._values.keep_item(item, where), self._kept[position]):
                return position
            self._see(position, item, shape)
        return min(len(value), len(self._kept))

    def _see(self, position: int, item: Any, shape: Any) -> None:
        self._items[position], self._shapes[position] = item, _usable(shape, item, self._kept[position])

    def _is_whole(self) -> bool:
        return all(shape is not UNKNOWN for shape in self._shapes)


def _usable(shape: Any, item: Any, kept: Any) -> Any:
    """Return the shape of an object, unless the serialiser would give back something that is not quite like it."""
    return shape if type(kept) is not Foreign or isinstance(item, BaseModel) else UNKNOWN
