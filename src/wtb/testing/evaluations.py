"""The contract of EvaluationRepository."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from wtb.domain.errors import ExecutionNotFound
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.run_scores import RunScore
from wtb.testing.stories import Story, StoryFixtures


class EvaluationRepositoryContract(StoryFixtures):
    """What every repository of run scores does."""

    @pytest.mark.parametrize(
        "said",
        [
            {"score": 0.1 + 0.2},
            {"score": 1.0},
            {"score": True},
            {"score": False},
            {"score": -1e300},
            {"error": "said \x00 and ☃ and \ud800"},
        ],
    )
    def test_a_score_comes_back_as_it_was(self, storage: Storage, story: Story, said: dict[str, Any]) -> None:
        score = _score(story, "s1", created_by="ann", **said)
        _add(storage, [score])
        with storage.unit_of_work(readonly=True) as uow:
            (found,) = uow.evaluations.list_scores(story.id)
        assert found == score
        assert type(found.score) is type(score.score)

    def test_scores_are_listed_oldest_first_and_those_of_one_moment_by_id(self, storage: Storage, story: Story) -> None:
        first = _score(story, "s9", score=1.0)
        later = [_score(story, id, score=1.0, after=timedelta(seconds=1)) for id in ("s1", "s2")]
        _add(storage, [*reversed(later), first])
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.evaluations.list_scores(story.id) == (first, *later)
            assert uow.evaluations.list_scores(ExecutionId("no-such-id")) == ()

    def test_scores_are_deleted_with_their_run_and_others_stay(self, storage: Storage, story: Story) -> None:
        other = story.new_execution()
        with storage.unit_of_work() as uow:
            uow.executions.add(other)
            uow.commit()
        kept = replace(_score(story, "s1", score=1.0), execution_id=other.id)
        _add(storage, [_score(story, "s1", score=1.0), kept])
        _delete(storage, story.id)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.evaluations.list_scores(story.id) == ()
            assert uow.evaluations.list_scores(other.id) == (kept,)

    def test_a_run_that_does_not_exist_gets_no_scores(self, storage: Storage, story: Story) -> None:
        lost = replace(_score(story, "s1", score=1.0), execution_id=ExecutionId("no-such-id"))
        with storage.unit_of_work() as uow, pytest.raises(ExecutionNotFound, match="no-such-id"):
            uow.evaluations.add([lost])

    def test_a_run_that_is_deleted_at_the_same_time_leaves_no_scores(self, storage: Storage, story: Story) -> None:
        score = _score(story, "s1", score=1.0)
        deletes = threading.Thread(target=_delete, args=(storage, story.id))
        with storage.unit_of_work() as uow:
            uow.evaluations.add([score])
            deletes.start()
            uow.commit()
        deletes.join()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.evaluations.list_scores(story.id) == ()


def _add(storage: Storage, scores: Sequence[RunScore]) -> None:
    with storage.unit_of_work() as uow:
        uow.evaluations.add(scores)
        uow.commit()


def _delete(storage: Storage, run_id: ExecutionId) -> None:
    with storage.unit_of_work() as uow:
        uow.checkpoints.delete_run(run_id)
        uow.executions.delete(run_id)
        uow.commit()


def _score(story: Story, id: str, *, after: timedelta = timedelta(), **said: Any) -> RunScore:
    (head,) = story.line({})
    return RunScore(
        id=id,
        execution_id=story.id,
        checkpoint_id=head.id,
        metric="f1",
        fingerprint="f",
        created_at=story.execution.created_at + after,
        **said,
    )
