"""Filters of lists: statuses, types and severities, given as texts or as members of their enums, one or several."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, TypeVar

from wtb.domain.errors import InvalidInput
from wtb.domain.events import EventType, Severity
from wtb.domain.execution import ExecutionStatus
from wtb.domain.workflow import names_of

Member = TypeVar("Member", bound=StrEnum)

EVENT_NOUNS: tuple[str, ...] = tuple(dict.fromkeys(kind.partition(".")[0] for kind in EventType))
"""The nouns that events are named after, for example `node`; each stands for all its events."""


def event_types(given: str | Collection[str]) -> list[EventType]:
    """Return the wanted types; `given` holds types such as `node.failed`, or nouns that stand for all their events."""
    names = names_of(given)
    for unknown in [name for name in names if name not in (*EventType, *EVENT_NOUNS)]:
        raise InvalidInput(
            f"there is no event {str(unknown)!r}; the types are {', '.join(EventType)}; "
            f"or give all events of a noun: {', '.join(EVENT_NOUNS)}"
        )
    return [kind for kind in EventType if kind in names or kind.partition(".")[0] in names]


def severities(given: str | Collection[str]) -> list[Severity]:
    """Return the wanted severities."""
    return _members(Severity, "severities", given)


def statuses(given: str | Collection[str]) -> list[ExecutionStatus]:
    """Return the wanted statuses."""
    return _members(ExecutionStatus, "statuses", given)


def read_filters(filters: dict[str, Any]) -> dict[str, Any]:
    """Return the filters with their texts replaced by enum members; other filters stay as they are."""
    read = {"types": event_types, "severities": severities, "statuses": statuses}
    return {key: read[key](value) if key in read else value for key, value in filters.items()}


def _members(kind: type[Member], option: str, given: str | Collection[str]) -> list[Member]:
    names = names_of(given)
    for unknown in [name for name in names if name not in tuple(kind)]:
        raise InvalidInput(f"{option}={str(unknown)!r} is unknown; it is one of {', '.join(kind)}")
    return [kind(name) for name in names]
