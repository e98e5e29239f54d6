"""BoundedPruning: `wtb prune` within a time that a request can wait."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from wtb.application.upkeep.retention import Retention
from wtb.application.upkeep.workspace_collection import WorkspaceCollection
from wtb.domain.errors import DamagedData, UnknownFormat
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Swept

_MOST_SKIPPED = 100
"""How many skipped runs and kept folders are named."""


@dataclass(slots=True, kw_only=True)
class PruneReport:
    """What was deleted, or would be."""

    runs: int = 0
    """How many runs lose checkpoints."""
    reasons: Counter[str] = field(default_factory=Counter)
    """How many checkpoints, by reason."""
    size_bytes: int = 0
    folders: int = 0
    folders_size_bytes: int = 0
    kept: list[str] = field(default_factory=list)
    """Folders that stay, and runs that were skipped, each with the reason."""
    swept: Swept | None = None
    """Unused data; None if there was no time left, or damaged data may still refer to it."""
    is_complete: bool = False
    """Whether everything was looked at; otherwise the same request goes on."""


class BoundedPruning:
    """Plans and prunes until the time is over. What it has deleted stays deleted; another call goes on."""

    def __init__(self, retention: Retention, collection: WorkspaceCollection) -> None:
        self._retention = retention
        self._collection = collection

    def prune(
        self, *, dry_run: bool, workflow: str | None, run: ExecutionId | None, by: str | None, seconds: float
    ) -> PruneReport:
        """Delete what the rules say, or only count it with `dry_run`."""
        report, until = PruneReport(), time.monotonic() + seconds
        checkpoints = (
            self._retention.plan(workflow=workflow, run=run)
            if dry_run
            else self._retention.prune(workflow=workflow, run=run, by=by)
        )
        for found in checkpoints:
            report.runs += bool(found.counts)
            report.reasons.update({reason.value: count for reason, count in found.counts.items()})
            report.size_bytes += found.size_bytes
            if found.problem:
                report.kept.append(f"run {found.execution_id}: {found.problem}")
            if time.monotonic() >= until:
                return report
        look = self._collection.plan if dry_run else self._collection.collect
        for folder in look(workflow=workflow, run=run):
            if folder.kept is None:
                report.folders += 1
                report.folders_size_bytes += folder.size_bytes
            else:
                report.kept.append(f"{folder.folder}: {folder.kept}")
            if time.monotonic() >= until:
                return report
        self._sweep(report, dry_run=dry_run)
        return report

    def _sweep(self, report: PruneReport, *, dry_run: bool) -> None:
        report.kept = report.kept[:_MOST_SKIPPED]
        try:
            report.swept = self._retention.count_garbage() if dry_run else self._retention.sweep()
        except (DamagedData, UnknownFormat) as error:
            report.kept.append(str(error))
        report.is_complete = True
