"""SqlEvaluationRepository: the scores of single runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wtb.domain.errors import ExecutionNotFound
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.integrity import FaultKind
from wtb.domain.run_scores import RunScore
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.seals import RowSeal, text_of
from wtb.infrastructure.timestamps import from_us, to_us

EVALUATION_SEAL = RowSeal(
    kind=FaultKind.EVALUATION,
    table="wtb_evaluations",
    key=("id",),
    rest=(
        "execution_id",
        "checkpoint_id",
        "metric",
        "fingerprint",
        "score",
        "error",
        "created_by",
        "created_at_us",
    ),
)
_ADD = f"INSERT INTO wtb_evaluations ({EVALUATION_SEAL.covered}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LIST = f"SELECT {EVALUATION_SEAL.covered}, seal FROM wtb_evaluations WHERE execution_id = ?"


class SqlEvaluationRepository:
    """Scores by execution."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, scores: Sequence[RunScore]) -> None:
        for run_id in {score.execution_id for score in scores}:
            self._hold(run_id)
        for score in scores:
            row = _row(score)
            self._transaction.run(_ADD, (*row, EVALUATION_SEAL.of(row)))

    def _hold(self, run_id: ExecutionId) -> None:
        """Lock a run against deletion, which would leave these scores behind."""
        statement = f"SELECT 1 FROM wtb_executions WHERE id = ?{self._transaction.database.lock_suffix}"
        if self._transaction.row(statement, (run_id,)) is None:
            raise ExecutionNotFound(run_id)

    def list_scores(self, execution_id: ExecutionId) -> tuple[RunScore, ...]:
        found = map(_score, self._transaction.rows(_LIST, (execution_id,)))
        return tuple(sorted(found, key=lambda score: (score.created_at, score.id)))


def _row(score: RunScore) -> tuple[Any, ...]:
    return (
        score.id,
        score.execution_id,
        score.checkpoint_id,
        text_of(score.metric),
        score.fingerprint,
        None if score.score is None else json.dumps(score.score),  # true and 1.0 stay different
        None if score.error is None else json.dumps(score.error),  # no database accepts every text unescaped
        text_of(score.created_by),
        to_us(score.created_at),
    )


@mapping("evaluation")
def _score(row: Any) -> RunScore:
    EVALUATION_SEAL.check(row[:-1], row[-1])
    return RunScore(
        id=row[0],
        execution_id=ExecutionId(row[1]),
        checkpoint_id=CheckpointId(row[2]),
        metric=row[3],
        fingerprint=row[4],
        score=None if row[5] is None else json.loads(row[5]),
        error=None if row[6] is None else json.loads(row[6]),
        created_by=row[7],
        created_at=from_us(row[8]),
    )
