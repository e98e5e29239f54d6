"""The run verbs as a person types them: one real process a command, in a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FLOW = """
import wtb

flow = wtb.Workflow("support")


@flow.node(start=True)
def classify(state):
    return {"topic": "billing" if "invoice" in state["question"] else "other"}


@flow.node()
def approve(state, ctx):
    return {"approved": ctx.ask("Approve?") if state["topic"] == "billing" else False}


@flow.node()
def answer(state):
    if state.get("fail"):
        raise ValueError("no answer today")
    return {"answer": f"About {state['topic']}"}


flow.edge("classify", "approve")
flow.edge("approve", "answer")
flow.edge("answer", wtb.END)
"""


class Shell:
    """A folder with a workflow, and `wtb` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "flow.py").write_text(FLOW)

    def wtb(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WTB_")}
        command = [sys.executable, "-m", "wtb", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == code, done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.wtb(*arguments, "--json", code=code).stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_run_is_begun_in_one_process_and_finished_in_others(shell: Shell) -> None:
    first = shell.json("run", "flow.py", "--set", "question=my invoice", "--run-id", "r1", "--break-before", "approve")
    assert (first["status"], first["waiting"], first["state"]["topic"]) == ("paused", "break before approve", "billing")
    asked = shell.json("resume", "r1")
    assert asked["question"]["question"] == "Approve?"
    done = shell.json("resume", "r1", "--answer", "true")
    assert (done["status"], done["state"]["approved"]) == ("completed", True)
    rows = shell.json("history", "r1")
    assert [(row["step"], row["node"]) for row in rows] == [(0, ""), (1, "classify"), (2, "approve"), (3, "answer")]
    assert [row["status"] for row in shell.json("ls")] == ["completed"]
    assert shell.json("ls", "--status", "failed") == []


def test_a_failed_run_says_why_exits_with_3_and_can_be_resumed(shell: Shell) -> None:
    shell.wtb("run", "flow.py:flow", "--input", '{"question": "hi", "fail": true}', "--run-id", "r1", code=3)
    shown = shell.wtb("show", "r1").stdout
    assert "ValueError: no answer today" in shown
    assert "wtb resume r1" in shown
    errors = shell.json("show", "r1", "--errors")
    assert {row["event"] for row in errors} == {"node.failed", "execution.failed"}
    assert shell.json("resume", "r1", "--set", "fail=false")["state"]["answer"] == "About other"


def test_the_display_names_nodes_as_they_finish_and_shows_the_result(shell: Shell) -> None:
    done = shell.wtb("run", "flow.py", "--set", "question=hi")
    assert [line.strip() for line in done.stderr.splitlines()[1:]] == ["✓ classify", "✓ approve", "✓ answer"]
    assert '"answer": "About other"' in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nope.py"), "there is no file nope.py"),
        (("run", "flow.py:other"), "has no workflow called 'other'; it has flow"),
        (("run", "flow.py", "--input", "{"), "--input is no JSON"),
        (("run", "flow.py", "--input", "[]"), "must be a JSON object"),
        (("run", "flow.py", "--set", "x"), "--set takes KEY=VALUE"),
        (("run", "flow.py", "--break-before", "nope"), "there is no node 'nope'"),
        (("run", "flow.py", "--run-id", "a b"), "the run id"),
        (("ls", "--since", "soon"), "--since takes a number"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_exit_code_2(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    done = shell.wtb(*arguments, code=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_run_is_named(shell: Shell) -> None:
    assert "no run 'nope'" in shell.wtb("show", "nope", code=1).stderr
