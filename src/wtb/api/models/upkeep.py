"""Pruning, and checks of the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from wtb.api.models.base import AnswerModel, RequestModel, example
from wtb.application.server.bounded_pruning import PruneReport
from wtb.application.upkeep.light_check import LightReport
from wtb.domain.integrity import Fault
from wtb.domain.ports.upkeep import Swept


class PruneRequest(RequestModel):
    """What to prune."""

    dry_run: bool = Field(default=True, description="Only count what would be deleted.")
    workflow: str | None = Field(default=None, max_length=1_000, description="Only runs of this workflow.")
    run: str | None = Field(default=None, max_length=200, description="Only this run.")
    seconds: float = Field(default=20, ge=1, le=30, description="How long it may take; then another request goes on.")

    model_config = example(dry_run=True, workflow="nightly")


class UnusedDataAnswer(AnswerModel):
    """Data that no checkpoint refers to."""

    blobs: int
    file_commits: int
    objects: int
    size_bytes: int

    @classmethod
    def of(cls, swept: Swept) -> UnusedDataAnswer:
        """Return the amount of unused data."""
        return cls(blobs=swept.blobs, file_commits=swept.commits, objects=swept.objects, size_bytes=swept.size_bytes)


class PruneAnswer(AnswerModel):
    """What was deleted, or would be."""

    dry_run: bool
    is_complete: bool = Field(description="False if the time was over; the same request goes on then.")
    runs: int = Field(description="How many runs lose checkpoints.")
    checkpoints: dict[str, int] = Field(
        description="How many checkpoints, by reason.", examples=[{"beyond the last ones": 12}]
    )
    size_bytes: int
    workspaces: int = Field(description="How many folders of ended runs.")
    workspaces_size_bytes: int
    unused_data: UnusedDataAnswer | None = Field(
        description="Data that nothing refers to; null if no time was left, or damaged data may refer to it."
    )
    kept: list[str] = Field(description="Runs that were skipped and folders that stay, each with the reason.")

    @classmethod
    def of(cls, report: PruneReport, *, dry_run: bool) -> PruneAnswer:
        """Return a report as callers see it."""
        return cls(
            dry_run=dry_run,
            is_complete=report.is_complete,
            runs=report.runs,
            checkpoints=dict(sorted(report.reasons.items())),
            size_bytes=report.size_bytes,
            workspaces=report.folders,
            workspaces_size_bytes=report.folders_size_bytes,
            unused_data=None if report.swept is None else UnusedDataAnswer.of(report.swept),
            kept=report.kept,
        )


class LightCheckRequest(RequestModel):
    """How long to check."""

    seconds: float = Field(default=5, ge=1, le=30, description="How long it may take.")

    model_config = example(seconds=10)


class FaultAnswer(AnswerModel):
    """Something damaged, missing or left behind."""

    kind: str = Field(examples=["event"])
    what: str
    problem: str
    runs: list[str] = Field(description="The runs that it affects.")

    @classmethod
    def of(cls, fault: Fault) -> FaultAnswer:
        """Return a fault."""
        return cls(kind=fault.kind.value, what=fault.what, problem=fault.problem, runs=list(fault.runs))

    @classmethod
    def stored(cls, data: Mapping[str, Any]) -> FaultAnswer:
        """Return a fault that the background job has noted."""
        return cls(kind=data["kind"], what=data["what"], problem=data["problem"], runs=list(data["runs"]))


class LightCheckAnswer(AnswerModel):
    """What a light check found. `wtb doctor` checks everything, and repairs."""

    is_complete: bool = Field(description="Whether it reached the end of the store.")
    events: int = Field(description="How many events were verified.")
    runs: int = Field(description="How many runs were verified, with the newest state of each branch.")
    faults: list[FaultAnswer]

    @classmethod
    def of(cls, report: LightReport) -> LightCheckAnswer:
        """Return a report as callers see it."""
        faults = [FaultAnswer.of(fault) for fault in report.faults]
        return cls(is_complete=report.is_complete, events=report.events, runs=report.runs, faults=faults)


class DoctorAnswer(AnswerModel):
    """What the light checks in the background have found."""

    rounds: int = Field(description="How often they have reached the end of the store.")
    last_checked_at: datetime | None
    faults: list[FaultAnswer] = Field(description="The faults of this round so far.")
