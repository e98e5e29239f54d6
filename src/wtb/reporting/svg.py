"""Plots as inline SVG: colours come from the style of the page, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.intervals import Interval
from wtb.reporting.markup import Markup, element, joined

WIDTH = 1072
_ROW = 22
_TOP = 14
_KEY = 30
_CHARACTER = 7.2
"""About how wide a character is; there is no way to measure it here."""
_LONGEST_LABEL = 70
_VERDICT = 90
_CELL = 20


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` along a line from `start` to `end`, which may run backwards."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Collection[float], start: float, end: float) -> Axis:
        """Take in all values with a little room at both ends; one value alone lies in the middle."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = (high - low) * 0.05 or abs(high) * 0.5 or 1.0
        return cls(low - room, high + room, start, end)

    def at(self, value: float) -> float:
        """Return where a value lies."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers within the axis: steps of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One combination on one metric; `finding` is shown as a word and as a colour."""

    key: str
    label: str
    mean: float | None
    interval: Interval | None
    finding: str


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination on two metrics."""

    key: str
    label: str
    x: float
    y: float
    on_front: bool
    is_baseline: bool


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score: how good it is from 0 to 1, None when there is none; and what is said of it."""

    quality: float | None
    failed: bool
    title: str


def interval_plot(lines: Sequence[Line], title: str, write: Callable[[float], str]) -> Markup:
    """Draw a mean with its interval a line; a dashed rule marks the mean of the baseline."""
    seen = [line.mean for line in lines if line.mean is not None]
    ends = [end for line in lines if line.interval for end in (line.interval.low, line.interval.high)]
    longest = min(max(len(line.label) for line in lines), _LONGEST_LABEL)
    axis = Axis.around([*seen, *ends], longest * _CHARACTER + _KEY + 16, WIDTH - _VERDICT - 16)
    bottom = _TOP + _ROW * len(lines)
    baseline = next((line.mean for line in lines if line.finding == "baseline"), None)
    rule = [] if baseline is None else [_rule(axis.at(baseline), _TOP, axis.at(baseline), bottom, "rule")]
    rows = [_interval(line, axis, _TOP + _ROW * (number + 0.5), write) for number, line in enumerate(lines)]
    return _drawing(WIDTH, bottom + 24, title, *_x_axis(axis, _TOP, bottom), *rule, *rows)


def _interval(line: Line, axis: Axis, y: float, write: Callable[[float], str]) -> Markup:
    kind = f"line {class_of(line.finding)}"
    label = _text(axis.start - _KEY - 10, y + 4, _short(line.label, _LONGEST_LABEL), "end")
    key = _text(axis.start - 10, y + 4, line.key, "end", "tick")
    if line.mean is None:
        return element("g", label, key, _text(axis.start, y + 4, "no scores", "start", "faint"), class_=kind)
    x, parts = axis.at(line.mean), [label, key]
    told = f"{line.label}: {write(line.mean)}"
    if line.interval is not None:
        parts.append(_rule(axis.at(line.interval.low), y, axis.at(line.interval.high), y, "span"))
        told += f" ({write(line.interval.low)} to {write(line.interval.high)})"
    parts += [element("circle", cx=x, cy=y, r=4.5), _text(WIDTH - _VERDICT, y + 4, line.finding, "start", "word")]
    return element("g", element("title", told), *parts, class_=kind)


def scatter(points: Sequence[Point], title: str, names: tuple[str, str]) -> Markup:
    """Draw two metrics against each other; the front is joined by a line, and it and the baseline are named."""
    height, bottom = 420, 370
    x_axis = Axis.around([point.x for point in points], 80, WIDTH - 30)
    y_axis = Axis.around([point.y for point in points], bottom, _TOP)
    front = sorted((point for point in points if point.on_front), key=lambda point: (point.x, point.y))
    way = " ".join(f"{x_axis.at(point.x)},{y_axis.at(point.y)}" for point in front)
    line = element("polyline", points=way, class_="front")
    others_first = sorted(points, key=lambda point: (point.on_front, point.is_baseline))
    marks = [_mark(point, x_axis, y_axis) for point in others_first]
    words = (
        _text((x_axis.start + x_axis.end) / 2, height - 6, names[0], "middle"),
        element("text", names[1], x=0, y=0, text_anchor="middle", transform=f"translate(16 {bottom / 2}) rotate(-90)"),
    )
    sides = (*_x_axis(x_axis, _TOP, bottom), *_y_axis(y_axis, x_axis))
    return _drawing(WIDTH, height, title, *sides, line, *marks, *words)


def _mark(point: Point, x_axis: Axis, y_axis: Axis) -> Markup:
    x, y = x_axis.at(point.x), y_axis.at(point.y)
    kind = " ".join(name for name, is_so in (("on-front", point.on_front), ("baseline", point.is_baseline)) if is_so)
    named = [_text(x, y - 9, point.key, "middle")] if kind else []
    circle = element("circle", cx=x, cy=y, r=6 if point.on_front else 4)
    return element("g", element("title", f"{point.key}: {point.label}"), circle, *named, class_=f"point {kind}".strip())


def heat(cases: Sequence[str], keys: Sequence[str], cells: Sequence[Sequence[Cell]], title: str) -> Markup:
    """Draw a row a case and a column a combination: the stronger, the better; × is an error, a dot no score."""
    left = 210
    heads = [_text(left + _CELL * (at + 0.5), 14, key, "middle") for at, key in enumerate(keys)]
    rows = []
    for number, (case, row) in enumerate(zip(cases, cells, strict=True)):
        y = 22 + _CELL * number
        rows.append(_text(left - 8, y + 14, _short(case, 30), "end"))
        rows += [_heat_cell(cell, left + _CELL * at, y) for at, cell in enumerate(row)]
    width = left + _CELL * len(keys) + 4
    return _drawing(width, 26 + _CELL * len(cases), title, *heads, *rows, natural=True)


def _heat_cell(cell: Cell, x: float, y: float) -> Markup:
    box = {"x": x + 1, "y": y + 1, "width": _CELL - 2, "height": _CELL - 2}
    filled = 0 if cell.quality is None else round(0.06 + 0.94 * cell.quality, 2)
    rectangle = element("rect", **box, class_="heat", fill_opacity=filled)
    mark = "×" if cell.failed else "·" if cell.quality is None else ""
    text = [_text(x + _CELL / 2, y + 14, mark, "middle", "mark")] if mark else []
    return element("g", element("title", cell.title), rectangle, *text)


def class_of(finding: str) -> str:
    """Return the name that the style has for a finding."""
    return finding.replace(" ", "-") or "unknown"


def _x_axis(axis: Axis, top: float, bottom: float) -> list[Markup]:
    parts = []
    for tick in axis.ticks():
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


def _drawing(width: float, height: float, title: str, *parts: Markup, natural: bool = False) -> Markup:
    return element(
        "svg",
        element("title", title),
        joined(*parts),
        viewBox=f"0 0 {width} {height}",
        width=width if natural else None,
        height=height if natural else None,
        role="img",
        aria_label=title,
    )


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _text(x: float, y: float, text: Any, anchor: str, kind: str | None = None) -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=kind)


def _number(tick: float) -> str:
    return f"{tick:,.12g}".replace("-", "−")


def _short(text: str, longest: int) -> str:
    """Return a text that fits; both ends are kept, since that is where names differ."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
