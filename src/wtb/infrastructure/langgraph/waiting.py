"""WaitingWrites: lets what a task wrote go into the transaction of the checkpoint that follows at once.

Whoever hands in writes returns when they are stored, and not before. They wait a few milliseconds for the checkpoint
where one is likely: unless the superstep before had several tasks. A second task, or the end of that time, and they
are stored by themselves. LangGraph itself waits for writes at the end of a run only, so that no step is longer for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from wtb.domain.checkpoint import PendingWrite

LINGER_S = 0.005
"""How much later than at once writes are stored when no checkpoint follows."""
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


class WaitingWrites:
    """Writes on their way, by the checkpoint that they follow."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._lock = threading.Lock()
        self._handed: dict[Place, list[Handed]] = {}
        self._tasks: dict[tuple[str, str], tuple[str, int]] = {}
        """How many tasks have written after which checkpoint, in each namespace of a thread."""
        self._followed: dict[tuple[str, str], str] = {}
        """The checkpoint of each namespace that was followed by another last; empty after several tasks in parallel."""

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
            waiting = self._handed.setdefault(place, [])
            waiting.append(mine)
            wait = self._is_alone(place) and len(waiting) == 1 and wait
        if wait:
            mine.wait(self._linger_s)
        taken = self._take(place, mine)
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

    def _is_alone(self, place: Place) -> bool:
        """Count a task, and say whether it is likely to be the only one of its superstep, as those before it."""
        namespace = place.thread_id, place.namespace
        checkpoint_id, count = self._tasks.get(namespace, ("", 0))
        count = count + 1 if checkpoint_id == place.checkpoint_id else 1
        if len(self._tasks) > _MOST:
            self._tasks.clear()
        self._tasks[namespace] = place.checkpoint_id, count
        # What follows the checkpoint may be stored already, when its writes come late.
        return self._linger_s > 0 and count == 1 and self._followed.get(namespace) not in ("", place.checkpoint_id)

    def _take(self, place: Place, mine: Handed) -> list[Handed]:
        with self._lock:
            return self._handed.pop(place) if mine in self._handed.get(place, ()) else []

    def take(self, place: Place | None) -> list[Handed]:
        """Take what waits for the checkpoint after this one; whoever does settles it."""
        if place is None:
            return []
        namespace = place.thread_id, place.namespace
        with self._lock:
            checkpoint_id, count = self._tasks.get(namespace, ("", 0))
            in_parallel = checkpoint_id == place.checkpoint_id and count > 1
            if len(self._followed) > _MOST:
                self._followed.clear()
            self._followed[namespace] = "" if in_parallel else place.checkpoint_id
            return self._handed.pop(place, [])
