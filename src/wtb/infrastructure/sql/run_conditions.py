"""The WHERE clause of runs that fit a filter."""

from __future__ import annotations

from typing import Any

from wtb.domain.ports import RunPosition
from wtb.domain.run_filters import RunFilters
from wtb.infrastructure.timestamps import to_us


def run_conditions(filters: RunFilters, before: RunPosition | None = None) -> tuple[str, list[Any]]:
    """Return the conditions on rows of `wtb_executions`, and their values."""
    found: list[tuple[str, tuple[Any, ...]]] = [("1 = 1", ())]
    if statuses := filters.get("statuses"):
        found.append((f"status IN ({', '.join('?' * len(statuses))})", tuple(status.value for status in statuses)))
    for name, condition in _EQUAL.items():
        if (value := filters.get(name)) is not None:
            found.append((condition, (value,)))
    if (since := filters.get("since")) is not None:
        found.append(("created_at_us >= ?", (to_us(since),)))
    if (until := filters.get("until")) is not None:
        found.append(("created_at_us < ?", (to_us(until),)))
    if prefix := filters.get("prefix"):
        found.append(("substr(id, 1, ?) = ?", (len(prefix), prefix)))
    if filters.get("without_batches"):
        found.append(("batch_id IS NULL", ()))
    if before is not None:  # the first condition finds the place in the index
        at = to_us(before.created_at)
        found.append(("created_at_us <= ? AND (created_at_us, id) < (?, ?)", (at, at, before.id)))
    return " AND ".join(condition for condition, _ in found), [value for _, values in found for value in values]


_EQUAL = {"workflow": "workflow_name = ?", "created_by": "created_by = ?", "batch": "batch_id = ?"}
