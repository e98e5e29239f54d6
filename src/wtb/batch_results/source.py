"""ResultSource: what results read from: a bench, or the services of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wtb.bootstrap import Services

if TYPE_CHECKING:
    from wtb.runs import Run


class ResultSource(Protocol):
    """Gives results their services, and the runs of their jobs."""

    @property
    def services(self) -> Services:
        """The services that read and decode what is stored."""
        ...

    def get(self, run_id: str) -> Run:
        """Return a run by its id."""
        ...
