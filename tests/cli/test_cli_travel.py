"""Time travel as a person types it: one real process a command, tools that leave traces in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.shell import Shell, Terminal
from wtb.cli import main

FLOW = """
import json, pathlib, time, wtb

DESK = pathlib.Path("desk.json")


def tickets():
    return json.loads(DESK.read_text()) if DESK.exists() else []


def close(call):
    if pathlib.Path("slow").exists():
        pathlib.Path("closing").touch()
        time.sleep(300)
    if pathlib.Path(f"closed-{call.arguments['title']}").exists():
        raise ConnectionError("the desk is closed")
    DESK.write_text(json.dumps([each for each in tickets() if each != call.result]))


@wtb.tool(reverse=close)
def open_ticket(title):
    number = f"{title}{pathlib.Path('series').read_text() if pathlib.Path('series').exists() else ''}"
    DESK.write_text(json.dumps([*tickets(), number]))
    return number


@wtb.tool
def mail(text):
    pathlib.Path("mails").open("a").write(text)


flow = wtb.Workflow("support")
flow.reducer("log", wtb.append)


def add(name):
    def node(state, ctx):
        ctx.tool(open_ticket, title=name)
        if state.get("mail") == name:
            ctx.tool(mail, text=name)
        (ctx.workspace / f"{name}.txt").write_text(name)
        (ctx.workspace / "all.txt").write_text("".join(state.get("log", [])) + name)
        return {"log": name}

    flow.add_node(name, node, start=name == "a")


for name in "abc":
    add(name)
