"""RemoteEnvironment: what environments on other machines share, whatever carries their messages."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from wtb.domain.errors import EnvironmentFailed
from wtb.infrastructure.environments.remote_link import OpenStream, RemoteLink
from wtb.infrastructure.environments.scratch_folder import ScratchFolder


class RemoteEnvironment(ABC):
    """A process on another machine. One link at a time leads to it."""

    name: str

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link: RemoteLink | None = None
        self._scratch = ScratchFolder()

    def start(self) -> RemoteLink:
        with self._lock:
            if self._link is not None and self._link.is_gone:
                self._ask("kill")  # the process may be alive, in the middle of a node
                self._link = None
            if self._link is None:
                self._link = RemoteLink(self._new_stream(), self._scratch.path)
            return self._link

    def clean(self) -> None:
        self._ask("clean")

    def kill(self) -> str:
        with self._lock:
            link, self._link = self._link, None
        try:
            return str(self._ask("kill"))
        finally:
            if link is not None:
                link.close()

    def close(self) -> None:
        with self._lock:
            if self._link is not None:
                self._link.close()
        with suppress(EnvironmentFailed):
            self._ask("end")
        self._release()
        self._scratch.close()

    @abstractmethod
    def is_alive(self) -> bool: ...

    @abstractmethod
    def _new_stream(self) -> OpenStream:
        """Return what opens a stream of messages to a process that is ready for a node."""

    @abstractmethod
    def _ask(self, what: str) -> Any:
        """Let the other machine `clean`, `kill` or `end`; return its answer, or raise EnvironmentFailed."""

    @abstractmethod
    def _release(self) -> None:
        """End the connection to the other machine."""
