"""Serving: where a server listens, whom it may be open to, and its life from the first request to Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from types import FrameType

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from wtb.api.app import create_app
from wtb.api.connections import LARGEST_HEADERS_BYTES, BoundedProtocol, WebSocketProtocol
from wtb.api.parts import ServerParts, is_loopback
from wtb.domain.errors import InvalidInput
from wtb.settings import ServerSettings

GRACE_S = 5
"""How long open requests may take to end when the server stops."""

_UNREAD_MS = 60_000
_LARGEST_MESSAGE_BYTES = 65_536
_CAUSED_BY_STRANGERS = (
    "Invalid HTTP request",
    "Unsupported upgrade",
    "ASGI callable returned without completing handshake",  # of a WebSocket that was refused with a problem
    "ASGI callable returned without completing response",  # of a stream that was cut off at the end
)


def check_settings(server: ServerSettings) -> None:
    """Raise InvalidInput unless the server may listen there: other machines are only served through TLS."""
    if (server.certificate is None) != (server.certificate_key is None):
        raise InvalidInput("TLS needs both settings, server.certificate and server.certificate_key")
    if server.trusted_proxy is not None:
        _check_network(server.trusted_proxy)
    if server.certificate is not None:
        _check_certificate(server)
    elif server.trusted_proxy is None and not is_loopback(server.host):
        raise InvalidInput(
            f"other machines can reach {server.host}, so the server needs TLS: set server.certificate and "
            "server.certificate_key in wtb.toml, or server.trusted_proxy if a proxy does TLS. To serve this machine "
            "only, use --host 127.0.0.1"
        )


def check_tokens(parts: ServerParts) -> None:
    """Raise InvalidInput if nobody could sign in."""
    if not parts.is_private and not parts.services.tokens.has_valid():
        raise InvalidInput(
            f"callers of {address_of(parts.server)} sign in with a token, and none is valid: "
            "wtb token create NAME --role admin"
        )


def listen(server: ServerSettings) -> socket.socket:
    """Return a socket that listens; with port 0, on a free port."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind)
    except OSError as error:
        raise InvalidInput(f"{server.host!r} is not an address of this machine: {error.strerror or error}") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Otherwise the body of an answer waits 40 ms until the client has acknowledged its headers.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # ends a connection whose client takes nothing of what it asked for
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        made.bind(place)
        made.listen(128)
    except OSError as error:
        made.close()
        raise _refusal(server, error) from error
    return made


def address_of(server: ServerSettings) -> str:
    """Return the address of a server, as one types it into a browser."""
    scheme = "http" if server.certificate is None else "https"
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{scheme}://{host}:{server.port}"


@contextmanager
def until_stopped() -> Iterator[None]:
    """Leave the block on Ctrl-C, and in the same way on SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def serve(parts: ServerParts, listening: socket.socket, app: ASGIApp | None = None) -> None:
    """Serve an app until Ctrl-C or SIGTERM; open requests have a few seconds to end. Without one, the API."""
    make_server(parts, app).run(sockets=[listening])


def make_server(parts: ServerParts, app: ASGIApp | None = None) -> uvicorn.Server:
    """Return a server that is not running yet."""
    server = parts.server
    config = uvicorn.Config(
        create_app(parts) if app is None else app,
        http=BoundedProtocol,
        ws=WebSocketProtocol,
        ws_max_size=_LARGEST_MESSAGE_BYTES,
        lifespan="on",
        log_config=None,
        access_log=False,
        log_level=logging.WARNING,
        server_header=False,
        proxy_headers=False,  # TrustedProxy reads them, and only from the proxy that is named
        h11_max_incomplete_event_size=LARGEST_HEADERS_BYTES,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=server.certificate,
        ssl_keyfile=server.certificate_key,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_worth_telling)
    return _Server(config, parts)


class _Server(uvicorn.Server):
    """Tells the parts that the server stops, before it waits for open requests to end."""

    def __init__(self, config: uvicorn.Config, parts: ServerParts) -> None:
        super().__init__(config)
        self._parts = parts

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._parts.stopping.set()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._parts.stopping.set()
        self._accept_no_more()
        await run_in_threadpool(self._parts.services.feed.close)  # or its clients would stay until they are cut off
        await super().shutdown(sockets)
        for late in list(self.server_state.connections):  # they came while the others were told to end
            late.transport.abort()
        await asyncio.sleep(0)  # then they are closed

    def _accept_no_more(self) -> None:
        """Leave new clients to the next server. asyncio never closes one that it accepts just before `close`."""
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Leave out what any stranger can cause, and requests that are cut off at the end, with their tracebacks."""
    is_cut_off = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not is_cut_off and not record.getMessage().startswith(_CAUSED_BY_STRANGERS)


def _check_network(proxy: str) -> None:
    try:
        ip_network(proxy)
    except ValueError as error:
        raise InvalidInput(
            f"server.trusted_proxy is the address of the proxy, such as 10.0.0.5 or 10.0.0.0/24, not {proxy!r}"
        ) from error


def _check_certificate(server: ServerSettings) -> None:
    assert server.certificate is not None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(server.certificate, server.certificate_key)
    except OSError as error:  # SSLError is one
        raise InvalidInput(
            f"the certificate {server.certificate} and its key {server.certificate_key} cannot be used: "
            f"{error.strerror or error}; both are files in PEM, and the key has no password"
        ) from error


def _refusal(server: ServerSettings, error: OSError) -> InvalidInput:
    if error.errno == errno.EADDRINUSE:
        return InvalidInput(
            f"another program listens on port {server.port} of {server.host}; choose another port with --port, or "
            "--port 0 for any free one"
        )
    if error.errno == errno.EACCES:
        return InvalidInput(f"port {server.port} is for the system only; choose one above 1023 with --port")
    return InvalidInput(f"{server.host!r} is not an address of this machine: {error.strerror or error}")
