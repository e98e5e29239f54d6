"""MsgpackCodec: msgpack with a tag for every type that plain msgpack would turn into another one.

The native encoder does the whole value in one pass and calls `_Tagger` only for types that it does not know. If it
refuses a value (keys that are not strings, lone surrogates, a function somewhere), the value is walked in Python, which
either tags its parts or finds the path for the error.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, MappingView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import Any, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack

from wtb.domain.copies import as_python, is_numpy_scalar
from wtb.domain.errors import DamagedData, StateNotSerialisable, UnknownFormat
from wtb.domain.secret_memory import REMEMBERED
from wtb.domain.secrets import Secret
from wtb.infrastructure.codecs.foreign import Encoded, Foreign
from wtb.infrastructure.codecs.refusal import NotStorable
from wtb.infrastructure.codecs.revealed import warn_of_secret
from wtb.infrastructure.codecs.types import REGISTERED, TypeRegistry

_KEEP_TYPES = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_CANONICAL = _KEEP_TYPES | ormsgpack.OPT_SORT_KEYS

_FLAT = frozenset({str, int, float, bool, bytes, type(None)})
_DEEPEST = 200
"""The deepest nesting that the walk in Python accepts; the native encoder stops a little earlier or later."""
_DEEPEST_TAGS = 100
"""The deepest nesting of tagged values: decoding each needs Python's stack, and every encoded value must decode."""
_TAG_LEVELS = _DEEPEST // _DEEPEST_TAGS - 1
"""The levels that a tag adds to the depth of the walk, besides the level of its content."""

# The errors of building a value from damaged content.
_MISFITS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)

# Data written under a tag must stay readable for ever: a number never gets another type.
_TUPLE, _SET, _FROZENSET, _BIG_INT, _DATETIME, _DATE, _TIME, _TIMEDELTA = range(1, 9)
_UUID, _DECIMAL, _OBJECT, _PAIRS, _TEXT, FOREIGN = range(9, 15)


_MSGPACK = b"msgpack\0"


class MsgpackCodec:
    """The codec of all stores. The user's own types are stored under their registered names."""

    def __init__(self, types: TypeRegistry = REGISTERED) -> None:
        self._types = types
        self._tag = _Tagger(self, _KEEP_TYPES, _DEEPEST_TAGS)
        self._tag_canonical = _Tagger(self, _CANONICAL, _DEEPEST_TAGS)
        self._failed = _Failed()

    def encode(self, value: Any, path: str) -> tuple[bytes, bytes]:
        if type(value) is Encoded:
            return value
        encoded = self._encoded(value, path)
        for needle in REMEMBERED.needles:
            if needle in encoded[0]:
                warn_of_secret(needle, value, path)
        return encoded

    def _encoded(self, value: Any, path: str) -> tuple[bytes, bytes]:
        try:
            data = pack(value, self._tag, _KEEP_TYPES)
            if type(value) in _FLAT:
                return data, data
            return data, ormsgpack.packb(value, self._tag_canonical, _CANONICAL)
        except (TypeError, ValueError, RecursionError):  # ormsgpack's own errors are among these
            return self._walked(value, path, _KEEP_TYPES), self._walked(value, path, _CANONICAL)

    def decode(self, data: bytes | memoryview) -> Any:
        try:
            return ormsgpack.unpackb(data, ext_hook=self._untag)
        except ValueError as error:  # ormsgpack raises only this, whatever `_untag` raised
            cause, self._failed.error = self._failed.error or error, None
            if isinstance(cause, _MISFITS):
                raise DamagedData(f"a stored value cannot be decoded: {cause}") from cause
            raise cause from None

    def digest(self, *parts: bytes) -> bytes:
        return hashlib.sha256(parts[0] if len(parts) == 1 else b"".join(parts)).digest()

    def _walked(self, value: Any, path: str, option: int) -> bytes:
        try:
            return ormsgpack.packb(_ValueTagger(self, option).plain(value, path, 0), None, option)
        except RecursionError as error:  # the caller used most of Python's stack
            raise StateNotSerialisable(path, "nested too deeply") from error
        except (TypeError, ValueError) as error:
            if isinstance(error, StateNotSerialisable):
                raise
            raise StateNotSerialisable(path, str(error)) from error

    def split(self, value: Any) -> tuple[int, Any]:
        """Return the tag of a value that msgpack does not know, and its content in types that it knows."""
        kind = type(value)
        simple = _SPLITTERS.get(kind)
        if simple is not None:
            return simple(value)
        name = self._types.find_name(kind)
        if name is None:
            raise TypeError(kind.__qualname__)
        return _OBJECT, [name, self._types.content(name, value)]

    def _untag(self, code: int, data: bytes) -> Any:
        if code == FOREIGN and data.startswith(_MSGPACK):
            return Foreign("msgpack", data[len(_MSGPACK) :])
        try:
            if code == _OBJECT:
                name, content = self.decode(data)
                return self._types.build(name, content)
            build = _BUILDERS.get(code)
            if build is None:
                raise UnknownFormat(f"a stored value has the type tag {code}, which this version of wtb does not know")
            return build(data if code in _RAW else self.decode(data))
        except BaseException as error:
            self._failed.error = error
            raise


