"""What a WebSocket does if its client closes it, or has not been answered yet, when the server ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from wtb.api.connections import WebSocketProtocol


class Connection:
    """Both ends of a WebSocket, without a network."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.client = ClientProtocol(parse_uri("ws://127.0.0.1/"))

    async def open(self) -> WebSocketProtocol:
        ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        config = uvicorn.Config(self.app, log_config=None, lifespan="off")
        config.load()
        _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: WebSocketProtocol(config, ServerState(), {}), ours
        )
        self.client.send_request(self.client.connect())
        protocol.data_received(b"".join(self.client.data_to_send()))
        return protocol

    async def rest(self) -> bytes:
        """Return everything that the server sends until it closes the connection."""
        found = b""
        while data := await asyncio.get_running_loop().sock_recv(self.theirs, 65_536):
            found += data
        self.theirs.close()
        return found


def ends_with(app: Any, last: Callable[[Connection, WebSocketProtocol], None]) -> bytes:
    """Open a WebSocket, do something as the server ends, and return what the client got."""

    async def story() -> bytes:
        connection = Connection(app)
        protocol = await connection.open()
        await begun.wait()
        last(connection, protocol)
        protocol.shutdown()
        found = await connection.rest()
        await asyncio.gather(*protocol.tasks)
        return found

    begun = app.begun
    return asyncio.run(story())


class Accepting:
    """An app that accepts, and waits for the end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.begun.set()
        while (await receive())["type"] != "websocket.disconnect":
            pass


class Refusing:
    """An app that refuses once the server has ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        self.begun.set()
        await asyncio.sleep(0)
        await send({"type": "websocket.http.response.start", "status": 503, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"too late"})


def closed_by_its_client(connection: Connection, protocol: WebSocketProtocol) -> None:
    connection.client.receive_data(connection.theirs.recv(65_536))
    connection.client.send_close(1000)
    protocol.data_received(b"".join(connection.client.data_to_send()))


def test_a_websocket_that_its_client_closes_at_that_moment_does_not_stop_the_end_of_the_server() -> None:
    assert ends_with(Accepting(), closed_by_its_client)


def test_a_handshake_that_the_end_of_the_server_has_answered_is_not_answered_again() -> None:
    got = ends_with(Refusing(), lambda *_: None)
    assert got.startswith(b"HTTP/1.1 500")
    assert b"too late" not in got
