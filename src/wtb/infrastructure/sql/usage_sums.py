"""UsageSums: the tokens and money of node runs; the database sums them from their figures, which are JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from wtb.domain.figures import NOTHING, Figures, Usage
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.infrastructure.sql.database import Transaction

LINE = """
WITH RECURSIVE line (line_id, line_execution, line_parent, line_step) AS (
    SELECT id, execution_id, parent_id, step FROM wtb_checkpoints WHERE id = ?
    UNION ALL
    SELECT c.id, c.execution_id, c.parent_id, c.step FROM line JOIN wtb_checkpoints c ON c.id = line.line_parent
    WHERE line.line_step > ?
)
"""
"""The line that ends with a checkpoint, back to a step."""
_FIRST_STEP = -(1 << 63)
_IS_WHOLE_RUN = """
SELECT h.execution_id FROM wtb_checkpoints h WHERE h.id = ?
AND (SELECT COUNT(*) - COUNT(DISTINCT step) FROM wtb_checkpoints WHERE execution_id = h.execution_id) = 0
AND h.step = (SELECT MAX(step) FROM wtb_checkpoints WHERE execution_id = h.execution_id)
AND (SELECT parent_id FROM wtb_checkpoints WHERE execution_id = h.execution_id ORDER BY step LIMIT 1) IS NULL
"""
"""The run that a line covers completely: no two of its checkpoints have the same step, and it is not a fork."""
_COMPLETED = "execution_id = ? AND status = 'completed' AND last_id IS NOT NULL"
_ON_LINE = (
    "execution_id IN (SELECT line_execution FROM line) AND last_id IN (SELECT line_id FROM line) "
    "AND status = 'completed'"
)
_NAMES, _NUMBERS = ("models", "unpriced"), ("input_tokens", "output_tokens", "cost_usd")


class _Dialect(NamedTuple):
    """The JSON functions of a database."""

    runs: str
    """The node runs that are summed."""
    name: str
    number: str
    find: str
    """The position of a text in the figures; 0 if it is not there."""
    refused: tuple[str, ...]
    """Texts that the database cannot read in figures; Python reads such figures."""


_DIALECTS = {
    "sqlite": _Dialect(
        "wtb_node_runs WHERE {where}",
        "json_extract(figures, '$.usage.{key}')",
        "json_extract(figures, '$.usage.{key}')",
        "instr(figures, '{text}')",
        (),
    ),
    # It sums as numeric, because the sum of floats depends on their order. Postgres accepts fewer characters in JSON
    # than Python. OFFSET 0 makes it read the text once per row, not once per column.
    "postgresql": _Dialect(
        "(SELECT figures, status, last_id, figures::jsonb -> 'usage' AS used FROM wtb_node_runs "
        "WHERE {where} OFFSET 0) AS runs",
        "used ->> '{key}'",
        "(used ->> '{key}')::numeric",
        "strpos(figures, '{text}')",
        ("\\u",),
    ),
}
_SPENT_APART = ('"spent"', '"shared"')
"""The keys in figures whose spending differs from `usage`."""


class UsageSums:
    """Sums inside one transaction. The database sums `usage`; Python sums other spending, and unreadable figures."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._dialect = _DIALECTS[transaction.database.dialect]

    def of_line(self, head_id: CheckpointId) -> Usage | None:
        """Return the usage of the line to a checkpoint; None if some of its figures are not stored."""
        whole = self._transaction.row(_IS_WHOLE_RUN, (head_id,))
        # Most lines are a whole run; then the line need not be walked, which takes longer than the sum.
        rows = _Rows(_COMPLETED, whole) if whole else _Rows(_ON_LINE, (head_id, _FIRST_STEP), LINE)
        return self._sum(rows, attrgetter("usage"), self._dialect.refused)

    def spent(self, execution_id: ExecutionId) -> Usage | None:
        """Return what a run has spent on all lines; None if some of its figures are not stored."""
        apart = (*_SPENT_APART, *self._dialect.refused)
        return self._sum(_Rows("execution_id = ?", (execution_id,)), attrgetter("spent"), apart)

    def _sum(self, rows: _Rows, part: Callable[[Figures], Usage], apart: Sequence[str]) -> Usage | None:
        """Return the sum over node runs: `usage` by model, plus a part of the figures that Python reads."""
        found = self._sum_usage(rows, apart)
        if found is None or not apart:
            return found
        return found + sum((part(figures) for figures in self._figures(rows, apart)), NOTHING)

    def _sum_usage(self, rows: _Rows, apart: Sequence[str]) -> Usage | None:
        names = [self._dialect.name.format(key=key) for key in _NAMES]
        sums = [f"SUM({self._dialect.number.format(key=key)})" for key in _NUMBERS]
        columns = ", ".join([*names, *sums, _NOT_KEPT])
        where = " AND ".join([rows.where, *(f"COALESCE({self._found(text)}, 0) = 0" for text in apart)])
        runs = self._dialect.runs.format(where=where)
        select = f"{rows.before} SELECT {columns} FROM {runs} GROUP BY 1, 2 ORDER BY 1, 2"
        groups = self._transaction.rows(select, rows.values)
        if any(group[5] for group in groups):
            return None
        return sum((_usage(group) for group in groups if group[2] is not None), NOTHING)

    def _figures(self, rows: _Rows, apart: Sequence[str]) -> Iterator[Figures]:
        where = f"{rows.where} AND ({' OR '.join(f'{self._found(text)} > 0' for text in apart)})"
        select = f"{rows.before} SELECT figures FROM wtb_node_runs WHERE {where} ORDER BY id"
        return (Figures.from_data(json.loads(text)) for (text,) in self._transaction.rows(select, rows.values))

    def _found(self, text: str) -> str:
        return self._dialect.find.format(text=text)


class _Rows(NamedTuple):
    """The condition that selects the node runs to sum."""

    where: str
    values: Sequence[Any]
    before: str = ""


_NOT_KEPT = "SUM(CASE WHEN figures IS NULL AND status = 'completed' AND last_id IS NOT NULL THEN 1 ELSE 0 END)"


def _usage(row: Sequence[Any]) -> Usage:
    return Usage(
        models=tuple(json.loads(row[0] or "[]")),
        unpriced=tuple(json.loads(row[1] or "[]")),
        input_tokens=int(row[2]),
        output_tokens=int(row[3]),
        cost_usd=float(row[4]),
    )
