"""`wtb show`, `export` and `init` as a person types them."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell import Shell, environment

FLOW = """
import os
import wtb

os.umask(0o022)
flow = wtb.Workflow("files")


@wtb.tool(effects="none")
def fetch(attempt):
    if attempt == 1:
        raise OSError("[/gone]")
    return attempt


@flow.node(start=True)
def begin(state):
    return {}


@flow.node(retry=wtb.RetryPolicy(times=2, wait_s=0.0))
def write(state, ctx):
    ctx.tool(fetch, ctx.run.attempt)
    ctx.usage(input_tokens=10, output_tokens=2, cost_usd=0.5)
    n = state.get("n", 0) + 1
    (ctx.workspace / "out").mkdir(exist_ok=True)
    (ctx.workspace / "out" / f"{n}.txt").write_text("x" * n)
    script = ctx.workspace / "run.sh"
    script.write_text("true")
    script.chmod(0o755)
    if n == 1:
        (ctx.workspace / "latest").symlink_to("out/1.txt")
    return {"n": n}


@flow.node()
def check(state):
    if state.get("fail"):
        raise ValueError("[bold]never[/")
    return {"odd": {(1, 2): b"bytes"}}


flow.edge("begin", "write")
flow.edge("write", "write", when="n < 3")
flow.edge("write", "check", otherwise=True)
flow.edge("check", wtb.END)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, flow=FLOW)


@pytest.fixture
def failed(shell: Shell) -> Shell:
    shell.wtb("run", "flow.py", "--run-id", "r1", "--set", "fail=true", code=3)
    return shell


@pytest.fixture
def done(shell: Shell) -> Shell:
    shell.wtb("run", "flow.py", "--run-id", "r1")
    return shell


def test_a_run_is_shown_with_where_it_stands_and_what_to_do(failed: Shell) -> None:
    shown = failed.wtb("show", "r1").stdout
    lines = dict(re.findall(r"^(\w[\w ]*?)  +(.*)$", shown, re.MULTILINE))
    assert lines["workflow"] == f"files {failed.folder / 'flow.py'}:flow"
    assert (lines["status"], lines["branch"]) == ("failed", "main")
    assert lines["step"] == "4 after write#3, next check"
    assert lines["failed in"] == "check, visit 1; `wtb show r1 --traceback` shows where"
    assert lines["used"] == "30+6 tokens, $1.5000"
    assert lines["files"] == "5 files, 10 B; `wtb show r1 --files` lists them"
    assert '"n": 3' in shown
    assert shown.endswith("Failed: ValueError: [bold]never[/\nContinue from the last good step with `wtb resume r1`.\n")


def test_the_traceback_leads_to_the_line_that_raised(failed: Shell) -> None:
    shown = failed.wtb("show", "r1", "--traceback").stdout
    assert 'raise ValueError("[bold]never[/")' in shown
    assert failed.json("show", "r1")["failure"]["traceback"] in shown + "\n"


def test_a_run_that_did_not_fail_has_no_traceback(done: Shell) -> None:
    assert "only a failed run has a traceback" in done.wtb("show", "r1", "--traceback", code=2).stderr


def test_programs_are_told_the_same(done: Shell) -> None:
    shown = done.json("show", "r1")
    assert shown["state"]["odd"] == {"(1, 2)": "b'bytes'"}
    assert (shown["status"], shown["step"], shown["next"], shown["branch"]) == ("completed", 5, [], "main")
    assert shown["usage"] == {"input_tokens": 30, "output_tokens": 6, "cost_usd": 1.5}
    assert (shown["neglect"], shown["failure"], shown["error"]) == (None, None, None)


