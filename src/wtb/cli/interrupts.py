"""Handles Ctrl-C during a run or a batch: each press asks for more, and the last one ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from wtb.domain.errors import InvalidTransition
from wtb.runs import Run

Request = tuple[str, Callable[[], None]]
"""A message for the user, and the function that makes the request."""


def requests_to(run: Run) -> list[Request]:
    """Return the requests that Ctrl-C makes to a run: the first pauses it, the second stops it."""
    return [
        ("Pausing at the end of this step; press Ctrl-C again to stop the run for good.", run.pause),
        (
            "Stopping at the end of this step; press Ctrl-C again to end this process, and resume the run later.",
            run.stop,
        ),
    ]


class Interrupts:
    """Turns each signal into the next request: the first signal makes the first request, and so on.

    The signal handler only puts a number into a queue, which is safe wherever it interrupts the main thread. A thread
    makes the request. After the last request, one more signal ends the process at once, like a crash: nothing else can
    end a node that never returns.
    """

    def __init__(self, requests: Sequence[Request], say: Callable[[str], None], give_back: Callable[[], None]) -> None:
        self._requests = requests
        self._say = say
        self._give_back = give_back
        self._count = 0
        self._queue: SimpleQueue[int] = SimpleQueue()
        self._over = threading.Event()

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle Ctrl-C while the block runs."""
        before = signal.signal(signal.SIGINT, self._handle)
        thread = threading.Thread(target=self._pass_on, name="wtb-interrupts", daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._over.set()
            self._queue.put(0)
            thread.join()

    def _handle(self, number: int, frame: object) -> None:
        self._count += 1
        if self._count > len(self._requests):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._queue.put(self._count)

    def _pass_on(self) -> None:
        while count := self._queue.get():
            if count > len(self._requests):
                self._give_back()
                os.kill(os.getpid(), signal.SIGINT)
            said, request = self._requests[count - 1]
            if self._ask(request):  # announced too early, it would be wrong if the step ended in between
                self._say(said)

    def _ask(self, request: Callable[[], None]) -> bool:
        """Repeat the request until it succeeds: a claimed run may not be running yet. False if the work has ended."""
        while not self._over.is_set():
            with suppress(InvalidTransition):
                request()
                return True
            self._over.wait(0.05)
        return False
