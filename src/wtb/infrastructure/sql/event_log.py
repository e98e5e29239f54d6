"""SqlEventLog: the event table, which is only appended to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import Lock
from typing import Any

from wtb.domain.errors import Conflict
from wtb.domain.events import Event, EventType, RecordedEvent, Severity
from wtb.domain.ports import Codec
from wtb.domain.ports.events import EventNumber
from wtb.infrastructure.event_chain import (
    EventRow,
    chained,
    check_numbering,
    counted_types,
    event_text,
    read_event,
    recorded,
)
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.timestamps import to_us

_INSERT = (
    "INSERT INTO wtb_events (stream, sequence, type, severity, at_us, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)
_LAST = "SELECT sequence, hash FROM wtb_events WHERE stream = ? ORDER BY sequence DESC LIMIT 1"
_SELECT = (
    "SELECT b.hash, e.position, e.stream, e.sequence, e.type, e.at_us, e.data, e.hash FROM wtb_events e "
    "LEFT JOIN wtb_events b ON b.stream = e.stream AND b.sequence = e.sequence - 1"
)


class StreamEnds:
    """The ends of streams when this process last added to them, so that a step need not read them.

    An end is only a guess: the table refuses a number that is already taken, and then the end is read.
    """

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._ends: dict[str, tuple[int, bytes]] = {}
        self._lock = Lock()

    def find(self, stream: str) -> tuple[int, bytes] | None:
        return self._ends.get(stream)

    def keep(self, ends: Mapping[str, tuple[int, bytes]]) -> None:
        with self._lock:
            if len(self._ends) > self._size:
                self._ends.clear()
            self._ends.update(ends)


class SqlEventLog:
    """The events of one transaction; the bus gets `appended` after the commit."""

    def __init__(self, transaction: Transaction, codec: Codec, ends: StreamEnds) -> None:
        self._transaction = transaction
        self._codec = codec
        self._known_ends = ends
        self._ends: dict[str, tuple[int, bytes]] = {}
        self.appended: list[RecordedEvent] = []

    def append(self, *events: Event) -> tuple[RecordedEvent, ...]:
        texts = [event_text(event) for event in events]  # all texts first: if one event is refused, none is added
        added = tuple([self._append(event, text) for event, text in zip(events, texts, strict=True)])
        self.appended += added
        return added

    def _append(self, event: Event, text: str) -> RecordedEvent:
        known = self._ends.get(event.stream)
        if known is None:
            self._transaction.lock(event.stream)
            known = self._known_ends.find(event.stream)
        added = None if known is None else self._insert(event, text, *known)
        if added is None:  # the stream is new here, or another process has added to it since
            added = self._insert(event, text, *self._transaction.row(_LAST, (event.stream,)) or (0, b""))
        if added is None:
            raise Conflict(f"another process is writing events of {event.stream!r}; try again")
        self._ends[event.stream] = added.sequence, added.hash
        return added

    def _insert(self, event: Event, text: str, end: int, before: bytes) -> RecordedEvent | None:
        """Add an event after the assumed end of its stream; None if that number is already taken."""
        sequence = end + 1
        at_us = to_us(event.at)
        chain = chained(self._codec, before, event.stream, sequence, event.type.value, at_us, text)
        row = (event.stream, sequence, event.type.value, event.severity.value, at_us, text, chain)
        position = self._transaction.insert_numbered(_INSERT, row, "position")
        return None if position is None else recorded(event, position, sequence, chain)

    def keep_learned(self) -> None:
        """Share the new ends of the streams; called after the commit."""
        self._known_ends.keep(self._ends)

    def list_events(
        self,
        *,
        stream: str | None = None,
        types: Collection[EventType] = (),
        severities: Collection[Severity] = (),
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        newest: bool = False,
        by: EventNumber = "position",
    ) -> tuple[RecordedEvent, ...]:
        check_numbering(stream, by)
        wheres, values = [f"e.{by} > ?"], list[Any]((after,))
        if before is not None:
            wheres.append(f"e.{by} < ?")
            values.append(before)
        if stream is not None:
            wheres.append("e.stream = ?")
            values.append(stream)
        for column, wanted in (("type", types), ("severity", severities)):
            if wanted:
                wheres.append(f"e.{column} IN ({', '.join('?' * len(wanted))})")
                values += [item.value for item in wanted]
        # In a stream both numbers give the same order, but only `sequence` has an index.
        order = f"{'e.position' if stream is None else 'e.sequence'} {'DESC' if newest else 'ASC'}"
        statement = f"{_SELECT} WHERE {' AND '.join(wheres)} ORDER BY {order} LIMIT ?"
        found = tuple(
            read_event(self._codec, EventRow(*row)) for row in self._transaction.rows(statement, (*values, limit))
        )
        return found[::-1] if newest else found

    def count_types(self, stream: str) -> dict[EventType, int]:
        rows = self._transaction.rows("SELECT type, COUNT(*) FROM wtb_events WHERE stream = ? GROUP BY type", (stream,))
        return counted_types(stream, rows)
