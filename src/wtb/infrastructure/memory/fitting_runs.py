"""The runs that fit a filter, over dictionaries."""

from __future__ import annotations

from collections.abc import Iterator

from wtb.domain.execution import Execution
from wtb.domain.job_origin import JobOrigin
from wtb.domain.run_filters import RunFilters
from wtb.infrastructure.memory.tables import MemoryTransaction


def fitting_runs(transaction: MemoryTransaction, filters: RunFilters) -> Iterator[Execution]:
    """Yield the runs that fit, in no particular order."""
    return (execution for execution in transaction.all("executions") if _fits(execution, filters))


def _fits(execution: Execution, filters: RunFilters) -> bool:
    statuses, since, until = filters.get("statuses"), filters.get("since"), filters.get("until")
    return (
        (not statuses or execution.status in statuses)
        and filters.get("workflow") in (None, execution.workflow_name)
        and filters.get("created_by") in (None, execution.created_by)
        and (since is None or execution.created_at >= since)
        and (until is None or execution.created_at < until)
        and execution.id.startswith(filters.get("prefix", ""))
        and _is_of_batch(execution, filters)
    )


def batch_that_made(execution: Execution) -> str | None:
    """Return the id of the batch that made a run; None if a person did."""
    origin = JobOrigin.find(execution.metadata)
    return None if origin is None or origin.is_fork else origin.batch_id


def _is_of_batch(execution: Execution, filters: RunFilters) -> bool:
    made_by = batch_that_made(execution)
    if filters.get("without_batches") and made_by is not None:
        return False
    return filters.get("batch") in (None, made_by)
