"""The report as one HTML file. It loads nothing from elsewhere, and only its own script runs."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wtb.batch_results import MOST_FLAKY, JobResult
from wtb.domain.display import counted
from wtb.domain.evaluation import Direction, Metric
from wtb.domain.statistics.verdicts import Finding
from wtb.reporting import svg
from wtb.reporting.cases import cases
from wtb.reporting.content import METHOD, Front, Report, Row, Trouble
from wtb.reporting.effects import effect_parts
from wtb.reporting.markup import Markup, element, joined, with_code
from wtb.reporting.numbers import NumberFormat

MOST_LINES = 101
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


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page, with its name in the table of contents."""

    id: str
    name: str
    title: str
    parts: Sequence[Any]

    def markup(self) -> Markup:
        """Return the part as markup."""
        return element("section", element("h2", self.title), *self.parts, id=self.id)


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


def _matrix(report: Report) -> Section:
    note = (
        "Mean over the cases, its 95 % interval, and the difference from the baseline with the verdict, where the "
        "cases support one."
    )
    order = (
        f" The baseline is first, the others are sorted by {report.metrics[0].name}, the primary metric."
        if report.rows[2:]
        else ""
    )
    find = element("label", "Find a combination", element("input", type="search", id="result-find"))
    return Section(
        id="results",
        name="Results",
        title="Results",
        parts=(
            element("p", note, order, class_="note"),
            element("div", find, class_="controls", id="result-controls", hidden=""),
            _matrix_table(report, report.rows),
            element("button", "Show all", type="button", id="result-more", hidden=""),
        ),
    )


def _matrix_table(report: Report, rows: Sequence[Row]) -> Markup:
    heads = [element("th", "#", class_="key"), element("th", "Combination"), *map(_metric_head, report.metrics)]
    body = []
    for row in rows:
        cells = [_matrix_cell(row, metric, report.figures(metric)) for metric in report.metrics]
        tag = [element("span", "baseline", class_="tag")] if row.is_baseline and row.name != "baseline" else []
        name = element("th", _name(row.name), *tag, scope="row")
        kind = "is-baseline" if row.is_baseline else None
        body.append(element("tr", element("td", row.key, class_="key"), name, *cells, class_=kind))
    return _table("Results", heads, body, id="result-table")


def _metric_head(metric: Metric) -> Markup:
    is_higher = metric.direction is Direction.HIGHER
    good = element("small", "higher is better" if is_higher else "lower is better")
    return element("th", metric.name, " ", good, scope="col", data_first="descending" if is_higher else "ascending")


def _matrix_cell(row: Row, metric: Metric, figures: NumberFormat) -> Markup:
    summary = row.summaries[metric.name]
    lost = [element("small", row.unscored(metric.name), class_="lost")] if row.unscored(metric.name) else []
    if summary.mean is None:
        return element("td", element("span", "no scores ", class_="faint"), *lost, class_="score", data_value="")
    return element(
        "td",
        element("b", figures.number(summary.mean)),
        " ",
        element("small", figures.interval(summary.interval)),
        " ",
        _verdict(row, metric, figures),
        " ",
        *lost,
        class_="score",
        data_value=summary.mean,
    )


def _verdict(row: Row, metric: Metric, figures: NumberFormat) -> Markup:
    finding = row.finding(metric.name)
    if row.is_baseline:
        return Markup("")
    if not finding:
        return element("span", "not comparable", class_="verdict unknown")
    change = figures.change(row.verdicts[metric.name].comparison.difference)
    text = row.reason(metric.name) or None
    return element("span", f"{finding} {change}", class_=f"verdict {svg.class_of(finding)}", title=text)


def _plots(report: Report) -> Section:
    note = "Mean and 95 % interval of every combination. The dashed line is the mean of the baseline."
    tabs = [part for at, metric in enumerate(report.metrics) for part in _tab(report, metric, at)]
    parts = element("p", note, class_="note"), element("div", *tabs, class_="tabs", role="radiogroup")
    return Section(id="intervals", name="Intervals", title="Intervals", parts=parts)


