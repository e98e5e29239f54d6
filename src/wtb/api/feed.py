"""EventStream: the messages for one client that follows events, over a WebSocket or as Server-Sent Events.

A client gets events, heartbeats while there are none, and at the end the reason. It is dropped if it does not read,
if its token or session is no longer valid, or if the server stops; from its last cursor it can go on anywhere.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from anyio import CapacityLimiter, to_thread
from fastapi import WebSocket
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from wtb.api.access import find_caller
from wtb.api.models.events import event_data
from wtb.api.parts import ServerParts
from wtb.api.problems import problem_of
from wtb.api.rate_limits import OpenFeeds
from wtb.domain.access import Caller
from wtb.domain.errors import CursorGone, ReaderTooSlow, ServerStopping, Unauthenticated, WTBError
from wtb.domain.feed import EventFilter, FedEvent, FeedCursor, FeedPage

HEARTBEAT_S = 15.0
"""How long a client hears nothing at most."""
CHECK_S = 5.0
"""How long a token works on after it was revoked or expired, at most."""
_STOP_S = 1.0
"""How long a client follows on when the server stops."""
SEND_S = 20.0
"""How long a client may take nothing of what is sent to it."""
CLOSE_CODES: dict[type[WTBError], int] = {
    Unauthenticated: 4401,
    ReaderTooSlow: 4408,
    CursorGone: 4410,
    ServerStopping: 1012,
    WTBError: 1011,
}
"""How a WebSocket is closed; the reason is the sentence of the error."""
_LONGEST_REASON = 123
_READERS = 4
"""How many clients read the past at once, each in a thread that other requests do not need."""

_MOST_EVENTS, _MOST_CHARACTERS = 200, 200_000
"""The size of a message; clients often refuse a megabyte. A single event may be larger."""


class Message(NamedTuple):
    """Some events as JSON with their cursors, and the place after them; a heartbeat has none."""

    events: tuple[tuple[str, str], ...]
    cursor: str


class EventStream:
    """What one client gets. `open` raises if the cursor is gone, so that this can still be a plain answer."""

    def __init__(self, connection: HTTPConnection, parts: ServerParts, caller: Caller) -> None:
        self._connection = connection
        self._parts = parts
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._limiter = _limiter(connection)
        self._open_feeds = _open_feeds(connection, parts)
        self._is_open = False

    async def open(self, since: FeedCursor, wanted: EventFilter) -> None:
        """Begin at a place; raise TooManyRequests if the caller follows too many feeds already."""
        self._open_feeds.open(self._caller.name)
        self._is_open = True
        self._client = self._parts.services.feed.follow(since, wanted, self._wake)
        try:
            self._first = await self._take()
        except BaseException:
            self.close()
            raise

    async def messages(self) -> AsyncIterator[Message]:
        """Yield events, and heartbeats while there are none; raise the reason when the stream ends."""
        checked_at = self._loop.time()
        spoke_at = -math.inf  # so that there is a cursor at once
        events, self._first = self._first, []
        while True:
            for message in _messages(events):
                yield message
            now = self._loop.time()
            if events:
                spoke_at = now
            elif now - spoke_at >= HEARTBEAT_S:
                yield Message((), str(self._client.cursor))
                spoke_at = now
            if now - checked_at >= CHECK_S:
                await self._check()
                checked_at = now
            self._woken.clear()
            events = await self._take()
            if not events and not self._client.is_behind:
                until = min(checked_at + CHECK_S, spoke_at + HEARTBEAT_S)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), min(max(0.0, until - self._loop.time()), _STOP_S))
            if self._parts.stopping.is_set():
                raise ServerStopping("the server is stopping; connect again from your last cursor")

    def close(self) -> None:
        """Stop following."""
        if self._is_open:
            self._is_open = False
            self._open_feeds.close(self._caller.name)
            self._client.close()

    async def _take(self) -> list[FedEvent]:
        if self._client.is_behind:
            return await to_thread.run_sync(self._client.take, limiter=self._limiter)
        return self._client.take()

    async def _check(self) -> None:
        caller = await to_thread.run_sync(find_caller, self._connection, self._parts, limiter=self._limiter)
        if caller != self._caller:
            raise Unauthenticated("the token or session was revoked, has expired or was changed; sign in again")

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)


def _limiter(connection: HTTPConnection) -> CapacityLimiter:
    state = connection.app.state
    if not hasattr(state, "feed_readers"):
        state.feed_readers = CapacityLimiter(_READERS)
    limiter: CapacityLimiter = state.feed_readers
    return limiter


def _open_feeds(connection: HTTPConnection, parts: ServerParts) -> OpenFeeds:
    state = connection.app.state
    if not hasattr(state, "open_feeds"):
        state.open_feeds = OpenFeeds(parts.server.feeds_per_caller)
    found: OpenFeeds = state.open_feeds
    return found


async def deliver(
    stream: EventStream, send: Callable[[Message], Awaitable[None]], left: Awaitable[None]
) -> WTBError | None:
    """Send all messages; return the reason if the stream ends, and None if the client leaves first."""
    sending = asyncio.ensure_future(_send_all(stream, send))
    leaving = asyncio.ensure_future(left)
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        return sending.result() if sending.done() else None
    finally:
        stream.close()
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send_all(stream: EventStream, send: Callable[[Message], Awaitable[None]]) -> WTBError | None:
    try:
        async for message in stream.messages():
            await asyncio.wait_for(send(message), SEND_S)
    except TimeoutError:
        return ReaderTooSlow(f"the client took nothing for {SEND_S:g} s; connect again, from your last cursor")
    except WTBError as error:
        return error
    except (OSError, RuntimeError, WebSocketDisconnect):  # the client has gone
        return None
    return None


async def over_socket(socket: WebSocket, stream: EventStream) -> None:
    """Serve a client over a WebSocket."""

    async def send(message: Message) -> None:
        events = ",".join(text for _, text in message.events)
        await socket.send_text(f'{{"events":[{events}],"cursor":"{message.cursor}"}}')

    async def left() -> None:
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass

    try:
        await socket.accept()
    except OSError:  # the client has gone
        stream.close()
        return
    reason = await deliver(stream, send, left())
    if reason is not None:
        code = next(CLOSE_CODES[kind] for kind in type(reason).__mro__ if kind in CLOSE_CODES)
        text = problem_of(reason).detail.encode()[:_LONGEST_REASON].decode(errors="ignore")
        with suppress(TimeoutError, OSError, RuntimeError, WebSocketDisconnect):
            await asyncio.wait_for(socket.close(code, text), 1)


class ServerSentEvents(Response):
    """The answer to a client that follows by Server-Sent Events."""

    media_type = "text/event-stream"

    def __init__(self, stream: EventStream) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(text: str, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        async def left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        reason = await deliver(self._stream, lambda message: write(_sse(message)), left())
        if reason is not None:
            problem = problem_of(reason).model_dump(exclude_none=True)
            with suppress(TimeoutError, OSError, RuntimeError):
                await asyncio.wait_for(write(f"event: closed\ndata: {_json(problem)}\n\n", more=False), 1)


def _json(data: Any) -> str:
    """Return JSON without line breaks, and in ASCII: a text of an event may not be valid Unicode."""
    return json.dumps(data, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _text(fed: FedEvent) -> str:
    """Return an event as JSON, which is made once for all clients."""
    return _json(event_data(fed))


def _messages(events: list[FedEvent]) -> Iterator[Message]:
    """Yield events in messages of a bounded size."""
    chunk: list[tuple[str, str]] = []
    size = 0
    for fed in events:
        text = _text(fed)
        if chunk and (len(chunk) == _MOST_EVENTS or size + len(text) > _MOST_CHARACTERS):
            yield Message(tuple(chunk), chunk[-1][0])
            chunk, size = [], 0
        chunk.append((str(fed.cursor), text))
        size += len(text)
    if chunk:
        yield Message(tuple(chunk), chunk[-1][0])


def _sse(message: Message) -> str:
    if message.events:
        return "".join(f"id: {cursor}\ndata: {text}\n\n" for cursor, text in message.events)
    return f'id: {message.cursor}\nevent: heartbeat\ndata: {{"cursor":"{message.cursor}"}}\n\n'


def page_text(page: FeedPage) -> str:
    """Return an EventListAnswer as JSON."""
    items = ",".join(map(_text, page.events))
    cursor = _json(str(page.cursor))
    return f'{{"items":[{items}],"next":{"null" if page.is_last else cursor},"cursor":{cursor}}}'
