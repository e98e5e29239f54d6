"""The reports of a worker to the process that runs the batch, as plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wtb.domain import errors
from wtb.domain.batch import JobStatus
from wtb.domain.errors import WorkerFailed, WTBError
from wtb.domain.runner import (
    JobBroke,
    JobEnded,
    JobFailedForNow,
    JobReport,
    JobRunsElsewhere,
    JobWaits,
    MeasuredSpan,
    ResultSettled,
    RunnerReport,
    WorkerEnded,
    WorkMeasured,
)
from wtb.domain.secrets import text_of
from wtb.domain.spending import Spent

WorkerMessage = JobReport | ResultSettled | WorkMeasured | WorkerEnded
Data = Mapping[str, Any]


def report_data(report: WorkerMessage) -> dict[str, Any]:
    """Return a report as plain JSON."""
    kind = _KINDS[type(report)]
    return {"is": kind, **_WRITE[kind](report)}


def report_from(data: Data) -> RunnerReport:
    """Read a report."""
    read = _READ.get(data["is"])
    if read is None:
        raise WorkerFailed(f"a worker reports {data['is']!r}, which is unknown here; give it the same version of WTB")
    return read(data)


def error_data(error: BaseException) -> dict[str, str]:
    """Return an error of a worker as plain JSON."""
    return {"type": type(error).__qualname__, "message": text_of(error)}


def error_from(data: Mapping[str, str]) -> WTBError:
    """Return the error of a worker: of the same class if it is one of WTB's, else WorkerFailed."""
    kind = getattr(errors, data["type"], None)
    if isinstance(kind, type) and issubclass(kind, WTBError):
        error = kind.__new__(kind)
        error.args = (data["message"],)
        return error
    return WorkerFailed(f"a worker could not go on: {data['type']}: {data['message']}")


def _ended(report: JobEnded) -> dict[str, Any]:
    return {
        "job": report.number,
        "status": report.status.value,
        "spent": report.spent.to_dict(),
        "executed": report.executed,
        "shared": report.shared,
        "failed_nodes": report.failed_nodes,
    }


def _read_ended(data: Data) -> JobEnded:
    return JobEnded(
        data["job"],
        JobStatus(data["status"]),
        Spent.from_dict(data["spent"]),
        executed=data["executed"],
        shared=data["shared"],
        failed_nodes=data["failed_nodes"],
    )


_KINDS: Mapping[type, str] = {
    JobEnded: "ended",
    JobFailedForNow: "failed for now",
    JobWaits: "waits",
    JobRunsElsewhere: "runs elsewhere",
    JobBroke: "broke",
    ResultSettled: "result settled",
    WorkMeasured: "measured",
    WorkerEnded: "worker ended",
}

_WRITE: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "ended": _ended,
    "failed for now": lambda report: {"job": report.number, "failed_nodes": report.failed_nodes},
    "waits": lambda report: {"job": report.number, "key": report.key.hex()},
    "runs elsewhere": lambda report: {"job": report.number},
    "broke": lambda report: {"job": report.number, "error": error_data(report.error)},
    "result settled": lambda report: {"key": report.key.hex()},
    "measured": lambda report: {"spans": report.spans},
    "worker ended": lambda report: {
        "trace": report.trace_id,
        "changing": list(report.changing),
        "worker": report.worker,
    },
}

_READ: Mapping[str, Callable[[Data], RunnerReport]] = {
    "ended": _read_ended,
    "failed for now": lambda data: JobFailedForNow(data["job"], data["failed_nodes"]),
    "waits": lambda data: JobWaits(data["job"], bytes.fromhex(data["key"])),
    "runs elsewhere": lambda data: JobRunsElsewhere(data["job"]),
    "broke": lambda data: JobBroke(data["job"], error_from(data["error"])),
    "result settled": lambda data: ResultSettled(bytes.fromhex(data["key"])),
    "measured": lambda data: WorkMeasured(tuple(MeasuredSpan(*span) for span in data["spans"])),
    "worker ended": lambda data: WorkerEnded(data["trace"], tuple(data["changing"]), data["worker"]),
}
