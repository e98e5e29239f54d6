"""Limits of a request: the size and depth of its body, and the time that it takes to arrive."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus

import numpy as np
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wtb.api.parts import ServerParts
from wtb.api.problems import send_refusal

DEEPEST = 100
"""How deep the JSON of a body may be nested."""

BODY_TIMEOUT_S = 30.0

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # one that never ends goes to the end: linear time
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


class BodyLimits:
    """Reads the whole body of a request before its route sees any of it, and refuses what is too much."""

    timeout_s = BODY_TIMEOUT_S

    def __init__(self, app: ASGIApp, parts: ServerParts) -> None:
        self._app = app
        self._largest = parts.server.largest_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.timeout_s):
                body = await self._read(scope, receive)
        except TimeoutError:
            detail = f"the body of the request did not arrive within {self.timeout_s:g} s; send it again"
            await send_refusal(HTTPStatus.REQUEST_TIMEOUT, detail, scope, receive, send)
            return
        if body is None:
            detail = (
                f"the body is larger than {self._largest:,} bytes; the setting server.largest_body_bytes allows more"
            )
            await send_refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, scope, receive, send)
        elif depth_of(body) > DEEPEST:
            detail = f"the JSON of the body is nested more than {DEEPEST} levels deep; make it flatter"
            await send_refusal(HTTPStatus.UNPROCESSABLE_ENTITY, detail, scope, receive, send)
        else:
            await self._app(scope, _replayed(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, or None if it is too large: known from its length, or counted as it comes."""
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._largest:
            return None
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._largest:
                return None
            if not message.get("more_body", False):
                break
        return bytes(body)


def depth_of(body: bytes) -> int:
    """Return how deep the brackets of a JSON text are nested, without reading it: readers of JSON recurse."""
    steps = _STEPS[np.frombuffer(_STRINGS.sub(b"", body), dtype=np.uint8)]
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the whole body first, and then what the connection says."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
