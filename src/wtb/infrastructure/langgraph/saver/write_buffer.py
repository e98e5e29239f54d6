"""WriteBuffer: stores the writes of a task in the same transaction as the checkpoint that follows.

A caller returns only when its writes are stored. If a checkpoint is likely to follow, the writes wait for it a few
milliseconds; then they are stored alone. They do not wait after a superstep of several tasks, nor after others waited
in vain, and a second task ends the wait. LangGraph itself waits for writes only at the end of a run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wtb.infrastructure.langgraph.pending_writes import PendingWrite

LINGER_S = 0.005
"""How long writes wait for a checkpoint."""
_REST = 50
"""After a task waited in vain, this many tasks of its namespace do not wait."""
_MOST = 1024


class Place(NamedTuple):
    """A LangGraph checkpoint."""

    thread_id: str
    namespace: str
    checkpoint_id: str


class TaskWrites:
    """The writes of a task, which waits until they are stored.

    It waits on a bare lock, which costs a tenth of an Event.
    """

    __slots__ = ("_unsettled", "failed", "writes")

    def __init__(self, writes: Sequence[PendingWrite]) -> None:
        self.writes = writes
        self.failed = False
        """Whether the transaction that took them failed, so that the task stores them itself."""
        self._unsettled = threading.Lock()
        self._unsettled.acquire()

    def wait(self, timeout_s: float = -1) -> None:
        """Wait until the writes are stored, or storing them has failed."""
        if self._unsettled.acquire(timeout=timeout_s):
            self._unsettled.release()

    def settle(self, *, failed: bool = False) -> None:
        """Let the task return."""
        self.failed = failed
        self._unsettled.release()


def settle(taken: Sequence[TaskWrites], *, failed: bool = False) -> None:
    """Let all of these tasks return."""
    for each in taken:
        each.settle(failed=failed)


@dataclass(slots=True)
class _Steps:
    """The recent supersteps of a namespace: they tell whether a checkpoint is likely to follow at once."""

    checkpoint_id: str = ""
    """The checkpoint after which tasks wrote last."""
    tasks: int = 0
    """The number of tasks that wrote after it."""
    followed_id: str = ""
    """The last checkpoint that was followed by another."""
    in_parallel: bool = False
    """Whether the superstep before had several tasks."""
    rest: int = 0
    """The number of tasks that shall not wait, after one waited in vain."""


class WriteBuffer:
    """Writes that are not stored yet, by the checkpoint that they follow."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._lock = threading.Lock()
        self._waiting: dict[Place, list[TaskWrites]] = {}
        self._steps: dict[tuple[str, str], _Steps] = {}

    def store(
        self,
        place: Place,
        writes: Sequence[PendingWrite],
        store: Callable[[Sequence[PendingWrite]], None],
        *,
        wait: bool,
    ) -> None:
        """Store the writes of a task, with the next checkpoint or alone; `store` takes those of several tasks."""
        mine = TaskWrites(writes)
        with self._lock:
            steps = self._steps_of(place)
            waiting = self._waiting.setdefault(place, [])
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
            others = [each for each in taken if each is not mine]
            try:
                store([write for each in taken for write in each.writes])
            except BaseException:
                settle(others, failed=True)
                raise
            settle(others)

    def _steps_of(self, place: Place) -> _Steps:
        if len(self._steps) > _MOST:
            self._steps.clear()
        return self._steps.setdefault((place.thread_id, place.namespace), _Steps())

    def _is_likely(self, steps: _Steps, place: Place) -> bool:
        """Count a task, and say whether a checkpoint is likely to follow at once: not if tasks run in parallel.

        A waiting task blocks a thread of the graph's pool. If the pool is full, no checkpoint can come meanwhile.
        """
        steps.tasks = steps.tasks + 1 if steps.checkpoint_id == place.checkpoint_id else 1
        steps.checkpoint_id = place.checkpoint_id
        is_alone = steps.tasks == 1 and not steps.in_parallel
        has_come = steps.followed_id == place.checkpoint_id  # writes may come late
        steps.rest = max(steps.rest - 1, 0)
        return self._linger_s > 0 and is_alone and not has_come and not steps.rest

    def _take(self, place: Place, mine: TaskWrites) -> list[TaskWrites]:
        with self._lock:
            return self._waiting.pop(place) if mine in self._waiting.get(place, ()) else []

    def take(self, place: Place | None) -> list[TaskWrites]:
        """Take the writes that wait for the checkpoint after this one; the caller settles them."""
        if place is None:
            return []
        with self._lock:
            steps = self._steps_of(place)
            steps.followed_id = place.checkpoint_id
            steps.in_parallel = steps.checkpoint_id == place.checkpoint_id and steps.tasks > 1
            return self._waiting.pop(place, [])
