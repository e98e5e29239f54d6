"""`wtb show`, `history`, `workflows`: what people and programs are shown of long runs, and how it is read."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import wtb
from wtb.application.queries import run_pages
from wtb.bench import Bench
from wtb.cli import main
from wtb.cli.commands import look
from wtb.infrastructure.sql.unit_of_work import SqlStorage, SqlUnitOfWork

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture(autouse=True)
def run(empty_folder: Path) -> None:
    flow = wtb.Workflow("counting", version="3")

    @flow.node(start=True)
    def count(state: Any, ctx: Any) -> dict[str, Any]:
        (ctx.workspace / "n.txt").write_text("x" * state["n"])
        return {"n": state["n"] + 1}

    flow.edge("count", "count", when="n < 8")
    flow.edge("count", wtb.END, otherwise=True)
    with Bench() as bench:
        bench.run(flow, {"n": 0}, run_id="first")


def shown(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def data(*arguments: str) -> Any:
    return json.loads(shown(*arguments, "--json"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "first"),
        ("show", "firs"),
        ("show", "first", "--json"),
        ("show", "first", "--events"),
        ("show", "first", "--events", "--json"),
        ("show", "first", "--summary"),
        ("history", "firs"),
        ("history", "firs", "--json"),
        ("ls",),
        ("workflows",),
    ],
    ids=" ".join,
)
def test_a_command_that_shows_something_reads_it_in_one_transaction(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    opened: list[bool] = []
    begin = SqlStorage.unit_of_work

    def counted(self: SqlStorage, *, readonly: bool = False) -> SqlUnitOfWork:
        opened.append(readonly)
        return begin(self, readonly=readonly)

    monkeypatch.setattr(SqlStorage, "unit_of_work", counted)
    shown(*arguments)
    assert opened == [True]


def test_entry_points_read_through_queries_only() -> None:
    source = Path(wtb.__file__).parent
    entry_points = [*source.glob("*.py"), *source.glob("cli/**/*.py"), *source.glob("reporting/*.py")]
    assert len(entry_points) > 30
    found = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in entry_points
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "unit_of_work"
        and any(keyword.arg == "readonly" for keyword in node.keywords)
    ]
    assert not found


def test_show_tells_when_a_run_was_at_work_and_what_it_has_made() -> None:
    facts = dict(re.findall(r"^(\w[\w ]*?)  +(.*)$", shown("show", "first"), re.MULTILINE))
    assert facts.keys() >= {"created", "started", "completed", "took"}
    assert (facts["checkpoints"], facts["step"]) == ("9", "8 after count#8")
    told = data("show", "first")
    assert (told["checkpoints"], told["restore_points"], told["files"], told["file_bytes"]) == (9, 9, 1, 7)
    assert told["started"] <= told["completed"] == told["ended"]
    assert (told["paused"], told["current"]) == (None, [])
    assert told["duration"] >= 0


def test_show_at_a_checkpoint_tells_its_state_and_files() -> None:
    text = shown("show", "first", "--at", "count#3")
    assert "step        3 after count#3, next count" in text
    assert '"n": 3' in text
    assert "1 file, 2 B; `wtb show first --files --at 3` lists them" in text
    told = data("show", "first", "--at", "3")
    assert (told["run"], told["step"], told["node"], told["state"]) == ("first", 3, "count", {"n": 3})
    assert (told["files"], told["file_bytes"], told["restore_point"], told["next"]) == (1, 2, True, ["count"])
    assert [row["path"] for row in data("show", "first", "--at", "3", "--files")] == ["n.txt"]


def test_history_shows_a_page_and_how_to_see_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "earlier" not in shown("history", "first")
    monkeypatch.setattr(look, "CHECKPOINTS", 3)
    text = shown("history", "first")
    assert re.findall(r"^(?:head)? +(\d+) ", text, re.MULTILINE) == ["6", "7", "8"]
    assert "There are earlier checkpoints: add `--before 6`; `--all` alone shows all 9." in text
    before = shown("history", "first", "--before", "6")
    assert "add `--before 3`" in before
    assert "There are later checkpoints: add `--after 5`." in before
    assert [row["step"] for row in data("history", "first", "--after", "count#5", "--limit", "2")] == [6, 7]


def test_programs_get_the_whole_history_with_files_unless_they_give_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "CHECKPOINTS", 3)
    rows = data("history", "first")
    assert [row["step"] for row in rows] == list(range(9))
    assert [(row["files"], row["file_bytes"], row["restore_point"]) for row in rows[:3]] == [
        (0, 0, True), (1, 0, True), (1, 1, True),
    ]  # fmt: skip
    assert data("history", "first", "--limit", "2") == rows[-2:]
    assert data("history", "first", "--all") == rows
    assert data("history", "first", "--all", "--limit", "2") == rows[-2:]


def test_a_long_history_is_printed_in_tables_that_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shown("history", "first", "--all")
    monkeypatch.setattr(look, "_TABLE", 2)
    assert shown("history", "first", "--all").count("checkpoint") == whole.count("checkpoint") == 1


def test_events_are_shown_by_the_page_with_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    every = data("show", "first", "--events")
    assert [row["number"] for row in every] == list(range(1, len(every) + 1))
    monkeypatch.setattr(importlib.import_module("wtb.cli.commands.events"), "EVENTS", 4)
    text = shown("show", "first", "--events")
    assert len(text.splitlines()) == 6
    assert f"There are earlier events: add `--before {len(every) - 3}`" in text
    assert data("show", "first", "--before", "3") == every[:2]
    assert data("show", "first", "--after", "0", "--limit", "2") == every[:2]
    assert "There are later events: add `--after 4`." in shown("show", "first", "--after", "0")


def test_workflows_are_listed() -> None:
    (row,) = data("workflows")
    assert (row["workflow"], row["versions"], row["definitions"], row["runs"]) == ("counting", ["3"], 1, 1)
    assert re.search(r"^counting +3 +1 +1 ", shown("workflows"), re.MULTILINE)


def test_runs_are_listed_by_person_id_and_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_pages, "_MOST_LOOKED_AT", 1)  # so that the first pages hold nobody who waits
    flow = wtb.Workflow("asking")
    flow.add_node("ask", lambda state, ctx: {"go": ctx.ask("Go on?")}, start=True)
    with Bench() as bench:
        bench.run(flow, {}, run_id="asks", created_by="ann")
        for number in range(4):
            bench.run(flow, {}, run_id=f"stands-{number}", break_before=["ask"], created_by="bob")

    def found(*filters: str) -> list[str]:
        return [row["run"] for row in data("ls", *filters)]

    assert found("--health", "waiting", "--limit", "1") == ["asks"]
    assert found("--health", "gone") == []
    assert found("--by", "ann") == ["asks"]
    assert found("--prefix", "stands", "--by", "bob", "--limit", "2") == ["stands-3", "stands-2"]
    assert shown("ls", "--by", "nobody").startswith("No run matches.")


def test_the_events_of_all_runs_are_one_list_that_outlives_them() -> None:
    every = data("events")
    assert [row["position"] for row in every] == sorted(row["position"] for row in every)
    assert {row["stream"] for row in every} == {"first"}
    assert data("events", "--run", "firs", "--limit", "2") == every[-2:]
    assert data("events", "--before", str(every[2]["position"])) == every[:2]
    assert data("events", "--type", "node.completed", "--after", "0", "--limit", "1")[0]["event"] == "node.completed"
    assert data("events", "--system") == []
    shown("delete", "first", "--yes")
    (gone,) = data("events", "--deleted")
    assert (gone["event"], gone["stream"]) == ("execution.deleted", "first")
    assert data("events", "--run", "first")[0]["event"] == "execution.created"
    shown("events", "--run", "firs", code=1)
    shown("events", "--run", "first", "--system", code=2)


def test_people_see_events_with_the_position_that_turns_the_page() -> None:
    text = shown("events", "--limit", "2")
    assert re.search(r"^position +stream +at +severity +event +by +data", text)
    assert re.search(r"There are earlier events: add `--before \d+`", text)
