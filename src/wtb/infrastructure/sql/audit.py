"""SqlAuditTrail: the audit trail, each read a few statements over the tables of events and calls."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

from wtb.domain.audit import ALL_TIME, NAMED_COUNTED, AuditCounts, AuditFilter, AuditPage, ChainCheck, Period, ToolUse
from wtb.domain.ports import Codec
from wtb.domain.tools import CallKind, CallStatus
from wtb.infrastructure.chain_check import check_rows, sound_rows
from wtb.infrastructure.event_chain import EventRow, counted_types
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.event_feed import fitting
from wtb.infrastructure.timestamps import to_us

_WINDOW = 20_000
"""How many events a page looks at, at most."""
_NAMED = '%"by":"%'
"""Finds events that may name somebody: their data is JSON without spaces. What is found is read to be sure."""
_OF_NO_BATCH = "NOT EXISTS (SELECT 1 FROM wtb_executions r WHERE r.id = e.stream AND r.batch_id IS NOT NULL)"
_COLUMNS = "b.hash, e.position, e.stream, e.sequence, e.type, e.at_us, e.data, e.hash"
_BEFORE = "LEFT JOIN wtb_events b ON b.stream = e.stream AND b.sequence = e.sequence - 1"
_TOOLS = f"""
SELECT tool, COUNT(*), SUM(CASE WHEN status = '{CallStatus.FAILED}' THEN 1 ELSE 0 END), COUNT(DISTINCT execution_id),
    SUM(ended_at_us - started_at_us), MAX(ended_at_us - started_at_us), COUNT(ended_at_us)
FROM wtb_tool_calls WHERE kind = '{CallKind.TOOL}'
"""


class SqlAuditTrail:
    """Reads inside one transaction."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def list_events(self, wanted: AuditFilter, *, before: int | None = None, limit: int) -> AuditPage:
        start = "" if before is None else " WHERE position < ?"
        window = f"(SELECT * FROM wtb_events{start} ORDER BY position DESC LIMIT {_WINDOW})"
        values = [] if before is None else [before]
        wheres, wanted_values = fitting(wanted.wanted)
        in_period, period_values = _within(wanted.period, "e.at_us")
        if wanted.is_named or wanted.by is not None:
            wheres.append("e.data LIKE ?")
            wanted_values.append(_NAMED)
        if wanted.without_batch_runs:
            wheres.append(_OF_NO_BATCH)
        where = " AND ".join(["true", *wheres, *in_period])
        rows = self._transaction.rows(
            f"SELECT {_COLUMNS} FROM {window} e {_BEFORE} WHERE {where} ORDER BY e.position DESC LIMIT ?",
            (*values, *wanted_values, *period_values, limit),
        )
        found_rows = [EventRow(*row) for row in rows]
        events, faults = sound_rows(self._codec, found_rows)
        if len(rows) == limit:
            end: int | None = found_rows[-1].position
        else:
            edge = f"SELECT position FROM wtb_events{start} ORDER BY position DESC LIMIT 1 OFFSET {_WINDOW - 1}"
            found = self._transaction.row(edge, values)
            end = found and found[0]
        fitting_events = tuple(event for event in events if wanted.fits(event))
        return AuditPage(events=fitting_events, before=end, faults=tuple(faults))

    def count(self, period: Period = ALL_TIME) -> AuditCounts:
        in_period, values = _within(period, "at_us")
        where = " AND ".join(["true", *in_period])
        types = self._transaction.rows(f"SELECT type, COUNT(*) FROM wtb_events WHERE {where} GROUP BY type", values)
        named = self._transaction.rows(
            f"SELECT data FROM wtb_events WHERE {where} AND data LIKE ? ORDER BY position DESC LIMIT {NAMED_COUNTED}",
            (*values, _NAMED),
        )
        people = Counter(who for (data,) in named if isinstance(who := json.loads(data).get("by"), str))
        return AuditCounts(types=counted_types("the log", types), people=people)

    def tool_use(self, period: Period = ALL_TIME) -> tuple[ToolUse, ...]:
        in_period, values = _within(period, "started_at_us")
        where = "".join(f" AND {part}" for part in in_period)
        rows = self._transaction.rows(f"{_TOOLS}{where} GROUP BY tool ORDER BY tool", values)
        return tuple(
            ToolUse(
                tool=tool,
                calls=calls,
                failures=int(failures),
                runs=runs,
                total=timedelta(microseconds=int(total_us or 0)),
                longest=timedelta(microseconds=longest_us or 0),
                ended=ended,
            )
            for tool, calls, failures, runs, total_us, longest_us, ended in rows
        )

    def check_chain(self, stream: str | None = None, *, after: int = 0, limit: int) -> ChainCheck:
        number, only = ("position", "") if stream is None else ("sequence", " AND e.stream = ?")
        values: list[Any] = [after] if stream is None else [after, stream]
        rows = self._transaction.rows(
            f"SELECT {_COLUMNS} FROM wtb_events e {_BEFORE} WHERE e.{number} > ?{only} ORDER BY e.{number} LIMIT ?",
            (*values, limit),
        )
        return check_rows(self._codec, [EventRow(*row) for row in rows], limit=limit, in_stream=stream is not None)


def _within(period: Period, column: str) -> tuple[list[str], list[Any]]:
    """Return the conditions of a period, and their values."""
    bounds = ((">=", period.since), ("<", period.until))
    given = [(sign, at) for sign, at in bounds if at is not None]
    return [f"{column} {sign} ?" for sign, _ in given], [to_us(at) for _, at in given]
