"""The report as one HTML file. It loads nothing from elsewhere, and only its own script runs."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wtb.batch_results import MOST_FLAKY, JobResult
from wtb.domain.display import counted
from wtb.domain.evaluation import Metric
from wtb.domain.statistics.verdicts import Finding
from wtb.reporting import svg
from wtb.reporting.cases import cases
from wtb.reporting.content import METHOD, Report, Row, Trouble
from wtb.reporting.effects import effect_parts
from wtb.reporting.markup import Markup, element, joined, with_code
from wtb.reporting.numbers import NumberFormat
from wtb.reporting.parts import Section, combination_name, folded, not_shown_note, scrolling_table
from wtb.reporting.scores import intervals_section, results_section
from wtb.reporting.trade_off import trade_off_section

MOST_TROUBLES = 50
MOST_PLACES = 5
MOST_TAGS = 12
_LONGEST_ERROR = 300
_LONGEST_TRACEBACK = 4_000


def to_html(report: Report) -> str:
    """Return the report as a page."""
    style, script = _file("style.css"), _file("script.js")
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">'),
        element("title", report.title),
        element("style", style),
    )
    sections = [made for make in _SECTIONS if (made := make(report)) is not None]
    main = element("main", _head(report), _contents(sections), *(section.markup() for section in sections))
    return f"<!doctype html>\n{element('html', head, element('body', main, element('script', script)), lang='en')}\n"


def _file(name: str) -> Markup:
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _policy(script: str) -> str:
    """Return the policy that says what the browser may run.

    The file shows texts of nodes and users. Even if one of them got through as markup, the browser would not run it.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _head(report: Report) -> Markup:
    facts = [element("div", element("dt", name), element("dd", value)) for name, value in report.facts.items()]
    answer = report.answer
    detail = [" ", element("p", answer.detail)] if answer.detail else []
    return element(
        "header",
        element("h1", report.title),
        element(
            "div",
            element("p", answer.headline, class_="headline"),
            *detail,
            *_tallies(report),
            *(element("p", note, class_="note") for note in report.result.notes),
            class_=f"answer {svg.class_of(answer.finding)}",
        ),
        element("dl", *facts, class_="facts"),
    )


def _tallies(report: Report) -> list[Markup]:
    """Return how many combinations are better and worse on each metric, if there are enough to count."""
    if len(report.rows) < 4:
        return []
    return [element("div", *(_tally(report, metric) for metric in report.metrics), class_="tallies")]


def _tally(report: Report, metric: Metric) -> Markup:
    counts = Counter(row.finding(metric.name) or "not comparable" for row in report.rows[1:])
    found = [(kind, counts[kind]) for kind in (*Finding, "not comparable") if counts[kind]]
    bars = [element("span", class_=svg.class_of(kind), style=f"flex-grow:{number}") for kind, number in found]
    words = ", ".join(f"{number:,} {kind}" for kind, number in found)
    return element(
        "div",
        element("span", metric.name, class_="tally-name"),
        element("span", *bars, class_="bar", aria_hidden="true"),
        element("span", words, class_="tally-words"),
        class_="tally",
    )


def _contents(sections: Sequence[Section]) -> Markup:
    links = [joined(element("a", section.name, href=f"#{section.id}"), " ") for section in sections]
    return element("nav", *links, aria_label="Contents")


def _effects(report: Report) -> Section | None:
    parts = effect_parts(report)
    return Section(id="effects", name="Nodes", title="Which node matters", parts=parts) if parts else None


def _cases(report: Report) -> Section | None:
    if not report.jobs:
        return None
    return Section(id="cases", name="Cases", title="Cases", parts=cases(report))


def _comparisons(report: Report) -> Section | None:
    others = [row for row in report.rows if not row.is_baseline]
    if not others:
        return None
    tables = [
        folded(metric.name, _comparison_table(others, metric, report.figures(metric))) for metric in report.metrics
    ]
    note = "Candidate minus baseline, over the cases that both have. “Needed” is about how many cases would show it."
    parts = *(element("p", each, class_="note") for each in (note, *report.notes)), *tables
    return Section(id="comparisons", name="Comparisons", title="Comparisons in full", parts=parts)


def _comparison_table(rows: Sequence[Row], metric: Metric, figures: NumberFormat) -> Markup:
    names = (
        "#",
        "Combination",
        "Verdict",
        "Difference",
        "95 % interval",
        "p (adjusted)",
        "Wins–ties–losses",
        "Effect by case",
        "Needed",
        "Why",
    )
    return scrolling_table(
        f"Comparisons on {metric.name}",
        [element("th", name, class_="key" if name == "#" else None) for name in names],
        [_comparison_row(row, metric, figures) for row in rows if metric.name in row.verdicts],
    )


