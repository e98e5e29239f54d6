"""Channel: messages between a worker process and the process that started it, as lines of JSON over a socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

_LOOK_S = 1.0
"""How often one side checks that the other is alive: a forked child may keep a socket open after its parent ended."""


class Channel:
    """One end of the connection. Any thread may send; only one may receive."""

    def __init__(self, end: socket.socket, is_peer_alive: Callable[[], bool]) -> None:
        self._end = end
        self._end.settimeout(_LOOK_S)
        self._is_peer_alive = is_peer_alive
        self._received = bytearray()
        self._sending = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a message; return False if the other side is gone."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        with self._sending:
            while data:
                try:
                    data = data[self._end.send(data) :]
                except TimeoutError:
                    if not self._is_peer_alive():
                        return False
                except OSError:
                    return False
        return True

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next message; return None when the other side is gone."""
        while b"\n" not in self._received:
            try:
                data = self._end.recv(65_536)
            except TimeoutError:
                if self._is_peer_alive():
                    continue
                return None
            except OSError:
                return None
            if not data:
                return None
            self._received += data
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Close this end; the other side then sees that it is gone."""
        self._end.close()
