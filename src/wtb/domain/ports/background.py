"""Background jobs: who does them, and when they were last done."""

from __future__ import annotations

from typing import Protocol

from wtb.domain.background import BackgroundJob


class BackgroundJobRepository(Protocol):
    """One record for each job, by name."""

    def lock(self, name: str) -> BackgroundJob | None:
        """Return the record of a job, and let no other transaction lock it until this one ends."""
        ...

    def save(self, job: BackgroundJob) -> None:
        """Store a record; it replaces the one with the same name. Lock it first."""
        ...

    def list_jobs(self) -> tuple[BackgroundJob, ...]:
        """Return all records, sorted by name."""
        ...