def _tab(report: Report, metric: Metric, at: int) -> list[Markup]:
    """Return a tab and its contents. The style switches between tabs, so it works without a script."""
    checked = None if at else ""
    return [
        element("input", type="radio", name="interval", id=f"interval-{at}", checked=checked),
        element("label", metric.name, for_=f"interval-{at}"),
        element("div", _interval_plot(report, metric), class_="panel"),
    ]


def _interval_plot(report: Report, metric: Metric) -> Markup:
    rows = report.rows[:MOST_LINES]
    summaries = [row.summaries[metric.name] for row in rows]
    ends = [end for each in summaries if each.interval for end in (each.interval.low, each.interval.high)]
    axis = svg.share_of([*(each.mean for each in summaries if each.mean is not None), *ends])
    scale = element("li", element("span", svg.scale(axis), class_="holder"), class_="line scale-line")
    lines = [_line(report, row, metric, axis) for row in rows]
    plot = element("ol", scale, *lines, scale, class_="plot", aria_label=f"{metric.name} by combination")
    return element("figure", plot, *_left_out(len(report.rows) - len(rows), "combination"))


def _line(report: Report, row: Row, metric: Metric, axis: svg.Axis) -> Markup:
    summary, figures, finding = row.summaries[metric.name], report.figures(metric), row.finding(metric.name)
    text = f"{row.name}: {figures.number(summary.mean)}{figures.interval(summary.interval, ' ({})')}"
    baseline = report.rows[0].summaries[metric.name].mean
    return element(
        "li",
        element("span", row.key, class_="key"),
        element("span", _name(row.name), class_="name"),
        element("span", svg.track(axis, summary.mean, summary.interval, baseline, text), class_="holder"),
        element("span", "no scores" if summary.mean is None else finding or "not comparable", class_="word"),
        class_=f"line {svg.class_of(finding)}",
    )


def _front(report: Report) -> Section | None:
    if not report.fronts or len(report.rows) < 2:
        return None
    note = (
        "On the Pareto front are the combinations that no other is shown to beat. To beat one, another needs means "
        "that are at least as good on both, and cases that show that it is better on one."
    )
    panels = [_front_panel(report, front, at) for at, front in enumerate(report.fronts)]
    parts = element("p", note, class_="note"), *_axes(report.fronts), *panels
    return Section(id="trade-off", name="Trade-off", title="Trade-off", parts=parts)


def _axes(fronts: Sequence[Front]) -> list[Markup]:
    """Return the choice of the two axes, if there is one."""
    if len(fronts) < 2:
        return []
    options = [element("option", _front_title(front), value=at) for at, front in enumerate(fronts)]
    choice = element("label", "Axes", element("select", *options, id="front-axes"))
    return [element("div", choice, class_="controls", id="front-controls", hidden="")]


def _front_title(front: Front) -> str:
    return f"{front.quality.name} against {front.price.name}"


def _front_panel(report: Report, front: Front, at: int) -> Markup:
    points = [
        svg.Point(key=row.key, label=row.name, x=x, y=y, on_front=row.name in front.names, is_baseline=row.is_baseline)
        for row in report.rows
        if (x := row.summaries[front.price.name].mean) is not None
        and (y := row.summaries[front.quality.name].mean) is not None
    ]
    title = _front_title(front)
    names = _axis_name(front.price), _axis_name(front.quality)
    rows = [row for row in report.rows if row.name in front.names]
    names_of_columns = ("On the front", front.quality.name, front.price.name)
    heads = [element("th", "#", class_="key"), *(element("th", name) for name in names_of_columns)]
    body = [_front_row(report, row, (front.quality, front.price)) for row in rows]
    plots = [svg.scatter(points, title, names, format) for format in (svg.WIDE, svg.NARROW)]
    drawn = element("figure", element("figcaption", title), svg.legend(), *plots)
    hidden = "" if at else None
    return element("div", drawn, _table("Pareto front", heads, body), class_="front-panel", hidden=hidden)


def _axis_name(metric: Metric) -> str:
    return f"{metric.name} ({metric.direction} is better)"


