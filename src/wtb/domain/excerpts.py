"""Excerpts: short plain copies of values for events, without secrets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

from wtb.domain.secrets import MASK, Masker, Secret

_TEXT = 200
_ITEMS = 10
_DEPTH = 3
_MASKED = 10 * _TEXT
"""How much of a text is searched for secrets: more than is shown, so that none is cut in half."""


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
    """Whether JSON has it as it is; a number of thousands of digits is too long, and infinity is none there."""
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
