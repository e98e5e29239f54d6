"""The audit trail: filters, what tools did, and a row that somebody changed in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

import wtb
from tests.browser.batch_project import NASTY, write_project
from tests.browser.served import PHONE, Served, Window, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("audit")
    with serving(folder, write_project(folder)) as running:
        flow = wtb.Workflow("nasty")
        flow.add_node("one", lambda state: {}, start=True)
        with wtb.Bench(f"sqlite:///{folder}/.wtb/wtb.db") as bench:
            bench.run(flow, {}, created_by=NASTY)
        running.wtb("run", "checks.py:flow", "--set", "question=q0", "--set", "expected=x")
        yield running


def test_the_trail_is_filtered_live_and_every_text_stays_text(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/audit")
    rows = page.locator(".audit tbody tr")
    expect(rows.filter(has_text="execution.created").filter(has_text=NASTY).first).to_be_visible()
    before = rows.count()
    served.wtb("token", "create", "later", "--role", "viewer")
    expect(rows.filter(has_text="later")).to_be_visible()
    assert rows.count() > before
    page.get_by_label("Type").fill("token")
    expect(rows.filter(has_text="execution.")).to_have_count(0)
    rows.filter(has_text="later").locator(".audit-facts").click()
    expect(page.locator(".audit dl.facts")).to_contain_text("in the log")
    window.look("audit-wide")
    window.check_axe()
    page.get_by_label("Person").fill("nobody at all")
    expect(page.locator(".empty")).to_contain_text("No event fits")
    page.get_by_role("button", name="Clear the filters").click()
    page.get_by_role("combobox", name="Show").select_option("everything")
    expect(rows.filter(has_text="node.completed").first).to_be_visible()
    page.get_by_role("link", name="Summary").click()
    counts = page.locator("section").filter(has=page.get_by_role("heading", name="Types"))
    expect(counts.get_by_text("node.completed")).to_be_visible()
    window.look("audit-summary")
    window.check_axe()
    page.get_by_role("link", name="Tools").click()
    expect(page.locator(".empty")).to_contain_text("No tool was called")
    assert page.evaluate("window.caught") is None
    window.check()
    window.close()


def test_a_row_that_somebody_changed_is_named(browser: Browser, served: Served) -> None:
    window = Window(browser, served, viewport=PHONE, color_scheme="dark")
    page = window.open("/audit?view=chain")
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.locator(".audit-chain")).to_contain_text("✓ the chain holds")
    with sqlite3.connect(served.folder / ".wtb" / "wtb.db") as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        (table,) = [name for name in tables if name.endswith("events")]
        changed = database.execute(f"update {table} set at_us = at_us + 1 where position = 1")
        assert changed.rowcount == 1
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The log has been changed, or is damaged")
    expect(page.locator(".audit-chain")).to_contain_text("✕ 1 fault")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    window.look("audit-fault-phone")
    window.check_axe()
    window.check()
    window.close()
