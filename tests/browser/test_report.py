"""Reports in a real browser, without a network: drawn, usable with mouse and keys, and harmless."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from batch import batch as support_qa
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, expect

import wtb
from wtb.domain.batch import Batch, BatchStatus, Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.evaluation import Direction, Metric
from wtb.domain.execution import Failure
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import JobRecord
from wtb.infrastructure.cases import read_cases
from wtb.reporting import svg

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 400, "height": 800}
NASTY = "<script>window.caught = 1</script><img src=x onerror='window.caught = 2'>"
QUOTES = "\"'`&amp;</script><!--"
HEBREW = "שלום עולם"
VARIANTS = {"<script>window.caught=3": "x", "\"'`&amp;<!--": "xy", "שלום_עולם": "fail"}
"""Names of variants have neither white space nor slashes."""
LONG = "a-name-without-any-place-to-break-it-" * 8
Open = Callable[..., Page]


class Length:
    """Scores how long the answer is; refuses what holds a 7."""

    name = "length"

    def evaluate(self, context: Any) -> float:
        if "7" in context.state["answer"]:
            raise ValueError(f"{NASTY} seven")
        return float(len(context.state["answer"]))


class Pace:
    """Stands in for the measured latency, which would put intervals and points elsewhere on every machine."""

    name = "latency_s"
    direction = "lower"
    best = 0.0

    def evaluate(self, context: Any) -> float:
        return 0.001 + zlib.crc32(repr(sorted(context.state.items())).encode()) % 1_000 / 1e5


def hostile_flow() -> wtb.Workflow:
    """Answer with the question and something; one variant fails on even numbers, all have names that hurt."""
    flow = wtb.Workflow(HEBREW)

    @flow.node(start=True, config={"add": ""})
    def answer(state: Any, ctx: Any) -> dict[str, Any]:
        if ctx.config["add"] == "fail" and state["number"] % 2 == 0:
            raise ValueError(f"{NASTY} {QUOTES} at {state['number']}")
        return {"answer": f"{state['number']}{ctx.config['add']}"}

    for name, add in {**VARIANTS, LONG: "xyz"}.items():
        flow.add_variant("answer", name, config={"add": add})
    return flow


@pytest.fixture(scope="module")
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


@pytest.fixture(scope="module")
def many(bench: wtb.Bench) -> wtb.BatchResult:
    """The example of this repository, all 40 combinations, over few of its questions."""
    cases = read_cases(support_qa.cases)
    given = [{"id": each.id, "input": each.input, "expected": each.expected} for each in cases[:36:4]]
    evaluators = [Pace() if isinstance(each, wtb.Latency) else each for each in support_qa.evaluators]
    return bench.batch(replace(support_qa, cases=given, evaluators=evaluators))


@pytest.fixture(scope="module")
def hostile(bench: wtb.Bench) -> wtb.BatchResult:
    names = [NASTY, QUOTES, HEBREW, LONG, "7", "plain"]
    cases = [{"id": f"{name} {at}", "input": {"number": at}} for at, name in enumerate(names * 2)]
    return bench.batch(hostile_flow(), name=f"{NASTY}{QUOTES}{HEBREW}", cases=cases, evaluators=[Length(), Pace()])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[wtb.BatchResult], Path]:
    """Writes the report of a batch, once."""
    folder = tmp_path_factory.mktemp("reports")

    @cache
    def path(result: wtb.BatchResult) -> Path:
        made = folder / f"{len(list(folder.iterdir()))}.html"
        result.report(made)
        return made

    return path


@pytest.fixture
def open_report(browser: Browser, written: Callable[[wtb.BatchResult], Path]) -> Iterator[Open]:
    """Opens the report of a batch; in the end there was no error, no question and nothing asked of a network."""
    troubles: list[str] = []
    windows = []

    def aborted(route: Route, request: Request) -> None:
        if request.url.startswith("file:"):
            route.continue_()
        else:
            troubles.append(f"asked for {request.url}")
            route.abort()

    def said(message: ConsoleMessage) -> None:
        troubles.append(f"{message.type}: {message.text}")

    def opened(result: wtb.BatchResult, size: dict[str, int] = WIDE, scheme: Any = "light", **options: Any) -> Page:
        window = browser.new_context(viewport=size, color_scheme=scheme, offline=True, **options)  # type: ignore[arg-type]
        windows.append(window)
        window.route("**/*", aborted)
        page = window.new_page()
        page.on("console", said)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(f"dialog {dialog.message}"))
        page.goto(written(result).as_uri())
        return page

    yield opened
    for window in windows:
        window.close()
    assert troubles == []


def texts(found: Locator) -> list[str]:
    return [" ".join(each.split()) for each in found.all_inner_texts()]


def fits(page: Page) -> bool:
    """Whether the page can be read without scrolling sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def check_drawn(page: Page) -> None:
    """Every plot that is shown takes up room, within the width of the page, and its marks lie within it."""
    plots, marks = page.evaluate(
        """() => {
          const box = (each) => each.getBoundingClientRect();
          const shown = (chosen) => [...document.querySelectorAll(chosen)].filter((each) => each.checkVisibility());
          const width = document.documentElement.clientWidth;
          const plots = shown("main svg").map(box).map(({ left, right, width: own, height }) =>
            own > 10 && height > 10 && left >= 0 && right <= width);
          const marks = shown("main svg :is(circle, rect, .span)").map((mark) => {
            const [own, all] = [box(mark), box(mark.closest("svg"))];
            const isWide = own.width > (mark.matches(".span") ? 0 : 3);  // an interval can be small
            return isWide && own.left >= all.left - 8 && own.right <= all.right + 8
              && own.top >= all.top - 8 && own.bottom <= all.bottom + 8;
          });
          return [plots, marks];
        }"""
    )
    assert len(plots) > 3
    assert all(plots)
    assert len(marks) > 3
    assert all(marks)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_many_combinations_are_drawn_and_fit(
    many: wtb.BatchResult, open_report: Open, size: dict[str, int], scheme: str
) -> None:
    page = open_report(many, size, scheme)
    expect(page.locator(".headline")).to_contain_text("baseline on token_f1")
    assert fits(page)
    check_drawn(page)
    for label in page.locator(".tabs > label").all():
        label.click()
        check_drawn(page)
        assert fits(page)
    for table in ("#result-table", "#case-table"):
        expect(page.locator(table)).to_be_visible()
    for fold in page.locator("summary").all():
        fold.click()
    assert fits(page)


