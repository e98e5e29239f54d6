"""RunStreams: what a run says while it runs, from its worker to the clients that follow it. Nothing of it is stored.

Each run has a short memory, so that a client that was cut off goes on where it was. A client that is slower than the
run for long finds its place gone, and is told so; the run never waits for a client.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple
from uuid import uuid4

MOST_BYTES = 8 << 20
"""How much of one run is remembered."""

_DIGITS = 18

_KEEP_S = 60.0
"""How long the memory of a run that nobody follows stays after its last message."""


class StreamedMessage(NamedTuple):
    """One message of a run: its number within the run, the name of the event, and its data as JSON."""

    number: int
    event: str
    data: str


@dataclass(slots=True)
class _Memory:
    messages: deque[StreamedMessage] = field(default_factory=deque)
    size: int = 0
    last: int = 0
    touched_at: float = 0.0
    followers: list[StreamFollower] = field(default_factory=list)


class StreamFollower:
    """One client's place in the messages of a run."""

    def __init__(self, streams: RunStreams, run_id: str, after: int, wake: Callable[[], object]) -> None:
        self._streams = streams
        self._run_id = run_id
        self._after = after
        self.wake = wake

    def take(self) -> list[StreamedMessage] | None:
        """Return the messages since the last call; None if some of them are no longer remembered."""
        found = self._streams.since(self._run_id, self._after)
        if found:
            self._after = found[-1].number
        return found

    def close(self) -> None:
        """Stop following."""
        self._streams.leave(self._run_id, self)


class RunStreams:
    """The messages of the runs that this server carries out. Any thread may use it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._boot = uuid4().hex[:8]
        """Tells the messages of this process from those before a restart, which nobody remembers."""
        self._memories: dict[str, _Memory] = {}
        self._lock = threading.Lock()

    def name_of(self, message: StreamedMessage) -> str:
        """Return what a client names to go on after a message."""
        return f"{self._boot}-{message.number}"

    def publish(self, run_id: str, message: Mapping[str, Any]) -> None:
        """Take a message of a worker; one that has another form is ignored."""
        event, data = message.get("event"), message.get("data")
        if not isinstance(event, str) or not isinstance(data, str):
            return
        with self._lock:
            memory = self._memory(run_id)
            memory.last += 1
            memory.messages.append(StreamedMessage(memory.last, event, data))
            memory.size += len(data)
            while memory.size > MOST_BYTES and len(memory.messages) > 1:
                memory.size -= len(memory.messages.popleft().data)
            followers = list(memory.followers)
        for follower in followers:
            follower.wake()

    def follow(self, run_id: str, wake: Callable[[], object], *, after: str | None = None) -> StreamFollower:
        """Follow a run from a named message on; without one, from now on. `wake` is called when there is more.

        A name of another process means everything that is remembered, as an empty one does.
        """
        boot, _, number = (after or "").rpartition("-")
        begin = int(number) if boot == self._boot and number.isdecimal() and len(number) < _DIGITS else 0
        with self._lock:
            memory = self._memory(run_id)
            follower = StreamFollower(self, run_id, memory.last if after is None else begin, wake)
            memory.followers.append(follower)
        return follower

    def since(self, run_id: str, after: int) -> list[StreamedMessage] | None:
        """Return the messages after one; None if some of them are no longer remembered."""
        with self._lock:
            messages = self._memory(run_id).messages
            passed = after + 1 - messages[0].number if messages else 0
            return None if passed < 0 < after else list(islice(messages, max(passed, 0), None))

    def leave(self, run_id: str, follower: StreamFollower) -> None:
        """Forget a follower."""
        with self._lock:
            memory = self._memories.get(run_id)
            if memory is not None and follower in memory.followers:
                memory.followers.remove(follower)

    def _memory(self, run_id: str) -> _Memory:
        now = self._monotonic()
        known = self._memories.get(run_id)
        if known is None:
            old = [id for id, each in self._memories.items() if not each.followers and now - each.touched_at > _KEEP_S]
            for id in old:
                del self._memories[id]
            known = self._memories[run_id] = _Memory()
        known.touched_at = now
        return known
