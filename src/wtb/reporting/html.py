"""The report as one HTML file: nothing is loaded from elsewhere, and nothing in it is a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wtb.batches import JobResult
from wtb.domain.evaluation import Direction, Metric
from wtb.reporting import svg
from wtb.reporting.content import METHOD, Differences, Figures, Report, Row, Trouble, counted
from wtb.reporting.markup import Markup, element, joined

SHOWN_ROWS = 16
MOST_LINES = 41
MOST_CASES = 30
MOST_TROUBLES = 50
MOST_PLACES = 5
_LONGEST_ERROR = 300
_LONGEST_TRACEBACK = 4_000

# The file shows what nodes and users said: even if some of it got through as markup, the browser would not run it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(report: Report) -> str:
    """Return the report as a page."""
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", report.title),
        element("style", Markup(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))),
    )
    main = element("main", _head(report), *(part(report) for part in _SECTIONS))
    return f"<!doctype html>\n{element('html', head, element('body', main), lang='en')}\n"


def _head(report: Report) -> Markup:
    facts = [element("div", element("dt", name), element("dd", value)) for name, value in report.facts.items()]
    return element(
        "header",
        element("h1", report.title),
        element("p", report.answer, class_="answer"),
        element("dl", *facts, class_="facts"),
    )


def _matrix(report: Report) -> Markup:
    shown, rest = report.rows[:SHOWN_ROWS], report.rows[SHOWN_ROWS:]
    note = "Mean over the cases, 95 % interval, and the verdict against the baseline with the difference. "
    order = f"Sorted by {report.metrics[0].name}, the baseline first." if len(report.rows) > 2 else ""
    more = [_folded(f"{counted(len(rest), 'more combination')}", _matrix_table(report, rest))] if rest else []
    return _section("Results", element("p", note, order, class_="note"), _matrix_table(report, shown), *more)


def _matrix_table(report: Report, rows: Sequence[Row]) -> Markup:
    heads = [element("th", "#", class_="key"), element("th", "Combination"), *map(_metric_head, report.metrics)]
    body = []
    for row in rows:
        cells = [_matrix_cell(row, metric, report.figures(metric)) for metric in report.metrics]
        name = element("th", _name(row.name), scope="row")
        kind = "is-baseline" if row.is_baseline else None
        body.append(element("tr", element("td", row.key, class_="key"), name, *cells, class_=kind))
    return _table(heads, body)


def _metric_head(metric: Metric) -> Markup:
    good = "higher is better" if metric.direction is Direction.HIGHER else "lower is better"
    return element("th", metric.name, " ", element("small", good))


def _matrix_cell(row: Row, metric: Metric, figures: Figures) -> Markup:
    summary = row.summaries[metric.name]
    lost = [element("small", row.unscored(metric.name), class_="lost")] if row.unscored(metric.name) else []
    if summary.mean is None:
        return element("td", element("span", "no scores ", class_="faint"), *lost, class_="score")
    interval = element("small", figures.interval(summary.interval))
    verdict = _verdict(row, metric, figures)
    return element(
        "td", element("b", figures.number(summary.mean)), " ", interval, " ", verdict, " ", *lost, class_="score"
    )


def _verdict(row: Row, metric: Metric, figures: Figures) -> Markup:
    finding = row.finding(metric.name)
    if not finding:
        return element("span", "not comparable", class_="verdict unknown")
    change = "" if row.is_baseline else f" {figures.change(row.verdicts[metric.name].comparison.difference)}"
    return element("span", f"{finding}{change}", class_=f"verdict {svg.class_of(finding)}")


def _plots(report: Report) -> Markup:
    first, *others = report.metrics
    note = "Mean and 95 % interval. The dashed line is the mean of the baseline; the word is the verdict."
    folded = [_folded(metric.name, _interval_plot(report, metric)) for metric in others]
    return _section(
        "Intervals",
        element("p", note, class_="note"),
        element("h3", first.name),
        _interval_plot(report, first),
        *folded,
    )


def _interval_plot(report: Report, metric: Metric) -> Markup:
    lines = [
        svg.Line(
            key=row.key,
            label=row.name,
            mean=row.summaries[metric.name].mean,
            interval=row.summaries[metric.name].interval,
            finding=row.finding(metric.name),
        )
        for row in report.rows[:MOST_LINES]
    ]
    plot = svg.interval_plot(lines, f"{metric.name} by combination", report.figures(metric).number)
    return element("figure", plot, *_left_out(len(report.rows) - len(lines), "combination"))


def _front(report: Report) -> Markup:
    front = report.front
    if front is None or len(report.rows) < 2:
        return Markup("")
    points = [
        svg.Point(key=row.key, label=row.name, x=x, y=y, on_front=row.name in front.names, is_baseline=row.is_baseline)
        for row in report.rows
        if (x := row.summaries[front.price.name].mean) is not None
        and (y := row.summaries[front.quality.name].mean) is not None
    ]
    title = f"{front.quality.name} against {front.price.name}"
    names = f"{front.price.name} (lower is better)", f"{front.quality.name} (higher is better)"
    note = (
        "The filled points are the Pareto front: no other combination is better on one of the two and as good on the "
        "other. It compares means, without regard to chance. B is the baseline."
    )
    rows = [row for row in report.rows if row.name in front.names]
    items = [_front_item(report, row, (front.quality, front.price)) for row in rows]
    plot = element("figure", svg.scatter(points, title, names))
    return _section(title, element("p", note, class_="note"), plot, element("ul", *items, class_="front-list"))


def _front_item(report: Report, row: Row, metrics: Sequence[Metric]) -> Markup:
    means = [f"{each.name} {report.figures(each).number(row.summaries[each.name].mean)}" for each in metrics]
    return element("li", element("b", row.key), " ", _name(row.name), element("small", f" {', '.join(means)}"))


def _cases(report: Report) -> Markup:
    if len(report.rows) < 2:
        return Markup("")
    found = report.differences()
    metric = found.table.metric
    if not found.cases:
        return _section("Cases", element("p", f"On {metric.name} no two combinations differ on any case."))
    cases, rows = found.cases[:MOST_CASES], report.rows[:MOST_LINES]
    note = (
        f"{counted(len(found.cases), 'case')} of {len(found.table.cases):,} on which combinations differ on "
        f"{metric.name}, the widest spread first. The stronger the colour, the better; × has an error and counts as "
        "worst, a dot has no score. Columns are numbered as in the results; B is the baseline."
    )
    figures = report.figures(metric)
    cells = [[_heat_cell(found, row, case, figures) for row in rows] for case in cases]
    plot = svg.heat(cases, [row.key for row in rows], cells, f"{metric.name} by case and combination")
    return _section(
        "Cases on which combinations differ",
        element("p", note, class_="note"),
        element("figure", plot, class_="wide"),
        *_left_out(len(found.cases) - len(cases), "case"),
        *_left_out(len(report.rows) - len(rows), "combination"),
        _folded("The scores as numbers", _score_table(found, cases, rows, figures)),
    )


def _heat_cell(found: Differences, row: Row, case: str, figures: Figures) -> svg.Cell:
    failed = found.failed(row.name, case)
    told = f"{figures.number(found.means[row.name].get(case))}{' (error)' if failed else ''}"
    return svg.Cell(quality=found.quality(row.name, case), failed=failed, title=f"{case}, {row.key} {row.name}: {told}")


def _score_table(found: Differences, cases: Sequence[str], rows: Sequence[Row], figures: Figures) -> Markup:
    heads = [element("th", "Case"), *(element("th", row.key, title=row.name) for row in rows)]
    body = []
    for case in cases:
        scores = [
            "error" if found.failed(row.name, case) else figures.number(found.means[row.name].get(case)) for row in rows
        ]
        cells = [element("td", score, class_="number") for score in scores]
        body.append(element("tr", element("th", case, scope="row"), *cells))
    return _table(heads, body)


def _comparisons(report: Report) -> Markup:
    others = [row for row in report.rows if not row.is_baseline]
    if not others:
        return Markup("")
    tables = [
        _folded(metric.name, _comparison_table(others, metric, report.figures(metric))) for metric in report.metrics
    ]
    note = "Candidate less baseline, over the cases that both have. “Needed” is about how many cases would show it."
    return _section("Comparisons in full", element("p", note, class_="note"), *tables)


def _comparison_table(rows: Sequence[Row], metric: Metric, figures: Figures) -> Markup:
    names = (
        "#",
        "Combination",
        "Verdict",
        "Difference",
        "95 % interval",
        "p (Holm)",
        "Wins–ties–losses",
        "Effect",
        "Needed",
    )
    return _table(
        [element("th", name, class_="key" if name == "#" else None) for name in names],
        [_comparison_row(row, metric, figures) for row in rows if metric.name in row.verdicts],
    )


def _comparison_row(row: Row, metric: Metric, figures: Figures) -> Markup:
    verdict = row.verdicts[metric.name]
    found = verdict.comparison
    cells = (
        figures.change(found.difference),
        figures.interval(found.interval, signed=True) or "–",
        f"{verdict.adjusted_p:.3f}" if verdict.adjusted_p >= 0.001 else "< 0.001",
        f"{found.wins}–{found.ties}–{found.losses}",
        "–" if found.effect_size is None else Figures(2).change(found.effect_size),
        "–" if verdict.needed_cases is None else f"{verdict.needed_cases:,}",
    )
    return element(
        "tr",
        element("td", row.key, class_="key"),
        element("th", _name(row.name), scope="row"),
        element("td", _verdict(row, metric, figures)),
        *(element("td", cell, class_="number") for cell in cells),
    )


def _failures(report: Report) -> Markup:
    troubles = report.troubles
    if not troubles:
        return Markup("")
    note = "Failed runs first, then failed evaluators. A run opens with wtb show RUN, its steps with wtb history RUN."
    heads = [element("th", name) for name in ("Error", "Times", "Where", "Run")]
    rows = [row for trouble in troubles[:MOST_TROUBLES] for row in _failure(report, trouble)]
    return _section(
        counted(report.failures, "failure"),
        element("p", note, class_="note"),
        _table(heads, rows),
        *_left_out(len(troubles) - MOST_TROUBLES, "error"),
    )


def _failure(report: Report, trouble: Trouble) -> list[Markup]:
    """Return a row a job, the first of which says what they have in common."""
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
    return [element("td", _name(report.place(job))), element("td", run)]


def _method(report: Report) -> Markup:
    parts: list[Markup] = [element("p", text) for text in METHOD]
    if report.not_shareable:
        reasons = [element("li", element("b", node), ": ", why) for node, why in report.not_shareable.items()]
        parts += [element("p", "These nodes could not be shared between combinations:"), element("ul", *reasons)]
    return _section("How to read this", *parts)


_SECTIONS: tuple[Callable[[Report], Markup], ...] = (
    _matrix, _plots, _front, _cases, _failures, _comparisons, _method,
)  # fmt: skip


def _section(title: str, *parts: Any) -> Markup:
    return element("section", element("h2", title), *parts)


def _folded(title: str, *parts: Any) -> Markup:
    return element("details", element("summary", title), *parts)


def _table(heads: Sequence[Markup], rows: Sequence[Markup]) -> Markup:
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return element("div", table, class_="wide")


def _name(combination: str) -> Markup:
    """Return a combination that breaks between its parts only."""
    parts = combination.split(", ")
    marked = [
        element("span", part + ("," if at < len(parts) - 1 else ""), class_="part") for at, part in enumerate(parts)
    ]
    return joined(*(piece for part in marked for piece in (part, " ")))


def _left_out(number: int, noun: str) -> list[Markup]:
    return [element("p", f"{counted(number, noun)} more not shown.", class_="note")] if number > 0 else []


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
