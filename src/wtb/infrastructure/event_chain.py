"""The chain of events: each hash covers the event and the hash before it in the same stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from wtb.domain.errors import DamagedData, InvalidInput
from wtb.domain.events import Event, EventType, RecordedEvent
from wtb.domain.ports import Codec
from wtb.domain.ports.events import EventNumber
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.timestamps import from_us


class EventRow(NamedTuple):
    """An event as a table row, with the hash of the event before it."""

    before: bytes | None
    position: int
    stream: str
    sequence: int
    type: str
    at_us: int
    data: str
    hash: bytes


def event_text(event: Event) -> str:
    """Return the data of an event as JSON text."""
    return json_text(event.data, f"the data of event {event.type}")


def chained(  # noqa: PLR0917  in the order in which the hash covers them
    codec: Codec, before: bytes, stream: str, sequence: int, type: str, at_us: int, text: str
) -> bytes:
    """Return the hash of an event at its place in the stream."""
    return codec.digest(before, f"{stream}\n{sequence}\n{type}\n{at_us}\n{text}".encode())


def recorded(event: Event, position: int, sequence: int, chain: bytes) -> RecordedEvent:
    """Return an event with its place in the log."""
    return RecordedEvent(
        type=event.type,
        stream=event.stream,
        at=event.at,
        data=event.data,
        position=position,
        sequence=sequence,
        hash=chain,
    )


def read_event(codec: Codec, row: EventRow) -> RecordedEvent:
    """Return a stored event, verified against its hash and the one before it."""
    try:
        event = Event(type=EventType(row.type), stream=row.stream, at=from_us(row.at_us), data=json.loads(row.data))
    except (ValueError, TypeError, OverflowError) as error:
        raise _damaged(row) from error
    found = chained(codec, row.before or b"", row.stream, row.sequence, row.type, row.at_us, row.data)
    if found != row.hash:
        raise _damaged(row)
    return recorded(event, row.position, row.sequence, row.hash)


def check_numbering(stream: str | None, by: EventNumber) -> None:
    """Raise InvalidInput if events are numbered by stream, but no stream is given."""
    if by == "sequence" and stream is None:
        raise InvalidInput("events have a sequence number only within a stream; give `stream`, or use by='position'")


def counted_types(stream: str, counts: Iterable[tuple[str, int]]) -> dict[EventType, int]:
    """Return how many events of each type a stream holds, or raise DamagedData if a type is unknown."""
    try:
        return {EventType(name): count for name, count in counts}
    except ValueError as error:
        raise DamagedData(f"an event of {stream!r} is damaged: {error}; `wtb doctor` shows more") from error


def _damaged(row: EventRow) -> DamagedData:
    return DamagedData(f"event {row.sequence} of {row.stream!r} is damaged: it does not match its hash")
