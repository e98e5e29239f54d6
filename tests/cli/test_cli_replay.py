"""`wtb show --replay`: every step with a mark, what differs, and the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wtb.cli import main

pytestmark = pytest.mark.usefixtures("empty_folder")

FLOW = """
import wtb

flow = wtb.Workflow("count")


@flow.node(start=True)
def tick(state):
    return {"n": 1, "text": "x" * 500}


@flow.node()
def answer(state):
    return {"answer": state["n"]}


flow.reducer("n", wtb.add)
flow.edge("tick", "tick", when="n < 3")
flow.edge("tick", "answer", otherwise=True)
"""
CHANGED = FLOW.replace("n < 3", "n < 2").replace(
    'flow.reducer("n"', 'flow.reducer("text", lambda a, b: "y")\nflow.reducer("n"'
)


def wtb(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture(autouse=True)
def run(empty_folder: Path) -> None:
    """A run that a person changed on its way, beside the workflow that it was of and another version of it."""
    # Loaded once a process by its name: each test has a file of its own.
    (empty_folder / f"{source()}.py").write_text(FLOW)
    (empty_folder / f"{source()}_changed.py").write_text(CHANGED)
    wtb("run", f"{source()}.py", "--set", "n=0", "--run-id", "r1", "--break-before", "answer")
    assert wtb("resume", "r1", "--set", "note=mine").exit_code == 0


def source() -> str:
    return f"count_{Path.cwd().parent.name.replace('-', '_')}"


def test_a_run_that_is_the_same_is_marked_step_by_step() -> None:
    result = wtb("show", "r1", "--replay")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "✓   0  input",
        "✓   1  tick",
        "✓   2  tick#2",
        "✓   3  tick#3",
        "·   4  changed by a person",
        "✓   5  answer",
        "The current workflow gives the recorded results.",
    ]


def test_what_differs_is_shown_below_its_step_and_exits_with_3() -> None:
    result = wtb("show", "r1", "--replay", "--workflow", f"{source()}_changed.py")
    assert result.exit_code == 3
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "✗   2  tick#2" in lines
    assert "next nodes: recorded tick, now answer" in lines
    assert any(line.startswith("state.text: recorded 'xxx") and line.endswith(", now 'y'") for line in lines)
    assert all(len(line) < 300 for line in lines)
    assert lines[-1] == "The current workflow gives another result in 3 of 6 steps."


def test_json_has_the_values_whole() -> None:
    assert json.loads(wtb("show", "r1", "--replay", "--json").stdout)["same"] is True
    result = wtb("show", "r1", "--replay", "--workflow", f"{source()}_changed.py", "--json")
    report: dict[str, Any] = json.loads(result.stdout)
    assert (result.exit_code, report["run"], report["same"]) == (3, "r1", False)
    step = report["steps"][2]
    assert (step["verdict"], step["visits"]) == ("different", [{"node": "tick", "visit": 2}])
    text, route = step["differences"]
    assert (text["key"], text["recorded"], text["now"]) == ("text", "x" * 500, "y")
    assert (route["aspect"], route["recorded"], route["now"], route["error"]) == (
        "next nodes",
        ["tick"],
        ["answer"],
        None,
    )


def test_a_run_that_is_not_there_is_one_sentence() -> None:
    result = wtb("show", "nope", "--replay")
    assert result.exit_code == 1
    assert result.stderr.startswith("wtb: no run 'nope'")
