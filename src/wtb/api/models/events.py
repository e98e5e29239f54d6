"""Events: pages of the feed, the audit trail, and how the feed is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.application.server.feed import FeedStatus
from wtb.domain.events import Severity
from wtb.domain.feed import FedEvent


class EventAnswer(AnswerModel):
    """One event, as pages, WebSockets and Server-Sent Events show it."""

    cursor: str = Field(description="The place after this event, for `since`.")
    type: str = Field(examples=["node.completed"])
    severity: Severity
    stream: str = Field(description="The id of the execution or batch that it belongs to, or `system`.")
    sequence: int = Field(description="Counts the events of the stream, from 1.")
    at: datetime
    data: dict[str, Any] = Field(description="The facts; docs/events.md lists them by type. Secrets are masked.")


class EventListAnswer(AnswerModel):
    """One page of the feed, oldest first."""

    items: list[EventAnswer]
    next: str | None = Field(description="The `since` of the next page; null if nothing more was there.")
    cursor: str = Field(description="The place after this page: the `since` with which to ask again later.")


class HeldBack(AnswerModel):
    """A transaction of Postgres that has to end before newer events can be read."""

    pid: int | None = Field(description="The process of the database server; null for a prepared transaction.")
    application: str = Field(description="The application_name of its client, or the name of a prepared transaction.")
    database: str
    state: str = Field(examples=["idle in transaction"])
    age_s: float


class FeedHealthAnswer(AnswerModel):
    """How the feed of this server is."""

    clients: int = Field(description="How many clients follow live.")
    dropped: int = Field(description="How many were dropped because they were too slow, since the server started.")
    damaged: list[str] = Field(description="Events that were passed over because they do not match their hash.")
    held_back_by: HeldBack | None = Field(description="The transaction for which committed events wait.")

    @classmethod
    def of(cls, status: FeedStatus) -> FeedHealthAnswer:
        """Return the answer for a status."""
        hold = status.hold
        held = hold and HeldBack(
            pid=hold.pid,
            application=hold.name,
            database=hold.database,
            state=hold.state,
            age_s=round(hold.age.total_seconds(), 3),
        )
        return FeedHealthAnswer(
            clients=status.clients, dropped=status.dropped, damaged=list(status.damaged), held_back_by=held
        )


def event_data(fed: FedEvent) -> dict[str, Any]:
    """Return the data of an EventAnswer. It is not made of one: texts in events may not be valid Unicode."""
    event = fed.event
    return {
        "cursor": str(fed.cursor),
        "type": event.type.value,
        "severity": event.severity.value,
        "stream": event.stream,
        "sequence": event.sequence,
        "at": event.at.isoformat(),
        "data": dict(event.data),
    }