class _Failed(threading.local):
    """The error raised while a value was built: ormsgpack only says that there was one."""

    error: BaseException | None = None


class _Tagger:
    """Tags the values that the native encoder does not know, down to a depth."""

    __slots__ = ("_codec", "_deeper", "_option")

    def __init__(self, codec: MsgpackCodec, option: int, depth: int) -> None:
        self._codec = codec
        self._option = option
        self._deeper = _Tagger(codec, option, depth - 1) if depth > 1 else None

    def __call__(self, value: Any) -> Any:
        if becomes_python(value):
            return as_python(value)
        code, content = self._codec.split(value)
        return ormsgpack.Ext(code, pack_content(code, content, self._deeper, self._option))


def pack_content(code: int, content: Any, tag: Callable[[Any], Any] | None, option: int) -> bytes:
    """Pack the content of a tagged value; sets are sorted by the bytes of their items."""
    if code in _RAW:
        return bytes(content)
    if code in (_SET, _FROZENSET):
        return _array(sorted(pack(item, tag, option) for item in content))
    if code == _PAIRS and option == _CANONICAL:
        return _array(sorted(pack(pair, tag, option) for pair in content))
    return pack(content, tag, option)


def pack(value: Any, tag: Callable[[Any], Any] | None, option: int) -> bytes:
    """Pack a value; refuse buffers, which ormsgpack would silently turn into bytes."""
    data = ormsgpack.packb(value, tag, option)
    # Everything packed as bytes begins with one of these codes. They are rare elsewhere, so few values are searched.
    if (b"\xc4" in data or b"\xc5" in data or b"\xc6" in data) and holds_buffer(value):
        raise TypeError("a buffer that can change")
    return data


def holds_buffer(value: Any) -> bool:
    """Whether natively packed lists and mappings contain a bytearray or memoryview."""
    remaining = [value]
    while remaining:
        item = remaining.pop()
        kind = type(item)
        if kind is bytearray or kind is memoryview:
            return True
        if kind is dict or kind is list:
            parts = item.values() if kind is dict else item
            if not _FLAT.issuperset(map(type, parts)):
                remaining.extend(parts)
    return False


def _array(packed: list[bytes]) -> bytes:
    return b"\xdd" + len(packed).to_bytes(4, "big") + b"".join(packed)


class _ValueTagger:
    """Walks through a value that the native encoder refused; tags the storable parts, names the others in an error."""

    def __init__(self, codec: MsgpackCodec, option: int) -> None:
        self._codec = codec
        self._option = option

    def plain(self, value: Any, path: str, depth: int) -> Any:
        if depth > _DEEPEST:
            _refuse(path, f"nested deeper than {_DEEPEST} levels, or {_DEEPEST_TAGS} of tuples, sets and objects")
        kind = type(value)
        if kind is list:
            return self._items(value, path, depth)
        if kind is dict:
            return self._mapping(value, path, depth)
        if kind is str and not is_valid_text(value):
            return self._ext(_TEXT, value.encode("utf-8", "surrogatepass"))
        if kind in _FLAT and not (kind is int and _is_big(value)):
            return value
        if becomes_python(value):
            return self.plain(as_python(value), path, depth)
        return self._tagged(value, path, depth)

    def _items(self, items: Iterable[Any], path: str, depth: int) -> list[Any]:
        return [self.plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(items)]

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> Any:
        if all(type(key) is str and is_valid_text(key) for key in value):
            return {key: self.plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
        depth += 1 + _TAG_LEVELS
        pairs = [
            [self.plain(key, f"{path} key {key!r}", depth), self.plain(item, f"{path}[{key!r}]", depth)]
            for key, item in value.items()
        ]
        return self._ext(_PAIRS, pairs)

    def _tagged(self, value: Any, path: str, depth: int) -> ormsgpack.Ext:
        try:
            code, content = self._codec.split(value)
        except NotStorable as error:
            _refuse(path, str(error))
        except TypeError:
            _refuse(path, f"{kind_of(value)}{_hint(value)}")
        except (AttributeError, LookupError) as error:
            _refuse(path, f"{kind_of(value)} cannot be read: {error}")
        if code in _RAW:
            return self._ext(code, content)
        if code == _OBJECT:
            return self._ext(code, [content[0], self._fields(value, content[1], path, depth + _TAG_LEVELS)])
        return self._ext(code, self._items(content, path, depth + _TAG_LEVELS))

    def _fields(self, value: Any, content: Any, path: str, depth: int) -> Any:
        if type(content) is list and not isinstance(value, tuple):  # the parts of a pydantic model
            return [self.plain(part, path, depth) for part in content]
        return self.plain(content, path, depth)

    def _ext(self, code: int, content: Any) -> ormsgpack.Ext:
        return ormsgpack.Ext(code, pack_content(code, content, None, self._option))


def becomes_python(value: Any) -> bool:
    """Whether a value is a numpy scalar with an equivalent Python value; the user's objects may hold some."""
    return type(value).__module__ == "numpy" and is_numpy_scalar(value) and as_python(value) is not value


def _refuse(path: str, problem: str) -> NoReturn:
    raise StateNotSerialisable(_shortened(path), problem) from None  # the native encoder's error adds nothing


def _shortened(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:120]} … {path[-60:]}"


