"""The sections of the HTML report with the scores: the table of results, and the same as intervals."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.domain.evaluation import Direction, Metric
from wtb.reporting import svg
from wtb.reporting.content import Report, Row
from wtb.reporting.markup import Markup, element
from wtb.reporting.numbers import NumberFormat
from wtb.reporting.parts import Section, combination_name, not_shown_note, scrolling_table

_MOST_LINES = 101


def results_section(report: Report) -> Section:
    """Return the table of all combinations on all metrics."""
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
        name = element("th", combination_name(row.name), *tag, scope="row")
        kind = "is-baseline" if row.is_baseline else None
        body.append(element("tr", element("td", row.key, class_="key"), name, *cells, class_=kind))
    return scrolling_table("Results", heads, body, id="result-table")


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


def intervals_section(report: Report) -> Section:
    """Return a plot of all combinations for each metric."""
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
    rows = report.rows[:_MOST_LINES]
    summaries = [row.summaries[metric.name] for row in rows]
    ends = [end for each in summaries if each.interval for end in (each.interval.low, each.interval.high)]
    axis = svg.share_of([*(each.mean for each in summaries if each.mean is not None), *ends])
    scale = element("li", element("span", svg.scale(axis), class_="holder"), class_="line scale-line")
    lines = [_line(report, row, metric, axis) for row in rows]
    plot = element("ol", scale, *lines, scale, class_="plot", aria_label=f"{metric.name} by combination")
    return element("figure", plot, *not_shown_note(len(report.rows) - len(rows), "combination"))


def _line(report: Report, row: Row, metric: Metric, axis: svg.Axis) -> Markup:
    summary, figures, finding = row.summaries[metric.name], report.figures(metric), row.finding(metric.name)
    text = f"{row.name}: {figures.number(summary.mean)}{figures.interval(summary.interval, ' ({})')}"
    baseline = report.rows[0].summaries[metric.name].mean
    return element(
        "li",
        element("span", row.key, class_="key"),
        element("span", combination_name(row.name), class_="name"),
        element("span", svg.track(axis, summary.mean, summary.interval, baseline, text), class_="holder"),
        element("span", "no scores" if summary.mean is None else finding or "not comparable", class_="word"),
        class_=f"line {svg.class_of(finding)}",
    )
