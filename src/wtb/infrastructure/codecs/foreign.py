"""Foreign: a value in the encoding of another library, kept as its bytes and readable without that library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import ormsgpack


@dataclass(slots=True, repr=False)
class Foreign:
    """A value as LangGraph's serialiser wrote it: the name of the encoding, and the bytes.

    No object is built from it here: only the library that wrote it knows how, and the user decides what may be built.
    It is not frozen, because that triples the time to create one, and a history has thousands.
    """

    encoding: str
    data: bytes

    def legible(self) -> Any:
        """Return the value as plain data, for people: an object as its fields beside the name of its class."""
        if self.encoding != "msgpack":
            return f"{len(self.data):,} bytes ({self.encoding})"
        try:
            return ormsgpack.unpackb(self.data, ext_hook=_shown, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError:
            return f"{len(self.data):,} bytes that cannot be read"

    def fields(self) -> Any:
        """Return the value as plain data, for programs: an object as its fields alone, all of them."""
        if self.encoding != "msgpack":
            return self.legible()
        try:
            return ormsgpack.unpackb(self.data, ext_hook=_fields, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError:
            return self.legible()

    def __repr__(self) -> str:
        return repr(self.legible())


class Encoded(NamedTuple):
    """A value that is already encoded, in the form that `Codec.encode` returns."""

    data: bytes
    canonical: bytes


def live(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with its original objects, as far as the library that wrote them is installed here."""
    return {
        key: [_live(item) for item in value] if type(value) is list else _live(value) for key, value in state.items()
    }


def _live(value: Any) -> Any:
    if type(value) is not Foreign:
        return value
    try:
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    except ImportError:
        return value
    return JsonPlusSerializer().loads_typed((value.encoding, value.data))


def _shown(code: int, data: bytes) -> Any:
    """Return one tagged value as data; the codes are those of LangGraph's JsonPlusSerializer."""
    content = ormsgpack.unpackb(data, ext_hook=_shown, option=ormsgpack.OPT_NON_STR_KEYS)
    show = _SHOWN.get(code)
    try:
        return content if show is None else show(content)
    except (TypeError, LookupError):
        return content


def _fields(code: int, data: bytes) -> Any:
    content = ormsgpack.unpackb(data, ext_hook=_fields, option=ormsgpack.OPT_NON_STR_KEYS)
    try:
        return _POSITIONS[code](content) if code in _POSITIONS else content[2]
    except (TypeError, LookupError):
        return content


def _object(content: Any) -> Any:
    module, name, fields = content[:3]
    if not isinstance(fields, dict):
        return fields
    if module.startswith("langchain_core.messages"):  # most fields of a message are empty, and hide its text
        fields = {key: value for key, value in fields.items() if key == "content" or value not in (None, "", [], {})}
    return {"class": f"{module}.{name}", **fields}


def _positional(content: Any) -> Any:
    module, name, arguments = content[:3]
    if module == "pathlib":
        return _arguments(content)
    return {"class": f"{module}.{name}", "arguments": arguments}


def _arguments(content: Any) -> Any:
    return "/".join(content[2]).replace("//", "/") if content[0] == "pathlib" else content[2]


def _array(content: Any) -> Any:
    dtype, shape, _, buffer = content
    return {"class": "numpy.ndarray", "dtype": dtype, "shape": shape, "bytes": len(buffer)}


_SHOWN: dict[int, Callable[[Any], Any]] = {0: _object, 1: _positional, 2: _object, 3: _object, 4: _object, 5: _object}
_SHOWN[6] = _array
_POSITIONS: dict[int, Callable[[Any], Any]] = {1: _arguments, 6: _array}
