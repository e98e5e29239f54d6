"""States as answers show them: tagged JSON, piece by piece. No class of a user is built for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wtb.api.parts import ServerParts
from wtb.application.queries.state_parts import StatePart, StateParts
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
    classes = StateClasses()
    reader = StateParts(TaggedJson(classes, parts.services.masker), classes, parts.services.masker)
    return reader.at(state, _read_path(path), whole=whole, cursor=cursor, limit=limit)


def _read_path(text: str | None) -> list[Any]:
    if text is None:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f'the path {text[:80]!r} is not JSON; write a list such as ["messages", 3]') from error
    is_path = isinstance(found, list) and len(found) <= _LONGEST_PATH
    if not is_path or not all(type(key) in (str, int) for key in found):
        raise InvalidInput(f'the path {text[:80]!r} is not a list of keys and positions; write ["messages", 3]')
    return list(found)
