"""Background jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.application.server.background_jobs import JobView


class BackgroundJobAnswer(AnswerModel):
    """What servers do beside requests, and how it went last time."""

    name: str = Field(examples=["retention"])
    summary: str = Field(examples=["Delete old checkpoints and unused data, as `wtb prune` does."])
    every_s: float | None = Field(description="The seconds between two runs; null if it is turned off.")
    is_running: bool = Field(description="Whether a server does it now.")
    owner: str | None = Field(description="The process that does it now.")
    is_requested: bool = Field(description="Whether somebody has asked for a run that has not begun.")
    last_started_at: datetime | None
    last_ended_at: datetime | None
    last_duration_s: float | None = Field(description="How long the last run took, unless one is under way.")
    last_error: str | None = Field(description="Why the last run failed; null if it did not.")
    figures: dict[str, int] = Field(description="What the last run counted.", examples=[{"checkpoints": 120}])
    next_at: datetime | None = Field(description="When the next run is due.")

    @classmethod
    def of(cls, view: JobView) -> BackgroundJobAnswer:
        """Return a job as callers see it."""
        job, every = view.job, view.plan.every
        started_at = None if job is None else job.last_started_at
        ended_at = None if job is None else job.last_ended_at
        took = ended_at - started_at if ended_at and started_at and ended_at >= started_at else None
        return cls(
            name=view.plan.name,
            summary=view.plan.summary,
            every_s=None if every is None else every.total_seconds(),
            is_running=job is not None and job.owner is not None,
            owner=None if job is None else job.owner,
            is_requested=job is not None and job.requested_by is not None,
            last_started_at=started_at,
            last_ended_at=ended_at,
            last_duration_s=None if took is None else took.total_seconds(),
            last_error=None if job is None else job.last_error,
            figures={} if job is None else dict(job.figures),
            next_at=view.next_at,
        )
