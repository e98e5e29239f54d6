"""One batch: scores, cases, plots, failures, baselines and gate; and everything that people wrote stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

import wtb
from tests.browser.batch_project import hostile_batch, write_project
from tests.browser.served import PHONE, Served, Window, serving


@dataclass(frozen=True)
class Project:
    served: Served
    hostile: str


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("batch")
    reference = write_project(folder)
    with serving(folder, reference) as running:
        running.wtb("batch", "run", reference)
        with wtb.Bench(f"sqlite:///{folder}/.wtb/wtb.db") as bench:
            hostile = hostile_batch(bench)
        yield Project(running, hostile)


def opened(browser: Browser, project: Project, address: str, **options: object) -> tuple[Window, Page]:
    window = Window(browser, project.served, **options)
    return window, window.open(address)


def test_scores_have_verdicts_and_intervals_and_errors_are_in_sight(browser: Browser, project: Project) -> None:
    window, page = opened(browser, project, "/batches/checks")
    expect(page.locator(".headline")).to_contain_text("better than the baseline on exact_match")
    rows = page.locator(".matrix tbody tr")
    expect(rows).to_have_count(3)
    good = rows.filter(has_text="answer=good")
    expect(good.locator("td").first).to_contain_text("▲ better")
    bad = rows.filter(has_text="answer=bad")
    expect(bad.locator("td").first).to_contain_text("✕ 1 error")
    expect(bad.locator("td").first).not_to_contain_text("▲")
    window.look("matrix-wide")
    window.check_axe()
    page.get_by_role("link", name="Failures").click()
    expect(page.get_by_role("region", name="1 failed run")).to_contain_text("ValueError: no <b>idea</b> about q0")
    page.get_by_role("link", name="Open run").click()
    page.wait_for_url("**/runs/*")
    window.check()
    window.close()


def test_cases_are_filtered_and_a_cell_opens_its_run(browser: Browser, project: Project) -> None:
    window, page = opened(browser, project, "/batches/checks?view=cases")
    grid = page.get_by_role("grid")
    expect(grid).to_have_attribute("aria-rowcount", "9")
    page.get_by_role("button", name="Failed 1").click()
    expect(grid).to_have_attribute("aria-rowcount", "2")
    expect(page.locator(".grid-cell.is-failed")).to_have_text("✕ failed")
    page.get_by_role("button", name="Different 8").click()
    page.get_by_label("Tag").select_option("even")
    expect(grid).to_have_attribute("aria-rowcount", "5")
    expect(page).to_have_url(re.compile("show=different.*tag=even"))
    page.reload()
    expect(grid).to_have_attribute("aria-rowcount", "5")
    grid.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("answer=good")
    window.look("cell-dialog")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(grid).to_be_focused()
    page.keyboard.press("Enter")
    dialog.get_by_role("link", name="Open run").click()
    page.wait_for_url("**/runs/*")
    page.go_back()
    expect(dialog).to_be_visible()
    window.check()
    window.close()


def test_a_cell_that_was_closed_opens_again_however_slow_the_machine_is(browser: Browser, project: Project) -> None:
    window, page = opened(browser, project, "/batches/checks?view=cases")
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "9")
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 8})
    page.get_by_role("grid").focus()
    for _ in range(3):
        expect(page.get_by_role("grid")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    window.check()
    window.close()


def test_a_case_is_shown_side_by_side_and_both_runs_open_from_a_comparison(browser: Browser, project: Project) -> None:
    window, page = opened(browser, project, "/batches/checks/cases/c2")
    baseline, good = (page.get_by_role("region", name=name) for name in ("baseline", "answer=good"))
    expect(baseline).to_contain_text("the answer is no")
    expect(good.locator("mark")).to_have_text("2")
    expect(page.get_by_role("region", name="answer=bad").locator("mark")).to_have_text("reply")
    baseline.get_by_role("checkbox").check()
    good.get_by_role("checkbox").check()
    two = page.get_by_role("group", name="Two runs")
    window.look("case-wide")
    window.check_axe()
    expect(two.get_by_role("link", name="Compare the two runs")).to_be_visible()
    runs = [link.get_attribute("href") or "" for link in two.get_by_role("link").all()[:2]]
    assert len(set(runs)) == 2
    for run in runs:
        page.locator(f'.compared a[href="{run}"]').click()
        page.wait_for_url(f"**{run}")
        page.go_back()
    two.get_by_role("link", name="Compare the two runs").click()
    page.wait_for_url("**/diff?from=*&to=*&run=*")
    window.check()
    window.close()


def test_plots_follow_the_chosen_metric_and_axes(browser: Browser, project: Project) -> None:
    window, page = opened(browser, project, "/batches/checks?view=differences")
    plot = page.get_by_role("table", name="Differences on exact_match")
    expect(plot.get_by_role("row").filter(has_text="answer=good")).to_contain_text("▲ better +1")
    window.look("forest-wide")
    window.check_axe()
    page.get_by_role("combobox", name="Metric").select_option("latency_s")
    expect(page.get_by_role("table", name="Differences on latency_s")).to_be_visible()
    page.get_by_role("link", name="Trade-off").click()
    picture = page.get_by_role("img", name="exact_match against latency_s")
    expect(picture.locator(".point")).to_have_count(3)
    window.look("trade-off-wide")
    page.get_by_role("combobox", name="Across").select_option("failed")
    expect(page.get_by_role("img", name="exact_match against failed")).to_be_visible()
    expect(page).to_have_url(re.compile("x=failed"))
    window.check_axe()
    page.get_by_role("link", name="Effects").click()
    page.get_by_role("combobox", name="Metric").select_option("exact_match")
    expect(page.get_by_role("table", name="Effects on exact_match by node")).to_contain_text("good")
    window.look("effects-wide")
    window.check_axe()
    window.check()
    window.close()


def test_a_baseline_is_saved_and_a_gate_says_what_the_command_says(browser: Browser, project: Project) -> None:
    window, page = opened(browser, project, "/batches/checks?view=baselines")
    page.get_by_label("As baseline").fill("best")
    save = page.locator("form").filter(has_text="Save scores of this batch")
    save.get_by_role("combobox").select_option("answer=good")
    save.get_by_role("button", name="Save the baseline").click()
    expect(save.get_by_role("status")).to_contain_text("Saved 8 results as baseline best.")
    outcome = page.get_by_role("status", name="Outcome of the gate")
    page.get_by_role("button", name="Judge").click()
    expect(outcome).to_contain_text("▼ regression")
    said = project.served.wtb("gate", "checks", "--baseline", "best", "--metric", "exact_match")
    expect(outcome.locator("pre")).to_have_text(said.strip())
    window.look("gate-wide")
    window.check_axe()
    page.get_by_label("Against baseline").locator("xpath=ancestor::form").get_by_label("Combination").select_option(
        "answer=good"
    )
    page.get_by_label("Pass only with proof").check()
    page.get_by_role("button", name="Judge").click()
    expect(outcome).to_contain_text("? inconclusive")
    window.check()
    window.close()


def test_a_batch_is_cancelled_resumed_and_its_failures_retried(browser: Browser, project: Project) -> None:
    folder = project.served.folder
    window = Window(browser, project.served)
    (folder / "checks.py").write_text((folder / "checks.py").read_text() + "\n# changed\n")
    gate = folder / "gate"
    gate.touch()
    page = window.open("/batches/new?workflow=answering")
    cases = "\n".join(f'{{"id": "k{n}", "input": {{"question": "q{n}", "expected": "x"}}}}' for n in range(12))
    page.get_by_label("Cases (JSONL").fill(cases)
    page.get_by_label("Name of the batch").fill("long")
    page.get_by_label("Workers at a time").fill("1")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("button", name="Start the batch").click()
    try:
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".batch-title")).to_contain_text("cancelled")
    finally:
        gate.unlink()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".batch-counts")).to_contain_text("36 of 36 jobs done")
    expect(page.locator(".batch-counts")).to_contain_text("1 failed")
    (folder / "mended").touch()
    page.get_by_role("button", name="Retry failures").click()
    expect(page.locator(".batch-title")).to_contain_text("completed")
    expect(page.locator(".batch-counts")).not_to_contain_text("failed")
    window.check()
    window.close()


_NOTE_WIDE_FRAMES = """
    window.wide = 0;
    const look = () => {
        window.wide += document.documentElement.scrollWidth > innerWidth;
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
VIEWS = ("matrix", "cases", "differences", "trade-off", "effects", "failures", "baselines")


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("phone", "dark")])
def test_every_text_of_a_batch_stays_text(browser: Browser, project: Project, size: str, scheme: str) -> None:
    options = {"color_scheme": scheme, **({"viewport": PHONE} if size == "phone" else {})}
    window, page = opened(browser, project, f"/batches/{project.hostile}", **options)
    window.page.add_init_script(_NOTE_WIDE_FRAMES)
    expect(page.locator("h1")).to_contain_text("<script>window.caught=1</script>")
    for view in VIEWS:
        page.goto(f"{project.served.address}/batches/{project.hostile}?view={view}")
        expect(page.locator(".tabs a[aria-current]")).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        window.check_axe()
        assert page.evaluate("window.wide") == 0, f"{view} was too wide for the page, if only for a moment"
        window.look(f"hostile-{view}-{size}")
    page.goto(f"{project.served.address}/batches/{project.hostile}?view=cases&show=flaky")
    expect(page.locator(".grid-cell").last.locator(".repeat")).to_have_count(3)
    expect(page.locator(".flaky").first).to_be_visible()
    page.locator(".grid-cell").filter(has=page.locator(".flaky")).first.click()
    dialog = page.get_by_role("dialog")
    for repeat in (1, 2, 3):
        expect(dialog.get_by_role("link", name=f"Open run of repeat {repeat}")).to_be_visible()
    links = {link.get_attribute("href") for link in dialog.get_by_role("link", name="Open run").all()}
    assert len(links) == 3, "each repeat has its own run"
    dialog.get_by_role("link", name="All combinations").click()
    expect(page.locator(".side")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    window.check_axe()
    window.look(f"hostile-case-{size}")
    assert page.evaluate("window.caught") is None
    window.check()
    window.close()
