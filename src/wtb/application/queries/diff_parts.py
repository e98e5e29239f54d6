"""DiffParts: one place of two states with the parts that differ, so that large states are compared piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from wtb.application.queries.cursors import page_of_all
from wtb.application.queries.state_parts import StateChild, StateParts
from wtb.domain.alignment import unified
from wtb.domain.diff import DiffKind, item_pairs, key_pairs
from wtb.domain.errors import InvalidInput, TooMuchToShow
from wtb.domain.sameness import differing, same
from wtb.domain.secrets import Masker
from wtb.domain.state import MISSING

_MOST_ALIGNED = 20_000
"""Longer lists are compared place by place: to find items that moved would take too long."""
_LARGEST = 200_000
"""How many characters and items differing values may have to be compared in one answer."""
_LARGEST_TEXT = 1_000_000
_LONGEST_DIFF = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffChild:
    """A part that differs. An item of a list has a pair of places as its key, one of which may be None."""

    key: Any
    change: DiffKind
    old: StateChild | None
    new: StateChild | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPart:
    """One place of two states: both sides, and a page of the parts that differ."""

    path: tuple[Any, ...]
    change: DiffKind | None
    """None if both sides are the same."""
    old: StateChild | None
    new: StateChild | None
    counts: Mapping[DiffKind, int]
    """How many parts differ, by kind; parts of parts are not counted."""
    is_by_position: bool
    text: str | None
    """The unified diff of two long texts."""
    children: tuple[DiffChild, ...]
    next: str | None


class DiffParts:
    """Compares places of two states. Secrets stay masked however a path leads to them."""

    def __init__(self, parts: StateParts, masker: Masker) -> None:
        self._parts = parts
        self._masker = masker

    def check_size(self, *states: Mapping[str, Any]) -> None:
        """Raise TooMuchToShow if these states are too large to be compared as a whole."""
        if not all(self._parts.is_small(dict(state), _LARGEST) for state in states):
            raise TooMuchToShow(
                "the values that differ are too large for one answer; ask GET …/diff/state, which compares them piece "
                "by piece, or leave the state out with part=files and part=calls"
            )

    def at(
        self,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        path: Sequence[Any],
        *,
        cursor: str | None,
        limit: int,
    ) -> DiffPart:
        """Return the differences at a path: keys, and pairs of places in lists; InvalidInput if neither has it."""
        before, after = self._find(dict(old), path, 0), self._find(dict(new), path, 1)
        if before is MISSING and after is MISSING:
            raise InvalidInput(f"neither state has {list(path)!r}; leave out the last item to see what differs there")
        is_secret = any(self._masker.is_secret_key(key) for key in path if type(key) is str)
        by_position = not is_secret and self._is_by_position(before, after)
        changes = () if is_secret else tuple(self._changes(before, after, by_position=by_position))
        page, next_cursor = page_of_all(changes, cursor, limit)
        name = next((key for key in path if self._masker.is_secret_key(key)), path[-1] if path else None)
        return DiffPart(
            path=tuple(path),
            change=DiffKind.CHANGED if changes else _change(before, after),
            old=self._side(name, before),
            new=self._side(name, after),
            counts=Counter(change for _, change, _, _ in changes),
            is_by_position=by_position,
            text=None if is_secret else self._text(before, after),
            children=tuple(self._child(*each) for each in page),
            next=next_cursor,
        )

    def _find(self, value: Any, path: Sequence[Any], side: int) -> Any:
        """Return the value at a path on one side; MISSING if it is not there."""
        for key in path:
            own = key[side] if isinstance(key, list) else key
            if own is None:
                return MISSING
            try:
                value = self._parts.step(value, own, path)
            except InvalidInput:
                return MISSING
        return value

    def _contents(self, old: Any, new: Any) -> tuple[Any, Any]:
        if type(old) is not type(new) or old is MISSING:
            return None, None
        return self._parts.content(old), self._parts.content(new)

    def _is_by_position(self, old: Any, new: Any) -> bool:
        one, other = self._contents(old, new)
        are_lists = isinstance(one, list | tuple) and isinstance(other, list | tuple)
        return are_lists and max(len(one), len(other)) > _MOST_ALIGNED

    def _changes(self, old: Any, new: Any, *, by_position: bool) -> Iterator[tuple[Any, DiffKind, Any, Any]]:
        """Yield the key of each part that differs, how it differs, and both sides."""
        one, other = self._contents(old, new)
        pairs = list(_pairs(one, other, by_position=by_position))
        both = [pair for pair in pairs if pair[1] is not MISSING and pair[2] is not MISSING]
        changed = {id(both[at]) for at in differing([pair[1] for pair in both], [pair[2] for pair in both])}
        for pair in pairs:
            key, before, after = pair
            if before is MISSING or after is MISSING:
                yield key, DiffKind.ADDED if before is MISSING else DiffKind.REMOVED, before, after
            elif id(pair) in changed:
                yield key, DiffKind.CHANGED, before, after

    def _child(self, key: Any, change: DiffKind, old: Any, new: Any) -> DiffChild:
        old_key, new_key = key if isinstance(key, list) else (key, key)
        before, after = self._side(old_key, old), self._side(new_key, new)
        side = before or after
        shown = key if isinstance(key, list) or side is None else side.key
        return DiffChild(key=shown, change=change, old=before, new=after)

    def _side(self, key: Any, value: Any) -> StateChild | None:
        return None if value is MISSING else self._parts.child(key, value)

    def _text(self, old: Any, new: Any) -> str | None:
        if type(old) is not str or type(new) is not str or old == new or len(old) + len(new) > _LARGEST_TEXT:
            return None
        if "\n" not in old and "\n" not in new:
            return None
        return self._masker.text("\n".join(unified(old, new)))[:_LONGEST_DIFF]


def _pairs(old: Any, new: Any, *, by_position: bool) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from key_pairs(old, new)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        if not by_position:
            yield from (([pair.old_at, pair.new_at], pair.old, pair.new) for pair in item_pairs(old, new))
            return
        for at, (before, after) in enumerate(zip_longest(old, new, fillvalue=MISSING)):
            if before is not after:
                yield [None if before is MISSING else at, None if after is MISSING else at], before, after


def _change(old: Any, new: Any) -> DiffKind | None:
    if old is MISSING:
        return DiffKind.ADDED
    if new is MISSING:
        return DiffKind.REMOVED
    return None if same(old, new) else DiffKind.CHANGED
