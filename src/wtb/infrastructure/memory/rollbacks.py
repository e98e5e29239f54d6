"""MemoryRollbackRepository: the journals of rollbacks in a dictionary."""

from __future__ import annotations

from wtb.domain.ids import ExecutionId
from wtb.domain.rollback import Rollback
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryRollbackRepository:
    """Journals by execution."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def save(self, rollback: Rollback) -> None:
        self._transaction.put("rollbacks", (rollback.execution_id, rollback.id), rollback)

    def list_rollbacks(self, execution_id: ExecutionId) -> tuple[Rollback, ...]:
        found = self._transaction.group("rollbacks", 0, execution_id)
        return tuple(sorted(found, key=lambda rollback: rollback.order))

    def count_rollbacks(self, execution_id: ExecutionId) -> int:
        return len(list(self._transaction.group("rollbacks", 0, execution_id)))
