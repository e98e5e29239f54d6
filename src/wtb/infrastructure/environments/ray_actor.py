"""EnvironmentActor: the end of a RayEnvironment on a machine of the cluster. It runs no code of the user's."""

from __future__ import annotations

import platform
import queue
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed, WTBError
from wtb.infrastructure.environments.scratch_folder import ScratchFolder
from wtb.infrastructure.environments.server_link import ServerLink
from wtb.infrastructure.environments.subprocess import SubprocessEnvironment
from wtb.infrastructure.runners.project_folder import go_to_project

_WAIT_S = 5.0
"""How long a call waits for messages; then it returns without any, and the other side calls again."""

_WAITING = 8
"""How many messages wait for the run's process; the files of a node must not all be in memory."""
_Inbox = queue.Queue[Mapping[str, Any] | None]


class EnvironmentActor:
    """Passes messages between the process of a run and a process for nodes on this machine."""

    def __init__(self) -> None:
        self._home = ScratchFolder()
        self._environment: SubprocessEnvironment | None = None
        self._links: dict[int, tuple[ServerLink, _Inbox]] = {}

    def ping(self) -> bool:
        """Answer as soon as the actor has a machine."""
        return True

    def create(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Start the environment; return the name of this machine, or why it cannot be started."""
        return _answered(lambda: self._created(given))

    def _created(self, given: Mapping[str, Any]) -> str:
        if given["wtb"] != (ours := version("workflow-test-bench")):
            raise EnvironmentFailed(f"the cluster has WTB {ours}, and this process {given['wtb']}; install the same")
        go_to_project(given["folder"], given["path"])
        self._environment = SubprocessEnvironment(EnvironmentConfig.from_data(given["config"]), self._home.path)
        return platform.node()

    def open(self) -> dict[str, Any]:
        """Start a process for nodes; return the number of the link to it."""
        return _answered(self._opened)

    def _opened(self) -> int:
        assert self._environment is not None
        link = ServerLink(self._environment.start(), self._home.path)
        outbox: _Inbox = queue.Queue(_WAITING)
        number = len(self._links)
        self._links[number] = link, outbox

        def collect() -> None:
            for message in link.answers():
                outbox.put(message)
            outbox.put(None)
            link.close()

        threading.Thread(target=collect, name="wtb-collect", daemon=True).start()
        return number

    def put(self, number: int, message: Mapping[str, Any]) -> bool:
        """Take a message for the process."""
        self._links[number][0].take(message)
        return True

    def take(self, number: int) -> list[Mapping[str, Any]] | None:
        """Return the messages that have come from the process; None when it has ended."""
        outbox = self._links[number][1]
        try:
            first = outbox.get(timeout=_WAIT_S)
        except queue.Empty:
            return []
        if first is None:
            return None
        found = [first]
        while not outbox.empty():
            message = outbox.get()
            if message is None:
                outbox.put(None)
                break
            found.append(message)
        return found

    def clean(self) -> dict[str, Any]:
        """End what the last node left running."""
        assert self._environment is not None
        return _answered(self._environment.clean)

    def kill(self) -> dict[str, Any]:
        """End what runs, and say how it ended."""
        assert self._environment is not None
        return _answered(self._environment.kill)

    def end(self) -> dict[str, Any]:
        """End the environment and remove its files."""
        if self._environment is not None:
            self._environment.close()
        self._home.close()
        return {"answer": None}


def _answered(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"answer": call()}
    except WTBError as error:
        return {"refused": str(error)}
