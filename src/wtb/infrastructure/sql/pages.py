"""SqlPages: pages, counts and sums, each one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.execution import ExecutionStatus
from wtb.domain.figures import Usage
from wtb.domain.ids import CheckpointId, ExecutionId, WorkflowId
from wtb.domain.ports import CheckpointCounts, Codec, WorkflowUse
from wtb.domain.run_filters import RunFilters
from wtb.infrastructure.checkpoints.rows import CheckpointRow, checkpoint_of
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.run_conditions import run_conditions
from wtb.infrastructure.sql.usage_sums import LINE, UsageSums
from wtb.infrastructure.timestamps import from_us

_FIELDS = ", ".join(CheckpointRow._fields)

_AT_STEP = f"{LINE} SELECT line_id FROM line WHERE line_step <= ? ORDER BY line_step DESC LIMIT 1"

_LAST = f"""
WITH RECURSIVE line (line_id, line_parent, depth) AS (
    SELECT id, parent_id, 1 FROM wtb_checkpoints WHERE id = ?
    UNION ALL
    SELECT c.id, c.parent_id, line.depth + 1 FROM line JOIN wtb_checkpoints c ON c.id = line.line_parent
    WHERE line.depth < ?
)
SELECT {_FIELDS} FROM line JOIN wtb_checkpoints ON id = line_id ORDER BY depth DESC
"""
_CHECKPOINTS = f"SELECT {_FIELDS} FROM wtb_checkpoints WHERE execution_id = ?"
_NEWEST = "ORDER BY step DESC, id DESC LIMIT ?"
_COUNT = "SELECT COUNT(*), COALESCE(SUM(restore_point), 0) FROM wtb_checkpoints WHERE execution_id = ? AND deleted = 0"

_WORKFLOWS = (
    "SELECT e.workflow_name, w.version, e.workflow_id, COUNT(*), MIN(e.created_at_us), MAX(e.created_at_us) "
    "FROM wtb_executions e LEFT JOIN wtb_workflows w ON w.id = e.workflow_id "
    "GROUP BY e.workflow_name, w.version, e.workflow_id ORDER BY 1, 6, 3"
)


class SqlPages:
    """Reads inside one transaction."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def list_line(self, head_id: CheckpointId, *, upto: int | None = None, limit: int) -> tuple[Checkpoint, ...]:
        end: str = head_id
        if upto is not None:
            found = self._transaction.row(_AT_STEP, (head_id, upto, upto))
            if found is None:
                return ()
            end = found[0]
        return self._checkpoints(self._transaction.rows(_LAST, (end, limit)))

    def list_checkpoints(
        self, execution_id: ExecutionId, *, before: tuple[int, CheckpointId] | None = None, limit: int
    ) -> tuple[Checkpoint, ...]:
        if before is None:
            rows = self._transaction.rows(f"{_CHECKPOINTS} {_NEWEST}", (execution_id, limit))
        else:
            statement = f"{_CHECKPOINTS} AND step <= ? AND (step, id) < (?, ?) {_NEWEST}"
            rows = self._transaction.rows(statement, (execution_id, before[0], *before, limit))
        return self._checkpoints(rows[::-1])

    def _checkpoints(self, rows: Iterable[Sequence[Any]]) -> tuple[Checkpoint, ...]:
        return tuple([checkpoint_of(self._codec, CheckpointRow(*row)) for row in rows])

    def count_checkpoints(self, execution_id: ExecutionId) -> CheckpointCounts:
        checkpoints, restore_points = self._transaction.rows(_COUNT, (execution_id,))[0]
        return CheckpointCounts(int(checkpoints), int(restore_points))

    def sum_line(self, head_id: CheckpointId) -> Usage | None:
        return UsageSums(self._transaction).of_line(head_id)

    def sum_spent(self, execution_id: ExecutionId) -> Usage | None:
        return UsageSums(self._transaction).spent(execution_id)

    def count_runs(self, **filters: Unpack[RunFilters]) -> dict[ExecutionStatus, int]:
        where, values = run_conditions(filters)
        rows = self._transaction.rows(
            f"SELECT status, COUNT(*) FROM wtb_executions WHERE {where} GROUP BY status", values
        )
        known = set(ExecutionStatus)
        return {ExecutionStatus(status): count for status, count in rows if status in known}

    def list_workflows(self) -> tuple[WorkflowUse, ...]:
        return tuple(_workflow_use(row) for row in self._transaction.rows(_WORKFLOWS))


@mapping("workflow")
def _workflow_use(row: Any) -> WorkflowUse:
    return WorkflowUse(row[0], row[1], WorkflowId(row[2]), row[3], from_us(row[4]), from_us(row[5]))