def test_light_and_dark_follow_the_system_and_can_be_read(many: wtb.BatchResult, open_report: Open) -> None:
    brightness = {}
    for scheme in ("light", "dark"):
        page = open_report(many, WIDE, scheme)
        contrasts = page.evaluate(
            """() => {
              const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
              const rgb = (colour) => {
                canvas.clearRect(0, 0, 1, 1);
                canvas.fillStyle = colour;
                canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data];
              };
              const light = (colour) => {
                const [r, g, b] = colour.map((each) => each / 255)
                  .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const behind = (element) => {
                for (let each = element; each; each = each.parentElement) {
                  const colour = rgb(getComputedStyle(each).backgroundColor);
                  if (colour[3] === 255) return light(colour);
                }
              };
              const seen = {};
              const chosen = "h1, p, dt, dd, a, th, td, small, label, summary, .verdict, .node, .word, .tally-words";
              for (const each of document.querySelectorAll(chosen)) {
                if (!each.checkVisibility() || getComputedStyle(each).fontSize === "0px") continue;
                const [a, b] = [light(rgb(getComputedStyle(each).color)), behind(each)];
                const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                const name = `${each.tagName}.${each.className}`;
                seen[name] = Math.min(seen[name] ?? 99, contrast);
              }
              return [light(rgb(getComputedStyle(document.body).backgroundColor)), seen];
            }"""
        )
        brightness[scheme], seen = contrasts
        assert len(seen) > 10
        assert {name: value for name, value in seen.items() if value < 4.5} == {}
    assert brightness["dark"] < 0.05
    assert brightness["light"] > 0.8


