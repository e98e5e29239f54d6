"""Plots as inline SVG: colours come from the style of the page, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.statistics.intervals import Interval
from wtb.reporting.markup import Markup, element, joined

_CHARACTER = 9
"""The width of a bold digit in a wide typeface, since it cannot be measured here."""
_LINE = 13


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` along a line from `start` to `end`, which may run backwards."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Collection[float], start: float, end: float) -> Axis:
        """Return an axis for all values with a little room at both ends; a single value is in the middle."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = (high - low) * 0.05 or abs(high) * 0.5 or 1.0
        return cls(low - room, high + room, start, end)

    def at(self, value: float) -> float:
        """Return the position of a value."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers within the axis: steps of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Format:
    """The size of a plot: `WIDE` for a desktop, `NARROW` for a phone."""

    name: str
    width: int
    height: int
    left: int


WIDE = Format("wide-only", 1072, 420, 80)
NARROW = Format("narrow-only", 360, 340, 58)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination on two metrics."""

    key: str
    label: str
    x: float
    y: float
    on_front: bool
    is_baseline: bool


def share_of(values: Collection[float]) -> Axis:
    """Return an axis in percent, for drawings that take the available width."""
    return Axis.around(values, 0, 100)


def track(axis: Axis, mean: float | None, interval: Interval | None, rule: float | None, text: str) -> Markup:
    """Draw a mean with its interval along an axis in percent; a dashed rule marks the mean of the baseline."""
    parts = [_upright(axis.at(tick), "grid") for tick in axis.ticks()]
    if rule is not None:
        parts.append(_upright(axis.at(rule), "rule"))
    if interval is not None:
        ends = {"x1": f"{axis.at(interval.low)}%", "x2": f"{axis.at(interval.high)}%"}
        parts.append(element("line", **ends, y1="50%", y2="50%", class_="span"))
    if mean is not None:
        parts.append(element("circle", cx=f"{axis.at(mean)}%", cy="50%", r=4.5))
    return element("svg", element("title", text), *parts, class_="track", role="img", aria_label=text)


def scale(axis: Axis) -> Markup:
    """Write the numbers of an axis in percent."""
    ticks = [element("text", _number(tick), x=f"{axis.at(tick)}%", y=12, text_anchor="middle") for tick in axis.ticks()]
    return element("svg", *ticks, class_="scale", aria_hidden="true")


def _upright(percent: float, kind: str) -> Markup:
    return element("line", x1=f"{percent}%", x2=f"{percent}%", y1=0, y2="100%", class_=kind)


def scatter(points: Sequence[Point], title: str, names: tuple[str, str], format: Format = WIDE) -> Markup:
    """Draw two metrics against each other. Steps join the front; the front and the baseline are labelled with keys."""
    bottom, top = format.height - 50, 14
    x_axis = Axis.around([point.x for point in points], format.left, format.width - 14)
    y_axis = Axis.around([point.y for point in points], bottom, top)
    places = [(x_axis.at(point.x), y_axis.at(point.y)) for point in points]
    order = sorted(zip(points, places, strict=True), key=lambda each: (each[0].on_front, each[0].is_baseline))
    words = (
        _text((x_axis.start + x_axis.end) / 2, format.height - 8, names[0], "middle"),
        element("text", names[1], x=0, y=0, text_anchor="middle", transform=f"translate(13 {bottom / 2}) rotate(-90)"),
    )
    return _drawing(
        format.width,
        format.height,
        title,
        format.name,
        *_x_axis(x_axis, top, bottom, most=6 if format is WIDE else 4),
        *_y_axis(y_axis, x_axis),
        _steps([place for point, place in order if point.on_front]),
        *(_mark(point, place) for point, place in order),
        *_keys(order, Box(x_axis.start, 0, format.width, bottom)),
        *words,
    )


_LONGEST_WORD = 16
LINES = ("one", "two")
"""The names of the two lines of a crossing in the style."""


def crossing(lines: Sequence[tuple[str, tuple[float, float]]], across: tuple[str, str], title: str) -> Markup:
    """Draw two lines between two settings: parallel where the settings do not interact."""
    width, height, left, bottom, top = 300, 170, 52, 140, 12
    y_axis = Axis.around([value for _, ends in lines for value in ends], bottom, top)
    x_axis = Axis.around((0.0, 1.0), left, width - 12)
    begin, end = left + 50, width - 62
    parts = [*_y_axis(y_axis, x_axis)]
    for kind, (name, ends) in zip(LINES, lines, strict=True):
        ys = [y_axis.at(value) for value in ends]
        marks = [element("circle", cx=x, cy=y, r=4) for x, y in zip((begin, end), ys, strict=True)]
        parts.append(
            element(
                "g", element("title", name), _rule(begin, ys[0], end, ys[1], "join"), *marks, class_=f"cross {kind}"
            )
        )
    words = [_text(x, height - 8, _short(word), "middle") for x, word in zip((begin, end), across, strict=True)]
    return _drawing(width, height, title, "crossing", *parts, *words)


