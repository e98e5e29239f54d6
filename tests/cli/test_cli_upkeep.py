"""`wtb prune` and `wtb doctor` as a person types them: one real process a command, in a folder of their own."""

from __future__ import annotations

import os
import pty
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.shell import WTB, Shell, environment

FLOW = """
import wtb

flow = wtb.Workflow("loop")


@flow.node(start=True)
def work(state, ctx):
    (ctx.workspace / "file").write_text(f"{state['n']} " * 5_000)
    return {"n": state["n"] + 1, "text": f"{state['n']} " * 1_000}


flow.edge("work", "work", when="n < 30")
flow.edge("work", wtb.END, otherwise=True)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, flow=FLOW)
    shell.wtb("run", "flow.py", "--set", "n=0", "--run-id", "r1")
    return shell


def database(shell: Shell) -> sqlite3.Connection:
    return sqlite3.connect(shell.folder / ".wtb" / "wtb.db", isolation_level=None)


def test_pruning_says_what_would_go_then_does_it_and_then_has_nothing_to_do(shell: Shell) -> None:
    dry = shell.json("prune", "--dry-run")
    assert dry["reasons"] == {"beyond the last ones": 10}
    assert [run["run"] for run in dry["runs"]] == ["r1"]
    assert len(shell.json("history", "r1")) == 31
    said = shell.wtb("prune", "--dry-run", "--verbose").stdout
    assert "Would delete 10 checkpoints of 1 run" in said
    assert "10 because their run keeps only its last ones" in said
    assert "loop: each run keeps its last 20, for 90 days" in said
    assert "data used within the last 1 h 00 min is kept" in said
    assert dry["kept"] == {"loop": {"keep_last": 20, "keep_days": 90, "keep_workspaces_days": 7}}
    assert dry["runs"][0]["steps"] == [1, 10]
    assert "1 to 10" in said
    done = shell.json("prune")
    assert (done["checkpoints"], done["size"]) == (10, dry["size"])
    assert done["swept"] == {"blobs": 0, "commits": 0, "objects": 0, "size_bytes": 0, "problem": None}
    assert shell.wtb("prune").stdout.startswith("Deleted 0 checkpoints of 0 runs.\n")
    assert shell.json("doctor")["healthy"]


def test_what_was_not_used_for_long_is_collected(shell: Shell) -> None:
    (shell.folder / "wtb.toml").write_text("sweep_grace_s = 0\n[retention]\nkeep_last = 2\n")
    done = shell.json("prune")
    assert done["checkpoints"] == 28
    assert done["swept"]["objects"] == 28
    assert done["swept"]["size_bytes"] > 28 * 10_000
    shell.wtb("export", "r1", "out")
    assert (shell.folder / "out" / "file").read_text() == "29 " * 5_000
    assert shell.json("doctor")["garbage"] == {"blobs": 0, "commits": 0, "objects": 0, "size_bytes": 0}


def test_workspaces_of_ended_runs_go_after_their_time_and_those_that_stay_are_named(shell: Shell) -> None:
    assert shell.json("prune")["workspaces"] == {"removed": 0, "size": 0, "kept": []}
    (shell.folder / "wtb.toml").write_text("[retention]\nkeep_workspaces_days = 0\n")
    (folder,) = (shell.folder / ".wtb" / "workspaces" / "r1").glob("*/files")
    content = (folder / "file").read_text()
    (folder / "notes").write_text("mine")
    (kept,) = shell.json("prune")["workspaces"]["kept"]
    assert kept == {"run": "r1", "folder": str(folder), "reason": "somebody has changed files in it, such as 'notes'"}
    assert f"Kept {folder}: somebody has changed files in it, such as 'notes'" in shell.wtb("prune").stdout
    (folder / "notes").unlink()
    assert "Would remove 1 workspace (" in shell.wtb("prune", "--dry-run").stdout
    assert shell.json("prune", "--run", "r1")["workspaces"] == {"removed": 1, "size": len(content), "kept": []}
    assert not folder.exists()
    shell.wtb("rollback", "r1", "25", "--yes")
    assert (folder / "file").read_text() == "24 " * 5_000


def test_a_workflow_may_keep_more_or_less_than_others(shell: Shell) -> None:
    (shell.folder / "wtb.toml").write_text("[retention.workflows.loop]\nkeep_last = 1000\n")
    assert shell.json("prune", "--workflow", "loop")["checkpoints"] == 0
    (shell.folder / "wtb.toml").write_text("[retention.workflows.other]\nkeep_last = 1000\n")
    assert shell.json("prune", "--run", "r1")["checkpoints"] == 10
    shell.wtb("prune", "--run", "no such run", code=1)


def test_a_store_that_is_well_is_said_to_be_so(shell: Shell) -> None:
    said = shell.wtb("doctor").stdout
    assert "31 checkpoints" in said
    assert said.endswith("No faults.\n")


def test_a_fault_is_named_and_the_exit_code_tells(shell: Shell) -> None:
    with database(shell) as connection:
        connection.execute("UPDATE wtb_checkpoints SET description = 'changed' WHERE step = 3")
    said = shell.wtb("doctor", code=1).stdout
    assert "FAULT: checkpoint" in said
    assert "affects 1 run: r1" in said
    assert "cannot be repaired" in said
    assert said.endswith("1 fault found.\n")
    assert not shell.json("doctor", "--repair", code=1)["healthy"]
    assert "Deleted no unused data: checkpoint" in shell.wtb("prune").stdout


def test_a_file_whose_content_is_lost_is_named(shell: Shell) -> None:
    objects = sorted((shell.folder / ".wtb" / "objects").glob("??/*"))
    lost = next(path for path in objects if path.read_bytes().startswith(b"7 "))
    lost.unlink()
    said = shell.wtb("doctor", code=1).stdout
    assert "(the file 'file') is missing" in said
    assert "could not be repaired from the stored data" in shell.wtb("doctor", "--repair", code=1).stdout


def test_what_can_be_derived_is_repaired(shell: Shell) -> None:
    with database(shell) as connection:
        connection.execute("INSERT INTO wtb_keyframes VALUES ('nothing', x'00')")
        connection.execute(
            "UPDATE wtb_executions SET status = 'running', lease_owner = NULL, updated_at_us = 0, seal = NULL"
        )
    found = shell.json("doctor", code=1)
    assert {fault["kind"] for fault in found["faults"]} == {"keyframe", "abandoned run"}
    said = shell.wtb("doctor", "--repair").stdout
    assert "repaired: run 'r1' is running" in said
    assert "Repaired 2 faults.\nNo faults remain." in said
    assert shell.json("doctor")["faults"] == []
    assert shell.json("ls")[0]["status"] == "paused"


def test_a_run_whose_row_is_damaged_is_named_left_out_of_lists_and_can_be_deleted(shell: Shell) -> None:
    with database(shell) as connection:
        connection.execute("UPDATE wtb_executions SET options = '{}'")
    assert "FAULT: run 'r1' is damaged: its row does not match its checksum\n" in shell.wtb("doctor", code=1).stdout
    assert shell.json("ls") == []
    refused = shell.wtb("resume", "r1", code=1)
    assert refused.stderr == "wtb: run 'r1' is damaged: its row does not match its checksum; `wtb doctor` shows more\n"
    assert "WTB cannot tell whether a process is running it" in shell.wtb("delete", "r1", code=2).stderr
    assert shell.json("delete", "r1", "--yes")["deleted"] == "r1"
    assert shell.json("doctor")["faults"] == []


def test_a_rollback_that_nobody_is_at_is_left_to_a_person_with_what_to_type(shell: Shell) -> None:
    with database(shell) as connection:
        connection.execute(
            "UPDATE wtb_executions SET status = 'rolling_back', lease_owner = NULL, updated_at_us = 0, seal = NULL"
        )
    said = shell.wtb("doctor", "--repair", code=1).stdout
    assert "finish it with `wtb rollback r1 --continue`, or give it up with `--abandon`" in said
    assert "--repair does not touch it" in said
    assert "restore a backup" not in said


@pytest.mark.parametrize("command", ["prune", "doctor"])
def test_a_terminal_sees_progress_and_the_result(shell: Shell, command: str) -> None:
    mine, theirs = pty.openpty()
    done = subprocess.run(
        [*WTB, command], cwd=shell.folder, env=environment(), stdout=subprocess.PIPE, stderr=theirs, check=False
    )
    os.close(theirs)
    os.close(mine)
    assert done.returncode == 0
    assert b"31 checkpoints" in done.stdout or b"Deleted 10 checkpoints" in done.stdout
