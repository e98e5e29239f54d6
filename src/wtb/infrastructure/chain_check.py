"""Checks rows of events against their hashes, and against the events before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wtb.domain.audit import ChainCheck
from wtb.domain.errors import DamagedData
from wtb.domain.events import RecordedEvent
from wtb.domain.ports import Codec
from wtb.infrastructure.event_chain import EventRow, read_event


def sound_rows(codec: Codec, rows: Iterable[EventRow]) -> tuple[list[RecordedEvent], list[str]]:
    """Return the events that match their hashes, and what is wrong with the others."""
    events: list[RecordedEvent] = []
    faults: list[str] = []
    for row in rows:
        try:
            events.append(read_event(codec, row))
        except DamagedData as error:
            faults.append(str(error))
    return events, faults


def check_rows(codec: Codec, rows: Sequence[EventRow], *, limit: int, in_stream: bool) -> ChainCheck:
    """Return what is wrong with these rows; if there are as many as were asked for, more may follow."""
    faults = [fault for row in rows if (fault := _fault(codec, row)) is not None]
    last = (rows[-1].sequence if in_stream else rows[-1].position) if len(rows) == limit else None
    return ChainCheck(checked=len(rows), faults=tuple(faults), after=last)


def _fault(codec: Codec, row: EventRow) -> str | None:
    if row.sequence > 1 and row.before is None:
        return f"event {row.sequence - 1} of {row.stream!r} is missing"
    try:
        read_event(codec, row)
    except DamagedData as error:
        return str(error)
    return None