@pytest.mark.parametrize("format", [svg.WIDE, svg.NARROW], ids=lambda format: format.name)
def test_keys_in_the_scatter_cover_neither_each_other_nor_a_point(browser: Browser, format: svg.Format) -> None:
    """Crowds of points from a seed: where times decide, an overlap would be seen on some days only."""
    chance = random.Random(7)
    crowds = [
        [
            svg.Point(key=str(at + 1), label="", x=chance.random(), y=y, on_front=at % 2 == 0, is_baseline=at == 3)
            for at, y in enumerate(chance.random() for _ in range(40))
        ]
        for _ in range(30)
    ]
    style = resources.files("wtb.reporting").joinpath("style.css").read_text(encoding="utf-8")
    page = browser.new_page(viewport={"width": format.width, "height": format.height})
    for crowd in crowds:
        page.set_content(f"<style>{style}</style>{svg.scatter(crowd, 'crowd', ('x', 'y'), format)}")
        keys, points = page.evaluate(
            """() => {
              const digits = (text) => {
                const { x, width } = text.getBBox();
                const line = Number(text.getAttribute("y"));
                return [x, line - 9, x + width, line];
              };
              const round = (mark) => {
                const { x, y, width, height } = mark.getBBox();
                return [x, y, x + width, y + height];
              };
              const all = (chosen) => [...document.querySelectorAll(chosen)];
              return [all(".point-key").map(digits), all(".point").map(round)];
            }"""
        )
        assert len(keys) > 5
        assert len(points) == 40
        for at, (left, top, right, bottom) in enumerate(keys):
            assert right - left > 5
            for other in (*keys[at + 1 :], *points):
                assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    page.close()


def test_every_link_leads_to_a_part_of_the_page(many: wtb.BatchResult, open_report: Open) -> None:
    page = open_report(many)
    links = page.locator("a")
    assert texts(links) == ["Results", "Nodes", "Intervals", "Trade-off", "Cases", "Comparisons", "How to read this"]
    for link in links.all():
        link.click()
        target = page.locator(str(link.get_attribute("href")))
        expect(target).to_have_count(1)
        expect(target).to_be_in_viewport()


def test_results_are_sorted_and_searched(many: wtb.BatchResult, open_report: Open) -> None:
    page = open_report(many)
    rows = page.locator("#result-table tbody tr:visible")
    assert rows.count() == 16
    page.get_by_role("button", name="Show 24 more combinations").click()
    assert rows.count() == 40
    for metric, sign in (("token_f1", -1), ("latency_s", 1), ("latency_s", -1), ("hit@3", -1)):
        page.locator("#result-table .sort", has_text=metric).click()
        at = [*many.metrics].index(metric) + 2
        shown = [float(str(row.locator("td, th").nth(at).get_attribute("data-value"))) for row in rows.all()]
        assert shown[1:] == sorted(shown[1:], key=lambda score: sign * score)
        assert texts(rows)[0].startswith("B baseline")
    page.get_by_label("Find a combination").fill("RETRIEVE=LSA")
    assert rows.count() == 1 + sum("retrieve=lsa" in name for name in many.combinations)
    page.get_by_label("Find a combination").fill("nothing is called that")
    assert rows.count() == 1


def test_cases_on_which_combinations_differ_are_filtered(many: wtb.BatchResult, open_report: Open) -> None:
    page = open_report(many)
    cases = page.locator("#case-table tbody th")
    assert sorted(texts(cases)) == sorted(many.different("token_f1"))
    assert texts(cases)[0] == many.different("token_f1")[0]
    page.get_by_label("Only where they differ").uncheck()
    assert cases.count() == 9
    page.get_by_label("Only where they differ").check()
    page.get_by_label("Metric").select_option("hit@3")
    assert 0 < cases.count() < 9
    assert sorted(texts(cases)) == sorted(many.different("hit@3"))
    page.get_by_label("Order").select_option("name of the case")
    assert texts(cases) == sorted(many.different("hit@3"))
    page.get_by_label("Find a case").fill(texts(cases)[0].upper())
    expect(page.locator("#case-count")).to_have_text("1 case of 9.")


def test_a_combination_is_held_against_the_baseline_alone(many: wtb.BatchResult, open_report: Open) -> None:
    page = open_report(many)
    best = page.locator("#case-against option").nth(1).inner_text().removeprefix("B and 1 ")
    page.get_by_label("Combinations").select_option(index=1)
    page.get_by_label("Order").select_option("largest loss")
    assert texts(page.locator("#case-table thead th")) == ["Case", "B", "1", "Difference"]
    table = many.table("token_f1")
    own, other = table.case_means(best), table.case_means(many.baseline)
    losses = sorted(
        (own[case] - other[case] for case in own if own[case] != other[case]), key=lambda loss: min(0, loss)
    )
    rows = page.locator("#case-table tbody tr").all()
    cells = [[float(text.replace("−", "-")) for text in texts(row.locator("td"))] for row in rows]
    assert all(each[2] == pytest.approx(each[1] - each[0], abs=2e-3) for each in cells)
    assert [min(0.0, each[2]) for each in cells] == pytest.approx([min(0.0, loss) for loss in losses], abs=2e-3)


