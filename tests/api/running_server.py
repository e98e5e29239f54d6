"""RunningServer: the app on a real port of this machine, for clients that follow events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from websockets.sync.client import ClientConnection, connect

WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server, and how its clients reach it."""

    port: int
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=self.headers, timeout=WAIT_S)

    def socket(self, query: str = "", **options: Any) -> ClientConnection:
        address = f"ws://127.0.0.1:{self.port}/api/v1/events?{query}"
        # Without max_queue=None a client that closes while messages wait hangs until close_timeout.
        options = {"max_queue": None, "close_timeout": 1, **options}
        connection: ClientConnection = connect(address, additional_headers=self.headers, **options)
        return connection


@contextmanager
def running(app: FastAPI, port: int, token: str) -> Iterator[RunningServer]:
    """Run an app on a port until the end of the block."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + WAIT_S
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < end
        time.sleep(0.01)
    try:
        yield RunningServer(port=port, token=token)
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the server does not stop"
