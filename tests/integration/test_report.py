"""Reports of real batches: one file, whole, harmless and true, however the batch went."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.shell import Shell

NASTY = "<script>alert('x')</script>"
VOID = {"meta"}


class Page(HTMLParser):
    """Reads a page as strictly as a browser does not: every element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def flow(variants: dict[str, float]) -> wtb.Workflow:
    """Answer with the number of the case plus that of the variant; the variant `broken` fails on even cases."""
    made = wtb.Workflow("sums")

    @made.node(start=True, config={"more": 0.0})
    def answer(state: Any, ctx: Any) -> dict[str, Any]:
        if ctx.config["more"] < 0 and state["n"] % 2 == 0:
            raise ValueError(f"cannot {NASTY} at {state['n']}")
        return {"answer": state["n"] / 100 + ctx.config["more"]}

    for name, more in variants.items():
        made.add_variant("answer", name, config={"more": more})
    return made


class Answer:
    name = "answer"

    def evaluate(self, context: Any) -> float:
        return float(context.state["answer"])


class Picky:
    name = "picky"

    def evaluate(self, context: Any) -> float:
        raise KeyError(NASTY)


def cases(number: int = 12) -> list[dict[str, Any]]:
    return [{"id": f"case {n}", "input": {"n": n}} for n in range(number)]


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


def pages(result: wtb.BatchResult, folder: Path) -> tuple[Page, str]:
    """Write both forms; return the page, parsed, and the Markdown."""
    result.report(folder / "r.html")
    result.report(folder / "r.md")
    return Page((folder / "r.html").read_text()), (folder / "r.md").read_text()


def test_the_answer_comes_first_and_names_the_best(bench: wtb.Bench, tmp_path: Path) -> None:
    variants = {"much": 0.5, "some": 0.25}
    result = bench.batch(flow(variants), cases=cases(), evaluators=[Answer(), wtb.Latency()])
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert (
            "2 of 2 combinations are better than the baseline on answer. answer=much has the best mean of them, "
            in text
        )
        assert "+0.500" in text
    assert markdown.index("**2 of 2") < markdown.index("| B | baseline |") < markdown.index("| 1 | answer=much |")
    assert "**better +0.500**" in markdown
    assert page.tags.count("svg") == 4
    assert ("class", "verdict better") in page.attributes
    assert page.text.index("answer=much") < page.text.index("answer=some")
    assert "Pareto front of answer and latency" in markdown


def test_nothing_to_tell_is_said_so(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({"same": 0.0}), cases=cases(), evaluators=[Answer()])
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert "There is no evidence that answer=same is better than the baseline on answer." in text
    assert "no two combinations differ on any case" in page.text


def test_one_combination_has_nothing_to_be_compared_with(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({}), cases=cases(), evaluators=[Answer()])
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert "There is one combination" in text
    assert "Comparisons in full" not in page.text


def test_failures_are_listed_with_their_runs_and_count_as_errors(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({"broken": -0.1}), cases=cases(), evaluators=[Answer(), Picky()])
    page, markdown = pages(result, tmp_path)
    failed = [each for each in result.results if each.error]
    assert len(failed) == 6
    assert all(each.run_id is not None and each.run_id in page.text for each in failed)
    assert f"ValueError: cannot {NASTY} at 4" in page.text
    assert "evaluator picky: KeyError" in page.text
    assert "6 failed" in page.text
    assert "answer=broken is worse than the baseline on answer: " in page.text
    assert "6 errors" in markdown
    assert "24 failures" in markdown
    assert "and 17 more" in markdown
    assert page.text.index("ValueError") < page.text.index("evaluator picky")
    assert "no scores" in page.text


def test_a_metric_without_any_score_has_no_answer(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({"much": 0.5}), cases=cases(), evaluators=[Picky(), wtb.Latency()])
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert "There are no scores on picky." in text
        assert "no scores" in text
    assert "24 failures" in page.text


def test_what_has_not_been_run_is_missing(bench: wtb.Bench, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    result = bench.batch(flow({"much": 0.5}), cases=cases(), evaluators=[Answer()], stop=stop)
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert "There are no scores on answer yet." in text
        assert "0 of 24 done" in text


def test_a_batch_that_was_stopped_tells_what_it_knows(bench: wtb.Bench, tmp_path: Path) -> None:
    stop = threading.Event()

    def told(progress: Any) -> None:
        if progress.completed >= 5:
            stop.set()

    result = bench.batch(flow({"much": 0.5}), cases=cases(), evaluators=[Answer()], stop=stop, told=told, workers=1)
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert f"So far ({len(result.results)} of 24 jobs)" in text
        assert "missing" in text


def test_many_combinations_are_folded(bench: wtb.Bench, tmp_path: Path) -> None:
    variants = {f"v{number}": number / 100 for number in range(45)}
    result = bench.batch(flow(variants), cases=cases(3), evaluators=[Answer()])
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert "30 more combinations" in text
        assert all(f"answer={name}" in text for name in variants)
    assert "5 combinations more not shown." in page.text


def test_what_users_give_is_never_markup(bench: wtb.Bench, tmp_path: Path) -> None:
    given = [{"id": f"{NASTY} {n}", "input": {"n": n}} for n in range(8)]
    named = Answer()
    named.name = f"{NASTY}|`"
    variants = {NASTY: 0.5, "broken": -0.1}
    result = bench.batch(flow(variants), name=f"{NASTY}\n# x", cases=given, evaluators=[named, wtb.Latency()])
    page, markdown = pages(result, tmp_path)
    assert "script" not in page.tags
    assert f"answer={NASTY}" in page.text
    assert f"{NASTY} 3" in page.text
    assert "<script" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert "\n# x" not in markdown


def test_the_page_needs_nothing_from_elsewhere(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({"much": 0.5}), cases=cases(), evaluators=[Answer(), wtb.Latency()])
    page, _ = pages(result, tmp_path)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in {"src", "href", "xlink:href"} or name.startswith("on")]
    text = (tmp_path / "r.html").read_text()
    assert "url(" not in text
    assert "@import" not in text
    assert "://" not in text


def test_a_report_is_html_or_markdown(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({}), cases=cases(1), evaluators=[Answer()])
    with pytest.raises(wtb.InvalidInput, match=r"written as \.html or \.md"):
        result.report(tmp_path / "r.pdf")
    with pytest.raises(wtb.InvalidInput, match="cannot be written: No such file or directory"):
        result.report(tmp_path / "absent" / "r.html")


def test_the_command_says_where_the_report_is(tmp_path: Path) -> None:
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        bench.batch(flow({"much": 0.5}), name="a/b", cases=cases(), evaluators=[Answer()])
    shell = Shell(tmp_path)
    said = shell.wtb("report", "a/b").stdout
    assert said == f"Wrote report-a-b.html. Open it in a browser: {(tmp_path / 'report-a-b.html').as_uri()}\n"
    assert "better than the baseline" in Page((tmp_path / "report-a-b.html").read_text()).text
    assert shell.json("report", "a/b", "--format", "md")["report"] == "report-a-b.md"
    assert shell.json("report", "a/b", "--out", "x.md")["report"] == "x.md"
    assert (tmp_path / "x.md").read_text() == (tmp_path / "report-a-b.md").read_text()
    assert "nothing" in shell.wtb("report", "nothing", code=1).stderr