flow.edge("a", "b")
flow.edge("b", "c")
"""


class Desk(Shell):
    """A folder with the workflow and a finished run `first`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, flow=FLOW)
        self.wtb("run", "flow.py", "--run-id", "first")

    @property
    def tickets(self) -> list[str]:
        found: list[str] = json.loads((self.folder / "desk.json").read_text())
        return found

    def state(self, run_id: str = "first") -> Any:
        return self.json("show", run_id)["state"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


PLAN = """\
Go back to step 1 after a#1, 2 checkpoints back.
Nodes to undo, newest first:
  c#1
  b#1
Calls to undo, in this order:
  open_ticket(title='c')
  open_ticket(title='b')
Files:
  ~ all.txt
  - b.txt
  - c.txt
"""


def test_a_rollback_in_a_new_process_takes_back_state_files_and_calls_and_redo_brings_them_again(desk: Desk) -> None:
    assert desk.wtb("rollback", "first", "a", "--dry-run").stdout == PLAN
    assert desk.tickets == ["a", "b", "c"]
    done = desk.wtb("rollback", "first", "a", "--yes").stdout
    assert done == f"{PLAN}Paused: rolled back to a#1. Continue with `wtb resume first`.\n"
    assert (desk.tickets, desk.state()) == (["a"], {"log": ["a"]})
    assert [row["path"] for row in desk.json("show", "first", "--files")] == ["a.txt", "all.txt"]
    assert "first is already there" in desk.wtb("rollback", "first", "a", "--yes").stdout
    assert "there is no terminal to ask on, so nothing was changed" in desk.wtb("redo", "first", code=2).stderr
    assert desk.tickets == ["a"]
    assert desk.wtb("redo", "first", "--yes").stdout == (
        "Calls to repeat, in this order:\n  open_ticket(title='b')\n  open_ticket(title='c')\n"
        "Paused: moved forward to c#1. Continue with `wtb resume first`.\n"
    )
    assert (desk.tickets, desk.state()) == (["a", "b", "c"], {"log": ["a", "b", "c"]})
    assert "has no rollback to redo" in desk.wtb("redo", "first", code=2).stderr


def test_programs_get_the_plan_and_where_the_run_stands(desk: Desk) -> None:
    planned = desk.json("rollback", "first", "a", "--dry-run")
    assert planned["plan"]["nodes"] == ["c#1", "b#1"]
    assert [call["tool"] for call in planned["plan"]["reverse"]] == ["open_ticket", "open_ticket"]
    done = desk.json("rollback", "first", "a", "--yes")
    assert (done["plan"], done["status"], done["node"], done["next"]) == (planned["plan"], "paused", "a", ["b"])


def test_history_marks_the_head_and_shows_what_was_left_only_when_asked(desk: Desk) -> None:
    desk.wtb("rollback", "first", "b", "--yes")
    assert [(row["node"], row["mark"]) for row in desk.json("history", "first")] == [("", ""), ("a", ""), ("b", "head")]
    everything = [(row["node"], row["mark"]) for row in desk.json("history", "first", "--all")]
    assert everything == [("", ""), ("a", ""), ("b", "head"), ("c", "left"), ("", "safety")]


def test_calls_that_cannot_be_taken_back_are_shown_and_refused_unless_allowed(desk: Desk) -> None:
    desk.wtb("run", "flow.py", "--run-id", "mailed", "--set", "mail=b")
    refused = desk.wtb("rollback", "mailed", "a", "--yes", code=2)
    assert "Calls that cannot be undone:\n  mail(text='b')\n" in refused.stdout
    assert "1 call cannot be undone, so nothing was changed; with --allow-irreversible" in refused.stderr
    assert desk.state("mailed")["log"] == ["a", "b", "c"]
    desk.wtb("rollback", "mailed", "a", "--yes", "--allow-irreversible")
    assert desk.state("mailed")["log"] == ["a"]


def test_tools_and_files_stay_when_that_is_said(desk: Desk) -> None:
    told = desk.wtb("rollback", "first", "a", "--yes", "--no-tools", "--no-files").stdout
    assert "Calls to keep (--no-tools):\n  open_ticket(title='c')\n" in told
    assert "Files" not in told
    assert (desk.tickets, desk.state()) == (["a", "b", "c"], {"log": ["a"]})
    assert len(desk.json("show", "first", "--files")) == 4


def test_a_reversal_that_fails_is_shown_with_what_was_undone_and_is_continued(desk: Desk) -> None:
    (desk.folder / "closed-b").touch()
    failed = desk.wtb("rollback", "first", "a", "--yes", code=3).stderr
    assert "could not be undone: ConnectionError: the desk is closed" in failed
    for said in (failed, desk.wtb("show", "first").stdout):
        assert "Already undone:\n  open_ticket(title='c')\nLeft to do:\n  open_ticket(title='b')\n" in said
        assert "`wtb rollback first --continue`, or give it up with `wtb rollback first --abandon`" in said
    shown = desk.json("show", "first")
    assert (shown["status"], shown["rollback"]["left"][0]["arguments"]) == ("rolling_back", {"title": "b"})
    for command in (("resume", "first"), ("redo", "first"), ("fork", "first"), ("rollback", "first", "b", "--yes")):
        assert "in the middle of a rollback" in desk.wtb(*command, code=2).stderr
    assert "in the middle of a rollback" in desk.wtb("delete", "first@a", "--yes", code=2).stderr
    assert desk.json("rollback", "first", "--continue", code=3)["status"] == "rolling_back"
    (desk.folder / "closed-b").unlink()
    assert "Paused: rolled back to a#1" in desk.wtb("rollback", "first", "--continue").stdout
    assert (desk.tickets, desk.state()) == (["a"], {"log": ["a"]})
    assert "there is no rollback to finish" in desk.wtb("rollback", "first", "--continue", code=2).stderr
    refused = desk.wtb("rollback", "first", "a", "--take-over", code=2).stderr
    assert "`wtb resume first --take-over`" in refused


def test_a_rollback_that_is_given_up_leaves_the_run_where_it_was_even_without_its_workflow(desk: Desk) -> None:
    (desk.folder / "closed-b").touch()
    desk.wtb("rollback", "first", "a", "--yes", code=3)
    (desk.folder / "flow.py").unlink()
    assert "Paused: rollback given up" in desk.wtb("rollback", "first", "--abandon").stdout
    assert (desk.tickets, desk.state()) == (["a", "b"], {"log": ["a", "b", "c"]})


def test_a_rollback_is_not_continued_past_a_tool_that_is_gone(desk: Desk) -> None:
    (desk.folder / "closed-b").touch()
    desk.wtb("rollback", "first", "a", "--yes", code=3)
    (desk.folder / "flow.py").write_text(FLOW.replace("@wtb.tool(reverse=close)", '@wtb.tool(name="renamed")'))
    failed = desk.wtb("rollback", "first", "--continue", code=3).stderr
    assert "cannot be undone: this program has no tool of that name with reverse=" in failed
    assert desk.json("show", "first")["status"] == "rolling_back"


@pytest.mark.parametrize("way", ["--continue", "--abandon"])
def test_a_rollback_that_was_killed_in_the_middle_of_a_reversal_asks_what_became_of_it(desk: Desk, way: str) -> None:
    (desk.folder / "slow").touch()
    with desk.start("rollback", "first", "b", "--yes", stdout=subprocess.DEVNULL) as process:
        while not (desk.folder / "closing").exists():
            assert process.poll() is None
            time.sleep(0.01)
        assert "is being run by" in desk.wtb("rollback", "first", "--continue", code=1).stderr
        assert "is being run by" in desk.wtb("delete", "first", "--yes", code=1).stderr
        process.kill()
    (desk.folder / "slow").unlink()
    assert "its process is still working on it, or was killed" in desk.wtb("show", "first").stdout
    asked = desk.wtb("rollback", "first", way, code=3 if way == "--continue" else 2).stderr
    assert "was being taken back when its process died" in asked
    assert "--in-doubt done" in asked
    desk.wtb("rollback", "first", way, "--in-doubt", "again")
    log = ["a", "b"] if way == "--continue" else ["a", "b", "c"]
    assert (desk.tickets, desk.state()) == (["a", "b"], {"log": log})


def test_a_redo_that_gives_something_else_takes_that_back_and_stays(desk: Desk) -> None:
    desk.wtb("rollback", "first", "a", "--yes")
    (desk.folder / "series").write_text("-2")
    diverged = desk.wtb("redo", "first", "--yes", code=3).stderr
    assert "gave 'b-2' when it was called again, and 'b' before; the run stays where it is" in diverged
    assert (desk.tickets, desk.json("show", "first")["status"]) == (["a"], "paused")


def test_a_fork_goes_on_by_itself_and_the_original_stays(desk: Desk) -> None:
    made = desk.wtb("fork", "first", "b", "--run-id", "second", "--set", "extra=1").stdout
    assert made == (
        "second starts at step 2 after b#1 of first.\n"
        "These later calls of first are not undone:\n"
        "  open_ticket(title='c')\n"
        "Continue with `wtb resume second`.\n"
    )
    assert desk.json("resume", "second")["state"] == {"log": ["a", "b", "c"], "extra": 1}
    forked = desk.json("fork", "first", "a", "--run-id", "third", "--resume")
    assert (forked["run"], forked["from"], forked["status"]) == ("third", "first", "completed")
    assert [call["arguments"]["title"] for call in forked["effects"]] == ["b", "c"]
    other = desk.json("fork", "first", "--input", '{"log": []}')
    assert (other["status"], desk.state(other["run"])) == ("pending", {"log": []})
    assert desk.state() == {"log": ["a", "b", "c"]}
    kept = desk.wtb("rollback", "first", "a", "--dry-run").stdout
    assert "Calls to keep (a fork builds on them; --shared reverse undoes them):\n  open_ticket(title='b')\n" in kept
    assert "Calls to keep" not in desk.wtb("rollback", "first", "a", "--dry-run", "--shared", "reverse").stdout


def test_a_checkpoint_with_a_name_is_gone_back_to_and_deleted_by_it(desk: Desk) -> None:
    desk.wtb("rollback", "first", "a", "--yes")
    said = desk.wtb("checkpoint", "first", "before b", "--description", "one ticket").stdout
    assert said == "Step 2 of first is now called 'before b'.\n"
    assert "resume or roll back before you delete it" in desk.wtb("delete", "first@before b", "--yes", code=1).stderr
    desk.wtb("resume", "first")
    desk.wtb("rollback", "first", "before b", "--yes")
    assert desk.state() == {"log": ["a"]}
    desk.wtb("resume", "first")
    assert "('before b', step 2)" in desk.wtb("delete", "first@before b", "--yes").stderr
    assert "no checkpoint 'before b'" in desk.wtb("rollback", "first", "before b", "--yes", code=1).stderr
    assert desk.state() == {"log": ["a", "b", "c"]}


def test_a_run_is_deleted_with_its_checkpoints_and_without_its_forks(desk: Desk) -> None:
    desk.wtb("fork", "first", "c", "--run-id", "second")
    unmoved = desk.wtb("delete", "first", "--yes", code=1).stderr
    assert "is the head of a fork, run 'second'; resume or delete that run first" in unmoved
    desk.wtb("delete", "second", "--yes")
    desk.wtb("fork", "first", "b", "--run-id", "third", "--resume")
    gone = desk.wtb("delete", "first", "--yes").stderr
    assert gone == "This deletes run first (support, completed) with 4 checkpoints; 1 fork will stay: third.\n"
    assert "no run 'first'" in desk.wtb("show", "first", code=1).stderr
    assert desk.state("third") == {"log": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("rollback", "first"), 2, "give a target, such as `wtb rollback first NODE`, or --continue"),
        (("rollback", "first", "a", "--abandon"), 2, "give a target"),
        (("rollback", "first", "a", "--in-doubt", "done"), 2, "--in-doubt works only with --continue"),
        (("rollback", "first", "a"), 2, "there is no terminal to ask on, so nothing was changed; pass --yes"),
        (("rollback", "first", "nope", "--yes"), 1, "no checkpoint 'nope' in run first"),
        (("rollback", "first", "99", "--yes"), 1, "no checkpoint '99'"),
        (("rollback", "first", "", "--yes"), 1, "no checkpoint ''"),
        (
            ("rollback", "first", "a", "--workflow", "other.py"),
            2,
            "workflow 'support', but other.py contains",
        ),
        (("rollback", "first", "a", "--workflow", "nope.py"), 2, "there is no file nope.py"),
        (("fork", "first", "a", "--input", "{}"), 2, "starts at the beginning"),
        (("fork", "first", "--run-id", "first"), 1, "there is already a run 'first'"),
        (("checkpoint", "first", "2"), 2, "a checkpoint cannot be called '2'"),
        (("checkpoint", "first", " "), 2, "a checkpoint cannot be called ' '"),
        (("checkpoint", "first", "b#2"), 2, "'b#2' means a visit of a node"),
        (("delete", "first"), 2, "there is no terminal to ask on, so nothing was changed; pass --yes"),
        (("delete", "first@", "--yes"), 1, "no checkpoint ''"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    finished: Desk, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(finished.folder)
    refused = CliRunner().invoke(main, arguments)
    assert said in refused.stderr
    assert (refused.exit_code, type(refused.exception)) == (code, SystemExit)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A desk that nothing is done to; one a process, since its tools are registered in this one."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    (desk.folder / "other.py").write_text("import wtb\nflow = wtb.Workflow('other')\n")
    return desk


def test_a_workflow_that_has_moved_is_named_and_not_needed_where_tools_stay(desk: Desk) -> None:
    (desk.folder / "flow.py").rename(desk.folder / "moved.py")
    gone = desk.wtb("rollback", "first", "b", "--yes", code=2).stderr
    assert "there is no file" in gone
    assert "`--workflow`" in gone
    desk.wtb("rollback", "first", "b", "--yes", "--workflow", "moved.py")
    assert desk.tickets == ["a", "b"]
    desk.wtb("rollback", "first", "a", "--yes", "--no-tools")
    assert desk.tickets == ["a", "b"]


def ask(desk: Desk, terminal: Terminal) -> subprocess.Popen[str]:
    """Type a rollback, and wait for its question."""
    command = ("rollback", "first", "a")
    streams = {"stdin": terminal.theirs, "stderr": terminal.theirs, "stdout": subprocess.DEVNULL}
    process = desk.start(*command, **streams)
    terminal.wait_for(r"Go back\? \[y/N\]: ")
    return process


def test_the_question_is_answered_on_the_terminal(desk: Desk, terminal: Terminal) -> None:
    with ask(desk, terminal) as process:
        terminal.type("y\n")
        assert process.wait(timeout=60) == 0
    assert desk.tickets == ["a"]


@pytest.mark.parametrize("answer", ["n\n", "\x04", "Ctrl-C"])
def test_nothing_is_done_without_a_yes(desk: Desk, terminal: Terminal, answer: str) -> None:
    with ask(desk, terminal) as process:
        if answer == "Ctrl-C":
            terminal.interrupt(process, "Aborted!")
        else:
            terminal.type(answer)
            terminal.wait_for("Aborted!")
        assert process.wait(timeout=60) == 1
    assert (desk.tickets, desk.json("show", "first")["status"]) == (["a", "b", "c"], "completed")


@pytest.mark.parametrize("other", [("rollback", "first", "b", "--yes"), ("fork", "first", "b", "--run-id", "second")])
def test_a_run_that_changes_while_somebody_thinks_is_a_conflict(
    desk: Desk, terminal: Terminal, other: tuple[str, ...]
) -> None:
    with ask(desk, terminal) as process:
        desk.wtb(*other)
        before = desk.tickets
        terminal.type("y\n")
        terminal.wait_for("has changed since you saw the plan, so nothing was done")
        assert process.wait(timeout=60) == 1
    assert desk.tickets == before


def test_ctrl_c_in_the_middle_of_a_reversal_says_where_to_look(desk: Desk) -> None:
    (desk.folder / "slow").touch()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with desk.start("rollback", "first", "b", "--yes", **streams) as process:
        while not (desk.folder / "closing").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        assert "Interrupted; `wtb show first` shows where the run is now." in process.communicate(timeout=60)[1]
    (desk.folder / "slow").unlink()
    desk.wtb("rollback", "first", "--continue", "--in-doubt", "again")
    assert desk.tickets == ["a", "b"]
