"""SqlEventLog: the event table, appended to and never changed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from wtb.domain.errors import Conflict
from wtb.domain.events import Event, EventType, RecordedEvent, Severity
from wtb.domain.ports import Codec
from wtb.infrastructure.event_chain import EventRow, chained, event_text, read_event, recorded
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.timestamps import to_us

_INSERT = (
    "INSERT INTO wtb_events (stream, sequence, type, severity, at_us, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING RETURNING position"
)
_LAST = "SELECT sequence, hash FROM wtb_events WHERE stream = ? ORDER BY sequence DESC LIMIT 1"
_SELECT = (
    "SELECT b.hash, e.position, e.stream, e.sequence, e.type, e.at_us, e.data, e.hash FROM wtb_events e "
    "LEFT JOIN wtb_events b ON b.stream = e.stream AND b.sequence = e.sequence - 1"
)


class SqlEventLog:
    """Events of one transaction; `appended` is what the bus gets after the commit."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec
        self._ends: dict[str, tuple[int, bytes]] = {}
        self.appended: list[RecordedEvent] = []

    def append(self, *events: Event) -> tuple[RecordedEvent, ...]:
        texts = [event_text(event) for event in events]  # first all of them, since one that is refused leaves none
        added = tuple([self._append(event, text) for event, text in zip(events, texts, strict=True)])
        self.appended += added
        return added

    def _append(self, event: Event, text: str) -> RecordedEvent:
        sequence, before = self._end(event.stream)
        sequence += 1
        chain = chained(self._codec, before, event, sequence, text)
        row = (event.stream, sequence, event.type.value, event.severity.value, to_us(event.at), text, chain)
        position = self._transaction.row(_INSERT, row)
        if position is None:
            raise Conflict(f"somebody else is writing events of {event.stream!r}; try again")
        self._ends[event.stream] = sequence, chain
        return recorded(event, position[0], sequence, chain)

    def _end(self, stream: str) -> tuple[int, bytes]:
        known = self._ends.get(stream)
        if known is None:
            self._transaction.lock(stream)
            known = self._transaction.row(_LAST, (stream,)) or (0, b"")
        return known

    def list_events(
        self,
        *,
        stream: str | None = None,
        types: Collection[EventType] = (),
        severities: Collection[Severity] = (),
        after: int = 0,
        limit: int = 1000,
    ) -> tuple[RecordedEvent, ...]:
        wheres, values = ["e.position > ?"], list[Any]((after,))
        if stream is not None:
            wheres.append("e.stream = ?")
            values.append(stream)
        for column, wanted in (("type", types), ("severity", severities)):
            if wanted:
                wheres.append(f"e.{column} IN ({', '.join('?' * len(wanted))})")
                values += [item.value for item in wanted]
        statement = f"{_SELECT} WHERE {' AND '.join(wheres)} ORDER BY e.position LIMIT ?"
        rows = self._transaction.rows(statement, (*values, limit))
        return tuple(read_event(self._codec, EventRow(*row)) for row in rows)
