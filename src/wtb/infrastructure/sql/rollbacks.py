"""SqlRollbackRepository: the journals of rollbacks."""

from __future__ import annotations

import json
from typing import Any

from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.integrity import FaultKind
from wtb.domain.rollback import CallKey, Rollback, RollbackDirection, RollbackStatus
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.seals import RowSeal, text_of
from wtb.infrastructure.timestamps import from_us, to_us

ROLLBACK_SEAL = RowSeal(
    kind=FaultKind.ROLLBACK,
    table="wtb_rollbacks",
    key=("id",),
    rest=(
        "execution_id",
        "branch_id",
        "direction",
        "head_id",
        "target_id",
        "safety_id",
        "calls",
        "status",
        "error",
        "created_by",
        "created_at_us",
        "ended_at_us",
        "number",
    ),
)
_CHANGED = ", ".join(f"{column} = excluded.{column}" for column in (*ROLLBACK_SEAL.rest[1:], "seal"))
_SAVE = (
    f"INSERT INTO wtb_rollbacks ({ROLLBACK_SEAL.covered}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    f"ON CONFLICT (execution_id, id) DO UPDATE SET {_CHANGED}"
)


class SqlRollbackRepository:
    """Journals by execution."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def save(self, rollback: Rollback) -> None:
        row = (
            rollback.id,
            rollback.execution_id,
            rollback.branch_id,
            rollback.direction.value,
            rollback.head_id,
            rollback.target_id,
            rollback.safety_id,
            json.dumps([(key.node_run_id, key.identity) for key in rollback.calls]),
            rollback.status.value,
            None if rollback.error is None else json.dumps(rollback.error),
            text_of(rollback.created_by),
            to_us(rollback.created_at),
            None if rollback.ended_at is None else to_us(rollback.ended_at),
            rollback.number,
        )
        self._transaction.run(_SAVE, (*row, ROLLBACK_SEAL.of(row)))

    def list_rollbacks(self, execution_id: ExecutionId) -> tuple[Rollback, ...]:
        statement = f"SELECT {ROLLBACK_SEAL.covered}, seal FROM wtb_rollbacks WHERE execution_id = ?"
        found = [_rollback(row) for row in self._transaction.rows(statement, (execution_id,))]
        return tuple(sorted(found, key=lambda rollback: rollback.order))

    def count_rollbacks(self, execution_id: ExecutionId) -> int:
        row = self._transaction.row("SELECT count(*) FROM wtb_rollbacks WHERE execution_id = ?", (execution_id,))
        return 0 if row is None else int(row[0])


@mapping("rollback")
def _rollback(row: Any) -> Rollback:
    ROLLBACK_SEAL.check(row[:-1], row[-1])
    return Rollback(
        id=row[0],
        execution_id=ExecutionId(row[1]),
        branch_id=BranchId(row[2]),
        direction=RollbackDirection(row[3]),
        head_id=CheckpointId(row[4]),
        target_id=CheckpointId(row[5]),
        safety_id=CheckpointId(row[6]),
        calls=tuple(CallKey(node_run_id=NodeRunId(run), identity=identity) for run, identity in json.loads(row[7])),
        status=RollbackStatus(row[8]),
        error=None if row[9] is None else json.loads(row[9]),
        created_by=row[10],
        created_at=from_us(row[11]),
        ended_at=None if row[12] is None else from_us(row[12]),
        number=row[13],
    )
