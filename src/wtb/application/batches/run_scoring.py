"""RunScoring: scores a single run that has completed, and keeps the scores with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from wtb.application.batches.scoring import kept_cases
from wtb.application.evaluation_engine import EvaluationEngine, Restore, digests, error_of
from wtb.domain.cases import Case
from wtb.domain.errors import BatchNotFound, InvalidInput
from wtb.domain.evaluation import Evaluator
from wtb.domain.event_catalogue import EvaluationCompleted, EvaluationFailed
from wtb.domain.events import Event
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Clock, Codec, Ids, Storage, UnitOfWork
from wtb.domain.run_scores import RunScore


class RunScoring:
    """Scores single runs."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        codec: Codec,
        evaluation: EvaluationEngine,
        *,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._codec = codec
        self._evaluation = evaluation
        self._user = user

    def score(
        self,
        execution_id: ExecutionId,
        evaluators: Sequence[Evaluator],
        expected: Any,
        restore: Restore | None = None,
        *,
        created_by: str | None = None,
    ) -> tuple[RunScore, ...]:
        """Score a run, keep the scores and the errors of evaluators that failed, and return them.

        Raise InvalidInput for a run that has not completed.
        """
        case = self._evaluation.with_input(self._case(execution_id), execution_id, restore)
        if expected is not None:
            case = replace(case, expected=expected)
        head_id, context = self._evaluation.head_context(execution_id, case, restore)
        found, by_name = self._evaluation.scored(context, evaluators).as_given, digests(evaluators)
        now = self._clock.now()
        scores = tuple(
            RunScore(
                id=self._ids.new(),
                execution_id=execution_id,
                checkpoint_id=head_id,
                metric=metric,
                fingerprint=by_name[metric],
                score=given if error_of(given) is None else None,
                error=error_of(given),
                created_by=created_by or self._user,
                created_at=now,
            )
            for metric, given in found.items()
        )
        self._keep(scores)
        return scores

    def _case(self, execution_id: ExecutionId) -> Case:
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
            if execution.status is not ExecutionStatus.COMPLETED:
                raise InvalidInput(f"run {execution_id!r} is {execution.status}; only one that completed can be scored")
            return self._case_of(uow, execution)

    def _case_of(self, uow: UnitOfWork, execution: Execution) -> Case:
        """Return the case for which a batch made this run; for any other run, a case of its own."""
        origin = execution.metadata
        with suppress(BatchNotFound, KeyError):
            return kept_cases(uow.batches.get(origin["batch"]).record, self._codec)[origin["case"]]
        return Case(id=execution.id, input={})

    def _keep(self, scores: Sequence[RunScore]) -> None:
        with self._storage.unit_of_work() as uow:
            uow.evaluations.add(scores)
            for score in scores:
                uow.events.append(_event(score))
            uow.commit()


def _event(score: RunScore) -> Event:
    """Return the event of an evaluation."""
    place: dict[str, Any] = {"evaluator": score.metric, "checkpoint": score.checkpoint_id, "by": score.created_by}
    body: EvaluationCompleted | EvaluationFailed
    if score.error is None:
        body = EvaluationCompleted(score=score.score, **place)
    else:
        body = EvaluationFailed(error=score.error, **place)
    return Event.of(body, stream=score.execution_id, at=score.created_at)