def test_events_are_filtered_by_type_severity_and_number(failed: Shell) -> None:
    every = failed.json("show", "r1", "--events")
    assert every[0]["event"] == "execution.created"
    warnings = failed.json("show", "r1", "--severity", "warning")
    assert {row["severity"] for row in warnings} == {"warning", "error"}
    assert warnings == [row for row in every if row["severity"] != "info"]
    assert failed.json("show", "r1", "--errors") == [row for row in every if row["severity"] == "error"]
    assert failed.json("show", "r1", "--tools") == [row for row in every if row["event"].startswith("tool.")]
    both = failed.json("show", "r1", "--type", "node.failed", "--type", "execution")
    assert both == [row for row in every if row["event"] == "node.failed" or row["event"].startswith("execution.")]
    assert failed.json("show", "r1", "--events", "--limit", "2") == every[-2:]
    assert "there is no event 'nope'; the types are" in failed.wtb("show", "r1", "--type", "nope", code=2).stderr


def test_events_are_readable_whatever_they_say(failed: Shell) -> None:
    shown = failed.wtb("show", "r1", "--events").stdout
    assert re.search(r"warning +node\.retried +write#1 attempt=1 error=OSError: \[/gone\]", shown)
    assert re.search(r"info +node\.completed +\S+ +write#2 <?\d+ ms 10\+2 tokens, \$0\.5000", shown)


def test_a_summary_counts_nodes_tools_and_events(failed: Shell) -> None:
    summary = failed.json("show", "r1", "--summary")
    nodes = {row["node"]: (row["visits"], row["failures"], row["retries"]) for row in summary["nodes"]}
    assert nodes == {"begin": (1, 0, 0), "write": (3, 0, 3), "check": (1, 1, 0)}
    (tool,) = summary["tools"]
    assert (tool["tool"], tool["calls"], tool["failures"]) == ("fetch", 6, 3)
    assert {"event": "node.completed", "count": 4} in summary["events"]
    assert {"severity": "error", "count": 5} in summary["severities"]
    assert re.search(r"^write +3 +0 +3 ", failed.wtb("show", "r1", "--summary").stdout, re.MULTILINE)


def test_files_are_listed_as_they_are_or_were(done: Shell) -> None:
    listed = done.wtb("show", "r1", "--files", "--at", "write#1").stdout
    assert re.findall(r"^(\S{10})  .*?  (\S.*?) *$", listed, re.MULTILINE) == [
        ("lrwxrwxrwx", "latest -> out/1.txt"),
        ("drwxr-xr-x", "out"),
        ("-rw-r--r--", "out/1.txt"),
        ("-rwxr-xr-x", "run.sh"),
    ]
    rows = done.json("show", "r1", "--files")
    assert [row["path"] for row in rows] == ["latest", "out", "out/1.txt", "out/2.txt", "out/3.txt", "run.sh"]
    assert rows[4] == {"path": "out/3.txt", "kind": "file", "mode": "0644", "size": 3, "target": None}
    assert done.wtb("show", "r1", "--files", "--at", "0").stdout == "No files at 0.\n"


@pytest.mark.parametrize(("place", "files"), [("r1", 3), ("r1@write#2", 2), ("r1@2", 1), ("r1@check", 3)])
def test_files_of_any_checkpoint_are_exported(done: Shell, place: str, files: int) -> None:
    said = done.wtb("export", place, "out/of/here").stdout
    folder = done.folder / "out" / "of" / "here"
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        f"{number}.txt" for number in range(1, files + 1)
    ]
    assert (folder / "latest").readlink() == Path("out/1.txt")
    assert stat.S_IMODE((folder / "run.sh").stat().st_mode) == 0o755
    size_bytes = 4 + sum(range(files + 1))
    assert said == f"Wrote {files + 2} files, {size_bytes} B, into out/of/here.\n"


def test_what_cannot_be_exported_is_said(done: Shell) -> None:
    (done.folder / "full").mkdir()
    (done.folder / "full" / "mine").touch()
    assert "full is not empty" in done.wtb("export", "r1", "full", code=2).stderr
    assert "run 'r1' has no files at checkpoint 'begin'" in done.wtb("export", "r1@begin", "x", code=2).stderr
    assert "no checkpoint 'nope' in run r1" in done.wtb("export", "r1@nope", "x", code=1).stderr
    assert "no run 'nope'" in done.wtb("export", "nope", "x", code=1).stderr
    assert not (done.folder / "x").exists()
    exported = done.json("export", "r1@2", "x")
    assert exported == {"run": "r1", "checkpoint": "2", "folder": "x", "files": 3, "bytes": 5}


