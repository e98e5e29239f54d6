"""The run verbs as a person types them: one real process a command, in a folder of their own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import wtb
from tests.shell import Shell, Terminal, environment
from wtb.cli.commands.runs import advice
from wtb.cli.interrupts import Interrupts
from wtb.domain.errors import InvalidTransition

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


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, flow=FLOW)


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


def test_a_module_is_found_in_this_folder_and_the_functions_of_a_json_file_beside_it(shell: Shell) -> None:
    assert shell.json("run", "flow:flow", "--set", "question=hi")["status"] == "completed"
    inner = shell.folder / "inner"
    inner.mkdir()
    (inner / "parts.py").write_text("def double(state):\n    return {'n': state['n'] * 2}\n")
    data = {"name": "doubler", "nodes": [{"name": "double", "reference": "parts:double", "start": True}]}
    (inner / "doubler.json").write_text(json.dumps(data))
    assert shell.json("run", "inner/doubler.json", "--set", "n=2")["state"] == {"n": 4}


def test_a_json_file_names_a_tool_that_a_module_beside_it_registers(shell: Shell) -> None:
    (shell.folder / "mail.py").write_text(
        "import pathlib\nimport wtb\n\n@wtb.tool(reverse=lambda call: pathlib.Path('sent').unlink())\n"
        "def send(to):\n    pathlib.Path('sent').write_text(to)\n    return f'sent to {to}'\n"
    )
    nodes = [{"name": "mail", "reference": "send", "config": {"to": "Ada"}, "start": True}]
    (shell.folder / "mail.json").write_text(json.dumps({"name": "mail", "imports": ["mail"], "nodes": nodes}))
    assert shell.json("run", "mail.json", "--run-id", "r1")["state"] == {"mail": "sent to Ada"}
    assert (shell.folder / "sent").read_text() == "Ada"
    shell.wtb("rollback", "r1", "0", "--yes")
    assert not (shell.folder / "sent").exists()

    (shell.folder / "mail.json").write_text(json.dumps({"name": "mail", "nodes": nodes}))
    assert 'a workflow as JSON names that module in "imports"' in shell.wtb("run", "mail.json", code=2).stderr


def test_breakpoints_are_cleared(shell: Shell) -> None:
    stops = ("--break-after", "classify", "--break-after", "approve")
    shell.wtb("run", "flow.py", "--set", "question=my invoice", "--run-id", "r1", *stops)
    waiting = shell.json("resume", "r1", "--no-breakpoints", "--break-before", "answer")
    assert waiting["question"]["question"] == "Approve?"
    assert shell.json("resume", "r1", "--answer", "true")["waiting"] == "break before answer"
    assert shell.json("resume", "r1", "--no-breakpoints")["status"] == "completed"


def test_the_history_names_nodes_side_by_side_and_what_a_person_edited(shell: Shell) -> None:
    (shell.folder / "wide.py").write_text(
        "import wtb\n\nflow = wtb.Workflow('wide')\nflow.add_node('begin', lambda state: {}, start=True)\n"
        "for name in ('left', 'right'):\n    flow.add_node(name, lambda state, ctx: {ctx.run.node: 1})\n"
        "    flow.edge('begin', name)\n"
    )
    shell.wtb("run", "wide.py", "--run-id", "r1", "--break-after", "begin")
    shell.wtb("resume", "r1", "--set", "b=1", "--set", "a=1")
    rows = shell.json("history", "r1")
    assert [row["node"] for row in rows] == ["", "begin", "edited a, b", "left, right"]
    tree = shell.wtb("history", "r1", "--tree", "--all").stdout
    assert "2 edited a, b" in tree
    assert "3 left + right" in tree


def test_the_help_lists_the_exit_codes(shell: Shell) -> None:
    told = shell.wtb("--help").stdout
    assert "Exit codes:" in told
    assert [line.split()[0] for line in told.partition("Exit codes:")[2].splitlines() if line[2:3].isdigit()] == list(
        "012345"
    )


def test_a_workflow_file_that_cannot_be_loaded_is_told_its_own_line(shell: Shell) -> None:
    (shell.folder / "slip.py").write_text("import wtb\n\nflow = wtb.Workflow('slip')\nflow.edge('a', None)\n")
    told = shell.wtb("run", "slip.py", code=2).stderr
    assert told.startswith("wtb: slip.py cannot be imported: InvalidInput in line 4: an edge leads from name to name")


def test_a_script_that_runs_its_workflow_when_it_is_loaded_is_not_run_a_second_time(shell: Shell) -> None:
    script = shell.folder / "script.py"
    script.write_text(
        "import wtb\nfrom flow import flow\n\nwtb.Bench().run(flow, {'question': 'invoice'}, run_id='r1')\n"
    )
    subprocess.run([sys.executable, str(script)], cwd=shell.folder, env=environment(), check=True, timeout=60)
    assert shell.json("resume", "r1", "--answer", "yes")["status"] == "completed"  # by flow.py, which defines it

    told = shell.wtb("run", "script.py", code=2).stderr
    assert "script.py cannot be imported: InvalidInput in line 4" in told
    assert 'put it under `if __name__ == "__main__":`' in told
    assert [row["run"] for row in shell.json("ls")] == ["r1"]


def test_a_run_that_a_script_began_goes_on_without_being_told_that_its_workflow_has_changed(shell: Shell) -> None:
    begin = "if __name__ == '__main__':\n    wtb.Bench().run(flow, {'question': 'invoice'}, run_id='r1')\n"
    (shell.folder / "script.py").write_text(f"{FLOW}\n{begin}")
    subprocess.run([sys.executable, "script.py"], cwd=shell.folder, env=environment(), check=True, timeout=60)
    done = shell.wtb("resume", "r1", "--answer", "yes", "--strict")
    assert "Completed" in done.stdout
    assert "has changed" not in done.stderr


def test_a_state_with_classes_of_ones_own_is_shown_although_nothing_knows_them(shell: Shell) -> None:
    (shell.folder / "typed.py").write_text(
        "import dataclasses\nimport wtb\n\n@wtb.serialisable\n@dataclasses.dataclass\nclass Doc:\n    title: str\n\n"
        "flow = wtb.Workflow('typed')\nflow.add_node('fetch', lambda state: {'doc': Doc('a')}, start=True)\n"
    )
    shell.wtb("run", "typed.py", "--run-id", "r1")
    for command in (("show", "r1"), ("diff", "r1", "0")):
        for loaded in ((), ("--workflow", "typed.py")):
            assert "title" in shell.wtb(*command, *loaded).stdout


def test_what_nodes_print_is_kept_apart_from_json(shell: Shell) -> None:
    talk = "import wtb\nprint('loaded')\nflow = wtb.Workflow('talk')\n@flow.node(start=True)\n"
    (shell.folder / "talk.py").write_text(f"{talk}def say(state):\n    print('hello')\n    return {{'n': 1}}\n")
    done = shell.wtb("run", "talk.py", "--json")
    assert json.loads(done.stdout)["state"] == {"n": 1}
    assert "loaded\nhello\n" in done.stderr.replace("\r", "")
    assert "hello\n" in shell.wtb("run", "talk.py").stdout


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
    lines = re.findall(r"^  (✓ \w+)  <?\d+ ms$", done.stderr, re.MULTILINE)
    assert lines == ["✓ classify", "✓ approve", "✓ answer"]
    assert '"answer": "About other"' in done.stdout


def test_a_run_that_ends_because_no_edge_held_says_so(tmp_path: Path) -> None:
    shell = Shell(
        tmp_path, flow=FLOW.replace('flow.edge("approve", "answer")', 'flow.edge("approve", "answer", when="false")')
    )
    done = shell.wtb("run", "flow.py", "--set", "question=hi", "--run-id", "r1")
    assert done.stdout.startswith("Completed: no edge of 'approve' held.\n")
    assert shell.wtb("show", "r1").stdout.endswith("Completed: no edge of 'approve' held.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nope.py"), "there is no file nope.py"),
        (("run", "flow.py:other"), "has no workflow called 'other'; it has flow"),
        (("run", "flow.py", "--input", "{"), "--input is not valid JSON"),
        (("run", "flow.py", "--input", "[]"), "must be a JSON object"),
        (("run", "flow.py", "--set", "x"), "--set takes KEY=VALUE"),
        (("run", "flow.py", "--break-before", "nope"), "there is no node 'nope'"),
        (("run", "flow.py", "--run-id", "a b"), "the run id"),
        (("ls", "--since", "soon"), "give a number with m, h, d or w"),
        (("ls", "--since", "99999999999d"), "give a number with m, h, d or w"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_exit_code_2(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    done = shell.wtb(*arguments, code=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_run_is_named(shell: Shell) -> None:
    assert "no run 'nope'" in shell.wtb("show", "nope", code=1).stderr


def test_the_beginning_of_an_id_is_enough_where_no_other_run_begins_so(shell: Shell) -> None:
    for run_id in ("alpha", "alpha-1", "alpha_2"):
        shell.wtb("run", "flow.py", "--set", "question=hi", "--run-id", run_id)
    assert [shell.json("show", start)["run"] for start in ("alpha", "alpha-", "alpha_")] == [
        "alpha",
        "alpha-1",
        "alpha_2",
    ]
    unclear = shell.wtb("show", "alph", code=2).stderr
    assert "several runs start with 'alph': alpha_2, alpha-1, alpha; give more of the id" in unclear
    assert "no run 'alp'" in shell.wtb("show", "alp", code=1).stderr


def test_lists_are_filtered_and_paged_and_show_ids_that_can_be_typed(shell: Shell) -> None:
    assert "No runs here yet" in shell.wtb("ls").stdout
    for topic in ("invoice", "hi", "hello"):
        shell.wtb("run", "flow.py", "--set", f"question={topic}")
    assert [row["status"] for row in shell.json("ls")] == ["completed", "completed", "paused"]
    assert len(shell.json("ls", "--status", "paused", "--workflow", "support", "--since", "1h")) == 1
    assert "No run matches." in shell.wtb("ls", "--workflow", "other").stdout
    first_page = shell.wtb("ls", "--limit", "2").stdout
    newest, second, oldest = [row["run"] for row in shell.json("ls")]
    assert f"There are more: add `--before {second}`." in first_page
    assert "more" not in shell.wtb("ls", "--limit", "2", "--before", second).stdout
    assert [row["run"] for row in shell.json("ls", "--before", second)] == [oldest]
    assert [row["run"] for row in shell.json("ls", "--limit", "1", "--before", newest)] == [second]
    assert "no run 'nobody'" in shell.wtb("ls", "--before", "nobody", code=1).stderr
    short = first_page.splitlines()[1].split()[0]
    assert shell.json("show", short)["state"]["question"] == "hello"


STUCK = """
import os, pathlib, time, wtb

