"""WaitingWrites: lets what a task wrote go into the transaction of the checkpoint that follows at once.

Whoever hands in writes returns when they are stored, and not before. They wait a few milliseconds for the checkpoint
where one is likely to come: not after a superstep of several tasks, nor where others waited in vain. A second task, or
the end of that time, and they are stored by themselves. LangGraph itself waits for writes at the end of a run only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wtb.infrastructure.langgraph.pending_writes import PendingWrite

LINGER_S = 0.005
"""How much later than at once writes are stored when no checkpoint follows."""
_REST = 50
"""How many tasks do not wait after one waited in vain, in its namespace of a thread."""
_MOST = 1024


class Place(NamedTuple):
    """A LangGraph checkpoint."""

    thread_id: str
    namespace: str
    checkpoint_id: str


class Handed:
    """Writes that somebody waits for. A bare lock is what an Event is made of, at a tenth of its cost."""

    __slots__ = ("_unsettled", "failed", "writes")

    def __init__(self, writes: Sequence[PendingWrite]) -> None:
        self.writes = writes
        self.failed = False
        """Whether who took them could not store them, so that their owner has to."""
        self._unsettled = threading.Lock()
        self._unsettled.acquire()

    def wait(self, timeout_s: float = -1) -> None:
        """Wait until somebody has stored them, or has failed to."""
        if self._unsettled.acquire(timeout=timeout_s):
            self._unsettled.release()

    def settle(self, *, failed: bool = False) -> None:
        """Let their owner go on."""
        self.failed = failed
        self._unsettled.release()


def settle(taken: Sequence[Handed], *, failed: bool = False) -> None:
    """Let the owners of all of these go on."""
    for handed in taken:
        handed.settle(failed=failed)


@dataclass(slots=True)
class _Steps:
    """What is known of the supersteps of a namespace, to tell whether a checkpoint is likely to follow at once."""

    checkpoint_id: str = ""
    """After which tasks have written last."""
    tasks: int = 0
    """How many tasks have written after it."""
    followed_id: str = ""
    """The checkpoint that was followed by another last."""
    in_parallel: bool = False
    """Whether the superstep before had several tasks."""
    rest: int = 0
    """How many tasks are not to wait, after one did in vain."""


class WaitingWrites:
    """Writes on their way, by the checkpoint that they follow."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._lock = threading.Lock()
        self._handed: dict[Place, list[Handed]] = {}
        self._steps: dict[tuple[str, str], _Steps] = {}

    def store(
        self,
        place: Place,
        writes: Sequence[PendingWrite],
        store: Callable[[Sequence[PendingWrite]], None],
        *,
        wait: bool,
    ) -> None:
        """Store writes, by oneself or through the checkpoint that follows; `store` takes those of several tasks."""
        mine = Handed(writes)
        with self._lock:
            steps = self._steps_of(place)
            waiting = self._handed.setdefault(place, [])
            waiting.append(mine)
            wait = self._is_likely(steps, place) and wait and len(waiting) == 1
        if wait:
            mine.wait(self._linger_s)
        taken = self._take(place, mine)
        if wait and taken:
            steps.rest = _REST
        if not taken:
            mine.wait()
            taken = [mine] if mine.failed else []
        if taken:
            others = [handed for handed in taken if handed is not mine]
            try:
                store([write for handed in taken for write in handed.writes])
            except BaseException:
                settle(others, failed=True)
                raise
            settle(others)

    def _steps_of(self, place: Place) -> _Steps:
        if len(self._steps) > _MOST:
            self._steps.clear()
        return self._steps.setdefault((place.thread_id, place.namespace), _Steps())

    def _is_likely(self, steps: _Steps, place: Place) -> bool:
        """Count a task, and say whether a checkpoint is likely to follow it at once: not where tasks run in parallel.

        Who waits keeps a thread of the graph's: where these are few, or all taken, no checkpoint can come meanwhile.
        """
        steps.tasks = steps.tasks + 1 if steps.checkpoint_id == place.checkpoint_id else 1
        steps.checkpoint_id = place.checkpoint_id
        is_alone = steps.tasks == 1 and not steps.in_parallel
        has_come = steps.followed_id == place.checkpoint_id  # writes may come late
        steps.rest = max(steps.rest - 1, 0)
        return self._linger_s > 0 and is_alone and not has_come and not steps.rest

    def _take(self, place: Place, mine: Handed) -> list[Handed]:
        with self._lock:
            return self._handed.pop(place) if mine in self._handed.get(place, ()) else []

    def take(self, place: Place | None) -> list[Handed]:
        """Take what waits for the checkpoint after this one; whoever does settles it."""
        if place is None:
            return []
        with self._lock:
            steps = self._steps_of(place)
            steps.followed_id = place.checkpoint_id
            steps.in_parallel = steps.checkpoint_id == place.checkpoint_id and steps.tasks > 1
            return self._handed.pop(place, [])
