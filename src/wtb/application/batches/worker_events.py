"""The events that tell what happened to the workers of a batch."""

from __future__ import annotations

from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import BatchWorkerEnded, BatchWorkerLost, BatchWorkerStarted
from wtb.domain.job_attempt import WorkerName
from wtb.domain.runner import JobOverLimit, WorkerEnded, WorkerLost, WorkerReady, WorkerReport


def worker_event(report: WorkerReport | JobOverLimit) -> EventBody:
    """Return the event for what a runner reports about a worker."""
    name = WorkerName(report.worker)
    process = {"worker": report.worker, "host": name.host, "pid": name.pid}
    match report:
        case WorkerReady():
            return BatchWorkerStarted(**process, ray_actor=report.ray_actor)
        case WorkerLost():
            return BatchWorkerLost(**process, reason=report.reason, ray_actor=report.ray_actor)
        case WorkerEnded():
            return BatchWorkerEnded(**process, reason="its work was done")
        case JobOverLimit():
            reason = f"its job {report.limit.happened}"
            return BatchWorkerEnded(**process, reason=reason, ray_actor=report.ray.actor if report.ray else None)
