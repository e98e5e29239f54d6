"""What nodes print, also in other processes, does not disturb programs that read the JSON of a command."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.shell import Shell

FLOW = """
import os
import subprocess

import wtb

flow, elsewhere = wtb.Workflow("printing"), wtb.Workflow("elsewhere")


def say(state):
    print("said by a node", flush=True)
    subprocess.run(["echo", "said by its program"])
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
    texts = shell.wtb(*command, *again).stdout
    for said in ("said by a node", "said by its program"):
        assert said in done.stderr
        assert said in texts


def test_output_that_finds_no_space_says_so(empty_folder: Path) -> None:
    shell = Shell(empty_folder, printing=FLOW)
    for as_json in ((), ("--json",)):
        with Path("/dev/full").open("w") as full:
            command = shell.start("ls", *as_json, stdout=full, stderr=PIPE)
            assert command.communicate()[1] == "wtb: the output cannot be written: no space left on its device\n"
            assert command.returncode == 1
