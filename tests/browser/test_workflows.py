"""Workflows: the list, a graph, and a form that starts a run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.served import PHONE, Served, Window, serving

SOURCE = Path(__file__).parent / "agent_workflow.py"
WIDE = """
import wtb

wide = wtb.Workflow("wide")
for n in range(501):
    wide.add_node(f"node{n}", lambda state: {}, start=n == 0)
    if n > 0:
        wide.edge(f"node{n - 1}", f"node{n}")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bench")
    shutil.copy(SOURCE, folder / "agent.py")
    (folder / "broken.py").write_text("import nothing_like_this\n")
    (folder / "wide.py").write_text(WIDE)
    with serving(folder, "agent.py", "agent.py:slow", "broken.py", "wide.py") as running:
        yield running


def test_a_run_is_started_from_the_form_and_seen_live_to_its_breakpoint(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/workflows")
    expect(page.get_by_role("row").filter(has_text="cannot be loaded")).to_contain_text("nothing_like_this")
    window.check_axe()
    window.look("workflows-light")
    page.get_by_role("link", name="agent").click()
    expect(page.locator(".graph-node").filter(has_text="publish")).to_be_visible()
    start = page.get_by_role("button", name="Start the run")
    page.get_by_label("Input, as a JSON object").fill('{"topic": ')
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    expect(start).to_be_disabled()
    page.get_by_label("Input, as a JSON object").fill("[1]")
    expect(page.get_by_text("The input is an object")).to_be_visible()
    page.get_by_label("Input, as a JSON object").fill('{"topic": "bees"}')
    page.get_by_label("Variant of write").select_option("terse")
    page.get_by_label("Pause before confirm").click()
    expect(page.get_by_label("Pause before confirm")).to_be_checked()
    expect(page).to_have_url(re.compile(r"\?variant=write%3Dterse&before=confirm$"))
    expect(page.get_by_text("--variant write=terse --break-before confirm")).to_be_visible()
    window.check_axe()
    window.look("workflow-light")
    start.click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]+$"))
    expect(page.locator(".run-title")).to_contain_text("paused")
    expect(page.get_by_label("Why it is paused")).to_contain_text("confirm")
    expect(page.locator(".graph-node").filter(has_text="confirm")).to_contain_text("next")
    expect(page.locator(".run-facts")).to_contain_text("write: terse")
    page.go_back()
    page.reload()
    page.get_by_role("button", name="Take the input of the last run").click()
    expect(page.get_by_label("Input, as a JSON object")).to_have_value(re.compile(r'"topic": "bees"'))
    window.check()
    window.close()


def test_a_graph_of_more_than_500_nodes_is_drawn_only_on_request(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/workflows/wide")
    expect(page.get_by_text("This graph has 501 nodes")).to_be_visible()
    expect(page.locator(".graph-node")).to_have_count(0)
    page.get_by_role("button", name="Draw it").click()
    expect(page.locator(".graph-node").first).to_be_attached()
    window.check()
    window.close()


def test_who_may_only_look_gets_no_form(browser: Browser, served: Served) -> None:
    token = served.wtb("token", "create", "eve", "--role", "viewer").split()[0]
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{served.address}/workflows/agent")
    page.get_by_label("Or sign in with a token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".graph-node").filter(has_text="publish")).to_be_visible()
    expect(page.get_by_role("form", name="Start a run")).to_have_count(0)
    context.close()


def test_a_workflow_fits_a_phone_and_one_that_does_not_exist_is_a_problem(browser: Browser, served: Served) -> None:
    window = Window(browser, served, viewport=PHONE, color_scheme="dark")
    page = window.open("/workflows/agent")
    expect(page.locator(".graph-node").filter(has_text="publish")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    window.check_axe()
    window.look("workflow-dark-phone")
    window.expected.append("workflows/nothing")
    window.open("/workflows/nothing")
    expect(page.get_by_role("alert")).to_contain_text("nothing")
    window.check()
    window.close()
