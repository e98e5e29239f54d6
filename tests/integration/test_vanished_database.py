"""A database that is deleted, replaced or set back while a run goes on: the run stops and says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.shell import Shell
from wtb.domain.errors import StorageReplaced
from wtb.domain.execution import ExecutionStatus
from wtb.domain.workflow import RetryPolicy

Harm = Callable[[Path], object]


def copied_over(database: Path, source: Path) -> None:
    """Put other content into a database, as SQLite's own backup does."""
    with sqlite3.connect(source) as old, sqlite3.connect(database) as new:
        old.backup(new)
    old.close()
    new.close()


def replaced(database: Path) -> None:
    shutil.copyfile(database, database.with_name("new"))
    database.with_name("new").replace(database)


def moved(database: Path) -> None:
    database.rename(database.with_name("elsewhere"))


HARMS: dict[str, tuple[Harm, str]] = {
    "deleted": (Path.unlink, "wtb.db was deleted while this process used it"),
    "deleted with its folder": (lambda database: shutil.rmtree(database.parent), "wtb.db was deleted"),
    "moved away": (moved, "wtb.db was deleted while"),
    "replaced": (replaced, "wtb.db was replaced by another file while this process used it"),
    "robbed of its log": (lambda database: Path(f"{database}-wal").unlink(), "wtb.db-wal was deleted"),
}


@pytest.fixture
def database(tmp_path: Path, sqlite_template: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, folder / "wtb.db")
    return folder / "wtb.db"


def flow_of(harm: Callable[[], object], called: list[str]) -> wtb.Workflow:
    """Two nodes of which the first does something to the database in its middle; both call a tool after that."""
    flow = wtb.Workflow("unlucky")

    @flow.node(start=True, retry=RetryPolicy(times=3, wait_s=0))
    def first(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        called.append("first")
        ctx.tool(called.append, "before")
        harm()
        ctx.tool(called.append, "after")
        return {"first": True}

    @flow.node()
    def second(state: Mapping[str, Any]) -> dict[str, Any]:
        called.append("second")
        return {"second": True}

    flow.edge("first", "second")
    flow.edge("second", wtb.END)
    return flow


@pytest.mark.parametrize(("harm", "told"), HARMS.values(), ids=HARMS.keys())
def test_no_tool_is_called_after_it_and_no_node_is_tried_again(database: Path, harm: Harm, told: str) -> None:
    called: list[str] = []
    flow = flow_of(lambda: harm(database), called)
    with wtb.Bench(folder=database.parent) as bench, pytest.raises(StorageReplaced, match=told):
        bench.run(flow, {})
    assert called == ["first", "before"]


def last_node(harm: Callable[[], object]) -> wtb.Workflow:
    flow = wtb.Workflow("unlucky")

    @flow.node(start=True)
    def only(state: Mapping[str, Any]) -> dict[str, Any]:
        harm()
        return {"only": True}

    flow.edge("only", wtb.END)
    return flow


@pytest.mark.parametrize("kind", [kind for kind in HARMS if kind != "robbed of its log"])
def test_a_run_does_not_complete_when_it_happens_in_its_last_node(database: Path, kind: str) -> None:
    harm, told = HARMS[kind]
    flow = last_node(lambda: harm(database))
    with wtb.Bench(folder=database.parent) as bench, pytest.raises(StorageReplaced, match=told):
        bench.run(flow, {})
    assert not database.exists() or database.stat().st_size > 0


def test_without_its_log_a_run_that_calls_nothing_completes_and_is_kept(database: Path) -> None:
    """SQLite still has the deleted log open, and writes it back in the end."""
    flow = last_node(lambda: Path(f"{database}-wal").unlink())
    with wtb.Bench(folder=database.parent) as bench:
        bench.run(flow, {}, run_id="order")
    with wtb.Bench(folder=database.parent) as bench:
        assert bench.get("order").status is ExecutionStatus.COMPLETED


def test_those_who_only_read_are_told_too(database: Path) -> None:
    with wtb.Bench(folder=database.parent) as bench:
        assert bench.list_runs() == ()
        replaced(database)
        with pytest.raises(StorageReplaced, match="was replaced"):
            bench.list_runs()


def test_a_program_may_change_its_folder(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(database.parent.parent)
    flow = flow_of(lambda: os.chdir("/"), [])
    with wtb.Bench(folder=database.parent.name) as bench:
        assert bench.run(flow, {}).status is ExecutionStatus.COMPLETED


def test_set_back_to_before_the_run_existed_it_stops_the_run(database: Path) -> None:
    copy = database.with_name("copy")
    shutil.copyfile(database, copy)
    called: list[str] = []
    flow = flow_of(lambda: copied_over(database, copy), called)
    with wtb.Bench(folder=database.parent) as bench, pytest.raises(StorageReplaced, match="set back to an earlier"):
        bench.run(flow, {})
    assert called == ["first", "before"]


def test_set_back_to_before_somebody_went_on_with_the_run_it_stops_the_run(database: Path) -> None:
    copy = database.with_name("copy")
    called: list[str] = []
    flow = flow_of(lambda: copied_over(database, copy), called)
    with wtb.Bench(folder=database.parent) as bench:
        run = bench.create(flow, {}, run_id="order")
        copied_over(copy, database)
        with pytest.raises(StorageReplaced, match="run 'order' has version 0, after 1: the database was set back"):
            run.resume()
    assert called == ["first", "before"]


def test_set_back_by_a_few_steps_it_stops_the_run_and_what_was_called_since_is_in_doubt(database: Path) -> None:
    copy = database.with_name("copy")
    called: list[str] = []
    flow = wtb.Workflow("unlucky")

    @flow.node(start=True)
    def first(state: Mapping[str, Any]) -> dict[str, Any]:
        copied_over(copy, database)
        return {"first": True}

    @flow.node()
    def second(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        ctx.tool(called.append, "second")
        if len(called) == 1:
            copied_over(database, copy)
        return {"second": True}

    flow.edge("first", "second")
    flow.edge("second", wtb.END)
    with wtb.Bench(folder=database.parent) as bench:
        with pytest.raises(StorageReplaced, match="run 'order' has version 1, after 2: the database was set back"):
            bench.run(flow, {}, run_id="order")
        run = bench.resume("order", flow)
        assert run.waiting is not None
        assert run.waiting.reason == "in doubt"
        assert called == ["second"]


UNLUCKY = """
import os
import wtb

flow = wtb.Workflow("unlucky")


@flow.node(start=True)
def only(state):
    os.unlink(".wtb/wtb.db")
    return {"only": True}


flow.edge("only", wtb.END)
"""


def test_on_the_command_line_it_is_one_sentence_and_an_exit_code(tmp_path: Path) -> None:
    done = Shell(tmp_path, flow=UNLUCKY).wtb("run", "flow.py", code=1)
    assert "Completed" not in done.stdout
    assert "wtb.db was deleted while this process used it" in done.stderr
    assert "Traceback" not in done.stderr
