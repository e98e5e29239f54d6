"""Events: what happened, in the order in which it was committed. `event_catalogue.py` has the facts of every type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.event_body import Body, EventBody, Severity
from wtb.domain.event_catalogue import CATALOGUE, SEVERITIES, EventType

__all__ = ["SYSTEM_STREAM", "Event", "EventType", "RecordedEvent", "Severity", "bodies"]

SYSTEM_STREAM = "system"
"""The stream of events that belong to no execution and no batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact. `stream` is the id of the execution or batch that it belongs to; `data` is plain JSON.

    `body` gives the same facts with their types.
    """

    type: EventType
    stream: str = SYSTEM_STREAM
    at: datetime
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise InvalidInput(f"event {self.type}: its time must carry a time zone")

    @classmethod
    def of(cls, body: EventBody, *, stream: str = SYSTEM_STREAM, at: datetime) -> Event:
        """Return the event that tells these facts."""
        return Event(type=body.TYPE, stream=stream, at=at, data=body.to_data())

    @property
    def body(self) -> EventBody:
        """The facts, as the class that the catalogue has for this type, for example `NodeCompleted`."""
        return CATALOGUE[self.type].from_data(self.data)

    @property
    def severity(self) -> Severity:
        """Follows from the type."""
        return SEVERITIES[self.type]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent(Event):
    """A stored event. `position` orders the whole log, `sequence` one stream; `hash` chains the stream."""

    position: int
    sequence: int
    hash: bytes


def bodies(events: Iterable[Event], kind: type[Body]) -> Iterator[Body]:
    """Yield the facts of those events that are of this kind."""
    return (kind.from_data(event.data) for event in events if event.type is kind.TYPE)
