"""`wtb audit`: who changed what, counts, tools, and whether the log can be trusted."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.shell import Shell

FLOW = """
import wtb

flow = wtb.Workflow("shop")


@wtb.tool(reverse=lambda call: None)
def order(thing):
    return thing


@flow.node(start=True)
def buy(state, ctx):
    return {"bought": ctx.tool(order, thing="tea")}


@flow.node
def pay(state):
    return {"paid": True}


flow.edge("buy", "pay")
"""


@pytest.fixture
def shop(empty_folder: Path) -> Shell:
    """A run of Ann's that Bob took back."""
    shell = Shell(empty_folder, shop=FLOW)
    (shell.folder / "wtb.toml").write_text('user = "ann"')
    shell.wtb("run", "shop.py", "--run-id", "first")
    (shell.folder / "wtb.toml").write_text('user = "bob"')
    shell.wtb("rollback", "first", "0", "--yes")
    return shell


def test_the_audit_lists_what_people_decided_and_not_the_work_that_followed(shop: Shell) -> None:
    found = [(each["event"], each["by"]) for each in shop.json("audit", "ls")["events"]]
    assert found[-2:] == [("execution.started", "ann"), ("execution.created", "ann")]
    assert ("rollback.completed", "bob") in found
    assert not [event for event, _ in found if event.startswith(("node.", "tool."))]
    assert "rollback.completed" in shop.wtb("audit", "ls").stdout


def test_the_audit_is_filtered_by_person_time_type_and_run(shop: Shell) -> None:
    assert {each["by"] for each in shop.json("audit", "ls", "--by", "bob")["events"]} == {"bob"}
    assert shop.json("audit", "ls", "--until", "1h")["events"] == []
    assert len(shop.json("audit", "ls", "--since", "1h", "--type", "rollback", "--run", "first")["events"]) == 2
    assert {each["event"] for each in shop.json("audit", "ls", "--tools")["events"]} >= {
        "tool.started",
        "tool.reversed",
    }
    assert "give an age such as 12h" in shop.wtb("audit", "ls", "--since", "soon", code=2).stderr
    assert "`tools` shows events of tools only" in shop.wtb("audit", "ls", "--tools", "--type", "node", code=2).stderr


def test_pages_of_the_audit_follow_each_other(shop: Shell) -> None:
    whole = [each["position"] for each in shop.json("audit", "ls")["events"]]
    first = shop.json("audit", "ls", "--limit", "2")
    second = shop.json("audit", "ls", "--before", str(first["before"]))
    assert [each["position"] for page in (first, second) for each in page["events"]] == whole
    assert f"add `--before {first['before']}`" in shop.wtb("audit", "ls", "--limit", "2").stdout


def test_the_summary_counts_people_and_the_tools_their_calls(shop: Shell) -> None:
    assert set(shop.json("audit", "summary")["people"]) == {"ann", "bob"}
    [tool] = shop.json("audit", "tools")
    assert (tool["tool"], tool["calls"], tool["failures"]) == ("order", 1, 0)
    assert "ann" in shop.wtb("audit", "summary").stdout
    assert "No tool was called" in shop.wtb("audit", "tools", "--until", "1h").stdout


def test_a_changed_event_is_found(shop: Shell) -> None:
    assert "All of them fit" in shop.wtb("audit", "verify").stdout
    with sqlite3.connect(shop.folder / ".wtb" / "wtb.db") as database:
        database.execute("UPDATE wtb_events SET data = replace(data, 'bob', 'ann') WHERE type = 'rollback.started'")
    said = shop.wtb("audit", "verify", code=1).stdout
    assert "1 fault found" in said
