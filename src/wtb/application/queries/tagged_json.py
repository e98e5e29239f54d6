"""TaggedJson: values of states as JSON that loses nothing, and back.

Plain JSON values stay as they are. Everything else is an object with the key `$type`. A secret is shown masked, and a
value that JSON cannot describe as its text; both may come back unchanged, and then mean the stored value.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from typing import Any, NamedTuple, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

from wtb.domain.errors import InvalidInput
from wtb.domain.secrets import MASK, Masker
from wtb.domain.values import Legible

TYPE = "$type"
MASKED, OPAQUE, FOREIGN = "masked", "opaque", "foreign"
_KEPT = frozenset({MASKED, OPAQUE, FOREIGN})
"""Types that only say that the stored value stays."""

_EXACT = 1 << 53
"""Up to here a number of JavaScript is exact."""
_DEEPEST = 250
"""Deeper than any store keeps; Python's stack allows not much more."""
_LONGEST_TEXT = 1_000


class Classes(Protocol):
    """The classes of users and libraries that a state may hold."""

    def find(self, value: Any) -> tuple[str, Any] | None:
        """Return the name and the content of a value; None if its class is not known."""
        ...

    def build(self, name: str, content: Any) -> Any:
        """Return the value of a class with this content; raise InvalidInput if there is none."""
        ...


class Stored(NamedTuple):
    """A value that is in the store, in all forms that it may have been shown in; the first form is kept."""

    forms: tuple[Any, ...] = ()

    def part(self, find: Callable[[Any], Any]) -> Stored:
        """Return one part of it, in the forms that have this part."""
        found = []
        for form in self.forms:
            try:
                found.append(find(form))
            except (LookupError, TypeError):
                continue
        return Stored(tuple(found))


NOTHING = Stored()


