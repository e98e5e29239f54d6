"""The events that webhooks get: those after a cursor, and the cursor of the last one."""

from __future__ import annotations

from wtb.domain.events import RecordedEvent
from wtb.domain.ports import UnitOfWork


def events_since(uow: UnitOfWork, cursor: str | None, *, limit: int) -> tuple[tuple[RecordedEvent, ...], str | None]:
    """Return the next events after a cursor, and the cursor of the last of them."""
    found = uow.events.list_events(after=int(cursor or 0), limit=limit)
    return found, str(found[-1].position) if found else cursor


def end_of_events(uow: UnitOfWork) -> str:
    """Return the cursor of the last event."""
    last = uow.events.list_events(newest=True, limit=1)
    return str(last[-1].position) if last else "0"
