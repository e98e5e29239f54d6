"""Values of states: tagged JSON becomes plain Python values, and objects stay as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.application.queries.tagged_json import TYPE, Stored, TaggedJson
from wtb.domain.secrets import Masker


class _NoClasses:
    """A client builds no object of any class."""

    def find(self, value: Any) -> tuple[str, Any] | None:
        return None

    def build(self, name: str, content: Any) -> Any:
        return {TYPE: "class", "name": name, "value": content}


class _NothingMasked(Masker):
    """The server gets values as they are: it stores them, and masks what it shows."""

    def text(self, text: str) -> str:
        return text

    def is_secret_key(self, key: Any) -> bool:
        return False


class _ClientJson(TaggedJson):
    """Reads everything that a server shows. What it masks or cannot describe stays as it is shown."""

    def _kept(self, data: Mapping[str, Any], stored: Stored, place: str) -> Any:
        return dict(data)


_JSON = _ClientJson(_NoClasses(), _NothingMasked())


def read_value(data: Any) -> Any:
    """Return a value of the tagged JSON that a server sent."""
    return _JSON.read(data)


def write_value(value: Any) -> Any:
    """Return a value as tagged JSON. Data of an object, as `read_value` returned it, is written as it came."""
    if isinstance(value, Mapping) and value.get(TYPE) in _DATA:
        return dict(value)
    if type(value) is dict and TYPE not in value and all(type(key) is str for key in value):
        return {key: write_value(item) for key, item in value.items()}
    if type(value) is list:
        return [write_value(item) for item in value]
    return _JSON.write(value)


_DATA = ("class", "foreign", "masked", "opaque")
