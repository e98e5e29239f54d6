"""Text that is not ours (names, values, errors, questions, file names) does nothing to the terminal that shows it."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import wtb
from wtb.bench import Bench
from wtb.cli import GROUPS, main

NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066\x7f\x08\x84"

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

FLOW = """
import wtb

NASTY = "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202eevil\\u2066\\x7f\\x08\\x84"
flow = wtb.Workflow("flow" + NASTY)


@wtb.tool(name="tool" + NASTY, reverse=lambda result: None)
def call(text):
    return text


@flow.node(start=True)
def first(state, ctx):
    (ctx.workspace / ("file" + NASTY)).write_text(NASTY + "\\n" + str(state.get("n")))
    ctx.log.warning("logged " + NASTY)
    ctx.tool(call, NASTY + str(state.get("n")))
    ctx.checkpoint("mark", "described " + NASTY)
    return {"value" + NASTY: [NASTY, {NASTY: 1}], "last": NASTY}


@flow.node()
def second(state, ctx):
    if state.get("fail"):
        raise ValueError("failed " + NASTY)
    if state.get("ask"):
        return {"said": ctx.ask("Really " + NASTY + "?", schema=["yes" + NASTY, "no"])}
    return {"last": NASTY + NASTY}


@flow.variant("second", "other")
def other(state):
    return {"last": "x"}


flow.edge("first", "second")
flow.edge("second", wtb.END)


class Judge:
    name = "judge" + NASTY

    def evaluate(self, context):
        if context.case.id.startswith("b"):
            raise ValueError("judged " + NASTY)
        return 1.0


