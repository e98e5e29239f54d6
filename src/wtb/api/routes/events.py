"""The feed of events: pages, WebSocket and Server-Sent Events at one address, and how the feed is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from wtb.api.access import Viewer
from wtb.api.feed import EventStream, ServerSentEvents, over_socket, page_text
from wtb.api.models.events import EventListAnswer, FeedHealthAnswer
from wtb.api.models.parameters import BatchIds, EventTypes, Limit, RunIds, Severities
from wtb.api.parts import Parts, ServerParts
from wtb.api.problems import answers
from wtb.domain.errors import CursorGone
from wtb.domain.feed import START, EventFilter, FeedCursor, FeedPage
from wtb.domain.filters import event_types, severities

router = APIRouter(tags=["events"])

_MOST_PAGES = 20
"""How many pages without a fitting event one request looks through."""

Since = Annotated[
    str | None,
    Query(
        max_length=200,
        description="Where to begin: a `cursor` of an event or of a page, `start`, or `now`. "
        "By default pages begin at the start, and streams now.",
    ),
]


def _wanted(
    types: EventTypes = [],  # noqa: B006  FastAPI copies it
    loudness: Severities = [],  # noqa: B006
    runs: RunIds = [],  # noqa: B006
    batches: BatchIds = [],  # noqa: B006
) -> EventFilter:
    return EventFilter.of(event_types(types), severities(loudness), [*runs, *batches])


Wanted = Annotated[EventFilter, Depends(_wanted)]


@router.get(
    "/api/v1/events",
    operation_id="events_list",
    summary="List events, or follow them",
    response_model=EventListAnswer,
    responses={
        200: {
            "description": "One page; or a stream without end, if the request accepts `text/event-stream`.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **answers(CursorGone),
    },
)
async def list_events(  # noqa: PLR0917  FastAPI passes them by name
    request: Request,
    parts: Parts,
    caller: Viewer,
    wanted: Wanted,
    since: Since = None,
    limit: Limit = 100,
    last_event_id: Annotated[
        str | None, Header(max_length=200, description="As `since`, which it replaces. Browsers send it by themselves.")
    ] = None,
) -> Response:
    """Return events in the order in which they were committed.

    Whoever asks again with the last cursor misses none and gets none twice. With `Accept: text/event-stream` the answer
    goes on with every new event; a WebSocket at the same address does the same.
    """
    if "text/event-stream" in request.headers.get("accept", ""):
        stream = EventStream(request, parts, caller)
        await stream.open(await _place(parts, last_event_id or since or "now"), wanted)
        return ServerSentEvents(stream)
    page = await run_in_threadpool(_page, parts, await _place(parts, since or "start"), wanted, limit)
    return Response(page_text(page), media_type="application/json")


@router.websocket("/api/v1/events")
async def follow_events(socket: WebSocket, parts: Parts, caller: Viewer, wanted: Wanted, since: Since = None) -> None:
    """Send messages of JSON: some `events`, and the `cursor` after them; none while nothing happens, as a heartbeat."""
    stream = EventStream(socket, parts, caller)
    await stream.open(await _place(parts, since or "now"), wanted)
    await over_socket(socket, stream)


@router.get("/api/v1/events/health", operation_id="events_get_health", summary="Show how the feed is")
def show_health(parts: Parts, caller: Viewer) -> FeedHealthAnswer:
    """Return how many clients follow, and the transaction that holds the feed back, if there is one."""
    return FeedHealthAnswer.of(parts.services.feed.status())


async def _place(parts: ServerParts, since: str) -> FeedCursor:
    if since == "start":
        return START
    return await run_in_threadpool(parts.services.feed.end) if since == "now" else FeedCursor.parse(since)


def _page(parts: ServerParts, since: FeedCursor, wanted: EventFilter, limit: int) -> FeedPage:
    """Return the next page, passing over pages without a fitting event."""
    page = parts.services.feed.read(since, wanted, limit)
    for _ in range(_MOST_PAGES):
        if page.events or page.is_last:
            break
        page = parts.services.feed.read(page.cursor, wanted, limit)
    return page
