"""RunningServer: a real server on a port of this machine, in a thread of the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from wtb.api.parts import ServerParts
from wtb.api.serving import address_of, listen, make_server

WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server, and how its clients reach it."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=WAIT_S)

    def socket(self, query: str = "", **options: Any) -> ClientConnection:
        address = f"{self.url.replace('http', 'ws', 1)}/api/v1/events?{query}"
        # Without max_queue=None a client that closes while messages wait hangs until close_timeout.
        options = {"max_queue": None, "close_timeout": 1, **options}
        connection: ClientConnection = connect(address, additional_headers=self.headers, **options)
        return connection


@contextmanager
def running(parts: ServerParts, token: str = "", *, port: int = 0, **settings: Any) -> Iterator[RunningServer]:
    """Serve the parts until the end of the block, with other settings of the server if there are any."""
    server = parts.server.model_copy(update={"port": port, **settings})
    with closing(listen(server)) as listening:
        server = server.model_copy(update={"port": listening.getsockname()[1]})
        services = replace(parts.services, settings=parts.settings.model_copy(update={"server": server}))
        made = make_server(replace(parts, services=services))
        thread = threading.Thread(target=made.run, kwargs={"sockets": [listening]}, name="server")
        thread.start()
        try:
            _wait_until_started(made, thread)
            yield RunningServer(url=address_of(server), token=token)
        finally:
            made.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive(), "the server does not stop"


def _wait_until_started(server: Any, thread: threading.Thread) -> None:
    until = time.monotonic() + WAIT_S
    while not server.started:
        assert thread.is_alive(), "the server ended before it began"
        assert time.monotonic() < until
        time.sleep(0.01)
