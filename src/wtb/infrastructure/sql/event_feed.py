"""SqlEventFeed: the event table as a feed; on SQLite by position, on Postgres by transaction and position.

Postgres gives out positions before the commit, so that a reader who only remembers a position misses events that are
committed late. An event therefore has a number (`xid`): that of its transaction, or of the newest transaction that had
ended when the event was recorded, if that is higher. A reader gets the events below the oldest running transaction:
whatever commits later has this number or a higher one. The second part makes the order that of time: if one event was
committed before another was recorded, perhaps by an older transaction, it has no higher number.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2s
from typing import Any, NamedTuple

from wtb.domain.feed import EVERY_EVENT, START, EventFilter, FeedCursor, FeedHold, FeedPage
from wtb.domain.ports import Codec
from wtb.infrastructure.event_chain import EventRow
from wtb.infrastructure.fed_events import FedEvents
from wtb.infrastructure.sql.database import Transaction

_WINDOW = 5_000
"""How many events a page looks at, at most, if the wanted ones are rare."""
_COLUMNS = "b.hash, e.position, e.stream, e.sequence, e.type, e.at_us, e.data, e.hash, e.xid"
_BEFORE = "LEFT JOIN wtb_events b ON b.stream = e.stream AND b.sequence = e.sequence - 1"
_VIEW = """
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, system_identifier,
    (SELECT hash FROM wtb_events WHERE position = ? AND xid = ?)
FROM pg_control_system()
"""
"""Everything that a page depends on: the oldest running transaction, the cluster, and the event of the cursor."""
_HOLD = """
SELECT l.pid, coalesce(a.application_name, p.gid, ''), coalesce(a.datname, p.database, ''),
    coalesce(a.state, CASE WHEN p.gid IS NULL THEN '' ELSE 'prepared' END),
    extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
ORDER BY age(l.transactionid) DESC LIMIT 1
"""
"""Every user sees the locks of all; name and age of another user's transaction only with pg_read_all_stats."""
_RANK = "UPDATE wtb_events SET xid = DEFAULT WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
"""What this cluster has recorded itself is visible only if its number is lower."""


class _View(NamedTuple):
    """What a transaction sees of the feed."""

    below: int | None
    """Events with this number or a higher one must wait; None on SQLite, where none wait."""
    source: str
    hash: bytes | None
    """The hash of the cursor's event, if it is there."""


class SqlEventFeed:
    """The feed as one transaction sees it. Here for SQLite; a subclass has what is different on Postgres."""

    _order = "position"

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def read(self, after: FeedCursor, *, wanted: EventFilter = EVERY_EVENT, limit: int = 500) -> FeedPage:
        view = self._view(after)
        after.check(view.hash, view.source)
        found = FedEvents(self._codec)
        last = after
        for *row, xid in self._rows(after, view, wanted, limit):
            event = EventRow(*row)
            last = FeedCursor.after(event.position, event.hash, xid=xid, source=view.source)
            found.add(event, last)
        if found.rows == limit:
            return found.page(last, is_last=False)
        if wanted == EVERY_EVENT:
            return found.page(last, is_last=True)
        passed = None if wanted.streams else self._end_of_window(after, view)
        return found.page(passed or self._end(view), is_last=passed is None)

    def _end_of_window(self, after: FeedCursor, view: _View) -> FeedCursor | None:
        within, values = self._within(after, view)
        return self._place(within, values, view, f"LIMIT 1 OFFSET {_WINDOW - 1}")

    def _rows(self, after: FeedCursor, view: _View, wanted: EventFilter, limit: int) -> list[Any]:
        within, values = self._within(after, view)
        source = f"wtb_events e WHERE {within}"
        fits, wanted_values = fitting(wanted)
        if fits and not wanted.streams:  # the streams have an index, and are short
            source = f"(SELECT * FROM wtb_events e WHERE {within} ORDER BY {self._order} LIMIT {_WINDOW}) e WHERE true"
        where = " AND ".join([f"SELECT e.* FROM {source}", *fits])
        order = ", ".join(f"e.{column}" for column in self._order.split(", "))
        statement = f"SELECT {_COLUMNS} FROM ({where} ORDER BY {order} LIMIT ?) e {_BEFORE} ORDER BY {order}"
        return self._transaction.rows(statement, (*values, *wanted_values, limit))

    def end(self) -> FeedCursor:
        return self._end(self._view(START))

    def _end(self, view: _View) -> FeedCursor:
        within, values = self._within(START, view)
        return self._place(within, values, view, "LIMIT 1", " DESC") or START

    def _place(
        self, within: str, values: Sequence[Any], view: _View, which: str, direction: str = ""
    ) -> FeedCursor | None:
        order = self._order.replace(",", f"{direction},") + direction
        found = self._transaction.row(
            f"SELECT e.position, e.hash, e.xid FROM wtb_events e WHERE {within} ORDER BY {order} {which}", values
        )
        return found and FeedCursor.after(found[0], found[1], xid=found[2], source=view.source)

    def find_hold(self) -> FeedHold | None:
        return None

    def rank_restored(self) -> int:
        return 0

    def _view(self, after: FeedCursor) -> _View:
        """Return what this transaction sees, in one question."""
        found = self._transaction.row(
            "SELECT hash FROM wtb_events WHERE position = ? AND xid = ?", (after.position, after.xid)
        )
        return _View(None, "", found and found[0])

    def _within(self, after: FeedCursor, view: _View) -> tuple[str, tuple[Any, ...]]:
        """Return the condition that an event comes after a cursor and can be read now, and its values."""
        return "e.position > ?", (after.position,)


class PostgresEventFeed(SqlEventFeed):
    """The feed of Postgres."""

    _order = "xid, position"

    def find_hold(self) -> FeedHold | None:
        view = self._view(START)
        if self._transaction.row("SELECT 1 FROM wtb_events WHERE xid >= ? LIMIT 1", (view.below,)) is None:
            return None
        found = self._transaction.row(_HOLD)
        if found is None:  # it has ended meanwhile
            return None
        pid, name, database, state, age_s = found
        return FeedHold(pid=pid, name=name, database=database, state=state, age=timedelta(seconds=age_s or 0))

    def rank_restored(self) -> int:
        return self._transaction.change(_RANK)

    def _view(self, after: FeedCursor) -> _View:
        row = self._transaction.row(_VIEW, (after.position, after.xid))
        assert row is not None
        below, cluster, hash = row
        return _View(below, blake2s(str(cluster).encode(), digest_size=4).hexdigest(), hash)

    def _within(self, after: FeedCursor, view: _View) -> tuple[str, tuple[Any, ...]]:
        return "(e.xid, e.position) > (?, ?) AND e.xid < ?", (after.xid, after.position, view.below)


def event_feed(transaction: Transaction, codec: Codec) -> SqlEventFeed:
    """Return the feed of a transaction's database."""
    kind = SqlEventFeed if transaction.database.dialect == "sqlite" else PostgresEventFeed
    return kind(transaction, codec)


def fitting(wanted: EventFilter) -> tuple[list[str], list[Any]]:
    """Return the conditions of a filter, and their values."""
    parts = (("type", wanted.types), ("severity", wanted.severities), ("stream", wanted.streams))
    given = [(column, sorted(map(str, values))) for column, values in parts if values]
    return (
        [f"e.{column} IN ({', '.join('?' * len(values))})" for column, values in given],
        [value for _, values in given for value in values],
    )
