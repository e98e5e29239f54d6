"""RunRequest: asks the thread that drives a run to pause or stop at the next boundary."""

from __future__ import annotations


class RunRequest:
    """A request to pause or stop. Any thread may make it at any time, even before the run begins; it costs nothing."""

    def __init__(self) -> None:
        self.wanted: str | None = None
        """`pause` or `stop`."""
        self.by: str | None = None
        """Who wants it, if a person does."""

    def pause(self) -> None:
        """Ask for a pause, unless somebody has already asked for a stop."""
        self.wanted = self.wanted or "pause"


def write_request(wanted: str, by: str | None) -> str:
    """Return a request as it is stored for the process that runs the execution."""
    return wanted if by is None else f"{wanted} by {by}"


def read_request(request: str) -> tuple[str, str | None]:
    """Return what a stored request wants, and who wants it."""
    wanted, _, by = request.partition(" by ")
    return wanted, by or None
