"""How many jobs of a batch ran side by side, and whether processes would have been quicker than threads."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.domain.batch import Batch, Job
from wtb.domain.job_attempt import WorkerName

_BUSY = 0.7
"""If threads keep at least this share of a core busy, they mostly compute."""

_MOSTLY = 0.5
"""If the nodes took less than this share of the time, WTB's own work kept the core busy."""

_BRIEF_S = 1.0
"""Below a second, what nodes import takes most of the time, and nobody waits."""

_SHORT_S = 5.0
"""Starting processes takes a second or two: a shorter batch gains nothing."""

_WORTH_IT = 1.2
"""Another runner is only suggested if it would be at least this many times as quick."""


def workers_here(batch: Batch, jobs: Sequence[Job]) -> int:
    """Return how many jobs ran at a time on this machine; on Ray, `workers` is only the most that there may be."""
    if batch.record.runner != "ray":
        return batch.record.workers
    names = {attempt.worker for job in jobs for attempt in job.record.attempts}
    machines = {WorkerName(name).machine for name in names}
    return min(batch.record.workers, len(names)) if len(machines) == 1 else 0


def quicker_in_processes(batch: Batch, jobs: Sequence[Job], spent_s: float) -> float | None:
    """Return how many times as quick a batch would be in processes at most; None if that would not help."""
    record = batch.record
    used, usable = record.cores_used, min(record.workers, record.cores)
    if used is None or used < _BUSY or usable < 2 or spent_s < _BRIEF_S or not _is_time_of_nodes(jobs, spent_s):
        return None
    quicker = usable / max(used, 1.0)
    return quicker if quicker >= _WORTH_IT else None


def _is_time_of_nodes(jobs: Sequence[Job], spent_s: float) -> bool:
    """Whether nodes took most of the time, not WTB itself."""
    return sum(job.record.latency_s or 0.0 for job in jobs) >= spent_s * _MOSTLY


def is_short(spent_s: float) -> bool:
    """Whether a batch took only a few seconds, so that it would gain nothing from processes."""
    return spent_s < _SHORT_S
