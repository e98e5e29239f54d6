"""Acting on runs in the page, as a person: break, edit, resume, answer, restore, redo, fork, name, delete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.acting_project import HOSTILE, served_project, status, viewer_page
from tests.browser.served import PHONE, Served, Window

RUNS = {
    "broken": "broken",
    "edited": "edited",
    "form": "form",
    "forked": "forked",
    "killed": "killed",
    "published": "published",
    "stale": "stale",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bench")
    with served_project(folder, RUNS, "--break-before", "review") as running:
        yield running


@pytest.fixture
def window(browser: Browser, served: Served) -> Iterator[Window]:
    opened = Window(browser, served)
    yield opened
    opened.check()
    opened.close()


def dialog(window: Window) -> Locator:
    return window.page.get_by_role("dialog")


def press(window: Window, name: str) -> None:
    window.page.get_by_role("button", name=name).click()


def test_a_paused_run_is_edited_by_type_and_resumed_to_the_next_break(window: Window, served: Served) -> None:
    page = window.open("/runs/edited")
    press(window, "Resume with changes")
    tree = dialog(window).get_by_role("tree")
    tree.get_by_role("treeitem").filter(has_text="api_key").click()
    expect(dialog(window).get_by_label("Edit the chosen value")).to_contain_text("It is a secret")
    tree.get_by_role("treeitem").filter(has_text="draft").click()
    dialog(window).get_by_label("Value", exact=True).fill(f"Edited by hand {HOSTILE}")
    tree.get_by_role("treeitem").filter(has_text="big").click()
    dialog(window).get_by_label("Value", exact=True).fill("not a number")
    expect(dialog(window).get_by_role("alert")).to_contain_text("not a number")
    dialog(window).get_by_label("Value", exact=True).fill("12")
    expect(dialog(window).get_by_label("Changes").get_by_role("listitem")).to_have_count(2)
    dialog(window).get_by_label("Pause before review").uncheck()
    dialog(window).get_by_label("Pause after review").check()
    window.look("acting-edit-dialog")
    window.check_axe()
    dialog(window).get_by_role("button", name="Resume", exact=True).click()
    expect(dialog(window)).to_have_count(0)
    expect(page.get_by_label("Why it is paused")).to_contain_text("after")  # it was paused before, too
    window.open("/runs/edited/checkpoints/review")
    expect(page.get_by_role("treeitem").filter(has_text="big12")).to_be_visible()
    window.open("/runs/edited")
    window.page.get_by_role("button", name="Resume", exact=True).click()
    status(window, "completed")
    assert "Edited by hand" in served.wtb("show", "edited")


def test_a_value_that_the_server_refuses_is_told_in_the_dialog(window: Window) -> None:
    window.expected.append("422")
    window.open("/runs/stale")
    press(window, "Resume with changes")
    tree = dialog(window).get_by_role("tree")
    tree.get_by_role("treeitem").filter(has_text="price").click()
    dialog(window).get_by_label("Value", exact=True).fill("much")
    dialog(window).get_by_role("button", name="Resume", exact=True).click()
    expect(dialog(window).get_by_role("alert")).to_contain_text("price")
    window.page.keyboard.press("Escape")
    expect(dialog(window)).to_have_count(0)


def test_a_question_is_answered_by_a_form(browser: Browser, served: Served) -> None:
    served.wtb("resume", "form", "--no-breakpoints")
    window = Window(browser, served, viewport=PHONE, color_scheme="dark")
    page = window.open("/runs/form")
    expect(page.get_by_label("Question", exact=True)).to_contain_text("Judge the draft")
    press(window, "Answer and go on")
    expect(page.get_by_role("alert").filter(has_text="Choose verdict")).to_be_visible()
    page.get_by_label("accept").check()
    page.get_by_label("Score").fill("9")
    press(window, "Answer and go on")
    expect(page.get_by_role("alert")).to_contain_text("at most 5")
    page.get_by_label("Score").fill("4")
    page.get_by_label("Yes").check()
    window.look("acting-question-phone-dark")
    window.check_axe()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    press(window, "Answer and go on")
    status(window, "completed")
    assert '"score": 4' in served.wtb("show", "form")
    window.check()
    window.close()


def test_a_restore_cannot_be_confirmed_blind_and_can_be_redone(window: Window, served: Served) -> None:
    served.wtb("resume", "published", "--no-breakpoints")
    page = window.open("/runs/published/checkpoints/plan")
    press(window, "Restore plan#1")
    confirm = dialog(window).get_by_role("button", name="Restore plan#1")
    expect(confirm).to_be_disabled()  # the first thing that can be seen of it
    for text in (
        "4 visits undone",
        "2 calls undone",
        "1 call that cannot be undone",
        "published published",
        "notes.txt",
    ):
        expect(dialog(window)).to_contain_text(text)
    window.look("acting-plan")
    window.check_axe()
    dialog(window).get_by_label("1 call of publish cannot be undone").check()
    confirm.click()
    expect(dialog(window)).to_contain_text("is at plan#1 again")
    expect(dialog(window).get_by_role("link", name="safety checkpoint")).to_be_visible()
    window.look("acting-restored")
    dialog(window).get_by_role("button", name="Close").last.click()
    expect(page.get_by_text("Current position", exact=True)).to_be_visible()
    world = (served.folder / "world.txt").read_text()
    assert world.count("-published") == 2
    window.open("/runs/published")
    press(window, "Redo")
    dialog(window).get_by_role("button", name="Redo", exact=True).click()
    expect(dialog(window)).to_contain_text("where it was before the rollback")
    assert (served.folder / "world.txt").read_text().count("+published") == 4


def test_a_plan_that_changed_is_refused_and_shown_anew(window: Window, served: Served) -> None:
    window.expected.append("412")
    window.open("/runs/stale/checkpoints/plan")
    press(window, "Restore plan#1")
    expect(dialog(window)).to_contain_text("2 visits undone")
    served.wtb("resume", "stale", "--no-breakpoints")
    dialog(window).get_by_role("button", name="Restore plan#1").click()
    expect(dialog(window).get_by_role("alert")).to_contain_text("nothing was done")
    expect(dialog(window)).to_contain_text("4 visits undone")
    assert "-stale" not in (served.folder / "world.txt").read_text()
    dialog(window).get_by_role("button", name="Restore plan#1").click()
    expect(dialog(window)).to_contain_text("is at plan#1 again")


def test_a_rollback_that_stops_half_way_is_continued(window: Window, served: Served) -> None:
    window.expected.append("/rollback")
    broken = served.folder / "broken"
    broken.touch()
    page = window.open("/runs/broken/checkpoints/plan")
    press(window, "Restore plan#1")
    dialog(window).get_by_role("button", name="Restore plan#1").click()
    expect(dialog(window).get_by_role("alert")).to_contain_text("the mail server does not answer")
    window.open("/runs/broken")
    expect(page.get_by_label("Unfinished rollback")).to_contain_text("2 calls left")
    window.look("acting-half-way")
    window.check_axe()
    press(window, "Continue the rollback")
    expect(page.get_by_label("Unfinished rollback").get_by_role("alert")).to_contain_text("does not answer")
    broken.unlink()
    press(window, "Continue the rollback")
    status(window, "paused")
    expect(page.get_by_label("Unfinished rollback")).to_have_count(0)
    assert (served.folder / "world.txt").read_text().count("-broken") == 2


def test_a_fork_with_a_variant_is_compared_with_its_origin(window: Window) -> None:
    page = window.open("/runs/forked/checkpoints/plan")
    press(window, "Fork from here")
    dialog(window).get_by_label("draft").select_option("short")
    window.look("acting-fork")
    window.check_axe()
    dialog(window).get_by_role("button", name="Fork", exact=True).click()
    dialog(window).get_by_role("link", name="Compare it with its origin").click()
    expect(page.locator("h1")).to_contain_text("of forked to")
    changed = page.locator(".changes li").filter(has_text="A short draft")  # live: the fork runs meanwhile
    expect(changed.locator("mark")).to_have_text(["long", "short"])


def test_a_position_is_named_and_the_run_deleted_by_typing_its_id(window: Window) -> None:
    page = window.open("/runs/forked")
    press(window, "Name this position")
    dialog(window).get_by_label("Name", exact=True).fill("before review")
    dialog(window).get_by_role("button", name="Name it").click()
    dialog(window).get_by_role("link", name="before review").click()
    expect(page.locator("h1")).to_contain_text("“before review”")
    window.open("/runs/forked")
    press(window, "Delete")
    confirm = dialog(window).get_by_role("button", name="Delete the run")
    dialog(window).get_by_role("textbox").fill("fork")
    expect(confirm).to_be_disabled()
    dialog(window).get_by_role("textbox").fill("forked")
    confirm.click()
    page.wait_for_url("**/runs")


def test_a_viewer_sees_no_buttons(browser: Browser, served: Served) -> None:
    page = viewer_page(browser, served)
    page.goto(f"{served.address}/runs/killed")
    expect(page.locator("h1")).to_contain_text("killed")
    expect(page.get_by_label("Actions")).to_be_attached()
    expect(page.get_by_label("Actions").get_by_role("button")).to_have_count(0)
    page.goto(f"{served.address}/runs/killed/checkpoints/plan")
    expect(page.get_by_role("tree")).to_be_visible()
    expect(page.get_by_role("button", name="Restore")).to_have_count(0)
    expect(page.get_by_role("button", name="Fork")).to_have_count(0)
    page.context.close()


def test_a_server_that_is_killed_in_the_middle_of_a_resume_goes_on(window: Window, served: Served) -> None:
    window.expected += ["ERR_", "WebSocket", "Failed to load"]
    gate = served.folder / "gate-killed"
    gate.touch()
    window.open("/runs/killed/checkpoints/plan")
    press(window, "Restore plan#1")
    dialog(window).get_by_role("button", name="Restore plan#1").click()
    expect(dialog(window)).to_contain_text("is at plan#1 again")
    window.open("/runs/killed")
    window.page.get_by_role("button", name="Resume", exact=True).click()
    status(window, "running")
    served.kill()
    # The request is told of in an alert, if it still waits: after half a minute the page asks for its outcome instead.
    lost = window.page.get_by_role("alert").filter(has_text="the server does not answer")
    expect(lost.or_(window.page.get_by_role("status").filter(has_text="Reconnecting")).first).to_be_visible()
    gate.unlink()
    served.start()
    status(window, "paused")  # before review, as it was told at its start
    assert (served.folder / "world.txt").read_text().count("+killed") == 4
