"""Following the events of a server over a WebSocket that connects again by itself, from the last cursor."""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncGenerator
from urllib.parse import urlencode

from wtb.api.models.events import EventAnswer
from wtb.client.requests import Query, query_of
from wtb.client.sockets import SocketClosed
from wtb.client.transports import Socket, Transport, pause_before
from wtb.domain.errors import CursorGone, ServerAway, Unauthenticated, WTBError

PATH = "/api/v1/events"
SILENT_S = 45.0
"""A server says something every 15 seconds; after this long, the connection is lost."""
_STEADY_S = 5.0
"""A connection without events that lasts this long has worked. Else a server that greets and fails again and again
would be asked forever."""
_FINAL: dict[int, type[WTBError]] = {4401: Unauthenticated, 4410: CursorGone}
"""Codes with which a server closes the socket for good."""


async def follow(transport: Transport, since: str, filters: Query, patience_s: float) -> AsyncGenerator[EventAnswer]:
    """Yield every event after a place once, in its order; raise ServerAway if no server answers for so long."""
    place, lost_at, tries = since, time.monotonic(), 0
    while True:
        opened_at = math.inf
        try:
            socket = await transport.connect(PATH, urlencode(query_of({"since": place, **filters})))
            opened_at = time.monotonic()
            try:
                async for cursor, event in _messages(socket):
                    place = cursor
                    if event is not None:
                        yield event
                        lost_at, tries = time.monotonic(), 0
            finally:
                await socket.close()
        except ConnectionError as error:
            if isinstance(error, SocketClosed) and error.code in _FINAL:
                raise _FINAL[error.code](error.reason) from error
            now = time.monotonic()
            if now - opened_at >= _STEADY_S:
                lost_at, tries = now, 0
            if now - lost_at > patience_s:
                raise ServerAway(
                    f"the feed of events was lost {patience_s:g} s ago and did not come back: {error}"
                ) from error
        await transport.sleep(pause_before(tries))
        tries += 1


async def _messages(socket: Socket) -> AsyncGenerator[tuple[str, EventAnswer | None]]:
    """Yield each event with the place after it; a message without events is a heartbeat, and has a place only."""
    while True:
        data = json.loads(await socket.receive(SILENT_S))
        for event in data["events"]:
            yield event["cursor"], EventAnswer.model_validate(event)
        if not data["events"]:
            yield data["cursor"], None
