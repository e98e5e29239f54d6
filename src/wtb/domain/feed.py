"""The feed of events: a place in it (FeedCursor), the events that a reader wants (EventFilter), and what it gets."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from wtb.domain.errors import CursorGone
from wtb.domain.events import EventType, RecordedEvent, Severity

_TEXT = re.compile(r"(\d{1,18})\.(\d{1,18})\.((?:[0-9a-f]{2}){0,8})\.([0-9a-f]{0,16})")
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCursor:
    """The place after one event, or before the first; the text that a client keeps is opaque to it.

    It carries the beginning of the event's hash, and on Postgres the cluster, because transactions of different
    clusters have the same numbers. So a cursor of another database, or of one that was set back, is noticed.
    """

    xid: int = 0
    """The number by which Postgres orders events; 0 elsewhere."""
    position: int = 0
    hash: bytes = b""
    source: str = ""

    @classmethod
    def after(cls, position: int, hash: bytes, *, xid: int = 0, source: str = "") -> FeedCursor:
        """Return the place after an event."""
        return FeedCursor(xid=xid, position=position, hash=hash[:_HASH_BYTES], source=source)

    @property
    def order(self) -> tuple[int, int]:
        """Sorts cursors of one database in the order of its feed."""
        return self.xid, self.position

    def __str__(self) -> str:
        text = f"{self.xid}.{self.position}.{self.hash.hex()}.{self.source}"
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> FeedCursor:
        """Return the cursor with this text, or raise CursorGone."""
        try:
            plain = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        except (binascii.Error, ValueError):
            plain = ""
        parts = _TEXT.fullmatch(plain)
        if parts is None:
            raise CursorGone(f"{text[:80]!r} is no cursor of the feed; use one that this server gave, 'start' or 'now'")
        xid, position, hash, source = parts.groups()
        return FeedCursor(xid=int(xid), position=int(position), hash=bytes.fromhex(hash), source=source)

    def check(self, stored_hash: bytes | None, source: str = "") -> None:
        """Raise CursorGone unless this is the place after the event with this hash, or before the first event."""
        if self == START:
            return
        if stored_hash is None or stored_hash[:_HASH_BYTES] != self.hash or source != self.source:
            raise CursorGone(
                "the cursor does not fit this database: it is of another one, or this one was set back or restored; "
                "read the feed from the start, or from now on"
            )


START = FeedCursor()
"""The place before the first event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """The events that a reader wants; an empty part leaves nothing out."""

    types: frozenset[EventType] = frozenset()
    severities: frozenset[Severity] = frozenset()
    streams: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, types: Iterable[EventType] = (), severities: Iterable[Severity] = (), streams: Iterable[str] = ()
    ) -> EventFilter:
        """Return a filter of all these parts."""
        return EventFilter(types=frozenset(types), severities=frozenset(severities), streams=frozenset(streams))

    def fits(self, event: RecordedEvent) -> bool:
        """Whether the reader wants this event."""
        return (
            (not self.types or event.type in self.types)
            and (not self.severities or event.severity in self.severities)
            and (not self.streams or event.stream in self.streams)
        )


EVERY_EVENT = EventFilter()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedEvent:
    """An event of the feed, and the place after it. Compared by identity, so that its text can be made once."""

    event: RecordedEvent
    cursor: FeedCursor


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """Some events of the feed, in its order."""

    events: tuple[FedEvent, ...]
    cursor: FeedCursor
    """Where the next page begins. It may lie behind the last event, since other events did not fit the filter."""
    is_last: bool
    """Whether nothing more was there when the page was read."""
    damaged: tuple[str, ...] = ()
    """What is wrong with events that were passed over because they do not match their hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedHold:
    """The oldest running transaction of Postgres, while committed events wait until it ends."""

    pid: int | None
    """The process of the server that runs it; None if it is a prepared transaction, which none runs."""
    name: str
    """The `application_name` of its client, or the name of a prepared transaction."""
    database: str
    state: str
    """What it does now, for example `idle in transaction`."""
    age: timedelta