def _short(word: str) -> str:
    return word if len(word) <= _LONGEST_WORD else f"{word[: _LONGEST_WORD - 1]}…"


def legend() -> Markup:
    """Return the legend of a scatter plot."""
    kinds = (("on the front", True, False), ("not on it", False, False), ("baseline", False, True))
    words = []
    for word, on_front, is_baseline in kinds:
        mark = _mark(Point(key="", label=word, x=0, y=0, on_front=on_front, is_baseline=is_baseline), (8, 8))
        words.append(element("span", element("svg", mark, viewBox="0 0 16 16", aria_hidden="true"), word))
    return element("div", *words, class_="legend")


def _steps(places: Sequence[tuple[float, float]]) -> Markup:
    """Join the front by a line that only passes through reachable values: across, then up or down."""
    way: list[tuple[float, float]] = []
    for x, y in sorted(places):
        way += [(x, way[-1][1]), (x, y)] if way else [(x, y)]
    return element("polyline", points=" ".join(f"{x},{y}" for x, y in way), class_="front")


def _mark(point: Point, place: tuple[float, float]) -> Markup:
    x, y = place
    kind = " ".join(name for name, is_so in (("on-front", point.on_front), ("baseline", point.is_baseline)) if is_so)
    shape = (
        element("rect", x=x - 5, y=y - 5, width=10, height=10, transform=f"rotate(45 {x} {y})")
        if point.is_baseline
        else element("circle", cx=x, cy=y, r=6 if point.on_front else 4)
    )
    return element("g", element("title", f"{point.key} {point.label}"), shape, class_=f"point {kind}".strip())


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle that a mark or a text takes up."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        return not (
            self.right <= other.left or other.right <= self.left or self.bottom <= other.top or other.bottom <= self.top
        )

    def holds(self, other: Box) -> bool:
        """Whether the other is inside this one."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


def _keys(order: Sequence[tuple[Point, tuple[float, float]]], within: Box) -> list[Markup]:
    """Write the keys where they cover neither a point nor each other; a key without such a place is left out."""
    taken = [Box(x - 6, y - 6, x + 6, y + 6) for _, (x, y) in order]
    written = []
    for point, (x, y) in reversed(order):
        if not (point.on_front or point.is_baseline):
            continue
        width = _CHARACTER * len(point.key) + 2
        boxes = (
            Box(x + along - width / 2, y + down - _LINE / 2, x + along + width / 2, y + down + _LINE / 2)
            for along, down in _around(width)
        )
        box = next((box for box in boxes if within.holds(box) and not any(map(box.meets, taken))), None)
        if box is not None:
            taken.append(box)
            written.append(_text((box.left + box.right) / 2, box.bottom - 2, point.key, "middle", "point-key"))
    return written


def _around(width: float) -> Iterator[tuple[float, float]]:
    """Yield the possible offsets of a text's middle from its point, the best first."""
    side = 9 + width / 2
    yield from ((0, -14), (side, -11), (-side, -11), (side, 0), (-side, 0), (side, 11), (-side, 11), (0, 14))


def class_of(finding: str) -> str:
    """Return the name of a finding in the style."""
    return finding.replace(" ", "-") or "unknown"


def _x_axis(axis: Axis, top: float, bottom: float, most: int) -> list[Markup]:
    parts = []
    for tick in axis.ticks(most):
        x = axis.at(tick)
        parts += [_rule(x, top, x, bottom, "grid"), _text(x, bottom + 16, _number(tick), "middle", "tick")]
    return parts


def _y_axis(axis: Axis, across: Axis) -> list[Markup]:
    parts = []
    for tick in axis.ticks():
        y = axis.at(tick)
        parts += [
            _rule(across.start, y, across.end, y, "grid"),
            _text(across.start - 8, y + 4, _number(tick), "end", "tick"),
        ]
    return parts


def _drawing(width: float, height: float, title: str, kind: str, *parts: Markup) -> Markup:
    return element(
        "svg",
        element("title", title),
        joined(*parts),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=title,
        class_=kind,
    )


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _text(x: float, y: float, text: Any, anchor: str, kind: str | None = None) -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=kind)


def _number(tick: float) -> str:
    return f"{tick:,.12g}".replace("-", "−")
