"""RunRequest: asks the thread that drives a run to pause or stop at the next boundary."""

from __future__ import annotations


class RunRequest:
    """A wish that may be made on any thread at any time, even before the run begins; making it costs nothing."""

    def __init__(self) -> None:
        self.wanted: str | None = None
        """`pause` or `stop`."""

    def pause(self) -> None:
        """Ask for a pause, unless somebody has asked for more."""
        self.wanted = self.wanted or "pause"
