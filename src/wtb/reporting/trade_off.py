"""The section of the HTML report that plots two metrics against each other, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.domain.evaluation import Metric
from wtb.reporting import svg
from wtb.reporting.content import Front, Report, Row
from wtb.reporting.markup import Markup, element
from wtb.reporting.parts import Section, combination_name, scrolling_table


def trade_off_section(report: Report) -> Section | None:
    """Return the plots; None if there is nothing to weigh against each other."""
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
    return element("div", drawn, scrolling_table("Pareto front", heads, body), class_="front-panel", hidden=hidden)


def _axis_name(metric: Metric) -> str:
    return f"{metric.name} ({metric.direction} is better)"


def _front_row(report: Report, row: Row, metrics: Sequence[Metric]) -> Markup:
    means = [report.figures(each).number(row.summaries[each.name].mean) for each in metrics]
    return element(
        "tr",
        element("td", row.key, class_="key"),
        element("th", combination_name(row.name), scope="row"),
        *(element("td", mean, class_="number") for mean in means),
    )
