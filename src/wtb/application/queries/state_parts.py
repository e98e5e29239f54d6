"""StateParts: one place of a state with its children, so that a large state is looked at piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.application.queries.cursors import page_of_all
from wtb.application.queries.tagged_json import Classes, TaggedJson
from wtb.domain.errors import InvalidInput
from wtb.domain.excerpts import excerpt
from wtb.domain.secrets import MASK, Masker
from wtb.domain.values import Legible

_SMALL, _SMALL_CHILD = 100_000, 2_000
"""How many characters and items, together, count as small enough to be sent whole."""
_PLAIN = frozenset({str, int, float, bool, type(None), bytes, dict, list, tuple})
"""Types whose values have no other content than themselves."""
_HIDDEN = {"$type": "masked", "value": MASK}
_PREVIEW = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChild:
    """A part of a place: its key, what it is, how many parts it has, and its value if that is small."""

    key: Any
    kind: str
    count: int | None
    value: Any
    preview: str | None
    """The beginning of a value that is too large to be here whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """One place of a state: its whole value as tagged JSON if it is small, otherwise a page of its children."""

    path: tuple[Any, ...]
    kind: str
    count: int | None
    value: Any
    is_whole: bool
    preview: str | None
    children: tuple[StateChild, ...]
    next: str | None


class StateParts:
    """Finds places in states. Secrets stay masked however a path leads to them."""

    def __init__(self, json: TaggedJson, classes: Classes, masker: Masker) -> None:
        self._json = json
        self._classes = classes
        self._masker = masker

    def at(
        self, state: Mapping[str, Any], path: Sequence[Any], *, whole: bool, cursor: str | None, limit: int
    ) -> StatePart:
        """Return the part at a path; raise InvalidInput if the state has no such place."""
        value: Any = dict(state)
        for depth, key in enumerate(path):
            if self._masker.is_secret_key(key):
                return self._hidden(path)
            value = self.step(value, key, path[: depth + 1])
        is_whole = whole or self.is_small(value, _SMALL)
        parts = () if is_whole else tuple(self.parts(value))
        page, next_cursor = page_of_all(parts, cursor, limit)
        return StatePart(
            path=tuple(path),
            kind=_kind(value),
            count=self.count(value),
            value=self._json.write(value) if is_whole else None,
            is_whole=is_whole,
            preview=None if is_whole else self.preview(value),
            children=tuple(self.child(key, item) for key, item in page),
            next=next_cursor,
        )

    def _hidden(self, path: Sequence[Any]) -> StatePart:
        return StatePart(
            path=tuple(path),
            kind="masked",
            count=None,
            value=_HIDDEN,
            is_whole=True,
            preview=None,
            children=(),
            next=None,
        )

    def step(self, value: Any, key: Any, path: Sequence[Any]) -> Any:
        """Return the part of a value with a key; raise InvalidInput if there is none."""
        content = self.content(value)
        try:
            if isinstance(content, dict):
                return content[key]
            if isinstance(content, list | tuple) and type(key) is int and key >= 0:
                return content[key]
        except (LookupError, TypeError):
            pass
        raise InvalidInput(f"the state has no {list(path)!r}; leave out the last item to see what is there")

    def content(self, value: Any) -> Any:
        """Return the mapping or list of parts of a value; an object has its fields."""
        if type(value) in (dict, list, tuple):
            return value
        found = self._classes.find(value)
        if found is not None:
            content = found[1]
            is_model = type(content) is list and len(content) == 4 and type(content[0]) is dict
            return content[0] if is_model else content
        return value.legible() if isinstance(value, Legible) else value

    def parts(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the parts of a value with their keys or positions; nothing for a value without parts."""
        content = self.content(value)
        if isinstance(content, dict):
            yield from content.items()
        elif isinstance(content, list | tuple):
            yield from enumerate(content)

    def child(self, key: Any, item: Any) -> StateChild:
        """Return a part as its place shows it; a secret is hidden."""
        if item is not None and self._masker.is_secret_key(key):
            return StateChild(key=self._json.write(key), kind="masked", count=None, value=_HIDDEN, preview=None)
        is_small = self.is_small(item, _SMALL_CHILD)
        return StateChild(
            key=self._json.write(key),
            kind=_kind(item),
            count=self.count(item),
            value=self._json.write(item) if is_small else None,
            preview=None if is_small else self.preview(item),
        )

    def count(self, value: Any) -> int | None:
        """Return how many parts or characters a value has; None if that means nothing."""
        content = self.content(value)
        return len(content) if isinstance(content, dict | list | tuple | str | bytes | set | frozenset) else None

    def preview(self, value: Any) -> str:
        """Return the beginning of a value."""
        text = excerpt(value, self._masker)
        return (text if isinstance(text, str) else repr(text))[:_PREVIEW]

    def is_small(self, value: Any, budget: int) -> bool:
        """Whether a value has at most so many characters and items; looks at no more than these."""
        waiting = [value]
        while waiting:
            budget -= 1
            each = waiting.pop()
            content = each if type(each) in _PLAIN else self.content(each)
            if isinstance(content, str | bytes):
                budget -= len(content)
            elif isinstance(content, dict | list | tuple | set | frozenset):
                if len(content) > budget:
                    return False
                if isinstance(content, dict):
                    waiting += content.keys()
                    waiting += content.values()
                else:
                    waiting += content
            if budget < 0:
                return False
        return True


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {str: "text", bool: "bool", dict: "dict", list: "list"}.get(type(value), type(value).__name__)