flow = wtb.Workflow("stuck")


@flow.node(start=True)
def work(state):
    pathlib.Path("working").touch()
    while pathlib.Path("working").exists():
        time.sleep(0.01)
    return {"n": state.get("n", 0) + 1}


flow.edge("work", "work", when="n < 3")
flow.edge("work", wtb.END, otherwise=True)
"""


def until(truth: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that the process does; it must not end before."""
    while not truth():
        assert process.poll() is None
        time.sleep(0.01)


class Stuck:
    """A run whose node does not end before it is told to, and Ctrl-C."""

    def __init__(self, folder: Path, *options: str, stderr: int = subprocess.PIPE, stdout: int | None = None) -> None:
        self.shell = Shell(folder, stuck=STUCK)
        self.working = folder / "working"
        command = ("run", "stuck.py", "--run-id", "r1", *options)
        self.process = self.shell.start(*command, stderr=stderr, stdout=stdout)

    def said(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def interrupt(self) -> str:
        """Press Ctrl-C, and return what is said to that."""
        self.process.send_signal(signal.SIGINT)
        return self.said()

    def end(self) -> int:
        """Let the node return, and return the exit code."""
        self.working.unlink()
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    run = Stuck(tmp_path)
    with run.process as process:
        try:
            until(run.working.exists, process)
            assert run.said() == "run r1\n"
            yield run
        finally:
            process.kill()


def test_a_run_whose_process_was_killed_is_shown_as_gone_and_can_be_stopped(stuck: Stuck) -> None:
    shell = stuck.shell
    assert shell.json("ls")[0]["neglect"] is None
    stuck.process.kill()
    stuck.process.wait()
    listed = shell.wtb("ls").stdout
    assert "running (gone)" in listed
    assert "continue one with `wtb resume RUN`" in listed
    assert "running (gone)" in shell.wtb("show", "r1").stdout
    assert shell.wtb("pause", "r1").stdout == "r1 is paused now.\n"
    assert shell.json("stop", "r1") == {"run": "r1", "requested": "stop", "status": "cancelled"}
    assert "is cancelled; there is nothing to stop" in shell.wtb("stop", "r1", code=2).stderr


def test_ctrl_c_pauses_at_the_end_of_the_step(stuck: Stuck) -> None:
    assert "Pausing at the end of this step" in stuck.interrupt()
    assert stuck.end() == 0
    shown = stuck.shell.json("show", "r1")
    assert (shown["status"], shown["waiting"], shown["state"]) == ("paused", "interrupted", {"n": 1})


def test_ctrl_c_says_what_has_been_asked_for() -> None:
    """A step that ends right after it was said is the last one."""
    happened, refusals = SimpleQueue[str](), [InvalidTransition("it is not running yet")]

    def ask() -> None:
        happened.put("asked")
        if refusals:
            raise refusals.pop()

    with Interrupts([("said", ask)], happened.put, lambda: None).handled():
        signal.raise_signal(signal.SIGINT)
        assert [happened.get(timeout=60) for _ in range(3)] == ["asked", "asked", "said"]


def test_a_second_ctrl_c_stops_the_run_for_good(stuck: Stuck) -> None:
    stuck.interrupt()
    assert "Stopping at the end of this step" in stuck.interrupt()
    assert stuck.end() == 0
    assert stuck.shell.json("show", "r1")["status"] == "cancelled"


def test_ctrl_c_works_with_json_too(tmp_path: Path) -> None:
    run = Stuck(tmp_path, "--json", stdout=subprocess.PIPE)
    with run.process as process:
        until(run.working.exists, process)
        assert "Pausing at the end of this step" in run.interrupt()
        run.working.unlink()
        assert json.loads(process.communicate(timeout=60)[0])["status"] == "paused"


def test_a_third_ctrl_c_ends_the_process_though_the_node_never_ends(stuck: Stuck) -> None:
    for _ in range(3):
        stuck.interrupt()
    assert stuck.process.wait(timeout=60) == -signal.SIGINT
    assert stuck.shell.json("ls")[0]["neglect"] == "gone"


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


def test_a_terminal_shows_which_node_runs_and_for_how_long(terminal: Terminal, tmp_path: Path) -> None:
    run = Stuck(tmp_path, "--break-after", "work", stderr=terminal.theirs)
    with run.process as process:
        terminal.wait_for(r"work  \d+\.\d s")
        assert "✓" not in terminal.shown
        until(run.working.exists, process)
        run.working.unlink()
        terminal.wait_for(r"✓.* work  \d+\.\d s")
        terminal.wait_for(r"\x1b\[\?25h")
        assert process.wait(timeout=60) == 0


def test_the_cursor_is_given_back_when_the_process_is_ended(terminal: Terminal, tmp_path: Path) -> None:
    run = Stuck(tmp_path, stderr=terminal.theirs)
    with run.process as process:
        terminal.wait_for("work")
        for said in ("Pausing", "Stopping", r"\x1b\[\?25h"):
            process.send_signal(signal.SIGINT)
            terminal.wait_for(said)
        assert process.wait(timeout=60) == -signal.SIGINT


@pytest.mark.parametrize(
    ("schema", "hint"), [(["yes", "no"], "yes|no"), ({"type": "integer"}, "…"), (None, "…")], ids=str
)
def test_the_hint_names_the_answers_where_they_are_listed(schema: Any, hint: str) -> None:
    flow = wtb.Workflow("asking")
    flow.add_node("ask", lambda state, ctx: ctx.ask("How many?", schema=schema), start=True)
    with wtb.Bench("memory://") as bench:
        assert (
            advice(bench.run(flow, {}, run_id="r").view()) == f"How many?\nAnswer with `wtb resume r --answer {hint}`."
        )