class TaggedJson:
    """Turns values into tagged JSON and back. Reading an object needs its class; without classes none is built."""

    def __init__(self, classes: Classes, masker: Masker) -> None:
        self._classes = classes
        self._masker = masker

    def write(self, value: Any) -> Any:
        """Return a value as JSON."""
        return self._written(value, 0)

    def write_item(self, key: Any, value: Any) -> Any:
        """Return the value of a key as JSON, masked if the key names a secret."""
        return self._item(key, value, 1)

    def read(self, data: Any, stored: Stored = NOTHING, place: str = "the value") -> Any:
        """Return the value that the JSON describes; parts that are only shown stay as they are in `stored`.

        It raises InvalidInput, with the place in the value, if the JSON describes none.
        """
        return self._read(data, stored, place, 0)

    def _written(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind in _WRITERS:
            return _WRITERS[kind](value)
        if kind is str:
            return self._text(value)
        return _opaque(value) if depth > _DEEPEST else self._whole(value, depth)

    def _whole(self, value: Any, depth: int) -> Any:
        """Return a value that has parts."""
        kind = type(value)
        if kind is dict:
            return self._mapping(value, depth)
        if kind not in (list, tuple, set, frozenset):
            return self._object(value, depth)
        items = [self._written(item, depth + 1) for item in _ordered(value)]
        return items if kind is list else _tagged(kind.__name__, items)

    def _text(self, value: str) -> Any:
        masked = self._masker.text(value)
        if masked != value:
            return _tagged(MASKED, masked)
        return value if _is_valid(value) else _tagged("text", value.encode("unicode_escape").decode())

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        items = [(key, self._item(key, item, depth + 1)) for key, item in value.items()]
        if TYPE not in value and all(type(key) is str and _is_valid(key) for key in value):
            return dict(items)
        return _tagged("dict", [[self._written(key, depth + 1), item] for key, item in items])

    def _item(self, key: Any, item: Any, depth: int) -> Any:
        if item is not None and self._masker.is_secret_key(key):
            return _tagged(MASKED, MASK)
        return self._written(item, depth)

    def _object(self, value: Any, depth: int) -> Any:
        found = self._classes.find(value)
        if found is not None:
            name, content = found
            if is_model(content):
                rest = self._written(list(content[1:]), depth + 1)
                return {TYPE: "class", "name": name, "value": self._written(content[0], depth + 1), "model": rest}
            return {TYPE: "class", "name": name, "value": self._written(content, depth + 1)}
        if isinstance(value, Legible):
            shown = value.legible()
            kind = shown.pop("class", None) if type(shown) is dict else None
            return {TYPE: FOREIGN, "name": kind, "value": self._written(shown, depth + 1)}
        return _opaque(value, self._masker)

    def _read(self, data: Any, stored: Stored, place: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise InvalidInput(f"{place}: nested too deeply")
        if type(data) is list:
            return [
                self._read(item, stored.part(itemgetter(i)), f"{place}[{i}]", depth + 1) for i, item in enumerate(data)
            ]
        if not isinstance(data, Mapping):
            return data
        if TYPE not in data:
            return {
                key: self._read(item, stored.part(itemgetter(key)), f"{place}.{key}", depth + 1)
                for key, item in data.items()
            }
        return self._untagged(data, stored, place, depth)

    def _untagged(self, data: Mapping[str, Any], stored: Stored, place: str, depth: int) -> Any:
        kind, value = _checked(data[TYPE], str, place), data.get("value")
        if kind in _KEPT:
            return self._kept(data, stored, place)
        if kind == "class":
            return self._built(data, stored, place, depth)
        if kind == "dict":
            return dict(self._pairs(value, stored, place, depth))
        if kind in _COLLECTIONS:
            items = self._read(value, stored.part(_items), place, depth + 1)
            return self._made(lambda: _COLLECTIONS[kind](_checked(items, list)), place, kind)
        read = _READERS.get(kind)
        if read is None:
            raise InvalidInput(f"{place}: there is no type {kind[:80]!r}")
        return self._made(lambda: read(data), place, kind)

    def _pairs(self, value: Any, stored: Stored, place: str, depth: int) -> Iterator[tuple[Any, Any]]:
        for pair in _checked(value, list, place):
            if type(pair) is not list or len(pair) != 2:
                raise InvalidInput(f"{place}: a dict is a list of pairs of a key and a value")
            key = self._read(pair[0], NOTHING, f"{place} key", depth + 1)
            if not isinstance(key, Hashable):
                raise InvalidInput(f"{place}: a {type(key).__name__} cannot be the key of a dict")
            yield key, self._read(pair[1], stored.part(itemgetter(key)), f"{place}[{key!r}]", depth + 1)

    def _built(self, data: Mapping[str, Any], stored: Stored, place: str, depth: int) -> Any:
        name = _checked(data.get("name"), str, place)
        before = stored.part(lambda whole: self._content(whole, name))
        if "model" not in data:
            return self._classes.build(name, self._read(data.get("value"), before, place, depth + 1))
        fields = self._read(data.get("value"), before.part(itemgetter(0)), place, depth + 1)
        rest = self._read(data["model"], before.part(itemgetter(slice(1, None))), place, depth + 1)
        if not is_model([fields, *_checked(rest, list, place)]):
            raise InvalidInput(f"{place}: this is no content of a {name!r}")
        return self._classes.build(name, [fields, *rest])

    def _content(self, value: Any, name: str) -> Any:
        found = self._classes.find(value)
        if found is None or found[0] != name:
            raise LookupError(name)
        return found[1]

    def _kept(self, data: Mapping[str, Any], stored: Stored, place: str) -> Any:
        """Return the stored value, if the data is what was shown of it."""
        kind = data[TYPE]
        for form in stored.forms:
            is_secret = kind == MASKED and data.get("value") == MASK and form is not None
            if is_secret or self.write(form) == data:
                return stored.forms[0]
        what = "a masked value" if kind == MASKED else "this value"
        raise InvalidInput(f"{place}: {what} can stay where it is, but not be changed, moved or copied")

    def _made(self, make: Callable[[], Any], place: str, kind: str) -> Any:
        try:
            return make()
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError, binascii.Error) as error:
            raise InvalidInput(f"{place}: this is no {kind}: {error}") from error


def is_model(content: Any) -> bool:
    """Whether this is the content of a pydantic model: fields, extra fields, names of set fields, private ones."""
    return (
        type(content) is list
        and len(content) == 4
        and type(content[0]) is dict
        and isinstance(content[1], dict | None)
        and type(content[2]) is list
        and isinstance(content[3], dict | None)
    )


def _tagged(kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {TYPE: kind, "value": value, **more}


def _opaque(value: Any, masker: Masker | None = None) -> dict[str, Any]:
    kind = type(value)
    text = repr(value)[:_LONGEST_TEXT]
    return {TYPE: OPAQUE, "name": f"{kind.__module__}.{kind.__qualname__}", "text": masker.text(text) if masker else ""}


def _ordered(value: Any) -> list[Any]:
    """Return the items of a collection; those of a set in an order that does not depend on the process."""
    if isinstance(value, list | tuple):
        return list(value)
    return sorted(value, key=lambda item: (type(item).__name__, repr(item)))


def _items(value: Any) -> list[Any]:
    if isinstance(value, tuple | set | frozenset):
        return _ordered(value)
    raise TypeError(value)


def _is_valid(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _checked(value: Any, kind: type, place: str = "the value") -> Any:
    if type(value) is not kind:
        raise InvalidInput(f"{place}: expected a {kind.__name__}, not {type(value).__name__}")
    return value


def _write_int(value: int) -> Any:
    if -_EXACT <= value <= _EXACT:
        return value
    return _tagged("int", str(value) if value.bit_length() < 10_000 else hex(value))  # Python limits long decimals


def _write_float(value: float) -> Any:
    return value if math.isfinite(value) else _tagged("float", repr(value))


def _moment(kind: str) -> Callable[[Any], Any]:
    def write(value: datetime | time) -> Any:
        zone = {"zone": value.tzinfo.key} if isinstance(value.tzinfo, ZoneInfo) else {}
        return _tagged(kind, value.isoformat(), **zone, **({"fold": 1} if value.fold else {}))

    return write


def _read_moment(cls: type[datetime] | type[time]) -> Callable[[Mapping[str, Any]], Any]:
    def read(data: Mapping[str, Any]) -> Any:
        value = cls.fromisoformat(data["value"])
        zone = ZoneInfo(data["zone"]) if "zone" in data else value.tzinfo
        return value.replace(tzinfo=zone, fold=data.get("fold", 0))

    return read


def _read_decimal(data: Mapping[str, Any]) -> Decimal:
    try:
        return Decimal(_checked(data["value"], str))
    except InvalidOperation as error:
        raise ValueError("not a decimal number") from error


def _read_int(data: Mapping[str, Any]) -> int:
    return int(_checked(data["value"], str), 0)


_WRITERS: dict[type, Callable[[Any], Any]] = {
    int: _write_int,
    float: _write_float,
    bytes: lambda value: _tagged("bytes", base64.b64encode(value).decode()),
    datetime: _moment("datetime"),
    time: _moment("time"),
    date: lambda value: _tagged("date", value.isoformat()),
    timedelta: lambda value: _tagged("timedelta", [value.days, value.seconds, value.microseconds]),
    UUID: lambda value: _tagged("uuid", str(value)),
    Decimal: lambda value: _tagged("decimal", str(value)),
}
_COLLECTIONS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "int": _read_int,
    "float": lambda data: float(_checked(data["value"], str)),
    "text": lambda data: data["value"].encode("ascii").decode("unicode_escape"),
    "bytes": lambda data: base64.b64decode(data["value"], validate=True),
    "datetime": _read_moment(datetime),
    "time": _read_moment(time),
    "date": lambda data: date.fromisoformat(data["value"]),
    "timedelta": lambda data: timedelta(*data["value"]),
    "uuid": lambda data: UUID(data["value"]),
    "decimal": _read_decimal,
}
