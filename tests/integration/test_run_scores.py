"""Scores of single runs are kept: which evaluator gave which score or error to which checkpoint, when and for whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import wtb
from wtb.bench import Bench
from wtb.cli import main
from wtb.domain.errors import ExecutionNotFound, InvalidInput
from wtb.domain.events import EventType, Severity
from wtb.flow import Workflow
from wtb.runs import Run


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as opened:
        yield opened


def answering(answer: str = "yes") -> Workflow:
    flow = Workflow("answering")
    flow.add_node("answer", lambda state: {"answer": answer}, start=True)
    return flow


class Length:
    """How long the answer is, in units of its own."""

    name = "length"

    def __init__(self, unit: int = 1) -> None:
        self.unit = unit

    def evaluate(self, context: Any) -> float:
        return len(context.state["answer"]) / self.unit


@wtb.evaluator
def right(context: Any) -> bool:
    return bool(context.state["answer"] == context.expected)


class Judge:
    """Raises until it has a key."""

    name = "judge"

    def __init__(self, key: str = "") -> None:
        self.key = key

    def evaluate(self, context: Any) -> float:
        if not self.key.startswith("good"):
            raise RuntimeError(f"no access with token={self.key!r}")
        return 0.5


def test_every_evaluation_of_a_run_is_kept(bench: Bench) -> None:
    run = bench.run(answering(), {})
    given = bench.evaluate(run, [right, Length()], expected="yes", created_by="ann")
    assert given == {"right": 1.0, "length": 3.0}

    exact, length = run.scores.all
    assert (exact.metric, exact.score, exact.error, exact.created_by) == ("right", True, None, "ann")
    assert isinstance(exact.score, bool)
    assert (length.metric, length.score, length.execution_id) == ("length", 3.0, run.id)
    assert exact.checkpoint_id == length.checkpoint_id == run.history.lineage()[-1].id
    assert exact.created_at.tzinfo is not None
    assert bench.get(run.id).scores == run.scores == run.view().scores


def test_the_newest_score_of_a_metric_is_read_by_its_name(bench: Bench) -> None:
    run = bench.run(answering(), {})
    assert (dict(run.scores), run.scores.get("length")) == ({}, None)
    for unit in (1, 2, 1):
        bench.evaluate(run, [Length(unit)])
    bench.evaluate(run, [wtb.Steps()])

    assert repr(run.scores) == "<RunScores: length 3.0, steps 1.0>"
    assert [score.score for score in run.scores.all] == [3.0, 1.5, 3.0, 1.0]
    assert {metric: score.score for metric, score in run.scores.items()} == {"length": 3.0, "steps": 1.0}
    first, second, third, _ = (score.fingerprint for score in run.scores.all)
    assert first == third != second, "the fingerprint tells evaluators apart, not times"


def test_an_evaluator_that_fails_leaves_an_error_and_no_score(bench: Bench) -> None:
    run = bench.run(answering(), {})
    bench.evaluate(run, [Judge("good")])
    assert run.scores["judge"].score == 0.5
    given = bench.evaluate(run, [Judge("sk-secret-0123456789abcdef"), Length()])

    failed = run.scores["judge"]
    assert failed.score is None
    assert failed.error == given["judge"]["error"]
    assert "RuntimeError: no access" in str(failed.error)
    assert "0123456789" not in str(failed.error), "secrets are masked"
    assert run.scores["length"].score == 3.0


def test_events_tell_of_every_evaluation(bench: Bench) -> None:
    run = bench.run(answering(), {})
    bench.evaluate(run, [Length(), Judge()], created_by="ann")
    completed, failed = run.events(types=[EventType.EVALUATION_COMPLETED, EventType.EVALUATION_FAILED])
    head = run.history.lineage()[-1].id
    assert dict(completed.data) == {"evaluator": "length", "score": 3.0, "checkpoint": head, "by": "ann"}
    assert (failed.data["evaluator"], failed.severity) == ("judge", Severity.ERROR)
    assert failed.data["error"] == run.scores["judge"].error
    assert [fault.problem for fault in bench.services.integrity.check().faults] == []


def test_a_score_names_the_checkpoint_that_it_was_given_to(bench: Bench) -> None:
    run = bench.run(answering(), {})
    bench.evaluate(run, [Length()])
    run.rollback(0)
    again = bench.resume(run.id, answering("no"))
    bench.evaluate(again, [Length()])
    before, after = run.scores.all
    assert (before.score, after.score) == (3.0, 2.0)
    assert before.checkpoint_id != after.checkpoint_id == run.history.lineage()[-1].id


def test_scores_are_deleted_with_their_run_and_a_fork_begins_without_any(bench: Bench) -> None:
    run = bench.run(answering(), {})
    bench.evaluate(run, [Length()])
    fork = run.fork()
    assert fork.scores.all == ()
    fork.delete()
    run.delete()
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        assert uow.evaluations.list_scores(run.id) == ()


def test_a_run_that_has_not_completed_gets_no_scores(bench: Bench) -> None:
    paused = bench.run(answering(), {}, break_before=["answer"])
    with pytest.raises(InvalidInput, match="only one that completed can be scored"):
        bench.evaluate(paused, [Length()])
    assert paused.scores.all == ()


def test_a_run_that_is_deleted_while_it_is_scored_leaves_nothing_behind(bench: Bench) -> None:
    run = bench.run(answering(), {})

    @wtb.evaluator
    def deleting(context: Any) -> float:
        run.delete()
        return 1.0

    with pytest.raises(ExecutionNotFound):
        bench.evaluate(run, [deleting])
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        assert uow.evaluations.list_scores(run.id) == ()


def test_wtb_show_shows_the_newest_scores_and_json_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Bench() as bench:
        run = bench.run(answering(), {}, run_id="first")
        assert "scores" not in CliRunner().invoke(main, ["show", "first"]).output
        bench.evaluate(run, [Length(2)])
        bench.evaluate(run, [right, Length(), Judge()], expected="yes", created_by="ann")
    shown = CliRunner().invoke(main, ["show", "first"])
    assert "length 3.000, right true, judge failed" in " ".join(shown.output.split())
    assert "evaluator judge: RuntimeError: no access" in shown.output
    rows = json.loads(CliRunner().invoke(main, ["show", "first", "--json"]).output)["scores"]
    assert [(row["metric"], row["score"]) for row in rows] == [
        ("length", 1.5),
        ("right", True),
        ("length", 3.0),
        ("judge", None),
    ]
    assert rows[-1]["error"].startswith("evaluator judge: RuntimeError")
    assert {*rows[1]} == {"metric", "score", "error", "checkpoint", "fingerprint", "batch", "by", "at"}
    assert (rows[1]["by"], rows[1]["error"]) == ("ann", None)


def scored_batch(bench: Bench) -> list[Run]:
    """Score the runs of a batch, and return them in the order of its cases."""
    cases = [{"id": "one", "input": {}, "expected": "yes"}, {"id": "two", "input": {}, "expected": "no"}]
    result = bench.batch(answering(), name="qa", cases=cases, evaluators=[right, Length(), Judge()])
    return [bench.get(str(job.run_id)) for job in result.results]


def test_a_run_has_the_scores_that_its_batch_gave_it(bench: Bench) -> None:
    one, two = scored_batch(bench)
    assert [(each.metric, each.score) for each in one.scores.all] == [("right", True), ("length", 3.0), ("judge", None)]
    assert isinstance(one.scores["right"].score, bool)
    assert "no access" in str(one.scores["judge"].error)
    assert two.scores["right"].score is False
    first = one.scores["right"]
    assert (first.batch_id, first.checkpoint_id) == (bench.get_batch("qa").id, one.history.lineage()[-1].id)
    assert first.created_at.tzinfo is not None
    assert one.view().scores == one.scores


def test_a_score_of_the_run_itself_is_newer_than_that_of_its_batch(bench: Bench) -> None:
    run = scored_batch(bench)[0]
    bench.evaluate(run, [Length(2)])
    assert run.scores["length"].score == 1.5
    assert [each.score for each in run.scores.all if each.metric == "length"] == [3.0, 1.5]


def test_scores_that_are_added_to_a_batch_reach_its_runs(bench: Bench) -> None:
    run, _ = scored_batch(bench)
    bench.evaluate("qa", [wtb.Steps(), Judge("good")])
    assert (run.scores["steps"].score, run.scores["judge"].score, run.scores["length"].score) == (1.0, 0.5, 3.0)


def test_a_fork_and_a_run_of_a_deleted_batch_have_no_scores_of_the_batch(bench: Bench) -> None:
    run = scored_batch(bench)[0]
    fork = run.fork()
    assert fork.scores.all == ()
    bench.delete_batch("qa")
    assert run.scores.all == ()
