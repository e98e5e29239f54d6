"""Batches that call external tools as a person types them: what is named before, and what is taken back after."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import Shell

BATCH = """
import pathlib
import wtb


def log(text):
    with open("log", "a") as file:
        file.write(f"{text}\\n")


class Planned:
    def __wtb_fingerprint__(self):
        log("planned")
        return "always the same"


def cancel(call):
    if pathlib.Path("closed").exists():
        raise RuntimeError("the office is closed")
    log(f"cancelled {call.arguments['room']}")


@wtb.tool(reverse=cancel)
def shell_book(room):
    log(f"booked {room}")
    return "booked"


flow = wtb.Workflow("trip")
planned = Planned()


@flow.node(start=True)
def travel(state, ctx, planned=planned):
    return {"answer": ctx.tool(shell_book, state["room"])}


cases = [{"id": "a", "input": {"room": "12b"}, "expected": {"answer": "booked"}}]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[wtb.ExactMatch("answer")])
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, batch=BATCH)


def lines(shell: Shell) -> list[str]:
    """Return what was logged since the last time."""
    log = shell.folder / "log"
    found = log.read_text().splitlines() if log.exists() else []
    log.write_text("")
    return found


def test_external_reverse_takes_calls_back_and_says_so_before_and_when_it_fails(shell: Shell) -> None:
    (shell.folder / "closed").touch()
    failed = shell.wtb("batch", "run", "batch.py", "--external", "reverse", code=3)
    assert "External tool shell_book: called for real and taken back after each job, in up to 1 job.\n" in failed.stdout
    assert "trip: completed with errors, 1 combination × 1 case" in failed.stdout
    assert "External calls of 1 run were not taken back:\n  baseline on a, run " in failed.stdout
    assert "could not be undone: RuntimeError: the office is closed\n" in failed.stdout
    assert "has not taken back the external calls of run" in shell.wtb("doctor", code=1).stdout
    (left,) = shell.json("batch", "show", "trip")["not_taken_back"]
    shown = shell.wtb("show", left["run"]).stdout
    assert "Left to take back:\n  shell_book(room='12b')\n" in shown
    (shell.folder / "closed").unlink()
    lines(shell)
    data = shell.json("batch", "retry", "trip", "batch.py")
    assert (data["status"], data["not_taken_back"]) == ("completed", [])
    assert [line for line in lines(shell) if line != "planned"] == ["cancelled 12b"]
    assert "No faults." in shell.wtb("doctor").stdout


def test_a_batch_is_planned_once_before_its_first_job(shell: Shell) -> None:
    (tool,) = shell.json("batch", "plan", "batch.py", "--external", "refuse")["external"]
    assert (tool["name"], tool["answer"], tool["taken_back"]) == ("shell_book", "refuse", None)
    planned = lines(shell).count("planned")
    assert planned > 0
    data = shell.json("batch", "run", "batch.py")
    assert [tool["answer"] for tool in data["external"]] == ["run"]
    found = lines(shell)
    stored = 1  # the code of its nodes is stored with a run when it starts
    assert found.index("booked 12b") == planned + stored
