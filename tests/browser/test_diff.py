"""Differences in the page: of two checkpoints, and of two runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.acting_project import HOSTILE, expect_no_script, served_project
from tests.browser.served import PHONE, WIDE, Served, Window


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_project(
        tmp_path_factory.mktemp("bench"), {"bees": "bees", "wasps": "wasps", "large": "large"}
    ) as running:
        yield running


def test_both_ends_are_chosen_by_node_and_visit(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/runs/bees/diff?from=0&to=1")
    expect(page.locator("h1")).to_have_text("What changed from the start to plan#1")
    page.get_by_label("Old checkpoint").select_option(label="step 1: plan#1")
    page.get_by_label("New checkpoint").select_option(label="step 3: draft#2")  # before the page has drawn the first
    expect(page.locator("h1")).to_have_text("What changed from plan#1 to draft#2")
    expect(page.locator(".changes li").filter(has_text="draft")).to_contain_text("A long draft about bees")
    page.reload()
    expect(page.locator("h1")).to_have_text("What changed from plan#1 to draft#2")
    page.get_by_role("link", name="Swap").click()
    expect(page.locator("h1")).to_have_text("What changed from draft#2 to plan#1")
    expect(page.locator(".changes li").filter(has_text="draft")).to_contain_text("removed")
    window.check_axe()
    window.check()
    window.close()


def test_files_and_calls_in_between_are_shown_and_hostile_lines_stay_text(browser: Browser, served: Served) -> None:
    window = Window(browser, served, color_scheme="dark")
    page = window.open("/runs/bees/diff?from=plan&to=draft%232&view=files")
    expect(page.locator(".line-removed")).to_contain_text("line two")
    expect(page.locator(".line-added")).to_contain_text(f"line 2, {HOSTILE}")
    window.check_axe()
    window.look("diff-files-dark")
    page.get_by_role("navigation", name="Kinds of changes").get_by_role("link", name="Calls").click()
    expect(page.get_by_role("row").filter(has_text="send")).to_have_count(2)
    expect_no_script(page)
    window.check()
    window.close()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_two_runs_are_compared_with_their_changed_words_and_both_can_be_opened(
    browser: Browser, served: Served, size: dict[str, int]
) -> None:
    window = Window(browser, served, viewport=size)
    page = window.open("/runs/bees/diff?from=deliver&to=")
    expect(page.get_by_text("one and the same checkpoint")).to_be_visible()
    page.get_by_label("Another run").fill("wasps")
    page.get_by_role("button", name="Compare with it").click()
    expect(page.locator("h1")).to_have_text("What changed from deliver#1 of bees to deliver#1 of wasps")
    change = page.locator(".changes li").filter(has_text="A long draft").first
    expect(change.locator("mark")).to_have_text(["bees", "wasps"])
    expect(page.get_by_text("wtb diff bees deliver wasps@")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    window.check_axe()
    window.look(f"diff-runs-{size['width']}")
    for name in ("bees", "wasps"):
        expect(page.get_by_role("link", name=f"Run {name}")).to_have_attribute("href", f"/runs/{name}")
    window.check()
    window.close()


def test_large_states_are_compared_place_by_place(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    window.expected.append("/diff")  # the whole answer is refused: it would be too large
    page = window.open("/runs/large/diff?from=0&to=deliver")
    changes = page.locator(".changes li")
    expect(changes.filter(has_text="docs").first).to_contain_text("10,000")
    expect(changes.filter(has_text="delivered")).to_contain_text("A long draft about large")
    window.look("diff-large")
    page.get_by_role("navigation", name="Kinds of changes").get_by_role("link", name="Calls").click()
    expect(page.get_by_role("row").filter(has_text="send")).to_have_count(2)
    window.check()
    window.close()


def test_a_checkpoint_or_run_that_is_not_there_says_so(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    window.expected.append("404")
    page = window.open("/runs/bees/diff?from=99&to=1")
    expect(page.get_by_role("alert")).to_contain_text("99")
    window.open("/runs/bees/diff?from=1&to=&run=nobody")
    expect(page.get_by_role("alert").first).to_contain_text("nobody")
    window.check()
    window.close()
