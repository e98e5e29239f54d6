"""`wtb evaluate` as a person types it: runs and batches that have ended get scores, and nothing runs again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shell import Shell

FLOW = """
import wtb

flow = wtb.Workflow("capitals")


@flow.node(start=True)
def answer(state):
    with open("log", "a") as file:
        file.write("ran\\n")
    return {"answer": state["q"].upper()}


@flow.variant("answer", "low")
def low(state):
    return {"answer": state["q"].lower()}


cases = [
    {"id": "a", "input": {"q": "Paris"}, "expected": "PARIS"},
    {"id": "b", "input": {"q": "Rome"}, "expected": "ROME"},
]
batch = wtb.BatchTest(flow, cases=cases, evaluators=["steps"])
"""
CHECKS = """
def is_long(context):
    return len(context.state["answer"]) > 4


class Broken:
    name = "broken"

    def evaluate(self, context):
        raise RuntimeError("no model here")


broken = Broken()
"""


def project(folder: Path) -> Shell:
    """Return a project with one run, which has completed."""
    shell = Shell(folder, app=FLOW, checks=CHECKS)
    shell.wtb("run", "app.py", "--set", "q=Paris", "--run-id", "first")
    return shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return project(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """One project for all commands that change nothing."""
    return project(tmp_path_factory.mktemp("evaluate"))


def test_a_run_is_scored_by_names_keys_and_own_functions_and_keeps_the_scores(shell: Shell) -> None:
    evaluators = ["steps", "exact_match:answer", "checks.py:is_long"]
    options = [part for name in evaluators for part in ("--evaluator", name)]
    shown = shell.wtb("evaluate", "first", *options, "--expected", "PARIS").stdout
    assert shown.split() == ["run", "steps", "exact_match", "is_long", "first", "1.000", "1.000", "true"]
    assert "steps 1.000, exact_match 1.000, is_long true" in shell.wtb("show", "first").stdout
    scores = json.loads(shell.wtb("show", "first", "--json").stdout)["scores"]
    assert {(each["metric"], each["score"]) for each in scores} == {
        ("steps", 1.0),
        ("exact_match", 1.0),
        ("is_long", True),
    }


def test_several_runs_are_scored_at_once_and_json_is_a_list(shell: Shell) -> None:
    shell.wtb("run", "app.py", "--set", "q=Ulm", "--run-id", "second")
    given = shell.wtb("evaluate", "first", "second", "--evaluator", "checks.py:is_long", "--json").stdout
    assert [(each["run"], each["scores"][0]["score"]) for each in json.loads(given)] == [
        ("first", True),
        ("second", False),
    ]


def test_an_evaluator_that_fails_is_named_and_the_command_exits_with_3(shell: Shell) -> None:
    shown = shell.wtb("evaluate", "first", "--evaluator", "checks.py:broken", "--evaluator", "steps", code=3).stdout
    assert "first: evaluator broken: RuntimeError: no model here (checks.py:10, in evaluate)" in shown
    assert shown.split()[3:6] == ["first", "failed", "1.000"]


def test_a_batch_gets_more_scores_and_no_node_runs_again(shell: Shell) -> None:
    shell.wtb("batch", "run", "app.py:batch")
    ran = (shell.folder / "log").read_text()
    shown = shell.wtb("evaluate", "capitals", "--evaluator", "exact_match:answer").stdout
    assert "exact_match" in shown.splitlines()[2]
    assert (shell.folder / "log").read_text() == ran
    matrix = json.loads(shell.wtb("batch", "show", "capitals", "--json").stdout)["matrix"]
    assert [row["metrics"]["exact_match"]["mean"] for row in matrix] == [1.0, 0.0]
    shell.wtb("evaluate", "capitals", "--evaluator", "checks.py:broken", code=3)
    shell.wtb("evaluate", "capitals", "--evaluator", "steps")  # the one that failed before is not asked


def test_other_cases_say_what_a_batch_expects(shell: Shell) -> None:
    shell.wtb("batch", "run", "app.py:batch")
    cases = [{"id": "a", "input": {"q": "Paris"}, "expected": "paris"}, {"id": "b", "input": {"q": ""}, "expected": ""}]
    (shell.folder / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    given = ("--evaluator", "exact_match:answer", "--cases", "cases.jsonl", "--workers", "1", "--json")
    (found,) = json.loads(shell.wtb("evaluate", "capitals", *given).stdout)
    assert {row["combination"]: row["metrics"]["exact_match"]["mean"] for row in found["matrix"]} == {
        "baseline": 0.0,
        "answer=low": 0.5,
    }


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (("nope", "--evaluator", "steps"), 1, "no run or batch 'nope'; `wtb ls` lists runs, and `wtb batch ls`"),
        (("first",), 2, "Missing option '--evaluator'"),
        (("first", "--evaluator", "nope"), 2, "there is no evaluator 'nope'; known names: latency_s, "),
        (("first", "--evaluator", "token_f1"), 2, "evaluator 'token_f1' needs a key of the state: 'token_f1:KEY'"),
        (("first", "--evaluator", "fits_schema"), 2, "evaluator 'fits_schema' needs a schema: give wtb.FitsSchema("),
        (("first", "--evaluator", "checks.py:gone"), 2, "has no evaluator called 'gone'; it has is_long, "),
        (("first", "--evaluator", "gone.py:x"), 2, "there is no file gone.py"),
        (("first", "--evaluator", "steps", "--workers", "2"), 2, "--workers is for batches, and you named none"),
        (("first", "--evaluator", "steps", "--evaluator", "steps"), 2, "two evaluators are called 'steps'"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_sentence(
    unchanged: Shell, given: tuple[str, ...], code: int, told: str
) -> None:
    assert told in unchanged.wtb("evaluate", *given, code=code).stderr


def test_expected_is_refused_for_a_batch_and_a_run_that_waits_is_refused_too(shell: Shell) -> None:
    shell.wtb("batch", "run", "app.py:batch")
    refused = shell.wtb("evaluate", "capitals", "--evaluator", "steps", "--expected", "x", code=2).stderr
    assert "--expected is for runs" in refused
    shell.wtb("run", "app.py", "--set", "q=Ulm", "--run-id", "waiting", "--break-before", "answer")
    assert (
        "only one that completed can be scored"
        in shell.wtb("evaluate", "waiting", "--evaluator", "steps", code=2).stderr
    )
