"""Evaluators that declare a scale or fail, and jobs that failed and were not reached again: nothing of it gets lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import wtb
from tests.shell import Shell
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Absent, Direction
from wtb.infrastructure.evaluators.named import read_evaluators

CASES = [{"id": str(number), "input": {"q": number}, "expected": number % 2} for number in range(4)]


class Switch:
    """Something that a test turns on and off; no part of the functions that look at it."""

    def __init__(self) -> None:
        self.on = False
        self.ran: list[int] = []

    def __wtb_fingerprint__(self) -> str:
        return "a switch"


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as bench:
        yield bench


def parity(switch: Switch) -> wtb.Workflow:
    """A workflow whose node fails on odd questions while the switch is on."""
    flow = wtb.Workflow("parity")

    def answer(state: Any) -> dict[str, Any]:
        switch.ran.append(state["q"])
        if switch.on and state["q"] % 2:
            raise RuntimeError("no model")
        return {"answer": state["q"] % 2}

    flow.add_node("answer", answer, start=True, cache=False)
    return flow


def test_an_evaluator_that_exits_has_failed(bench: wtb.Bench) -> None:
    def judge(context: Any) -> float:
        raise SystemExit(0)

    result = bench.batch(parity(Switch()), cases=CASES[:1], evaluators=[judge])
    assert result.status == "completed_with_errors"
    assert result.results[0].scores["judge"]["error"].startswith("evaluator judge: SystemExit: 0")


def judge_of(switch: Switch) -> Any:
    def judge(context: Any) -> Any:
        if switch.on:
            raise ConnectionError("no api key sk-1234567890abcdefghijkl")
        return context.state["answer"] == context.expected

    return judge


def test_true_and_false_are_stored_as_numbers_on_a_scale_from_0_to_1(bench: wtb.Bench) -> None:
    result = bench.batch(parity(Switch()), cases=CASES, evaluators=[judge_of(Switch()), "steps"])
    assert {type(job.scores["judge"]) for job in result.results} == {float}
    metric = bench.get_batch("parity").metrics["judge"]
    assert (metric.worst, metric.best) == (0.0, 1.0)


def test_a_function_that_also_gives_other_numbers_has_no_scale(bench: wtb.Bench) -> None:
    def mixed(context: Any) -> Any:
        return True if context.state["answer"] else 7

    metric = bench.batch(parity(Switch()), cases=CASES, evaluators=[mixed]).metrics["mixed"]
    assert (metric.worst, metric.best) == (None, None)


def test_a_scale_of_truth_values_is_remembered_when_every_score_fails(bench: wtb.Bench) -> None:
    switch = Switch()
    bench.batch(parity(Switch()), cases=CASES, evaluators=[judge_of(switch)])
    switch.on = True

    def judge(context: Any) -> Any:
        raise ConnectionError("down")

    failed = bench.batch(parity(Switch()), cases=CASES, evaluators=[judge])
    assert failed.table("judge").count("baseline", Absent.ERROR) == 4
    assert (failed.metrics["judge"].worst, failed.metrics["judge"].best) == (0.0, 1.0)


def test_errors_score_0_against_a_baseline_of_truth_values_in_another_batch(bench: wtb.Bench) -> None:
    switch = Switch()
    before = bench.batch(parity(Switch()), name="before", cases=CASES, evaluators=[judge_of(switch)])
    switch.on = True
    after = bench.batch(parity(Switch()), name="after", cases=CASES, evaluators=[judge_of(switch)])
    (verdict,) = after.compare("judge", before=before)
    assert (verdict.comparison.difference, verdict.comparison.losses) == (-1.0, 4)


def test_a_function_declares_its_scale_its_direction_and_its_name() -> None:
    @wtb.evaluator(worst=10, best=0, direction="lower", name="words")
    def too_many(context: Any) -> int:
        return 3

    @wtb.evaluator
    def plain(context: Any) -> int:
        return 1

    def is_short(context: Any) -> bool:
        return True

    words, bare, short = read_evaluators([too_many, plain, is_short])
    assert (words.name, words.worst, words.best, words.direction) == ("words", 10, 0, Direction.LOWER)
    assert too_many(cast("Any", None)) == 3, "it is still the function"
    assert (bare.name, bare.worst, bare.best) == ("plain", None, None)
    assert (short.name, short.worst, short.best) == ("is_short", 0.0, 1.0), "what the annotation says"
    named = wtb.evaluator(name="one")(lambda context: 1)
    assert read_evaluators([named])[0].name == "one"


def one(context: Any) -> int:
    return 1


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            lambda: wtb.evaluator(worst=1, best=0)(one),
            "its best score cannot be 0 and its worst 1",
        ),
        (lambda: wtb.evaluator(direction="up")(one), "direction must be 'higher' or 'lower', not 'up'"),
        (lambda: wtb.evaluator(worst=float("inf"))(one), "its worst score must be a finite number, not inf"),
        (lambda: wtb.evaluator(lambda context: 1), r"needs one: wtb\.evaluator\(name='is_short'\)"),
        (lambda: wtb.evaluator(worst=0)(cast("Any", 3)), "decorates a function of the context, not 3"),
        (lambda: read_evaluators([lambda context: 1]), r"a lambda has no name .* `def is_short\(context\): return …`"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(made: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        made()


def test_an_evaluator_that_fails_ends_the_batch_with_errors_and_is_asked_again(bench: wtb.Bench) -> None:
    switch = Switch()
    judge = judge_of(switch)
    switch.on = True
    failed = bench.batch(parity(switch_off := Switch()), cases=CASES, evaluators=[judge, "steps"])
    assert failed.status == "completed_with_errors"
    told = failed.results[0].scores["judge"]["error"]
    assert told.startswith("evaluator judge: ConnectionError: no api key ")
    assert "sk-1234567890abcdefghijkl" not in told
    assert "test_failed_evaluators.py:" in told
    assert told.endswith(", in judge)")
    assert failed.rows()[0]["error"] == told
    switch.on = False
    again = bench.batch(parity(switch_off), cases=CASES, evaluators=[judge, "steps"])
    assert (again.status, {job.scores["judge"] for job in again.results}) == ("completed", {1.0})
    assert len(switch_off.ran) == 4, "the workflow has not run again"


def test_evaluating_a_batch_afterwards_changes_how_it_stands(bench: wtb.Bench) -> None:
    switch = Switch()
    bench.batch(parity(Switch()), cases=CASES, evaluators=["steps"])
    switch.on = True
    assert bench.evaluate("parity", [judge_of(switch)]).status == "completed_with_errors"
    switch.on = False
    assert bench.evaluate("parity", [judge_of(switch)]).status == "completed"


def test_what_is_no_number_is_told_with_what_to_return(bench: wtb.Bench) -> None:
    def forgot(context: Any) -> Any:
        return None

    run = bench.run(parity(Switch()), {"q": 1})
    told = "evaluator forgot: it gave None; return a number, True or False"
    assert bench.evaluate(run, [forgot]) == {"forgot": {"error": told}}


def test_failed_jobs_that_are_not_reached_again_stay_failed(bench: wtb.Bench) -> None:
    switch = Switch()
    switch.on = True
    options: dict[str, Any] = {"cases": CASES, "evaluators": ["steps"]}
    assert bench.batch(parity(switch), **options).status == "completed_with_errors"
    stop = threading.Event()
    stop.set()
    stopped = bench.batch(parity(switch), **options, stop=stop)
    assert stopped.status == "cancelled"
    statuses = {job.case_id: job.status for job in stopped.results}
    assert statuses == {"0": "completed", "1": "failed", "2": "completed", "3": "failed"}
    assert [job.error["message"] for job in stopped.results if job.error] == ["no model"] * 2
    assert stopped.table("steps").count("baseline", Absent.ERROR) == 2
    assert stopped.left == 2
    switch.on = False
    assert bench.batch(parity(switch), **options).status == "completed"


def test_failed_jobs_of_an_edited_workflow_that_are_not_reached_are_missing(bench: wtb.Bench) -> None:
    switch = Switch()
    switch.on = True
    bench.batch(parity(switch), cases=CASES, evaluators=["steps"])
    edited = wtb.Workflow("parity")
    edited.add_node("answer", lambda state: {"answer": 0}, start=True)
    stop = threading.Event()
    stop.set()
    stopped = bench.batch(edited, cases=CASES, evaluators=["steps"], stop=stop)
    assert (stopped.results, stopped.table("steps").count("baseline", Absent.MISSING)) == ([], 4)


def test_a_score_that_waits_to_be_made_again_is_missing_and_the_others_stay(bench: wtb.Bench) -> None:
    def judge(context: Any) -> float:
        return 0.5

    bench.batch(parity(Switch()), cases=CASES, evaluators=[judge_of(Switch()), "steps"])
    stop = threading.Event()
    stop.set()
    stopped = bench.batch(parity(Switch()), cases=CASES, evaluators=[judge, "steps"], stop=stop)
    assert stopped.table("judge").count("baseline", Absent.MISSING) == 4, "an old score is never shown for a new one"
    assert stopped.table("steps").case_means("baseline") == dict.fromkeys(stopped.cases, 1.0)


BATCH = """
import pathlib, wtb

