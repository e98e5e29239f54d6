"""CommandProcess: a process of this machine that carries out one command of a server, and ends with the server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from wtb.application.server.dispatch import answer_of
from wtb.domain.commands import Command
from wtb.domain.errors import WorkerFailed
from wtb.infrastructure.runners.channel import Channel
from wtb.infrastructure.runners.worker_process import how_it_ended, kill_session, started

_LAST_WORDS_S = 10.0
"""How long a worker may take to end once it has nothing to do."""


class CommandProcess:
    """A worker, seen from the server. The settings go over a socket: they may hold a password."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process, here = started("wtb.server_worker")
        self._channel = Channel(here, self._is_alive)
        self._channel.send({"settings": dict(settings), "path": sys.path})
        said = self._channel.receive()
        if said is None:
            raise WorkerFailed(f"a worker process {self._ending()} before it was ready; its output says why")
        self.name: str = said["ready"]

    def _is_alive(self) -> bool:
        return self._process.poll() is None

    def carry_out(
        self, command: Command, reference: str | None, heard: Callable[[Mapping[str, Any]], object]
    ) -> str | None:
        self._channel.send({"command": command.to_data(), "reference": reference})
        while True:
            with suppress(ValueError):  # the user's code may write into the connection; the store says what happened
                said: Any = self._channel.receive()
                if said is None:
                    return self._ending()
                if said == {"done": command.id}:
                    return None
                if isinstance(said, dict) and isinstance(said.get("said"), dict):
                    heard(said["said"])

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        self._channel.send({"ask": dict(question)})
        try:
            said = self._channel.receive()
        except ValueError:
            said = {}
        return answer_of(said, "" if said is not None else self._ending())

    def stop(self) -> None:
        self._channel.send({"stop": True})

    def kill(self) -> None:
        kill_session(self._process)
        self._process.wait()
        self._channel.close()

    def _ending(self) -> str:
        """Wait until the process has ended; return how it ended."""
        try:
            self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "did not end and was killed"
        kill_session(self._process)
        return how_it_ended(self._process.returncode)
