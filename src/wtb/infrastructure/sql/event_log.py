"""SqlEventLog: the event table, which is only appended to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, NoReturn, overload

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
_INSERT_AFTER = (
    "INSERT INTO wtb_events (stream, sequence, type, severity, at_us, data, hash) "
    "SELECT ?::text, ?::bigint, ?::text, ?::text, ?::bigint, ?::text, ?::bytea "
    "WHERE EXISTS (SELECT 1 FROM wtb_events WHERE stream = ? AND sequence = ? AND hash = ?) ON CONFLICT DO NOTHING"
)
"""Checks that the event before it is there: if a guess was wrong, no event that builds on it is added."""
_IS_THERE = "SELECT 1 FROM wtb_events WHERE stream = ? AND sequence = ? AND hash = ?"
"""Finds an event that only one transaction can have added: the hash covers its time, to a microsecond."""
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

    def append(self, *events: Event) -> Sequence[RecordedEvent]:
        texts = [event_text(event) for event in events]  # all texts first: if one event is refused, none is added
        first = len(self.appended)
        for event, text in zip(events, texts, strict=True):
            self._append(event, text)
        return _Appended(self.appended, range(first, len(self.appended)), self._transaction.settle)

    def _append(self, event: Event, text: str) -> None:
        known = self._ends.get(event.stream)
        if known is None:
            self._transaction.lock(event.stream)
            known = self._known_ends.find(event.stream) or self._read_end(event.stream)
        index = len(self.appended)
        self.appended.append(_NOT_KNOWN_YET)

        def add_after_all() -> None:
            end = self._read_end(event.stream)
            self._insert(event, text, index, end, otherwise=partial(_give_up, event.stream))
            self._transaction.settle()

        self._insert(event, text, index, known, otherwise=add_after_all)

    def _read_end(self, stream: str) -> tuple[int, bytes]:
        end: tuple[int, bytes] = self._transaction.row(_LAST, (stream,)) or (0, b"")
        return end

    def _insert(
        self, event: Event, text: str, index: int, end: tuple[int, bytes], *, otherwise: Callable[[], None]
    ) -> None:
        """Add an event after the assumed end of its stream; `otherwise` is called if the stream ends elsewhere."""
        sequence = end[0] + 1
        at_us = to_us(event.at)
        chain = chained(self._codec, end[1], event.stream, sequence, event.type.value, at_us, text)
        row: tuple[Any, ...] = (event.stream, sequence, event.type.value, event.severity.value, at_us, text, chain)
        statement = _INSERT
        if end[0] and self._transaction.database.dialect != "sqlite":
            statement, row = _INSERT_AFTER, (*row, event.stream, *end)
        self._ends[event.stream] = sequence, chain
        self._transaction.note_proof(_IS_THERE, (event.stream, sequence, chain))

        def added(position: int | None) -> None:
            if position is None:  # another process has added to the stream since
                otherwise()
            else:
                self.appended[index] = recorded(event, position, sequence, chain)

        self._transaction.insert_numbered(statement, row, "position", added)

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


def _give_up(stream: str) -> NoReturn:
    raise Conflict(f"another process is writing events of {stream!r}; try again")


_NOT_KNOWN_YET: Any = None


class _Appended(Sequence[RecordedEvent]):
    """The events that a call has added. Looking at them waits for their numbers, which few callers need."""

    def __init__(self, events: Sequence[RecordedEvent], places: range, wait: Callable[[], None]) -> None:
        self._events = events
        self._places = places
        self._wait = wait

    @overload
    def __getitem__(self, index: int) -> RecordedEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordedEvent]: ...
    def __getitem__(self, index: int | slice) -> RecordedEvent | Sequence[RecordedEvent]:
        places = self._places[index]
        each = places if isinstance(places, range) else range(places, places + 1)
        if any(self._events[place] is _NOT_KNOWN_YET for place in each):
            self._wait()
        return self._events[places] if isinstance(places, int) else [self._events[place] for place in places]

    def __len__(self) -> int:
        return len(self._places)
