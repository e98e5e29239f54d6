"""The part of the report that says which node matters: effects of variants and their interactions."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.domain.evaluation import PRICES
from wtb.domain.statistics.effects import VariantEffect, VariantEffects
from wtb.reporting import svg
from wtb.reporting.content import Report
from wtb.reporting.markup import Markup, element, with_code
from wtb.reporting.numbers import NumberFormat

MOST_INTERACTIONS = 12

NOTE = (
    "The effect of a variant is its score less that of the node's default on the same case, averaged over the variants "
    "of all other nodes. All effects on a metric are tested together: an interval leaves 0 out just where chance is "
    "ruled out. Read interactions beside them, since the effects are averages."
)


def effect_parts(report: Report) -> list[Markup]:
    """Return the sentence, and for each metric one forest plot per node; nothing if only one node varies."""
    if not report.effects:
        return []
    tabs = [part for at, found in enumerate(report.effects) for part in _tab(report, found, at)]
    return [element("p", NOTE, class_="note"), element("div", *tabs, class_="tabs", role="radiogroup")]


def _tab(report: Report, found: VariantEffects, at: int) -> list[Markup]:
    prices = () if found.metric.name in PRICES else report.prices
    shown = [effect for effect in found.interactions if effect.is_shown]
    sentence = element("p", with_code(found.sentence(prices)), class_="sentence")
    panel = [sentence, _forest(found), *_interactions(found, shown), *_limits(found)]
    return [
        element("input", type="radio", name="effect", id=f"effect-{at}", checked=None if at else ""),
        element("label", found.metric.name, for_=f"effect-{at}"),
        element("div", *panel, class_="panel"),
    ]


def _forest(found: VariantEffects) -> Markup:
    ends = [end for each in found.main if each.interval for end in (each.interval.low, each.interval.high)]
    axis = svg.share_of([0.0, *(each.difference for each in found.main), *ends])
    figures = NumberFormat.of(each.difference for each in found.main)
    scale = element("li", element("span", svg.scale(axis), class_="holder"), class_="line scale-line")
    lines = []
    for node in found.nodes:
        if found.of(node):
            default = element("small", f" against {found.defaults[node]}")
            lines.append(element("li", element("b", node), default, class_="group"))
        lines += [_line(effect, axis, figures) for effect in found.of(node)]
    plot = element("ol", scale, *lines, scale, class_="plot", aria_label=f"effects on {found.metric.name} by node")
    return element("figure", plot)


def _line(effect: VariantEffect, axis: svg.Axis, figures: NumberFormat) -> Markup:
    ((_, variant),) = effect.factors
    finding = effect.finding.value
    change = figures.change(effect.difference)
    text = f"{effect.name}: {change}{figures.interval(effect.interval, ' ({})', signed=True)}"
    return element(
        "li",
        element("span", class_="key"),
        element("span", variant, class_="name"),
        element("span", svg.track(axis, effect.difference, effect.interval, 0.0, text), class_="holder"),
        element("span", f"{finding} {change}" if effect.is_shown else finding, class_="word"),
        class_=f"line {svg.class_of(finding)}",
    )


def _interactions(found: VariantEffects, shown: Sequence[VariantEffect]) -> list[Markup]:
    drawn = [_crossing(found, effect) for effect in shown[:MOST_INTERACTIONS] if effect.means]
    if not drawn:
        return []
    head = "Interactions: the effect of one variant changes with another. Lines that are not parallel show how much."
    return [element("p", head, class_="note"), element("div", *drawn, class_="crossings")]


def _crossing(found: VariantEffects, effect: VariantEffect) -> Markup:
    (first, variant), (second, other) = effect.factors
    figures = NumberFormat.of(effect.means)
    text = f"{effect.name}: {figures.change(effect.difference)}"
    lines = (
        (f"{second}={found.defaults[second]}", (effect.means[0], effect.means[1])),
        (f"{second}={other}", (effect.means[2], effect.means[3])),
    )
    drawing = svg.crossing(lines, (found.defaults[first], variant), text)
    legend = [
        element("span", element("i", class_=f"swatch {kind}"), name)
        for kind, (name, _) in zip(svg.LINES, lines, strict=True)
    ]
    caption = element("figcaption", element("b", text), element("div", *legend, class_="legend"))
    return element("figure", caption, drawing, element("small", first, class_="across"))


def _limits(found: VariantEffects) -> list[Markup]:
    notes = [
        f"{each.name} cannot be told apart from {', '.join(each.with_)} with these combinations."
        for each in found.confounded
        if len(each.factors) == 1
    ]
    if any(len(each.factors) == 2 for each in found.confounded):
        notes.append("Not all interactions can be told apart with these combinations; the effects assume none of them.")
    elif not found.is_complete:
        notes.append("Not every combination has run on every case; the effects assume that variants do not interact.")
    return [element("p", note, class_="note") for note in notes]
