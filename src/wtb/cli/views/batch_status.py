"""The progress of a batch, the jobs that were given up, and a hint if another runner would be quicker."""

from __future__ import annotations

from typing import Any

from wtb.application.queries.batch_data import BatchStatusView
from wtb.application.queries.limits import LimitView
from wtb.batch_results import BatchResult, JobResult
from wtb.cli.output import echo, print_table
from wtb.cli.views.batch_tables import spending
from wtb.domain.display import counted


def print_status(found: BatchStatusView) -> None:
    """Print how far a batch has come, and the jobs that run."""
    record = found.batch.record
    done = found.completed + found.failed
    failed = f" ({found.failed:,} failed)" if found.failed else ""
    status = found.batch.status.replace("_", " ")
    echo(f"{found.batch.name}: {status}, {done:,} of {counted(record.jobs, 'job')} done{failed}, {found.left:,} left")
    most = "up to " if record.runner == "ray" else ""
    echo(f"Runner: {record.runner}, {most}{counted(record.workers, 'worker')}. Spent: {spending(found.spent)}.")
    if found.lost_workers:
        dead = f"; {counted(found.dead, 'job')} given up, see --dead of `wtb batch show`" if found.dead else ""
        echo(f"{counted(found.lost_workers, 'worker')} lost on the way{dead}.")
    for limit in found.limits:
        echo(_limit_line(limit))
    if found.lost_driver is not None:
        echo(f"Nobody runs it: {found.lost_driver}. Run the same command again to continue.")
    if found.running:
        echo()
        print_table([_row(each.to_data()) for each in found.running])
    elif found.left and found.batch.status == "running":
        echo("No job runs at this moment. If no process works on the batch, run the same command again to continue.")


def _limit_line(limit: LimitView) -> str:
    kind = f"adaptive, now {limit.width}" if limit.limit.adaptive else f"{limit.width}"
    line = f"Limit {limit.name} ({kind}): {counted(limit.held, 'call')} running, {limit.waiting:,} waiting."
    if limit.breaker == "open" and limit.until is not None:
        line += f" Its circuit breaker is open; a call is tried from {limit.until:%H:%M:%S} UTC."
    elif limit.breaker == "trial":
        line += " Its circuit breaker is open; a call is being tried."
    return line


def _row(job: dict[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in ("case", "combination", "repeat", "worker", "host", "run")}


def dead_rows(result: BatchResult, *, whole: bool) -> list[dict[str, Any]]:
    """Return one row for each job that was given up; `whole` adds everything that is known about its attempts."""
    return [_dead(job, whole=whole) for job in result.dead_letters]


def _dead(job: JobResult, *, whole: bool) -> dict[str, Any]:
    place: dict[str, Any] = {"case": job.case_id, "combination": job.combination, "repeat": job.repeat}
    error = job.error or {}
    found = {**place, "node": error.get("node"), "error": error.get("message"), "run": job.run_id}
    return {**found, "attempts": [attempt.to_data() for attempt in job.attempts]} if whole else found


def print_runner_hint(result: BatchResult) -> None:
    """Say how much quicker processes would be, if the nodes computed and shared one core."""
    quicker = result.quicker_in_processes
    if quicker is None:
        return
    gain = f"up to {quicker:.1f} times as quick"
    if result.is_short:
        text = f"This batch is too short to gain from `--runner processes`; a longer one would be {gain}."
        echo(f"The nodes computed on one core most of the time. {text}")
    else:
        echo(f"The nodes computed on one core most of the time: `--runner processes` would be {gain}.")
