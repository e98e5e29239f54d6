"""ProcessorUse: how many cores this process has kept busy since a moment."""

from __future__ import annotations

import time


class ProcessorUse:
    """Measures from the moment it is made."""

    def __init__(self) -> None:
        self._processor_s = time.process_time()
        self._wall_s = time.perf_counter()

    def cores(self) -> float:
        """Return how many cores were busy on average."""
        wall_s = time.perf_counter() - self._wall_s
        return (time.process_time() - self._processor_s) / wall_s if wall_s > 0 else 0.0
