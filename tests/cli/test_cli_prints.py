"""What nodes print, also in other processes, does not disturb programs that read the JSON of a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shell import Shell

FLOW = """
import os

import wtb

flow, elsewhere = wtb.Workflow("printing"), wtb.Workflow("elsewhere")


def say(state):
    print("said by a node")
    return {"process": os.getpid()}


flow.add_node("say", say, start=True)
elsewhere.add_node("say", say, start=True, environment="subprocess")
batch = wtb.BatchTest(flow, cases=[{"id": "one", "input": {}}], evaluators=["steps"])
"""


@pytest.mark.parametrize(
    "command",
    [
        ("run", "printing.py:flow"),
        ("run", "printing.py:elsewhere"),
        ("batch", "run", "printing.py:batch"),
        ("batch", "run", "printing.py:batch", "--runner", "processes"),
    ],
    ids=" ".join,
)
def test_with_json_prints_of_nodes_go_to_stderr(empty_folder: Path, command: tuple[str, ...]) -> None:
    shell, again = Shell(empty_folder, printing=FLOW), ("--fresh",) if "batch" in command else ()
    done = shell.wtb(*command, "--json")
    assert json.loads(done.stdout)["status"] == "completed"
    assert "said by a node" in done.stderr
    assert "said by a node" in shell.wtb(*command, *again).stdout
