"""`wtb parity`: the same sample on several runners."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shell import Shell

BATCH = """
import os

import wtb

flow = wtb.Workflow("greeter")


@flow.node(start=True)
def greet(state, ctx):
    (ctx.workspace / "letter.txt").write_text(PLACE)
    return {"answer": f"hello {state['name']}", "where": PLACE}


flow.edge("greet", wtb.END)
cases = [{"id": name, "input": {"name": name}, "expected": f"hello {name}"} for name in ("ann", "bob", "cid")]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[wtb.ExactMatch("answer"), "latency_s"])
"""


@pytest.fixture
def shell(empty_folder: Path) -> Iterator[Shell]:
    yield Shell(empty_folder)
    sys.modules.pop("greeter", None)


RUNNERS = ("--runner", "threads", "--runner", "processes")


def test_runners_with_the_same_results_are_equal_whatever_time_they_take(shell: Shell) -> None:
    (shell.folder / "greeter.py").write_text(BATCH.replace("PLACE", "'here'"))
    found = shell.json("parity", "greeter.py", "--sample", "2", *RUNNERS)
    assert (found["equal"], found["jobs"], found["differences"]) == (True, 2, [])
    assert found["batches"] == {"threads": "greeter on threads", "processes": "greeter on processes"}


def test_a_node_that_depends_on_its_process_is_found(shell: Shell) -> None:
    (shell.folder / "greeter.py").write_text(BATCH.replace("PLACE", "str(os.getpid())"))
    shown = shell.wtb("parity", "greeter.py", "--sample", "1", *RUNNERS, code=3).stdout
    assert "2 differences" in shown
    assert "where" in shown
    assert "letter.txt" in shown


def test_one_runner_cannot_be_compared(shell: Shell) -> None:
    (shell.folder / "greeter.py").write_text(BATCH.replace("PLACE", "'here'"))
    failed = shell.wtb("parity", "greeter.py", "--runner", "threads", code=2)
    assert "name at least two" in failed.stderr


def test_runners_that_cannot_run_the_batch_are_refused_before_the_first_one_runs_it(shell: Shell) -> None:
    text = BATCH.replace("PLACE", "'here'")
    (shell.folder / "greeter.py").write_text(text.replace("    (ctx", '    open("ran", "w").close()\n    (ctx', 1))
    unknown = shell.wtb("parity", "greeter.py", "--runner", "threads", "--runner", "horses", code=2)
    assert "there is no runner 'horses'" in unknown.stderr
    unshared = shell.wtb("parity", "greeter.py", *RUNNERS, "--url", "memory://", code=2)
    assert "memory:// is not one" in unshared.stderr
    assert not (shell.folder / "ran").exists()
