"""States as answers show them: tagged JSON, piece by piece. No class of a user is built for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from wtb.api.parts import ServerParts
from wtb.application.queries.diff_parts import DiffPart, DiffParts
from wtb.application.queries.state_parts import StatePart, StateParts
from wtb.application.queries.state_search import StateMatch, StateSearch
from wtb.application.queries.tagged_json import TaggedJson
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.codecs.state_classes import StateClasses

CHILDREN = 100
"""How many parts of a large state an answer has unless another number is asked for."""
_LONGEST_PATH = 200


def tagged_json(parts: ServerParts) -> TaggedJson:
    """Return what writes values."""
    return TaggedJson(StateClasses(), parts.services.masker)


def part_of(
    parts: ServerParts,
    state: Mapping[str, Any],
    path: str | None = None,
    *,
    whole: bool = False,
    cursor: str | None = None,
    limit: int = CHILDREN,
) -> StatePart:
    """Return one place of a state; the path is a JSON list of keys and positions."""
    path_keys = _read_path(path, _is_key, '["messages", 3]')
    return _state_parts(parts).at(state, path_keys, whole=whole, cursor=cursor, limit=limit)


def diff_of(
    parts: ServerParts,
    states: tuple[Mapping[str, Any], Mapping[str, Any]],
    path: str | None,
    *,
    cursor: str | None,
    limit: int,
) -> DiffPart:
    """Return the differences of two states at one place."""
    path_keys = _read_path(path, lambda key: _is_key(key) or _is_pair(key), '["messages", [3, 4]]')
    return _diff_parts(parts).at(*states, path_keys, cursor=cursor, limit=limit)


def check_size(parts: ServerParts, states: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    """Raise TooMuchToShow if the differences of two states are too large for one answer."""
    _diff_parts(parts).check_size(*states)


def matches_in(
    parts: ServerParts, state: Mapping[str, Any], text: str, limit: int
) -> tuple[tuple[StateMatch, ...], bool]:
    """Return the first places of a state that hold a text, and whether these are all."""
    return StateSearch(_state_parts(parts), parts.services.masker).find(state, text, limit)


def _state_parts(parts: ServerParts) -> StateParts:
    classes = StateClasses()
    return StateParts(TaggedJson(classes, parts.services.masker), classes, parts.services.masker)


def _diff_parts(parts: ServerParts) -> DiffParts:
    return DiffParts(_state_parts(parts), parts.services.masker)


def _read_path(text: str | None, fits: Callable[[Any], bool], example: str) -> list[Any]:
    if text is None:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the path {text[:80]!r} is not JSON; write a list such as {example}") from error
    is_path = isinstance(found, list) and len(found) <= _LONGEST_PATH
    if not is_path or not all(map(fits, found)):
        raise InvalidInput(f"the path {text[:80]!r} is not a list of keys and positions; write {example}")
    return list(found)


def _is_key(key: Any) -> bool:
    return type(key) in (str, int)


def _is_pair(key: Any) -> bool:
    return isinstance(key, list) and len(key) == 2 and all(each is None or type(each) is int for each in key)