def kind_of(value: Any) -> str:
    """Return the name of a value's type, with its module unless it is Python's own."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _hint(value: Any) -> str:
    if callable(value):
        return " cannot be stored; keep a name in the state and look the function up in the node"
    if isinstance(value, Secret):
        return " is never stored; read it in the node that needs it"
    if any(hasattr(type(value), name) for name in ("__dataclass_fields__", "model_fields", "__members__")):
        return " cannot be stored before it is registered with wtb.serialisable"
    return f" cannot be stored; {_instead(value)}"


def _instead(value: Any) -> str:
    """Suggest what to store instead; numpy and pandas values are recognised by their methods, without an import."""
    by_kind = (advice for kinds, advice in _INSTEAD_OF if isinstance(value, kinds))
    by_method = (advice for method, advice in _INSTEAD_WITH if hasattr(value, method))
    return next(chain(by_kind, by_method), "use plain data, or register a dataclass, enum or pydantic model")


_INSTEAD_OF: tuple[tuple[Any, str], ...] = (
    (bytearray | memoryview, "use bytes"),
    (Awaitable, "await it first"),
    (PurePath, "use its text: str(path)"),
    (BaseException, "use its text: str(error)"),
    (dict, "use dict(…)"),
    (str, "use str(…)"),
    (deque | range | MappingView | Iterator, "use list(…)"),
)
_INSTEAD_WITH = (
    ("tolist", "use .tolist() or bytes"),
    ("to_pydatetime", "use .to_pydatetime()"),
    ("to_dict", "use .to_dict(), or a file in ctx.workspace"),
)


def is_valid_text(text: str) -> bool:
    """Whether a text can be encoded: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_big(value: int) -> bool:
    return not -(1 << 63) <= value < 1 << 64


def _big_int(value: int) -> tuple[int, bytes]:
    return _BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _moment(value: datetime | time) -> list[Any]:
    return [value.isoformat(), value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None, value.fold]


def _build_moment(cls: type[datetime] | type[time], content: list[Any]) -> datetime | time:
    text, zone, fold = content
    value = cls.fromisoformat(text)
    return value.replace(tzinfo=_zone(zone) if zone else value.tzinfo, fold=fold)


def _zone(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except (LookupError, ValueError, OSError) as error:
        raise UnknownFormat(f"a stored time is in the zone {key!r}, which is not known here: install tzdata") from error


def _build_foreign(data: bytes) -> Foreign:
    encoding, _, content = data.partition(b"\0")
    return Foreign(encoding.decode(), content)


_SPLITTERS: dict[type, Callable[[Any], tuple[int, Any]]] = {
    tuple: lambda value: (_TUPLE, list(value)),
    set: lambda value: (_SET, list(value)),
    frozenset: lambda value: (_FROZENSET, list(value)),
    int: _big_int,
    datetime: lambda value: (_DATETIME, _moment(value)),
    date: lambda value: (_DATE, value.isoformat().encode()),
    time: lambda value: (_TIME, _moment(value)),
    timedelta: lambda value: (_TIMEDELTA, [value.days, value.seconds, value.microseconds]),
    UUID: lambda value: (_UUID, value.bytes),
    Decimal: lambda value: (_DECIMAL, str(value).encode()),
    Foreign: lambda value: (FOREIGN, b"%s\0%s" % (value.encoding.encode(), value.data)),
}

_RAW = frozenset({_BIG_INT, _DATE, _UUID, _DECIMAL, _TEXT, FOREIGN})

_BUILDERS: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
    _DATETIME: partial(_build_moment, datetime),
    _DATE: lambda data: date.fromisoformat(data.decode()),
    _TIME: partial(_build_moment, time),
    _TIMEDELTA: lambda content: timedelta(*content),
    _UUID: lambda data: UUID(bytes=data),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _PAIRS: dict,
    _TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    FOREIGN: _build_foreign,
}
