"""Environment: a place outside this process where the functions of nodes run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class MessageLink(Protocol):
    """A connection over which both sides send messages of plain JSON. Any thread may send; only one receives."""

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a message; return False if the other side is gone."""
        ...

    def receive(self) -> Mapping[str, Any] | None:
        """Wait for the next message; return None when the other side is gone."""
        ...


class Environment(Protocol):
    """A place that runs one node at a time, and many after each other.

    It belongs to the process that made it: when that process ends, in whatever way, the environment ends, too, with
    everything that nodes have started in it.
    """

    name: str
    """What a person calls it, such as `subprocess 4711 on host`."""

    def start(self) -> MessageLink:
        """Return a link to a process that is ready for a node; start one if none lives.

        Raise EnvironmentFailed if that is impossible.
        """
        ...

    def is_alive(self) -> bool:
        """Whether it can run another node, as far as is known here. It is asked before an idle one is used again."""
        ...

    def clean(self) -> None:
        """End everything that the last node left running. The environment itself goes on.

        Raise EnvironmentAway if others wait for its room: then it is closed.
        """
        ...

    def kill(self) -> str:
        """End what runs, with everything that it started, and say how it ended: `was ended by signal SIGKILL`.

        Any thread may call it. The link then ends, and `start` gives a new one.
        """
        ...

    def close(self) -> None:
        """End the environment."""
        ...
