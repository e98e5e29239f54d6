"""Excerpts: short plain copies of values for events, without secrets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

from wtb.domain.copies import as_python, is_numpy_scalar
from wtb.domain.secrets import MASK, Masker, Secret

_TEXT = 200
_ITEMS = 10
_DEPTH = 3
_MASKED = 10 * _TEXT
"""The length that is searched for secrets: more than is shown, so that no secret is cut in half."""

_SIZE_OF_MESSAGE = 16_000
"""The approximate number of characters that are kept of a node's report."""
_DEPTH_OF_MESSAGE = 8


def excerpt(value: Any, masker: Masker, depth: int = _DEPTH) -> Any:
    """Return a value as plain JSON of a limited size; an object of another kind becomes the name of its type.

    No method of such an object is called: it may be slow, or have effects.
    """
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, str):
        return _short(masker.text(str.__str__(value)[:_MASKED]))
    if depth and type(value) is dict:
        return _mapping(value, masker, depth - 1)
    if depth and type(value) in (list, tuple):
        items = [excerpt(item, masker, depth - 1) for item in value[:_ITEMS]]
        return items if len(value) <= _ITEMS else [*items, f"… {len(value) - _ITEMS} more"]
    return value if _is_plain(value) else f"<{type(value).__name__}>"


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold the value unchanged; infinity and numbers with thousands of digits do not count."""
    if type(value) is int:
        return value.bit_length() <= 64
    return math.isfinite(value) if type(value) is float else value is None or type(value) is bool


def _mapping(value: Mapping[Any, Any], masker: Masker, depth: int) -> dict[str, Any]:
    found = {
        str(excerpt(key, masker, 0)): MASK if masker.is_secret_key(key) else excerpt(item, masker, depth)
        for key, item in islice(value.items(), _ITEMS)
    }
    return found if len(value) <= _ITEMS else {**found, "…": f"{len(value) - _ITEMS} more"}


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def bounded(value: Any, masker: Masker) -> Any:
    """Return a node's report as plain JSON without secrets, of at most about 16,000 characters.

    Numbers, texts, lists, tuples and dicts stay as they are, and numpy's numbers become Python's. An object of another
    kind becomes the name of its type.
    """
    return _Bounded(masker).value(value, _DEPTH_OF_MESSAGE)


class _Bounded:
    """Copies a value until there is no room left."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._room = _SIZE_OF_MESSAGE

    def value(self, value: Any, depth: int) -> Any:
        if type(value).__module__ == "numpy" and is_numpy_scalar(value):
            value = as_python(value)
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if depth and type(value) is dict:
            return self._mapping(value, depth - 1)
        if depth and type(value) in (list, tuple):
            return self._list(value, depth - 1)
        self._room -= 8
        return MASK if isinstance(value, Secret) else value if _is_plain(value) else f"<{type(value).__name__}>"

    def _text(self, text: str) -> str:
        found = self._masker.bounded(text)
        found = found if len(found) <= self._room else f"{found[: max(0, self._room)]}…"
        self._room -= len(found) + 3
        return found

    def _list(self, items: Any, depth: int) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if self._room <= 0:
                return [*found, f"… {len(items) - len(found)} more"]
            found.append(self.value(item, depth))
        return found

    def _mapping(self, items: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, (key, item) in enumerate(items.items()):
            if self._room <= 0:
                return {**found, "…": f"{len(items) - number} more"}
            name = str(self.value(key, 0))
            found[name] = MASK if self._masker.is_secret_key(key) else self.value(item, depth)
        return found
