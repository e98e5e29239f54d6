"""The list of batches, and a new batch: planned first, then started, and followed to its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.batch_project import INLINE, write_project
from tests.browser.served import PHONE, Served, Window, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("batches")
    with serving(folder, write_project(folder)) as running:
        yield running


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """A bench in which no other test has run a batch."""
    with serving(tmp_path, write_project(tmp_path)) as running:
        yield running


def test_a_configured_batch_is_planned_started_and_followed_to_its_verdict(browser: Browser, fresh: Served) -> None:
    window = Window(browser, fresh)
    page = window.open("/batches")
    expect(page.locator(".empty")).to_contain_text("No batch has run yet")
    page.get_by_role("link", name="New batch").first.click()
    expect(page.get_by_role("combobox", name="Batch")).to_have_value("checks")
    page.get_by_role("button", name="Plan", exact=True).click()
    plan = page.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("24 jobs would run")
    expect(plan).to_contain_text("24 to run, 0 kept")
    expect(plan).to_contain_text("about 16 shared")
    window.look("new-batch-planned")
    window.check_axe()
    assert "checks" not in fresh.wtb("batch", "ls"), "planning ran something"

    gate = fresh.folder / "gate"
    gate.touch()
    try:
        plan.get_by_role("button", name="Start the batch").click()
        page.wait_for_url("**/batches/*command=*")
        expect(page.locator("h1")).to_have_text("Batch checks")
        expect(page.get_by_role("region", name="Running jobs")).to_contain_text(" on ")
        expect(page.locator(".batch-counts")).to_contain_text("24 left")
        window.look("batch-running")
    finally:
        gate.unlink()
    expect(page.locator(".headline")).to_contain_text("1 of 2 combinations is better than the baseline on exact_match.")
    expect(page.locator(".batch-counts")).to_contain_text("24 of 24 jobs done")
    expect(page.locator(".batch-counts")).to_contain_text("1 failed")
    expect(page.locator(".conclusion-errors")).to_contain_text("1 run failed")
    window.check_axe()
    window.look("batch-verdict")
    page.get_by_role("link", name="Batches").click()
    expect(page.get_by_role("row").filter(has_text="checks")).to_contain_text("completed with errors")
    window.look("batches")
    window.check()
    window.close()


def test_cases_of_ones_own_run_over_a_workflow_and_faults_are_named(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    page = window.open("/batches/new?workflow=answering")
    expect(page.get_by_role("combobox", name="Workflow")).to_have_value("answering")
    expect(page.get_by_text("good, bad")).to_be_visible()
    page.get_by_label("Cases (JSONL").fill('{"question": "q1"')
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Line 1 of the cases is not JSON")
    page.get_by_label("Cases (JSONL").fill(INLINE)
    page.get_by_label("Evaluators").fill("exact_match:answer nonsense")
    page.get_by_label("Name of the batch").fill("mine")
    page.get_by_role("combobox", name="Combinations").select_option("chosen")
    page.get_by_label("Chosen combinations").fill("answer=good")
    page.get_by_label("Repeats of each case").fill("2")
    window.expected.append("422")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    page.get_by_label("Evaluators").fill("exact_match:answer")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("region", name="Plan")).to_contain_text("24 jobs would run")
    expect(page.locator(".command")).to_contain_text(["wtb batch run FILE --cases cases.jsonl --name mine --repeats 2"])
    page.get_by_label("Repeats of each case").fill("3")
    expect(page.get_by_text("You have changed something since: plan again.")).to_be_visible()
    expect(page.get_by_role("button", name="Start the batch")).to_be_disabled()
    page.get_by_label("Repeats of each case").fill("2")
    window.look("new-batch-inline")
    window.check_axe()
    page.get_by_role("button", name="Start the batch").click()
    expect(page.locator("h1")).to_have_text("Batch mine")
    expect(page.locator(".headline")).to_contain_text("answer=good is better than the baseline on exact_match.")
    window.check()
    window.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_and_the_form_fit_a_phone(browser: Browser, served: Served, scheme: str) -> None:
    window = Window(browser, served, viewport=PHONE, color_scheme=scheme)
    for address in ("/batches", "/batches/new", "/batches/new?workflow=answering"):
        page = window.open(address)
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        window.check_axe()
        window.look(f"{address[1:].replace('/', '-').replace('?', '-').partition('=')[0]}-{scheme}-phone")
    window.check()
    window.close()


def test_a_viewer_is_offered_nothing_that_acts(browser: Browser, served: Served) -> None:
    served.wtb("batch", "run", "checks.py")
    token = served.wtb("token", "create", "vic", "--role", "viewer").split()[0]
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{served.address}/batches")
    page.get_by_label("Or sign in with a token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("h1")).to_have_text("Batches")
    expect(page.get_by_role("link", name="New batch")).to_have_count(0)
    page.goto(f"{served.address}/batches/new")
    expect(page.get_by_text("Your role can look at batches")).to_be_visible()
    page.goto(f"{served.address}/batches/checks")
    expect(page.locator(".headline")).to_be_visible()
    expect(page.get_by_role("button", name="Retry failures")).to_have_count(0)
    context.close()
