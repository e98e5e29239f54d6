"""StateSearch: the places of a state whose key or value holds a text. Secrets are neither searched nor shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from wtb.application.queries.state_parts import StateParts
from wtb.domain.secrets import Masker

_BEFORE, _AFTER = 40, 160
"""How many characters around a match are shown."""

Where = Literal["key", "value"]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMatch:
    """A place of a state that holds a text, and the text around it."""

    path: Path
    where: Where
    excerpt: str


class StateSearch:
    """Finds texts in states, whatever their case. No class of a user is built for it."""

    def __init__(self, parts: StateParts, masker: Masker) -> None:
        self._parts = parts
        self._masker = masker

    def find(self, state: Mapping[str, Any], text: str, limit: int) -> tuple[tuple[StateMatch, ...], bool]:
        """Return the first matches in the order of the state, and whether there are no others."""
        found = tuple(islice(self._matches((), dict(state), text.casefold()), limit + 1))
        return found[:limit], len(found) <= limit

    def _matches(self, path: Path, value: Any, wanted: str) -> Iterator[StateMatch]:
        waiting: list[tuple[Path, Any]] = [(path, value)]
        while waiting:
            path, value = waiting.pop()
            inside: list[tuple[Path, Any]] = []
            for key, item in self._parts.parts(value):
                place = (*path, key) if type(key) in (str, int) else path
                if type(key) is str:
                    yield from self._match(place, "key", key, wanted)
                if not self._masker.is_secret_key(key):
                    inside.append((place, item))
            if not inside:
                yield from self._match(path, "value", _text(value), wanted)
            waiting += reversed(inside)

    def _match(self, path: Path, where: Where, text: str, wanted: str) -> Iterator[StateMatch]:
        if wanted not in text.casefold():
            return
        shown = self._masker.text(text)  # slow, so only where there is something to show
        at = shown.casefold().find(wanted)
        if at >= 0:
            start = max(0, at - _BEFORE)
            yield StateMatch(path=path, where=where, excerpt=shown[start : at + len(wanted) + _AFTER])


def _text(value: Any) -> str:
    """Return the text of a value without parts; objects of unknown classes are not asked for theirs."""
    if isinstance(value, str):
        return value
    if type(value) in (set, frozenset):
        return ", ".join(sorted(str(item) for item in value if type(item) in (str, int, float, bool)))
    return repr(value) if type(value) in (int, float, bool) or value is None else ""