cases = [{"id": id + NASTY, "input": {"n": id, "fail": id == "c"}} for id in "abc"]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[Judge()], name="batch" + NASTY)
"""

COMMAND_GROUPS = ("audit", "batch", "baseline", "db", "import", "token", "webhook")

COMMANDS: list[tuple[int, tuple[str, ...]]] = [
    (0, ("run", "flow.py", "--run-id", "done", "--set", f"k={NASTY}")),
    (3, ("run", "flow.py", "--run-id", "failed", "--set", "fail=true")),
    (0, ("run", "flow.py", "--run-id", "asked", "--set", "ask=true")),
    (2, ("run", f"{NASTY}.py")),
    (2, ("run", f"{NASTY}:flow")),
    (2, ("run", f"flow.py:{NASTY}")),
    (2, ("run", "flow.py", f"--{NASTY}")),
    (2, ("run", "flow.py", "--set", NASTY)),
    (2, ("run", "flow.py", "--input", NASTY)),
    (2, ("run", "flow.py", "--workspace", NASTY)),
    (2, ("run", "flow.py", "--break-before", NASTY)),
    (2, (NASTY,)),
    (2, (f"--{NASTY}",)),
    (2, ("resume", "asked", "--answer", f"maybe{NASTY}")),
    (0, ("resume", "asked", "--answer", f"yes{NASTY}")),
    (1, ("resume", NASTY)),
    (1, ("pause", NASTY)),
    (2, ("pause", "done")),
    (0, ("ls",)),
    (0, ("ls", "--workflow", f"flow{NASTY}")),
    (0, ("show", "done")),
    (0, ("show", "failed")),
    (0, ("show", "failed", "--traceback")),
    (0, ("stop", "failed")),
    (0, ("show", "done", "--files")),
    (0, ("show", "done", "--files", "--at", "mark")),
    (0, ("show", "failed", "--events")),
    (2, ("show", "done", "--events", "--type", NASTY)),
    (0, ("show", "done", "--summary")),
    (0, ("show", "done", "--replay")),
    (0, ("show", "done", "--at", "mark")),
    (1, ("show", "done", "--at", NASTY)),
    (0, ("workflows",)),
    (0, ("history", "done")),
    (0, ("history", "done", "--all")),
    (1, ("history", "done", "--before", NASTY)),
    (0, ("history", "done", "--tree")),
    (0, ("diff", "done", "0")),
    (0, ("diff", "done", "0", "mark")),
    (1, ("diff", "done", NASTY)),
    (0, ("export", "done", f"out{NASTY}")),
    (1, ("export", f"done@{NASTY}", "elsewhere")),
    (0, ("checkpoint", "done", "named", "--description", NASTY)),
    (0, ("fork", "done", "mark", "--run-id", "forked", "--name", f"branch{NASTY}")),
    (0, ("fork", "done", "--run-id", "varied", "--variant", "second=other")),
    (2, ("fork", "done", "--run-id", "unvaried", "--variant", f"second={NASTY}")),
    (0, ("rollback", "done", "mark", "--dry-run")),
    (2, ("rollback", "done", "0")),
    (0, ("rollback", "done", "0", "--yes")),
    (0, ("redo", "done", "--yes")),
    (0, ("history", "done", "--tree")),
    (1, ("delete", f"done@{NASTY}", "--yes")),
    (1, ("delete", "done@named", "--yes")),
    (0, ("delete", "forked", "--yes")),
    (0, ("batch", "plan", "flow.py")),
    (3, ("batch", "run", "flow.py")),
    (3, ("batch", "run", "flow.py", "--name", f"again{NASTY}")),
    (0, ("events",)),
    (0, ("events", "--batch", f"batch{NASTY}")),
    (1, ("events", "--run", NASTY)),
    (2, ("events", "--type", NASTY)),
    (0, ("audit", "ls")),
    (0, ("audit", "ls", "--batch", f"batch{NASTY}")),
    (2, ("audit", "ls", "--type", NASTY)),
    (2, ("audit", "ls", "--since", NASTY)),
    (0, ("audit", "summary")),
    (0, ("audit", "tools")),
    (0, ("audit", "verify")),
    (0, ("evaluate", f"batch{NASTY}", "--evaluator", "steps")),
    (2, ("evaluate", f"batch{NASTY}", "--evaluator", f"exact_match{NASTY}")),
    (1, ("evaluate", NASTY, "--evaluator", "steps")),
    (0, ("parity", "flow.py", "--sample", "1", "--runner", "threads", "--runner", "processes")),
    (2, ("environment-server", "--port", NASTY)),
    (0, ("batch", "ls")),
    (0, ("batch", "show", f"batch{NASTY}")),
    (0, ("batch", "show", f"batch{NASTY}", "--cases")),
    (0, ("batch", "show", f"batch{NASTY}", "--failed")),
    (0, ("batch", "show", f"batch{NASTY}", "--dead")),
    (0, ("batch", "status", f"batch{NASTY}")),
    (1, ("batch", "show", NASTY)),
    (3, ("batch", "retry", f"batch{NASTY}", "flow.py")),
    (2, ("batch", "cancel", f"batch{NASTY}")),
    (0, ("compare", f"batch{NASTY}")),
    (0, ("effects", f"batch{NASTY}")),
    (0, ("compare", f"batch{NASTY}", f"again{NASTY}")),
    (0, ("baseline", "set", f"base{NASTY}", f"batch{NASTY}")),
    (0, ("baseline", "ls")),
    (0, ("gate", f"batch{NASTY}", "--baseline", f"base{NASTY}", "--metric", f"judge{NASTY}")),
    (1, ("gate", f"batch{NASTY}", "--baseline", NASTY, "--metric", NASTY)),
    (0, ("baseline", "delete", f"base{NASTY}")),
    (1, ("baseline", "delete", NASTY)),
    (0, ("report", f"batch{NASTY}")),
    (0, ("report", f"batch{NASTY}", "--out", f"report{NASTY}.md")),
    (0, ("batch", "delete", f"again{NASTY}")),
    (0, ("token", "create", "ci", "--role", "viewer")),
    (2, ("token", "create", NASTY, "--role", "viewer")),
    (2, ("token", "create", "other", "--role", "viewer", "--expires", NASTY)),
    (0, ("token", "ls")),
    (0, ("token", "revoke", "ci")),
    (1, ("token", "revoke", NASTY)),
    (2, ("serve", "--host", NASTY)),
    (2, ("mcp", "--http", "--host", NASTY)),
    (2, ("mcp", "--project", NASTY)),
    (0, ("webhook", "add", "https://example.org/")),
    (2, ("webhook", "add", f"https://example.org/{NASTY}")),
    (2, ("webhook", "add", NASTY)),
    (2, ("webhook", "add", "https://example.org/", "--type", NASTY)),
    (0, ("webhook", "ls")),
    (1, ("webhook", "deliveries", NASTY)),
    (1, ("webhook", "retry", NASTY, "1")),
    (1, ("webhook", "rm", NASTY)),
    (0, ("prune", "--dry-run")),
    (0, ("doctor",)),
    (0, ("db", "upgrade")),
    (0, ("db", "current")),
    (2, ("db", "downgrade", NASTY, "--yes")),
    (0, ("init", f"project{NASTY}")),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("flow.py").write_text(FLOW)
    return tmp_path


def wtb_(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_no_command_passes_control_characters_on(no_registered_classes: None, here: Path) -> None:
    reached = set()
    for code, words in COMMANDS:
        result = wtb_(*words)
        said = result.stdout + result.stderr
        assert result.exit_code == code, (words, said, result.exception)
        assert CONTROLS.findall(said) == [], (words, said)
        reached.add(words[:2] if words[0] in COMMAND_GROUPS else words[:1])
    # What it imports takes seconds, and it prints what all commands print with.
    assert leaves() - {("import", "langgraph")} <= reached


@pytest.mark.parametrize("what", [(), ("--events",), ("--files",)])
def test_json_holds_hostile_text_as_escapes(here: Path, what: tuple[str, ...]) -> None:
    assert wtb_("run", "flow.py", "--run-id", "done", "--json").exit_code == 0
    result = wtb_("show", "done", *what, "--json")
    assert CONTROLS.findall(result.stdout) == []
    assert json.dumps(NASTY)[1:-1].replace("\x7f", "\\u007f") in result.stdout
    json.loads(result.stdout)


DEEP = "[" * 100_000 + "]" * 100_000
LONG = "1" * 5_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "flow.py", "--input", "@deep.json"), "--input is nested too deeply"),
        (("run", "flow.py", "--input", f'{{"n": {LONG}}}'), "--input holds an integer with too many digits"),
        (("run", "flow.py", "--input", "@absent.json"), "--input cannot be read"),
        (("run", "flow.py", "--set", f"n={DEEP}"), "--set n is nested too deeply"),
        (("run", "flow.py", "--set", f"n={LONG}"), "--set n holds an integer with too many digits"),
        (("run", "flow.py", "--set", f"n=-{LONG}"), "--set n holds an integer with too many digits"),
        (("run", "deep.json"), "deep.json is nested too deeply"),
        (("run", "list.json"), "list.json is not a workflow as JSON"),
        (("run", "../../evil:x"), "'../../evil' is neither a file that ends .py or .json nor the name of a module"),
        (("run", "..:x"), "'..' is neither a file"),
        (("run", ".evil:x"), "'.evil' is neither a file"),
        (("run", "a..b:x"), "'a..b' is neither a file"),
        (("run", ""), "'' is neither a file"),
        (("run", f"{LONG}.py"), ".py cannot be read: File name too long"),
        (("run", "broken:flow"), "module 'broken' cannot be imported: ZeroDivisionError: division by zero"),
        (("batch", "run", "../../evil:x"), "'../../evil' is neither a file"),
        (("batch", "run", "deep.py"), "deep.jsonl line 1 is nested too deeply"),
        (("show", "none", "--workflow", "../../evil:x"), "'../../evil' is neither a file"),
    ],
)
def test_what_nobody_can_read_is_said_in_a_sentence(here: Path, words: tuple[str, ...], told: str) -> None:
    (here / "deep.json").write_text(DEEP)
    (here / "list.json").write_text("[]")
    (here / "deep.jsonl").write_text(DEEP)
    (here / "broken.py").write_text("1 / 0")
    (here / "deep.py").write_text(
        "import wtb\nflow = wtb.Workflow('deep')\nflow.add_node('n', print, start=True)\n"
        "batch = wtb.BatchTest(flow, cases='deep.jsonl', evaluators=[wtb.Steps()])\n"
    )
    result = wtb_(*words)
    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_numbers_that_json_does_not_know_are_shown_by_every_command(here: Path) -> None:
    (here / "odd.py").write_text(
        "import wtb\nflow = wtb.Workflow('numbers')\n"
        "@flow.node(start=True)\ndef give(state):\n"
        "    return {'huge': [10**5000], 'none': float('nan'), 'much': {'x': float('-inf')}}\n"
    )
    state = json.loads(wtb_("run", "odd.py", "--run-id", "n", "--json").stdout, parse_constant=pytest.fail)["state"]
    assert state == {"huge": [hex(10**5000)], "none": None, "much": {"x": None}}
    for words in (("show", "n"), ("show", "n", "--events"), ("diff", "n", "0"), ("show", "n", "--replay")):
        result = wtb_(*words)
        assert (result.exit_code, result.exception) == (0, None), words
        assert wtb_(*words, "--json").exit_code == 0


def test_everything_that_commands_print_goes_through_one_module() -> None:
    """Otherwise the next command that quotes a name would pass it on as it is."""
    forbidden = {"echo", "secho", "confirm", "prompt", "style"}
    for path in Path("src/wtb/cli").glob("*.py"):
        if path.name == "output.py":
            continue
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
                assert call.func.value.id != "click" or call.func.attr not in forbidden, (path, call.lineno)
            elif isinstance(call.func, ast.Name):
                assert call.func.id not in ("print", "Console"), (path, call.lineno)


def test_a_cell_that_a_spreadsheet_would_compute_is_written_as_text(tmp_path: Path) -> None:
    flow = wtb.Workflow("cells")

    def answer(state: Mapping[str, Any]) -> dict[str, Any]:
        if state["n"] == "=":
            raise ValueError("no")
        return {"answer": 1}

    flow.add_node("answer", answer, start=True)
    ids = ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "-5", "plain", "a=1"]
    cases = [{"id": id, "input": {"n": id[0]}} for id in ids]
    with Bench("memory://") as bench:
        bench.batch(flow, cases=cases, evaluators=[wtb.Steps(name="=steps")]).to_csv(tmp_path / "cells.csv")
    with (tmp_path / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["case"] for row in rows} == {"'=1+1", "'+x", "'-x", "'@x", "'\tx", "'\rx", "-5", "plain", "a=1"}
    assert {row["'=steps"] for row in rows} == {"1.0", ""}


def leaves() -> set[tuple[str, ...]]:
    """All commands by their words."""
    found: set[tuple[str, ...]] = set()
    for command in (command for group in GROUPS.values() for command in group):
        name = command.name or ""
        found |= {(name, inner) for inner in command.commands} if isinstance(command, click.Group) else {(name,)}
    return found
