"""The list of runs: filters in the address, rows that follow events, batches in one line, text that stays text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import wtb
from tests.browser.agent_workflow import HOSTILE, flow, slow
from tests.browser.served import PHONE, Served, Window, serving

SOURCE = Path(__file__).parent / "agent_workflow.py"

_NO_SECOND_LOOK = """
    const repeat = window.setInterval;
    window.setInterval = (call, pause, ...rest) => (pause === 30000 ? 0 : repeat(call, pause, ...rest));
"""
"""Every 30 seconds the list is read again, since no event tells that a process has died. Here only events do."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bench")
    shutil.copy(SOURCE, folder / "agent.py")
    with wtb.Bench(folder=folder / ".wtb") as bench:
        bench.run(flow, {"topic": "bees"}, run_id="whole", created_by="ann")
        bench.run(flow, {"topic": "ants", "asks": True}, run_id="asking")
        bench.run(flow, {"topic": HOSTILE, "fails": True}, run_id="hostile", created_by=HOSTILE[:60])
        bench.batch(slow, cases=[{"id": "one", "input": {"limit": 1}}], evaluators=[wtb.Latency()], name="nightly")
    with serving(folder, "agent.py", "agent.py:slow") as running:
        yield running


@pytest.fixture
def window(browser: Browser, served: Served) -> Iterator[Window]:
    opened = Window(browser, served)
    yield opened
    opened.check()
    opened.close()


def test_runs_are_listed_with_what_they_need_and_batches_are_one_line(window: Window) -> None:
    page = window.open("/runs")
    rows = page.get_by_role("table", name="Runs, newest first").get_by_role("row")
    expect(rows).to_have_count(4)  # with the head; the run of the batch is left out
    expect(rows.filter(has_text="asking")).to_contain_text("waits for an answer")
    expect(rows.filter(has_text="hostile")).to_contain_text("ValueError: cannot review this: <script>")
    expect(page.get_by_role("link", name="1 waiting for a person")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="Batch nightly")).to_contain_text("1 job of slow")
    assert page.evaluate("window.hacked") is None
    window.check_axe()
    window.look("runs-light")
    page.get_by_role("link", name="its runs").click()
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("case one")
    expect(page.get_by_text("wtb ls --batch")).to_be_visible()


def test_filters_stand_in_the_address_and_narrow_the_list(window: Window) -> None:
    page = window.open("/runs")
    rows = page.get_by_role("table", name="Runs, newest first").get_by_role("row")
    page.get_by_role("button", name="paused 1").click()
    expect(rows).to_have_count(2)
    expect(page).to_have_url(re.compile(r"\?status=paused$"))
    page.reload()
    expect(page.get_by_role("button", name="paused 1")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_text("wtb ls --status paused")).to_be_visible()
    page.get_by_role("link", name="Clear all filters").click()
    page.get_by_label("Who").fill("ann")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("whole")
    page.get_by_label("Who").fill("nobody")
    expect(page.get_by_role("heading", name="No run fits these filters")).to_be_visible()
    window.open("/runs?health=waiting")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("asking")
    window.open("/runs?prefix=ho&since=1h&workflow=agent")
    expect(rows).to_have_count(2)


def test_a_run_that_another_process_starts_appears_and_changes_by_itself(window: Window, served: Served) -> None:
    window.page.add_init_script(_NO_SECOND_LOOK)
    page = window.open("/runs")
    rows = page.get_by_role("table", name="Runs, newest first").get_by_role("row")
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    page.get_by_role("link", name="whole").focus()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "limit=100" in request.url else None)
    served.wtb("run", "agent.py", "--set", "topic=flies", "--run-id", "fresh", "--break-before", "confirm")
    expect(rows.nth(1)).to_contain_text("fresh")
    expect(rows.nth(1)).to_contain_text("paused")
    expect(rows.nth(1)).to_contain_text("at a breakpoint")
    served.wtb("run", "agent.py", "--set", "topic=flies", "--run-id", "fresh-2")
    expect(rows.nth(1)).to_contain_text("fresh-2")
    served.wtb("resume", "fresh", "--no-breakpoints", "--break-after", "confirm")
    expect(rows.nth(2)).to_contain_text("fresh")  # it is there, although a newer id begins like its own
    expect(rows.nth(2)).to_contain_text("paused")
    served.wtb("resume", "fresh", "--no-breakpoints")
    expect(rows.nth(2)).to_contain_text("completed")
    assert asked == []  # the list was not read again
    assert page.evaluate("document.activeElement.textContent") == "whole"  # the focus stays
    for run in ("fresh", "fresh-2"):
        served.wtb("delete", run, "--yes")
    expect(rows.filter(has_text="fresh")).to_have_count(0)


def test_a_tab_is_called_after_its_view_and_the_focus_goes_into_it(window: Window) -> None:
    page = window.open("/runs")
    expect(page).to_have_title("Runs · WTB")
    page.get_by_role("link", name="whole").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_title("Run whole · WTB")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_fits_a_phone(browser: Browser, served: Served, scheme: str) -> None:
    window = Window(browser, served, viewport=PHONE, color_scheme=scheme)
    page = window.open("/runs")
    expect(page.get_by_role("link", name="whole")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    window.check_axe()
    window.look(f"runs-{scheme}-phone")
    window.check()
    window.close()
