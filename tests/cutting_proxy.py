"""CuttingProxy: stands between a client and Postgres, and cuts connections where a test says so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
COMMIT = b"COMMIT"


class CuttingProxy:
    """Passes everything on, until a test cuts connections or refuses new ones.

    `cut_before` and `cut_after` look at what the client sends. A chunk in which the bytes occur is not passed on, or
    its answer is not, and the connection ends. Each call works once.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._before: list[bytes] = []
        self._after: list[bytes] = []
        self._refuses = self._refuses_then = False
        self.cuts = 0
        """How many connections were cut because of what was sent on them."""
        self.accepted = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def url(self, url: str) -> str:
        """Return the address of a database that leads through this proxy."""
        return url.replace(f":{self._server_port}/", f":{self.port}/")

    def cut_before(self, sent: bytes) -> None:
        """Cut the next connection on which these bytes are sent, before the server gets them."""
        self._before.append(sent)

    def cut_after(self, sent: bytes, *, refuse: bool = False) -> None:
        """Let the server do what the next such bytes ask for, and cut the connection before its answer.

        With `refuse`, nobody is let in after that until `allow`.
        """
        self._after.append(sent)
        self._refuses_then = refuse

    def cut_all(self) -> None:
        """Cut every open connection."""
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Cut every connection, and let nobody in until `allow`."""
        self._refuses = True
        self.cut_all()

    def allow(self) -> None:
        """Let clients in again."""
        self._refuses = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._refuses:
                client.close()
                continue
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HOST, self._server_port))
        except OSError:
            client.close()
            return
        with client, server:
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=_passed, args=(server, client), daemon=True)
            back.start()
            _passed(client, server, self._may_pass)
            with self._lock:
                self._open -= {client, server}
            for end in (client, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            back.join()

    def _may_pass(self, client: socket.socket, server: socket.socket, data: bytes) -> bool:
        if self._takes(self._before, data):
            return False
        if self._takes(self._after, data):
            self._refuses = self._refuses or self._refuses_then
            client.shutdown(socket.SHUT_RDWR)  # its answer has nowhere to go
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)  # the server reads what it got, and then the end
            with contextlib.suppress(OSError):
                while server.recv(65536):
                    pass
            return False
        return True

    def _takes(self, wanted: list[bytes], data: bytes) -> bool:
        with self._lock:
            for sent in wanted:
                if sent in data:
                    wanted.remove(sent)
                    self.cuts += 1
                    return True
        return False


def _passed(
    source: socket.socket,
    target: socket.socket,
    may_pass: Callable[[socket.socket, socket.socket, bytes], bool] = lambda source, target, data: True,
) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if not may_pass(source, target, data):
                break
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
