"""A receiver of webhooks on loopback that behaves as a test says: it accepts, refuses, hangs or says a lot."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Received(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        """The body as JSON."""
        data: dict[str, Any] = json.loads(self.body)
        return data


Answer = Callable[["Handler", Received], None]


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the receiver."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        got = Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        with self.server.lock:
            self.server.received.append(got)
        self.server.answer(self, got)

    do_GET = do_POST  # noqa: N815  the name that the base class wants

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


class Server(ThreadingHTTPServer):
    """The server behind a receiver."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: Answer, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.answer = answer
        self.received: list[Received] = []
        self.lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


def accept(handler: Handler, received: Received) -> None:
    """Take everything."""
    handler.reply(200)


class WebhookReceiver:
    """Listens while it is entered. `answer` may be exchanged at any time."""

    def __init__(self, answer: Answer = accept, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server = Server(answer, port)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook?from=wtb"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def received(self) -> list[Received]:
        with self._server.lock:
            return list(self._server.received)

    @property
    def positions(self) -> list[int]:
        """The positions of the events that came, in the order in which they came."""
        return [got.data["position"] for got in self.received if "position" in got.data]

    def answer_with(self, answer: Answer) -> None:
        self._server.answer = answer

    def wait_for(self, is_enough: Callable[[list[Received]], bool], timeout_s: float = 20.0) -> list[Received]:
        """Wait until what came is enough, and return it."""
        until = time.monotonic() + timeout_s
        while not is_enough(found := self.received):
            assert time.monotonic() < until, f"after {timeout_s} seconds: {found}"
            time.sleep(0.01)
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def is_signed(received: Received, secret: str) -> bool:
    """Verify a signature in the way that Standard Webhooks describes; written without a look at ours."""
    key = base64.b64decode(secret.split("_", 1)[1])
    text = b".".join(
        [received.headers["webhook-id"].encode(), received.headers["webhook-timestamp"].encode(), received.body]
    )
    expected = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return received.headers["webhook-signature"] == f"v1,{expected}"
