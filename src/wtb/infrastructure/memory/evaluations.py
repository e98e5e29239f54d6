"""MemoryEvaluationRepository: the scores of single runs in a dictionary."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.domain.errors import ExecutionNotFound
from wtb.domain.ids import ExecutionId
from wtb.domain.run_scores import RunScore
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryEvaluationRepository:
    """Scores by execution."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, scores: Sequence[RunScore]) -> None:
        for score in scores:
            if self._transaction.find("executions", score.execution_id) is None:
                raise ExecutionNotFound(score.execution_id)
            self._transaction.put("evaluations", (score.execution_id, score.id), score)

    def list_scores(self, execution_id: ExecutionId) -> tuple[RunScore, ...]:
        found = self._transaction.group("evaluations", 0, execution_id)
        return tuple(sorted(found, key=lambda score: (score.created_at, score.id)))
