"""A checkpoint in the page: its facts, its state as a tree, its files and calls."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.acting_project import HOSTILE, expect_no_script, served_project
from tests.browser.served import PHONE, WIDE, Served, Window

LARGE = "/runs/large/checkpoints/plan"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_project(tmp_path_factory.mktemp("bench"), {"bees": "bees", "large": "large"}) as running:
        yield running


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
def test_a_checkpoint_shows_what_it_is_and_leads_to_its_neighbours(
    browser: Browser, served: Served, size: dict[str, int], scheme: str
) -> None:
    window = Window(browser, served, viewport=size, color_scheme=scheme)
    page = window.open("/runs/bees/checkpoints/draft%232")
    expect(page.locator("h1")).to_have_text("draft#2")
    expect(page.get_by_text("Step 3 of run")).to_be_visible()
    expect(page.get_by_text("restore point", exact=True)).to_be_visible()
    expect(page.get_by_role("treeitem").first).to_be_visible()
    window.check_axe()
    window.look(f"checkpoint-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.get_by_role("link", name="Next →").click()
    expect(page.locator("h1")).to_have_text("review#1")
    page.get_by_role("link", name="← Previous").click()
    expect(page.locator("h1")).to_have_text("draft#2")
    page.get_by_role("link", name="the current position").click()
    expect(page.locator("h1")).to_have_text("What changed from draft#2 to deliver#1")
    window.check()
    window.close()


def test_values_of_all_types_are_readable_and_hostile_text_stays_text(browser: Browser, served: Served) -> None:
    window = Window(browser, served, viewport={"width": 1400, "height": 1000})
    page = window.open("/runs/bees/checkpoints/plan")
    tree = page.get_by_role("tree")
    for text in (
        "api_key***",
        "at2026-01-01T00:00:00+00:00",
        "big1180591620717411303424",
        "donefalse",
        'placePlace(street: "Main", number: 7)',
        "price1.10",
        "raw2 bytes: 00 ff",
    ):
        expect(tree.get_by_role("treeitem").filter(has_text=text)).to_be_visible()
    expect(tree.get_by_role("treeitem").filter(has_text=HOSTILE).first).to_contain_text(HOSTILE)
    tree.get_by_role("treeitem").filter(has_text=HOSTILE).first.click()
    expect(page.get_by_label("Chosen value")).to_contain_text(HOSTILE)
    expect(page.locator(".bubble-ai")).to_contain_text(HOSTILE)
    expect(page.locator(".bubble-human")).to_contain_text("Where is my invoice?")
    expect_no_script(page)
    window.check()
    window.close()


def test_the_tree_works_by_keyboard_alone(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/runs/bees/checkpoints/plan")
    tree = page.get_by_role("tree")
    tree.focus()
    nested = tree.get_by_role("treeitem").filter(has_text="nested")
    for _ in range(8):
        if "nested" in (page.locator(".tree-active").text_content() or ""):
            break
        tree.press("ArrowDown")
    tree.press("ArrowRight")
    expect(nested).to_have_attribute("aria-expanded", "true")
    tree.press("ArrowRight")
    tree.press("Enter")
    expect(page.get_by_label("Chosen value")).to_contain_text("nested.a")
    tree.press("ArrowLeft")
    tree.press("ArrowLeft")
    expect(nested).to_have_attribute("aria-expanded", "false")
    expect(tree).to_be_focused()
    window.check()
    window.close()


def test_a_state_of_megabytes_is_read_in_windows_and_searched_whole(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    received: list[int] = []
    window.page.on("response", lambda response: received.append(int(response.headers.get("content-length", 0))))
    page = window.open(LARGE)
    tree = page.get_by_role("tree")
    docs = tree.get_by_role("treeitem").filter(has_text="10,000 items")
    docs.locator(".twisty-on").click()
    expect(tree.get_by_role("treeitem").filter(has_text="Document 3").first).to_be_visible()
    assert tree.get_by_role("treeitem").count() < 80
    tree.press("End")  # the next window comes with the end of this one
    expect(tree.get_by_role("treeitem").filter(has_text=re.compile(r"Document [2-9]\d\d\b")).first).to_be_attached()
    assert sum(received) < 2_500_000
    page.get_by_label("Find").fill("Document 7777")
    page.get_by_role("button", name="docs[7777].title").click()
    expect(page.get_by_label("Chosen value")).to_contain_text("Document 7777")
    page.get_by_role("navigation", name="Place in the state").get_by_role("button", name="7777").click()
    expect(tree.get_by_role("treeitem").filter(has_text="title")).to_be_visible()
    page.reload()  # the place stands in the address
    expect(tree.get_by_role("treeitem").filter(has_text="Document 7777").first).to_be_visible()
    window.check()
    window.close()


def test_a_search_is_corrected_in_its_middle(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/runs/bees/checkpoints/plan?find=infice")
    find = page.get_by_label("Find")
    find.click()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "Backspace", "v", "o"):
        page.keyboard.press(key)
    expect(find).to_have_value("invoice")
    expect(page).to_have_url(re.compile("find=invoice$"))
    expect(page.locator(".matches")).to_contain_text("Where is my invoice?")
    window.check()
    window.close()


def test_files_are_shown_as_text_or_picture_and_never_run(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/runs/bees/checkpoints/draft%232?view=files")
    page.get_by_role("button", name="onerror").click()
    expect(page.get_by_label("Chosen file")).to_contain_text(HOSTILE)
    page.get_by_role("button", name="dot.png").click()
    picture = page.get_by_role("img", name="The picture dot.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("img => img.naturalWidth") == 10
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the file").click()
    assert download.value.suggested_filename == "dot.png"
    window.look("checkpoint-files")
    window.check_axe()
    page.get_by_role("navigation", name="Contents").get_by_role("link", name="Calls").click()
    expect(page.get_by_role("row").filter(has_text="send")).to_contain_text("bees bees")
    window.look("checkpoint-calls")
    expect_no_script(page)
    window.check()
    window.close()


def test_a_checkpoint_that_is_not_there_says_so(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    window.expected.append("404")
    page = window.open("/runs/bees/checkpoints/nope")
    expect(page.locator("h1")).to_have_text("No such checkpoint")
    expect(page.get_by_role("alert")).to_contain_text("nope")
    window.check()
    window.close()
