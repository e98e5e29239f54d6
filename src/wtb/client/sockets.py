"""WebSockets of the library `websockets`, one that blocks and one that is awaited; the same errors from both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from ssl import SSLContext
from typing import Any, NoReturn, Self

from websockets.asyncio.client import ClientConnection as AwaitingConnection
from websockets.asyncio.client import connect as connect_awaiting
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection as BlockingConnection
from websockets.sync.client import connect as connect_blocking

from wtb.client.problems import error_of

_OPTIONS: dict[str, Any] = {"open_timeout": 10, "close_timeout": 2, "max_size": 16 * 1024 * 1024}


class BlockingSocket:
    """A socket that is read by the calling thread."""

    def __init__(self, connection: BlockingConnection, opened: ExitStack) -> None:
        self._connection = connection
        self._opened = opened

    @classmethod
    def connect(cls, address: str, headers: dict[str, str], trusted: SSLContext | None) -> Self:
        with _same_errors(), ExitStack() as opened:
            connecting = connect_blocking(address, additional_headers=headers, **_options(address, trusted))
            return cls(opened.enter_context(connecting), opened.pop_all())

    async def receive(self, timeout_s: float) -> str:
        with _same_errors():
            return str(self._connection.recv(timeout_s))

    async def close(self) -> None:
        self._opened.close()


class AwaitingSocket:
    """A socket that is read by an event loop."""

    def __init__(self, connection: AwaitingConnection, opened: AsyncExitStack) -> None:
        self._connection = connection
        self._opened = opened

    @classmethod
    async def connect(cls, address: str, headers: dict[str, str], trusted: SSLContext | None) -> Self:
        with _same_errors():
            async with AsyncExitStack() as opened:
                connecting = connect_awaiting(address, additional_headers=headers, **_options(address, trusted))
                return cls(await opened.enter_async_context(connecting), opened.pop_all())

    async def receive(self, timeout_s: float) -> str:
        with _same_errors():
            return str(await asyncio.wait_for(self._connection.recv(), timeout_s))

    async def close(self) -> None:
        try:
            await self._opened.aclose()
        finally:  # the task may be cancelled meanwhile, since the loop ends
            self._connection.transport.abort()


def _options(address: str, trusted: SSLContext | None) -> dict[str, Any]:
    return {**_OPTIONS, "ssl": trusted} if trusted is not None and address.startswith("wss:") else _OPTIONS


@contextmanager
def _same_errors() -> Iterator[None]:
    """Raise ConnectionError for everything that another connection may heal, and the server's problem otherwise."""
    try:
        yield
    except InvalidStatus as error:
        _refused(error)
    except ConnectionClosed as error:
        received = error.rcvd
        raise SocketClosed(
            0 if received is None else received.code, "" if received is None else received.reason
        ) from error
    except (InvalidHandshake, WebSocketException, OSError, TimeoutError, EOFError) as error:
        raise ConnectionError(str(error) or type(error).__name__) from error


class SocketClosed(ConnectionError):
    """The socket was closed; the server's code and reason, if it gave one."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(reason or f"the connection was closed ({code})")


def _refused(error: InvalidStatus) -> NoReturn:
    response = error.response
    if response.status_code in (429, 502, 503, 504):
        raise ConnectionError(f"the server answered with status {response.status_code}") from error
    raise error_of(bytes(response.body or b""), response.status_code) from error
