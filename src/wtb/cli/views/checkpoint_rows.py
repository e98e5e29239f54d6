"""Checkpoints in the output of commands: data for programs, and rows of `wtb history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wtb.application.queries.views import FileTotals, HistoryRow
from wtb.cli.output import size
from wtb.domain.checkpoint import Checkpoint, Trigger

_ONLY_WHERE_GIVEN = ("name", "files")
"""Columns that are dropped if all their cells are empty, so that the table fits into 80 characters."""


_TOLD = (Trigger.NODE_END, Trigger.PAUSE)
"""Checkpoints that show their description as the node: those of several parallel nodes, or of a person's edit."""


def checkpoint_data(checkpoint: Checkpoint, files: FileTotals | None) -> dict[str, Any]:
    """Return a checkpoint for programs."""
    return {
        "step": checkpoint.step,
        "node": checkpoint.node or (checkpoint.description if checkpoint.trigger in _TOLD else ""),
        "visit": checkpoint.visit or "",
        "trigger": checkpoint.trigger.value,
        "name": checkpoint.name or "",
        "size": checkpoint.size_bytes,
        "at": checkpoint.created_at,
        "checkpoint": checkpoint.id,
        "restore_point": checkpoint.restore_point,
        "files": None if files is None else files.files,
        "file_bytes": None if files is None else files.size_bytes,
        "next": checkpoint.next_nodes,
        "created_by": checkpoint.created_by,
    }


def row_data(row: HistoryRow) -> dict[str, Any]:
    """Return a row of the history for programs."""
    return {"mark": row.mark.value, **checkpoint_data(row.checkpoint, row.files)}


def rows_for_people(rows: Sequence[HistoryRow]) -> list[dict[str, Any]]:
    """Return rows of the history for people; they name who made them only if several people did."""
    found = [_for_people(row_data(row)) for row in rows]
    empty = [heading for heading in _ONLY_WHERE_GIVEN if not any(row[heading] for row in found)]
    if len({row["by"] for row in found}) == 1:
        empty.append("by")
    return [{heading: value for heading, value in row.items() if heading not in empty} for row in found]


def _for_people(data: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the columns that people see."""
    files = f"{data['files']} ({size(data['file_bytes'])})" if data["files"] else ""
    return {
        **{heading: data[heading] for heading in ("mark", "step", "node", "visit", "trigger", "name", "size")},
        "files": files,
        "at": data["at"],
        "by": data["created_by"] or "",
        "checkpoint": data["checkpoint"],
    }