def _comparison_row(row: Row, metric: Metric, figures: NumberFormat) -> Markup:
    verdict, finding = row.verdicts[metric.name], row.finding(metric.name) or "not comparable"
    found = verdict.comparison
    cells = (
        figures.change(found.difference),
        figures.interval(found.interval, signed=True) or "–",
        f"{verdict.adjusted_p:.3f}" if verdict.adjusted_p >= 0.001 else "< 0.001",
        f"{found.wins}–{found.ties}–{found.losses}",
        "–" if found.effect_size is None else NumberFormat(2).change(found.effect_size),
        "–" if verdict.needed_cases is None else str(verdict.needed_cases),
    )
    return element(
        "tr",
        element("td", row.key, class_="key"),
        element("th", combination_name(row.name), scope="row"),
        element("td", element("span", finding, class_=f"verdict {svg.class_of(finding)}")),
        *(element("td", cell, class_="number") for cell in cells),
        element("td", verdict.reason),
    )


def _tags(report: Report) -> Section | None:
    """Return the means by tag. They have no verdicts, because the tags are not tested."""
    tags, metric = report.result.tags, report.metrics[0]
    if not tags:
        return None
    note = (
        f"Mean {metric.name} on the cases of each tag. This is exploratory: no test stands behind these means, and "
        "among many tags one looks good by chance. Check a finding with new cases."
    )
    shown, means, figures = [*tags][:MOST_TAGS], report.result.means_by_tag(metric.name), report.figures(metric)
    heads = [element("th", "#", class_="key"), element("th", "Combination")]
    heads += [element("th", tag, " ", element("small", counted(len(tags[tag]), "case"))) for tag in shown]
    body = [
        element(
            "tr",
            element("td", row.key, class_="key"),
            element("th", combination_name(row.name), scope="row"),
            *(element("td", figures.number(means[tag][row.name]), class_="number") for tag in shown),
            class_="is-baseline" if row.is_baseline else None,
        )
        for row in report.rows
    ]
    left_out = not_shown_note(len(tags) - len(shown), "tag")
    parts = element("p", note, class_="note"), scrolling_table("Means by tag", heads, body), *left_out
    return Section(id="tags", name="Tags", title="Means by tag (exploratory)", parts=parts)


def _flaky(report: Report) -> Section | None:
    found = report.flaky
    if not found:
        return None
    note = (
        "Repeats of one combination on one case that disagree: on a score, or on whether the run fails. The node is "
        "the first one after which the states of the runs differ."
    )
    heads = [element("th", name) for name in ("Combination", "Case", "Disagree on", "Node", "Runs")]
    rows = [
        element(
            "tr",
            element("th", combination_name(each.combination), scope="row"),
            element("td", each.case_id),
            element("td", ", ".join(each.metrics)),
            element("td", each.node or "–"),
            element("td", *(joined(element("code", run), " ") for run in each.runs)),
        )
        for each in found[:MOST_FLAKY]
    ]
    title = counted(len(found), "flaky result")
    left_out = not_shown_note(len(found) - MOST_FLAKY, "flaky result")
    return Section(
        id="flaky",
        name="Flaky",
        title=title,
        parts=(element("p", note, class_="note"), scrolling_table(title, heads, rows), *left_out),
    )


def _failures(report: Report) -> Section | None:
    troubles = report.troubles
    if not troubles:
        return None
    note = (
        "Failed runs, then failed evaluators and calls that were not taken back. `wtb show RUN` shows a run, "
        "`wtb history RUN` its steps."
    )
    heads = [element("th", name) for name in ("Error", "Times", "Where", "Run")]
    rows = [row for trouble in troubles[:MOST_TROUBLES] for row in _failure(report, trouble)]
    title = counted(report.failures, "failure")
    left_out = not_shown_note(len(troubles) - MOST_TROUBLES, "error")
    parts = element("p", with_code(note), class_="note"), scrolling_table("Failures", heads, rows), *left_out
    return Section(id="failures", name=title, title=title, parts=parts)


def _failure(report: Report, trouble: Trouble) -> list[Markup]:
    """Return one row per job; the first row also shows what all of them share."""
    jobs = trouble.jobs[:MOST_PLACES]
    what: list[Any] = [_cut(trouble.what, _LONGEST_ERROR)]
    if trouble.traceback:
        what.append(folded("Traceback", element("pre", trouble.traceback[-_LONGEST_TRACEBACK:])))
    common = [
        element("td", *what, class_="error", rowspan=len(jobs)),
        element("td", f"{len(trouble.jobs):,}", rowspan=len(jobs)),
    ]
    return [element("tr", *([] if at else common), *_place(report, job)) for at, job in enumerate(jobs)]


def _place(report: Report, job: JobResult) -> list[Markup]:
    run = element("code", job.run_id) if job.run_id else "none: it failed before it began"
    return [element("td", combination_name(report.place(job)), class_="place"), element("td", run)]


def _method(report: Report) -> Section:
    parts: list[Markup] = [element("p", text) for text in METHOD]
    if report.not_shareable:
        reasons = [element("li", element("b", node), ": ", why) for node, why in report.not_shareable.items()]
        parts += [element("p", "These nodes could not be shared between combinations:"), element("ul", *reasons)]
    return Section(id="method", name="How to read this", title="How to read this", parts=parts)


_SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    results_section,
    _effects,
    intervals_section,
    trade_off_section,
    _cases,
    _tags,
    _flaky,
    _failures,
    _comparisons,
    _method,
)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
