"""Ctrl-C while a run is driven: once pauses it, twice stops it, a third time ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from wtb.bench import Run
from wtb.domain.errors import InvalidTransition

_SAID = {
    1: "Pausing at the end of this step; Ctrl-C again stops the run for good.",
    2: "Stopping at the end of this step; Ctrl-C once more ends this process, and the run can be resumed.",
}


class Interrupts:
    """Passes signals on to a run.

    The handler only puts into a queue, which is safe wherever the main thread was interrupted; a thread does the rest.
    The third signal ends the process at once, as a crash does: a node that never returns cannot be ended otherwise.
    """

    def __init__(self, run: Run, say: Callable[[str], None], give_back: Callable[[], None]) -> None:
        self._run = run
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
        if self._count > len(_SAID):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._queue.put(self._count)

    def _pass_on(self) -> None:
        while count := self._queue.get():
            if count > len(_SAID):
                self._give_back()
                os.kill(os.getpid(), signal.SIGINT)
            self._say(_SAID[count])
            self._ask(self._run.pause if count == 1 else self._run.stop)

    def _ask(self, request: Callable[[], None]) -> None:
        """Ask as often as it takes: a run that is being claimed is not running yet."""
        while not self._over.is_set():
            with suppress(InvalidTransition):
                request()
                return
            self._over.wait(0.05)
