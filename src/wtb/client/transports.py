"""How requests travel: one transport that blocks and one that awaits, and the same rules for sending again.

Everything above is written once, as coroutines. Those of `BlockingTransport` never suspend, so a client without an
event loop drives them to their end by itself (`blocking.py`).
"""

from __future__ import annotations

import asyncio
import random
import time
from ssl import SSLContext
from typing import Any, Protocol

import httpx

from wtb.client.requests import Reply, Request
from wtb.domain.errors import ServerAway

USUAL_S = 30.0
"""How long a server may take to answer, beside the time that it was asked to wait."""
_LONGEST_PAUSE_S = 5.0
_AWAY = (429, 503)


class Socket(Protocol):
    """A WebSocket that gives texts."""

    async def receive(self, timeout_s: float) -> str:
        """Return the next message; raise ConnectionError if the socket is lost, or silent for too long."""
        ...

    async def close(self) -> None:
        """Close it; closing twice does nothing."""
        ...


class Transport(Protocol):
    """Sends one request, waits, connects: what differs between the two clients."""

    async def send(self, request: Request) -> Reply:
        """Send a request once; raise httpx.TransportError if no answer came."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def connect(self, path: str, query: str) -> Socket:
        """Open a WebSocket; raise ConnectionError if nobody answers, and the server's problem if it refuses."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class BlockingTransport:
    """Sends from the calling thread."""

    def __init__(self, client: httpx.Client, trusted: SSLContext | None = None) -> None:
        self._client = client
        self._trusted = trusted

    async def send(self, request: Request) -> Reply:
        return _reply(self._client.request(**_arguments(request)))

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  driven by a client without an event loop

    async def connect(self, path: str, query: str) -> Socket:
        from wtb.client.sockets import BlockingSocket

        return BlockingSocket.connect(*_address(self._client, path, query), self._trusted)

    async def close(self) -> None:
        self._client.close()


class AwaitingTransport:
    """Sends from an event loop."""

    def __init__(self, client: httpx.AsyncClient, trusted: SSLContext | None = None) -> None:
        self._client = client
        self._trusted = trusted

    async def send(self, request: Request) -> Reply:
        return _reply(await self._client.request(**_arguments(request)))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def connect(self, path: str, query: str) -> Socket:
        from wtb.client.sockets import AwaitingSocket

        return await AwaitingSocket.connect(*_address(self._client, path, query), self._trusted)

    async def close(self) -> None:
        await self._client.aclose()


class PatientSender:
    """Sends a request until it is answered, within bounds, and never risks that it is carried out twice."""

    def __init__(self, transport: Transport, url: str, retries: int) -> None:
        self.transport = transport
        self._url = url
        self._retries = retries

    async def send(self, request: Request) -> Reply:
        """Return the answer; raise the problem that it tells, or ServerAway if none came."""
        for tries in range(self._retries + 1):
            is_last = tries == self._retries
            pause_s = pause_before(tries)
            try:
                reply = await self.transport.send(request)
            except httpx.TransportError as error:
                if is_last or not (request.is_repeatable or isinstance(error, httpx.ConnectError)):
                    raise self._away(error) from error
            else:
                if is_last or reply.status not in _AWAY:
                    return reply.checked()
                pause_s = max(pause_s, _wanted_pause_s(reply))
            await self.transport.sleep(pause_s)
        raise AssertionError("a request is answered or fails")

    def _away(self, error: Exception) -> ServerAway:
        return ServerAway(
            f"no answer from {self._url} ({str(error) or type(error).__name__}): is the server running, and is this "
            f"its address? `wtb serve` starts one and says where it is"
        )


def pause_before(tries: int) -> float:
    """Return how long to wait after so many failed tries; a little by chance, so that clients do not come together."""
    return float(min(0.2 * 2**tries, _LONGEST_PAUSE_S) * random.uniform(0.8, 1.2))


def _wanted_pause_s(reply: Reply) -> float:
    text = reply.headers.get("retry-after", "")
    return min(float(text), 60.0) if text.isdigit() else 0.0


def _arguments(request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.path,
        "params": request.query,
        "content": request.body,
        "headers": request.headers,
        "timeout": httpx.Timeout(USUAL_S + request.patience_s, connect=10.0),
    }


def _reply(response: httpx.Response) -> Reply:
    return Reply(status=response.status_code, headers=response.headers, body=response.content)


def _address(client: httpx.Client | httpx.AsyncClient, path: str, query: str) -> tuple[str, dict[str, str]]:
    base = str(client.base_url).rstrip("/")
    headers = {"Authorization": client.headers["Authorization"]} if "Authorization" in client.headers else {}
    return f"ws{base.removeprefix('http')}{path}{'?' if query else ''}{query}", headers
