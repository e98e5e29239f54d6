"""Answers of tools: JSON as text, of a bounded size, without characters that could affect a terminal."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

LARGEST = 40_000
"""How many characters an answer has at most; an editor hands it to a model, which pays for each."""

_SIZES = ((4_000, 500), (1_000, 100), (300, 100), (300, 30), (80, 8), (20, 2))
"""How many characters of a text and items of a list are shown: the first sizes with which the answer fits."""


_OF_USERS = frozenset({"value", "old", "new", "arguments", "result", "question", "metadata", "output", "expected"})
"""Keys whose values come from users, so that an absent value is a value."""

_TECHNICAL = frozenset({"state_hash", "size_bytes", "fingerprint"})


def answer(data: Any) -> str:
    """Return data as JSON text. What does not fit is cut, and says how much is left out."""
    text, lean = "", _lean(data)
    for longest, most in _SIZES:
        text = _json(_cut(lean, longest, most))
        if len(text) <= LARGEST:
            return text
    return f"{text[:LARGEST]}… (cut; ask for a smaller part)"


async def page(read: Callable[[int], Awaitable[dict[str, Any]]], limit: int) -> str:
    """Return a page of a list. One that does not fit is read again with fewer items, so that `next` skips none."""
    found = await read(limit)
    while limit > 1 and not fits(found, limit):
        limit //= 2
        found = await read(limit)
    return answer(found)


def fits(data: Any, items: int) -> bool:
    """Whether an answer can be shown without leaving out one of so many items; only long texts in them are cut."""
    lean = _lean(data)
    return any(most >= items and len(_json(_cut(lean, longest, most))) <= LARGEST for longest, most in _SIZES)


def first_that_fit(data: dict[str, Any], name: str, rows: Sequence[Any]) -> str:
    """Return data with as many rows as fit, and how many are left."""
    shown = len(rows)
    while True:
        rest = {} if shown == len(rows) else {f"{name}_left": len(rows) - shown}
        found = {**data, name: rows[:shown], **rest}
        if shown <= 1 or fits(found, shown):
            return answer(found)
        shown = shown * 3 // 4


def _lean(value: Any) -> Any:
    """Return an answer of the API without what says nothing: facts that are absent or empty texts, and hashes."""
    if isinstance(value, list):
        return [_lean(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item if key in _OF_USERS else _lean(item)
        for key, item in value.items()
        if key in _OF_USERS or (item not in (None, "") and key not in _TECHNICAL)
    }


def _cut(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… ({len(value) - longest:,} more characters)"
    if isinstance(value, list):
        rest = [f"… ({len(value) - most:,} more)"] if len(value) > most else []
        return [*(_cut(item, longest, most) for item in value[:most]), *rest]
    if isinstance(value, dict):
        kept = {key: _cut(item, longest, most) for key, item in list(value.items())[:most]}
        return kept | ({"…": f"{len(value) - most:,} more"} if len(value) > most else {})
    return value


def _json(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
