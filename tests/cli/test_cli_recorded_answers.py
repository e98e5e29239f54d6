"""Recorded answers of tools, as a person uses them who edits the program between two batches: none is out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import Shell

BATCH = """
import wtb

RATES = {"eur": 1}
calls = []
PROMPT = ["short"]


@wtb.tool
def convert(amount):
    calls.append(amount)
    with open("log", "a") as log:
        log.write(f"asked {amount}\\n")
    with open("fees") as fees:
        return amount * RATES["eur"] + int(fees.read())


flow = wtb.Workflow("change")


@flow.node(start=True)
def change(state, ctx):
    return {"answer": ctx.tool(convert, state["amount"]), "prompt": PROMPT[0]}


cases = [{"id": "a", "input": {"amount": 100}}]
batch = wtb.BatchTest(
    flow, cases=cases, evaluators=["steps"], tools={"convert": "record"}, output="answer", repeats=2, share=False
)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "fees").write_text("5")
    return Shell(tmp_path, batch=BATCH)


def answers(shell: Shell) -> list[str]:
    """Run the batch, and return the outputs of its jobs."""
    shell.wtb("batch", "run", "batch.py")
    return [each["output"] for each in shell.json("batch", "show", "change", "--cases")]


def real_calls(shell: Shell) -> int:
    return len((shell.folder / "log").read_text().splitlines())


def edit(shell: Shell, old: str, new: str) -> None:
    file = shell.folder / "batch.py"
    file.write_text(file.read_text().replace(old, new))


def test_an_answer_is_recorded_anew_when_a_file_or_a_value_that_its_tool_reads_has_changed(shell: Shell) -> None:
    assert answers(shell) == ["105", "105"]
    (shell.folder / "fees").write_text("6")
    assert answers(shell) == ["106", "106"]
    edit(shell, '"eur": 1', '"eur": 2')
    assert answers(shell) == ["206", "206"]
    assert real_calls(shell) == 3


def test_an_answer_outlives_changes_that_do_not_concern_its_tool(shell: Shell) -> None:
    assert answers(shell) == ["105", "105"]
    edit(shell, "short", "long")
    edit(shell, '"prompt":', '"said":')
    assert answers(shell) == ["105", "105"]
    assert real_calls(shell) == 1


def test_a_node_that_was_given_an_old_answer_runs_again_when_what_the_tool_read_has_changed(shell: Shell) -> None:
    edit(shell, ", share=False", "")
    assert answers(shell) == ["105", "105"]
    edit(shell, '"prompt":', '"said":')  # the node runs again, and gets the answer of the first batch
    assert answers(shell) == ["105", "105"]
    (shell.folder / "fees").write_text("6")
    assert answers(shell) == ["106", "106"]
    assert real_calls(shell) == 2