def test_a_case_shows_the_run_behind_each_score_with_the_keys_alone(many: wtb.BatchResult, open_report: Open) -> None:
    page = open_report(many)
    button = page.locator("#case-table tbody button").first
    case = button.inner_text()
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=case)
    expect(dialog).to_be_visible()
    rows = {texts(row.locator("th"))[0]: texts(row.locator("code")) for row in dialog.locator("tbody tr").all()}
    assert rows == {each.combination: [each.run_id] for each in many.results if each.case_id == case}
    assert fits(page)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    button.click()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_everything_that_can_be_used_is_reached_with_the_tabulator(many: wtb.BatchResult, open_report: Open) -> None:
    page = open_report(many)
    usable = page.locator("a, button, select, summary, input:not([type=radio]), input:checked, [tabindex='0']")
    wanted = sum(each.is_visible() for each in usable.all())
    seen = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                """() => {
                  const found = document.activeElement;
                  const label = found.type === "radio" ? found.nextElementSibling : found;
                  const [all, box] = [found.getBoundingClientRect(), getComputedStyle(label)];
                  return [`${found.tagName} ${found.id} ${Math.round(all.x)} ${Math.round(all.y + scrollY)}`,
                          box.outlineStyle !== "none"];
                }"""
            )
        )
    assert len({place for place, _ in seen}) > wanted * 0.9
    assert all(is_marked for _, is_marked in seen)
    page.locator("#interval-0").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#interval-1")).to_be_checked()
    expect(page.locator("#intervals .panel").nth(1)).to_be_visible()
    expect(page.locator("#intervals .panel").nth(0)).to_be_hidden()


def test_it_is_printed_whole_and_without_controls(many: wtb.BatchResult, open_report: Open, tmp_path: Path) -> None:
    page = open_report(many)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})
    assert page.locator("#result-table tbody tr:visible").count() == 40
    assert [each for each in page.locator("nav, .controls, #result-more, #case-more").all() if each.is_visible()] == []
    assert fits(page)
    printed = page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_what_users_say_is_shown_and_never_run(
    hostile: wtb.BatchResult, open_report: Open, size: dict[str, int]
) -> None:
    page = open_report(hostile, size)
    expect(page.locator("h1")).to_have_text(f"Batch {NASTY}{QUOTES}{HEBREW}")
    names = [f"answer={name}" for name in (*VARIANTS, LONG)]
    assert {"baseline", *names} == set(texts(page.locator("#result-table tbody th")))
    assert f"{LONG} 3" in texts(page.locator("#case-table tbody th"))
    assert "11 failures" in texts(page.locator("nav a"))
    expect(page.locator("#failures")).to_contain_text(f"ValueError: {NASTY} {QUOTES} at 4")
    assert fits(page)
    for fold in page.locator("summary").all():
        fold.click()
    page.locator("#case-table button", has_text=f"{NASTY} 0").click()
    expect(page.locator("#case-title")).to_have_text(f"{NASTY} 0")
    assert fits(page)
    check_drawn(page)
    assert page.evaluate("window.caught") is None
    assert page.locator("img, iframe, script[src]").count() == 0