def _front_row(report: Report, row: Row, metrics: Sequence[Metric]) -> Markup:
    means = [report.figures(each).number(row.summaries[each.name].mean) for each in metrics]
    return element(
        "tr",
        element("td", row.key, class_="key"),
        element("th", _name(row.name), scope="row"),
        *(element("td", mean, class_="number") for mean in means),
    )


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
        _folded(metric.name, _comparison_table(others, metric, report.figures(metric))) for metric in report.metrics
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
    return _table(
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
        element("th", _name(row.name), scope="row"),
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
            element("th", _name(row.name), scope="row"),
            *(element("td", figures.number(means[tag][row.name]), class_="number") for tag in shown),
            class_="is-baseline" if row.is_baseline else None,
        )
        for row in report.rows
    ]
    left_out = _left_out(len(tags) - len(shown), "tag")
    parts = element("p", note, class_="note"), _table("Means by tag", heads, body), *left_out
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
            element("th", _name(each.combination), scope="row"),
            element("td", each.case_id),
            element("td", ", ".join(each.metrics)),
            element("td", each.node or "–"),
            element("td", *(joined(element("code", run), " ") for run in each.runs)),
        )
        for each in found[:MOST_FLAKY]
    ]
    title = counted(len(found), "flaky result")
    left_out = _left_out(len(found) - MOST_FLAKY, "flaky result")
    return Section(
        id="flaky",
        name="Flaky",
        title=title,
        parts=(element("p", note, class_="note"), _table(title, heads, rows), *left_out),
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
    left_out = _left_out(len(troubles) - MOST_TROUBLES, "error")
    parts = element("p", with_code(note), class_="note"), _table("Failures", heads, rows), *left_out
    return Section(id="failures", name=title, title=title, parts=parts)


def _failure(report: Report, trouble: Trouble) -> list[Markup]:
    """Return one row per job; the first row also shows what all of them share."""
    jobs = trouble.jobs[:MOST_PLACES]
    what: list[Any] = [_cut(trouble.what, _LONGEST_ERROR)]
    if trouble.traceback:
        what.append(_folded("Traceback", element("pre", trouble.traceback[-_LONGEST_TRACEBACK:])))
    common = [
        element("td", *what, class_="error", rowspan=len(jobs)),
        element("td", f"{len(trouble.jobs):,}", rowspan=len(jobs)),
    ]
    return [element("tr", *([] if at else common), *_place(report, job)) for at, job in enumerate(jobs)]


def _place(report: Report, job: JobResult) -> list[Markup]:
    run = element("code", job.run_id) if job.run_id else "none: it failed before it began"
    return [element("td", _name(report.place(job)), class_="place"), element("td", run)]


def _method(report: Report) -> Section:
    parts: list[Markup] = [element("p", text) for text in METHOD]
    if report.not_shareable:
        reasons = [element("li", element("b", node), ": ", why) for node, why in report.not_shareable.items()]
        parts += [element("p", "These nodes could not be shared between combinations:"), element("ul", *reasons)]
    return Section(id="method", name="How to read this", title="How to read this", parts=parts)


_SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    _matrix, _effects, _plots, _front, _cases, _tags, _flaky, _failures, _comparisons, _method,
)  # fmt: skip


def _folded(title: str, *parts: Any) -> Markup:
    return element("details", element("summary", title), *parts)


def _table(title: str, heads: Sequence[Markup], rows: Sequence[Markup], id: str | None = None) -> Markup:
    """Return a table that scrolls if it is too wide, also by keyboard."""
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows), id=id)
    return element("div", table, class_="wide", tabindex=0, role="region", aria_label=title)


def _name(combination: str) -> Markup:
    """Return a combination that breaks only between its parts, with variants that stand out from nodes."""
    parts = combination.split(", ")
    marked = [
        element("span", *_part(part), "," if at < len(parts) - 1 else "", class_="part")
        for at, part in enumerate(parts)
    ]
    return joined(*(piece for part in marked for piece in (part, " ")))


def _part(part: str) -> tuple[Any, ...]:
    node, equals, variant = part.partition("=")
    return (element("span", node + equals, class_="node"), variant) if equals else (part,)


def _left_out(number: int, noun: str) -> list[Markup]:
    return [element("p", f"{counted(number, noun)} more not shown.", class_="note")] if number > 0 else []


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
