"""Reports of real batches: one file, whole, harmless and true, however the batch went."""

from __future__ import annotations

import base64
import hashlib
import json
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
VOID = {"meta", "input"}


class Page(HTMLParser):
    """Reads a page as strictly as a browser does not: every element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.scripts: list[str] = []
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
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
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
    for text in (page.text, markdown.replace("**", "")):
        assert (
            "2 of 2 combinations are better than the baseline on answer. answer=much has the best mean of them, "
            in text
        )
        assert "+0.500" in text
    assert markdown.index("**2 of 2") < markdown.index("| B | baseline |") < markdown.index("| 1 | answer=much |")
    assert "**better +0.500**" in markdown
    lines_and_scales, scatters, legend = 2 * (3 + 2), 2, 3
    assert page.tags.count("svg") == lines_and_scales + scatters + legend
    assert ("class", "verdict better") in page.attributes
    assert page.text.index("answer=much") < page.text.index("answer=some")
    assert "Pareto front of answer and latency" in markdown


def test_the_markdown_shows_a_few_answers_cut(bench: wtb.Bench, tmp_path: Path) -> None:
    flow = wtb.Workflow("echo")
    flow.add_node("answer", lambda state: {"answer": state["word"]}, start=True)
    flow.add_variant("answer", "loud", lambda state: {"answer": state["word"].upper() * 80})
    given = [{"id": f"c{n}", "input": {"word": f"w{n}"}, "expected": {"answer": f"w{n}"}} for n in range(7)]
    evaluators = [wtb.ExactMatch("answer")]
    _, markdown = pages(bench.batch(flow, cases=given, evaluators=evaluators, output="answer"), tmp_path)
    (table,) = re.findall(r"<summary>Answers on 5 cases that differ most</summary>\n\n(.*?)\n\n", markdown, re.DOTALL)
    head, _, first, *rest = table.splitlines()
    assert head == "| Case | Input | Expected | Answer of B | Answer of 1 |"
    assert first == f"| c0 | w0 | w0 | w0 | {'W0' * 60}… |"
    assert len(rest) == 4


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
        assert "There is only one combination" in text
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
    assert "answer=broken is worse than the baseline on answer. It has " in page.text
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

    result = bench.batch(
        flow({"much": 0.5}), cases=cases(), evaluators=[Answer()], stop=stop, on_progress=told, workers=1
    )
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert f"So far ({len(result.results)} of 24 jobs)" in text
        assert "missing" in text


def test_many_combinations_are_folded(bench: wtb.Bench, tmp_path: Path) -> None:
    variants = {f"v{number}": number / 100 for number in range(45)}
    result = bench.batch(flow(variants), cases=cases(3), evaluators=[Answer()])
    page, markdown = pages(result, tmp_path)
    assert "40 more combinations" in markdown
    for text in (page.text, markdown):
        assert all(f"answer={name}" in text for name in variants)
    assert "45 no evidence" in page.text


def test_the_markdown_is_never_too_long_for_a_comment(bench: wtb.Bench, tmp_path: Path) -> None:
    variants = {f"{'long' * 100}{number}": number / 100 for number in range(120)}
    result = bench.batch(flow(variants), cases=cases(1), evaluators=[Answer()])
    _, markdown = pages(result, tmp_path)
    assert len(markdown) < 65_536
    rows = [line for line in markdown.splitlines() if line.startswith("| ") and "answer=" in line]
    assert f"{120 - len(rows)} other combinations left out; the HTML report has all." in markdown


def test_what_users_give_is_never_markup(bench: wtb.Bench, tmp_path: Path) -> None:
    given = [{"id": f"{NASTY} {n}", "input": {"n": n}} for n in range(8)]
    named = Answer()
    named.name = f"{NASTY}|`"
    variant = "<script>alert('x')"  # a name of a variant has no slash
    variants = {variant: 0.5, "broken": -0.1}
    result = bench.batch(flow(variants), name=f"{NASTY}\n# x", cases=given, evaluators=[named, wtb.Latency()])
    page, markdown = pages(result, tmp_path)
    assert page.tags.count("script") == len(page.scripts) == 2
    assert "is better than the baseline" in page.text
    assert f"answer={variant}" in page.text
    assert [f"{NASTY} {n}" for n in range(8)] == json.loads(page.scripts[0])["cases"]
    assert "<script>alert" not in (tmp_path / "r.html").read_text()
    assert f"{NASTY} 3" in page.text
    assert "<script" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}  # a run failed: there is a column for that
    assert "\n# x" not in markdown


def test_the_markdown_holds_no_control_characters(bench: wtb.Bench, tmp_path: Path) -> None:
    hostile = "\x1b[2J\x9b31m\u202e\x08"
    given = [{"id": f"{hostile}{n}", "input": {"n": n}} for n in range(8)]
    result = bench.batch(flow({"broken": -0.1}), name=hostile, cases=given, evaluators=[Answer()])
    _, markdown = pages(result, tmp_path)
    assert r"\x1b[2J" in markdown.replace("\\\\", "\\").replace("\\[", "[")
    assert not set(hostile) & set(markdown) - set("[2J31m")


def test_the_page_needs_nothing_from_elsewhere(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({"much": 0.5}), cases=cases(), evaluators=[Answer(), wtb.Latency()])
    page, _ = pages(result, tmp_path)
    assert not {"link", "img", "iframe", "object", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in {"src", "xlink:href"} or name.startswith("on")]
    ids = {f"#{value}" for name, value in page.attributes if name == "id"}
    assert {value for name, value in page.attributes if name == "href"} <= ids
    text = (tmp_path / "r.html").read_text()
    assert "url(" not in text
    assert "@import" not in text
    assert "://" not in text


def test_only_the_script_that_comes_with_the_page_may_run(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({"much": 0.5}), cases=cases(), evaluators=[Answer()])
    page, _ = pages(result, tmp_path)
    digest = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert ("content", allowed) in page.attributes


def test_when_every_run_failed_that_is_the_answer(bench: wtb.Bench, tmp_path: Path) -> None:
    made = wtb.Workflow("broken")

    @made.node(start=True)
    def fail(state: Any) -> dict[str, Any]:
        raise ValueError("no luck")

    made.add_variant("fail", "again", fail)
    result = bench.batch(made, cases=cases(3), evaluators=[wtb.Steps(), Answer()])
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown.replace("**", "")):
        assert "All 6 runs failed. ValueError: no luck" in text


def test_without_scores_of_the_baseline_nothing_is_compared(bench: wtb.Bench, tmp_path: Path) -> None:
    whole = bench.batch(flow({"much": 0.5, "some": 0.25}), cases=cases(4), evaluators=[Answer()])
    jobs = [job for job in whole._jobs if job.combination != whole.baseline]
    result = wtb.BatchResult(bench, whole.batch, jobs)
    page, markdown = pages(result, tmp_path)
    for text in (page.text, markdown):
        assert "Nothing can be compared with the baseline on answer: no case has a score on both sides." in text
        assert "answer=much has the best mean of the others, 0.515." in text
        assert "not comparable" in text


def test_each_score_leads_to_its_runs(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow({"broken": -0.1}), cases=cases(3), repeats=2, evaluators=[Answer(), wtb.Latency()])
    page, _ = pages(result, tmp_path)
    data = json.loads(page.scripts[0])
    found = [data["runs"]["prefix"] + run for runs in data["runs"]["ids"] for run in runs.split(" ")]
    places = [(case, name) for case in data["cases"] for _, name in data["names"] for _ in range(2)]
    assert dict(zip(found, places, strict=True)) == {
        each.run_id: (each.case_id, each.combination) for each in result.results
    }
    assert data["scores"][0] == [0, -0.09, 0.01, -0.09, 0.02, -0.09]  # an error counts as the worst
    assert data["failed"][0] == [1, 5]


def test_a_batch_too_large_for_a_file_keeps_the_cases_that_differ_most(
    bench: wtb.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.reporting.cases.MOST_CELLS", 70)
    result = bench.batch(flow({"broken": -0.1}), cases=cases(40), evaluators=[Answer()])
    page, _ = pages(result, tmp_path)
    kept = json.loads(page.scripts[0])["cases"]
    assert len(kept) == 35
    assert "5 cases with smaller differences are not in this file" in page.text
    assert set(result.different("answer")[:35]) == set(kept)


def two_nodes() -> wtb.Workflow:
    """Return a workflow in which `answer=more` gains 1 and `polish=twice` changes nothing."""
    made = wtb.Workflow("two")

    @made.node(start=True)
    def answer(state: dict[str, Any], ctx: wtb.Context) -> dict[str, Any]:
        return {"answer": state["n"] % 5 + ctx.config.get("more", 0) * (1 + state["n"] % 2)}

    @made.node
    def polish(state: dict[str, Any]) -> dict[str, Any]:
        return {"answer": state["answer"]}

    made.edge("answer", "polish")
    made.edge("polish", wtb.END)
    made.add_variant("answer", "more", config={"more": 1})
    made.add_variant("polish", "twice", config={"times": 2})
    return made


def test_the_report_says_which_node_matters(bench: wtb.Bench, tmp_path: Path) -> None:
    page, markdown = pages(bench.batch(two_nodes(), cases=cases(), evaluators=[Answer()]), tmp_path)
    assert "On answer: answer matters most; polish shows no effect." in page.text
    assert "On answer: `answer` matters most; `polish` shows no effect." in markdown
    assert "<code>answer</code> matters most" in (tmp_path / "r.html").read_text()
    assert "better +1.50" in page.text.replace("\n", " ")


def test_a_batch_that_varies_one_node_has_no_section_on_nodes(bench: wtb.Bench, tmp_path: Path) -> None:
    page, _ = pages(bench.batch(flow({"much": 0.5}), cases=cases(), evaluators=[Answer()]), tmp_path)
    assert "Which node matters" not in page.text


def test_the_command_tells_effects_to_people_and_to_programs(tmp_path: Path) -> None:
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        bench.batch(two_nodes(), name="both", cases=cases(), evaluators=[Answer()])
        bench.batch(two_nodes(), name="single", variants="one_at_a_time", cases=cases(), evaluators=[Answer()])
        bench.batch(flow({}), name="plain", cases=cases(1), evaluators=[Answer()])
    shell = Shell(tmp_path)
    said = shell.wtb("effects", "both").stdout
    assert said.startswith("On answer: `answer` matters most; `polish` shows no effect.\n")
    assert "answer=more" in said
    assert "1 interaction of two variants not shown" in said
    rows = shell.json("effects", "both", "--metric", "answer")
    assert rows[0]["variants"] == [{"node": "answer", "variant": "more"}]
    assert (rows[0]["difference"], rows[0]["shown"]) == (pytest.approx(1.5), True)
    assert "1 interaction cannot be told apart" in shell.wtb("effects", "single").stdout
    assert shell.json("effects", "single")[-1]["confounded_with"] == []
    assert "more than one variant" in shell.wtb("effects", "plain", code=2).stderr
    assert "there is no metric 'absent'" in shell.wtb("effects", "both", "--metric", "absent", code=2).stderr


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