def test_markup_that_got_through_would_not_be_run(hostile: wtb.BatchResult, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    hostile.report(path)
    path.write_text(path.read_text().replace("</main>", f"<i id=through></i>{NASTY}</main>"))
    page = browser.new_page(offline=True)
    page.goto(path.as_uri())
    expect(page.locator("#through")).to_have_count(1)
    expect(page.locator("#case-controls")).to_be_visible()
    assert page.evaluate("window.caught") is None
    page.close()


def test_without_scripts_the_page_shows_the_same(many: wtb.BatchResult, open_report: Open) -> None:
    page = open_report(many, NARROW, java_script_enabled=False)
    assert page.locator("#result-table tbody tr:visible").count() == 40
    assert texts(page.locator("#case-table tbody th")) == many.different("token_f1")
    assert [each for each in page.locator(".controls, button, dialog").all() if each.is_visible()] == []


def made_up(bench: wtb.Bench, combinations: int, cases: int, score: Callable[[int, int], Any]) -> wtb.BatchResult:
    """A batch as it lies in a store, without the runs: `score(combination, case)` is a score, an error or None."""
    names = ["baseline", *(f"answer=v{number}" for number in range(1, combinations))]
    ids = [f"case-{number:05}" for number in range(cases)]
    record = BatchRecord(
        combinations=tuple(names),
        baseline="baseline",
        cases=tuple(ids),
        repeats=1,
        metrics=(Metric(name="quality", worst=0.0), Metric(name="latency_s", direction=Direction.LOWER)),
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    batch = Batch(
        id="b",
        name="made up",
        workflow_name="w",
        status=BatchStatus.COMPLETED,
        record=record,
        created_at=now,
        updated_at=now,
    )
    jobs: list[Job] = []
    for at, name in enumerate(names):
        for number, case in enumerate(ids):
            found = score(at, number)
            job = Job(batch_id="b", number=len(jobs), combination=name, case_id=case, repeat=0, fingerprint="")
            run = ExecutionId(f"01a1df66-9f65-7000-88f1-{len(jobs):012x}")
            if isinstance(found, str):
                job = job.ended(JobStatus.FAILED, run, JobRecord(error=Failure(type="ValueError", message=found)))
            elif found is not None:
                scores = {"quality": found, "latency_s": 1.0 + (number * 7 + at) % 13}
                job = job.ended(JobStatus.COMPLETED, run, JobRecord(scores=scores))
            jobs.append(job)
    return wtb.BatchResult(bench, batch, jobs)


@pytest.mark.parametrize(
    ("combinations", "score", "headline"),
    [
        (1, lambda at, case: case % 3 / 3, "quality is 0.3"),
        (1, lambda at, case: "broken", "All 12 runs failed."),
        (3, lambda at, case: "broken", "All 36 runs failed."),
        (3, lambda at, case: None, "There are no scores on quality yet."),
        (3, lambda at, case: None if at == 0 else 0.5, "Nothing can be compared with the baseline on quality"),
        (3, lambda at, case: "broken" if at == 0 else 0.5, "better than the baseline on quality"),
        (3, lambda at, case: 0.5, "There is no evidence that any of the 2 combinations is better"),
        (3, lambda at, case: {"error": "bad"} if at else 0.5, "There is no evidence"),
        (3, lambda at, case: None if case % 2 and at else at / 10, "So far (24 of 36 jobs): "),
    ],
    ids=[
        "one",
        "one failed",
        "all failed",
        "none yet",
        "no baseline",
        "baseline failed",
        "ties",
        "evaluator",
        "missing",
    ],
)
def test_however_a_batch_went_its_report_can_be_read(
    bench: wtb.Bench, open_report: Open, combinations: int, score: Any, headline: str
) -> None:
    page = open_report(made_up(bench, combinations, 12, score))
    expect(page.locator(".headline")).to_contain_text(headline)
    assert page.locator("#result-table tbody tr").count() == combinations
    assert not re.search(r"\b(nan|NaN|None|undefined|inf)\b", page.locator("main").inner_text())
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert fits(page)


def test_thousands_of_cases_make_a_file_that_can_be_sent_and_used(
    bench: wtb.Bench, open_report: Open, written: Callable[[wtb.BatchResult], Path]
) -> None:
    result = made_up(bench, 12, 2_000, lambda at, case: "broken" if at == case % 97 else (case * at % 89) / 88)
    page = open_report(result)
    assert written(result).stat().st_size < 3_000_000
    cases = page.locator("#case-table tbody th")
    assert cases.count() == 30
    page.get_by_role("button", name="Show more cases").click()
    assert cases.count() == 130
    expect(cases.nth(30).locator("button")).to_be_focused()
    page.get_by_label("Find a case").fill("case-01999")
    assert texts(cases) == ["case-01999"]
    cases.locator("button").click()
    runs = texts(page.locator("#case-scores code"))
    assert set(runs) == {each.run_id for each in result.results if each.case_id == "case-01999"}


def test_a_case_opens_with_the_answers_of_all_combinations(bench: wtb.Bench, open_report: Open) -> None:
    flow = wtb.Workflow("answers")
    flow.add_node("answer", lambda state: {"answer": f"the answer is {NASTY}"}, start=True)
    flow.add_variant("answer", "reply", lambda state: {"answer": f"the reply is {NASTY}"})
    flow.add_variant("answer", "long", lambda state: {"answer": "word " * 200 + "end"})
    cases = [{"id": "one", "input": {"question": QUOTES}, "expected": {"answer": NASTY}}]
    page = open_report(bench.batch(flow, name="answers", cases=cases, evaluators=[wtb.TokenF1("answer"), Length()]))
    page.get_by_label("Only where they differ").uncheck()
    page.get_by_role("button", name="one", exact=True).click()
    assert texts(page.locator("#case-texts dd")) == [QUOTES, NASTY]
    rows = page.locator("#case-scores tbody tr")
    by_name = {row.locator("th").inner_text(): row for row in rows.all()}
    assert texts(by_name["baseline"].locator(".told")) == [f"the answer is {NASTY}"]
    assert by_name["baseline"].locator("mark").count() == 0
    assert texts(by_name["answer=reply"].locator("mark")) == ["reply"]
    long = by_name["answer=long"].locator(".told")
    assert "end" not in long.inner_text()
    long.get_by_role("button", name="show all 1,003 characters").click()
    expect(long).to_contain_text("word end")
    assert page.evaluate("window.caught") is None


def test_the_axes_of_the_trade_off_can_be_chosen(bench: wtb.Bench, open_report: Open) -> None:
    evaluators = [Length(), Pace(), wtb.Steps()]
    cases = [{"id": str(at), "input": {"number": at}} for at in range(3)]
    page = open_report(bench.batch(hostile_flow(), name="axes", cases=cases, evaluators=evaluators))
    shown = page.locator(".front-panel:visible figcaption")
    assert texts(shown) == ["length against latency_s"]
    page.get_by_label("Axes").select_option("length against steps")
    assert texts(shown) == ["length against steps"]
    check_drawn(page)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_answers_runs_and_scores_of_a_case_are_seen_without_scrolling_sideways(
    bench: wtb.Bench, open_report: Open, size: dict[str, int]
) -> None:
    flow = wtb.Workflow("seen")
    flow.add_node("answer", lambda state: {"answer": "a short one"}, start=True)
    flow.add_variant("answer", "a_much_longer_one", lambda state: {"answer": "word " * 30})
    cases = [{"id": "one", "input": {"question": "?"}, "expected": {"answer": "a short one"}}]
    evaluators = [wtb.TokenF1("answer"), wtb.ExactMatch("answer"), wtb.Latency(), wtb.Steps()]
    page = open_report(bench.batch(flow, name="seen", cases=cases, repeats=3, evaluators=evaluators), size)
    page.get_by_label("Only where they differ").uncheck()
    page.get_by_role("button", name="one", exact=True).click()
    assert page.locator("dialog .wide").evaluate("each => each.scrollWidth <= each.clientWidth")
    before = page.locator("#case-scores tbody td[data-metric]").first
    told = before.evaluate("each => getComputedStyle(each, '::before').content")
    assert told == ('"token_f1 "' if size == NARROW else "none")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_names_of_the_axes_are_not_cut(bench: wtb.Bench, open_report: Open, size: dict[str, int]) -> None:
    cases = [{"id": str(at), "input": {}, "expected": {"answer": at}} for at in range(3)]
    evaluators = [wtb.ExactMatch("answer"), wtb.Latency(), wtb.Cost()]
    flow = wtb.Workflow("axes")
    flow.add_node("answer", lambda state: {"answer": 1}, start=True)
    flow.add_variant("answer", "two", lambda state: {"answer": 2})
    page = open_report(bench.batch(flow, name="axis names", cases=cases, evaluators=evaluators), size)
    room, needed = page.locator("#front-axes").evaluate(
        """select => {
          const pen = document.createElement("canvas").getContext("2d");
          pen.font = getComputedStyle(select).font;
          return [select.clientWidth, pen.measureText(select.selectedOptions[0].text).width];
        }"""
    )
    assert room > needed + 24  # the arrow
