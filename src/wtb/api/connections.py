"""BoundedProtocol: uvicorn's connections. They end for clients that are too slow; errors are problems in JSON.

WebSocketProtocol: uvicorn's WebSockets, which end with the server whatever their clients do meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from wtb.api.problems import MEDIA_TYPE, send_refusal

MOST_CONNECTIONS = 1_000

HEADERS_TIMEOUT_S = 10.0
"""How long the headers of a request may take: one byte a minute would hold a connection for days."""

WRITE_TIMEOUT_S = 30.0
"""How long a client may take none of an answer."""

LARGEST_HEADERS_BYTES = 32_768


class BoundedProtocol(H11Protocol):
    """One connection of a client."""

    most_connections = MOST_CONNECTIONS
    headers_timeout_s = HEADERS_TIMEOUT_S
    write_timeout_s = WRITE_TIMEOUT_S

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._headers_end: asyncio.TimerHandle | None = None
        self._write_end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            self.app = _busy
        self._headers_end = self.loop.call_later(self.headers_timeout_s, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_headers_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_headers_timer()
        elif self._headers_end is None:  # the first bytes of a next request
            self._headers_end = self.loop.call_later(self.headers_timeout_s, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_end = self.loop.call_later(self.write_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or has too large headers, as every other refusal."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # in the middle of an answer
            self.transport.close()
            return
        problem = {
            "type": "urn:wtb:problem:bad-request",
            "title": "Bad request",
            "status": 400,
            "detail": f"this is not an HTTP request, or its headers are larger than {LARGEST_HEADERS_BYTES:,} bytes",
            "code": "bad-request",
        }
        body = json.dumps(problem).encode()
        headers = [
            ("Content-Type", MEDIA_TYPE),
            ("Content-Length", str(len(body))),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
        ]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _stop_headers_timer(self) -> None:
        if self._headers_end is not None:
            self._headers_end.cancel()
            self._headers_end = None

    def _stop_write_timer(self) -> None:
        if self._write_end is not None:
            self._write_end.cancel()
            self._write_end = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket of a client."""

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:  # its client closes it at this moment; the error would leave all other connections open
            self.transport.close()
        self.disconnected = True  # what the app still sends goes nowhere

    def send_500_response(self) -> None:
        if not self.disconnected:  # else the end of the server has answered, and a second answer is an error
            super().send_500_response()


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer whoever comes when there are too many connections."""
    detail = "the server has too many connections; try again in a moment"
    await send_refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail, scope, receive, send)
