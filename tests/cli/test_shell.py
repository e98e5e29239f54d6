"""The commands of `tests.shell` are forks, and behave as commands that a person types."""

from __future__ import annotations

from pathlib import Path

from tests.shell import Shell, environment, run_wtb

FLOW = """
import os, sys, wtb

flow = wtb.Workflow("flow")

@flow.node(start=True)
def look(state):
    return {"hash": hash("text"), "process": os.getpid(), "path": sys.path, "main": sys.modules["__main__"].__file__}
"""


def test_each_command_has_a_folder_variables_and_an_exit_code_of_its_own(tmp_path: Path) -> None:
    variables = {**environment(), "WTB_URL": "nonsense://"}
    refused = run_wtb("ls", folder=tmp_path, variables=variables)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "nonsense://" in refused.stderr
    done = run_wtb("ls", folder=tmp_path, variables=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / ".wtb").exists()


def test_each_command_is_a_process_that_hashes_differently_from_the_one_before(tmp_path: Path) -> None:
    shell = Shell(tmp_path, flow=FLOW)
    one, other = (shell.json("run", "flow.py")["state"] for _ in range(2))
    assert one["hash"] != other["hash"]
    assert one["process"] != other["process"]
    assert str(Path(__file__).parents[2]) not in one["path"]
    assert one["main"].endswith("wtb/__main__.py")