flow = wtb.Workflow("qa")

@flow.node(start=True, cache=False)
def answer(state):
    with open("log", "a") as log:
        log.write("ran\\n")
    return {"answer": state["q"] if state["q"] else 1 / pathlib.Path("zero").exists()}

def judge(context):
    if pathlib.Path("down").exists():
        raise ConnectionError("no api key")
    return True

cases = [{"id": f"c{q}", "input": {"q": q}} for q in range(3)]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[judge, wtb.Steps()])
"""


def test_on_the_command_line_a_failed_evaluator_is_told_listed_and_retried(tmp_path: Path) -> None:
    shell = Shell(tmp_path, qa=BATCH)
    (tmp_path / "down").touch()
    (tmp_path / "zero").touch()
    done = shell.wtb("batch", "run", "qa.py", code=3).stdout
    assert "qa: completed with errors" in done
    assert "Evaluator judge failed on 3 of 3 runs; the first, baseline on c" in done
    assert "  evaluator judge: ConnectionError: no api key (qa.py:14, in judge)\n    wtb show " in done
    rows = shell.json("batch", "show", "qa", "--failed")
    assert {(row["case"], row["error"]) for row in rows} == {
        (f"c{q}", "evaluator judge: ConnectionError: no api key (qa.py:14, in judge)") for q in range(3)
    }
    assert "Evaluator judge failed on 3 of 3 runs." in shell.wtb("batch", "show", "qa", "--failed").stdout
    (tmp_path / "down").unlink()
    again = shell.json("batch", "retry", "qa", "qa.py")
    assert (again["status"], again["evaluation_failures"]) == ("completed", [])
    assert (tmp_path / "log").read_text() == "ran\n" * 3, "nothing has run again"
    assert "no job and no evaluator of batch 'qa' failed" in shell.wtb("batch", "retry", "qa", "qa.py", code=2).stderr


def test_on_the_command_line_a_failed_job_stays_failed_when_the_budget_does_not_reach_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path, qa=BATCH)
    shell.wtb("batch", "run", "qa.py", code=3)
    again = shell.wtb("batch", "run", "qa.py", "--budget-s", "0", code=3).stdout
    assert "qa: cancelled" in again
    assert "1 job failed:\n  baseline on c0: ZeroDivisionError" in again
    assert "The budget is used up" in again
    assert "with 1 job left to run: raise --budget-s to continue." in again
    assert "missing" not in again


def test_an_evaluator_that_hangs_in_a_thread_is_given_up_after_the_time_of_its_job(bench: wtb.Bench) -> None:
    go = threading.Event()

    def hang(context: Any) -> float:
        go.wait(60)
        return 1.0

    result = bench.batch(parity(Switch()), cases=CASES[:1], evaluators=[hang, "steps"], job_timeout_s=0.2)
    go.set()
    assert result.results[0].scores["steps"] == 1
    assert result.results[0].scores["hang"] == {
        "error": "evaluator hang: it took longer than 0.2 s, the limit of job_timeout_s"
    }