def test_a_new_project_runs_with_the_commands_that_are_printed(tmp_path: Path) -> None:
    said = Shell(tmp_path).wtb("init", "my bench").stdout
    assert "Created writer.py, wtb.toml, .gitignore in my bench." in said
    commands = said.partition("Now type:\n\n")[2]
    script = f'set -e\nwtb() {{ {sys.executable} -m wtb "$@"; }}\n{commands}\ncat first-draft/draft.txt\n'
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"published": true' in done.stdout
    assert done.stdout.endswith("WTB is learned best by trying it out.\n")
    assert (tmp_path / "my bench" / ".gitignore").read_text().splitlines()[-1] == ".wtb/"


@pytest.mark.parametrize("taken", ["writer.py", "wtb.toml"])
def test_init_overwrites_nothing_and_makes_nothing_when_a_file_is_there(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("# mine")
    assert f"{taken} already exists" in Shell(tmp_path).wtb("init", code=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "# mine"


def test_init_leaves_a_gitignore_as_it_is_and_says_what_to_add(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("build/\n")
    assert "Add `.wtb/` to your .gitignore" in Shell(tmp_path).wtb("init").stdout
    assert (tmp_path / ".gitignore").read_text() == "build/\n"


def test_init_tells_programs_what_it_made(tmp_path: Path) -> None:
    made = Shell(tmp_path).json("init", "new")
    assert (made["folder"], made["files"]) == ("new", ["writer.py", "wtb.toml", ".gitignore"])
    assert made["commands"][0] == "cd new"


def test_every_command_explains_itself_with_an_example(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for command in ("init", "run", "resume", "pause", "stop", "ls", "show", "history", "export"):
        assert f"Example:\n    wtb {command}" in shell.wtb(command, "--help").stdout


def test_two_checkpoints_are_compared_and_the_tree_is_drawn(done: Shell) -> None:
    shown = done.wtb("diff", "r1", "write#1", "write#3").stdout.splitlines()
    assert "~ state.n  1 → 3" in shown
    assert [line[:13] for line in shown if line.startswith("+ out/")] == ["+ out/2.txt  ", "+ out/3.txt  "]
    assert shown[-3:] == ["1 value: 1 changed", "2 files: 2 added", "4 calls: 4 added"]
    assert done.json("diff", "r1", "0", "--stat")["counts"]["files"] == {"added": 6}
    assert done.wtb("history", "r1", "--tree").stdout.startswith("run r1\n├── 0 start")


LONG_VALUES = """
import wtb

flow = wtb.Workflow("long")


@flow.node(start=True)
def write(state):
    return {
        "text": "a" * 5_000,
        "data": b"b" * 5_000,
        "list": list(range(1_000)),
        "mapping": {f"key {n}": n for n in range(1_000)},
        "short": "all of it",
    }


flow.edge("write", wtb.END)
"""


def test_a_long_state_is_cut_for_people_and_whole_for_programs(tmp_path: Path) -> None:
    shell = Shell(tmp_path, flow=LONG_VALUES)
    ran = shell.wtb("run", "flow.py", "--run-id", "r1").stdout
    shown = shell.wtb("show", "r1").stdout
    for said in (ran, shown):
        assert "… (5,000 characters; --json has all)" in said
        assert "… 900 more; --json has all" in said
        assert '"…": "900 more; --json has all"' in said
        assert '"short": "all of it"' in said
        assert "999" in said, "the end of a list is what came last"
        assert len(said) < 8_000
    state = shell.json("show", "r1")["state"]
    assert (len(state["text"]), len(state["list"]), len(state["mapping"])) == (5_000, 1_000, 1_000)
