"""Ctrl-C while something is driven: each time asks more, and the last time ends the process."""

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
"""What is said, and what is asked for."""


def requests_to(run: Run) -> list[Request]:
    """Return what Ctrl-C asks of a run: once pauses it, twice stops it."""
    return [
        ("Pausing at the end of this step; Ctrl-C again stops the run for good.", run.pause),
        ("Stopping at the end of this step; Ctrl-C once more ends this process, and the run can be resumed.", run.stop),
    ]


class Interrupts:
    """Passes signals on, the first as the first request, the second as the second.

    The handler only puts into a queue, which is safe wherever the main thread was interrupted; a thread does the rest.
    One signal more ends the process at once, as a crash does: a node that never returns cannot be ended otherwise.
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
        """Handle Ctrl-C inside the block."""
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
            if self._ask(request):  # said before, it would not be true of a step that ends in between
                self._say(said)

    def _ask(self, request: Callable[[], None]) -> bool:
        """Ask as often as it takes: a run that is being claimed is not running yet. False when all was over before."""
        while not self._over.is_set():
            with suppress(InvalidTransition):
                request()
                return True
            self._over.wait(0.05)
        return False
