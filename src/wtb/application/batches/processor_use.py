"""ProcessorUse: how many cores this process keeps busy, or would keep busy if other programs left them to it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

_EVERY_S = 0.05
_LATE_S = 0.000_5
"""A thread that sleeps wakes up within a tenth of a millisecond, but waits for Python's lock for up to five."""
_MOSTLY = 0.5


class ProcessorUse:
    """Measures while it is entered.

    If other programs take the processor, a process that computes gets so little of it that it seems to wait. So a
    thread looks 20 times a second whether it gets Python's lock at once. While nodes compute it does not, however
    little of the processor they get.
    """

    def __init__(self) -> None:
        self._processor_s = self._wall_s = 0.0
        self._looks = self._late = 0
        self._inside = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="wtb-processor-use", daemon=True)

    def __enter__(self) -> Self:
        self._inside.acquire()
        self._processor_s, self._wall_s = time.process_time(), time.perf_counter()
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._processor_s = time.process_time() - self._processor_s
        self._wall_s = time.perf_counter() - self._wall_s
        self._inside.release()
        self._watcher.join()

    def cores(self) -> float:
        """Return how many cores were busy on average; at least one if Python's lock was taken most of the time."""
        used = self._processor_s / self._wall_s if self._wall_s > 0 else 0.0
        return max(used, 1.0) if self._late > self._looks * _MOSTLY else used

    def _watch(self) -> None:
        queued_s, began_s = _queued_s(), time.perf_counter()
        while not self._inside.acquire(timeout=_EVERY_S):
            late_s = time.perf_counter() - began_s - _EVERY_S - (_queued_s() - queued_s)
            self._looks += 1
            self._late += late_s > _LATE_S
            queued_s, began_s = _queued_s(), time.perf_counter()


def _queued_s() -> float:
    """Return how long this thread could have run while others had the processor; 0 if the system does not count it."""
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat") as found:  # noqa: PTH123
        return int(found.read().split()[1]) / 1e9
    return 0.0
