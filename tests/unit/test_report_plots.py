"""Plots and figures of a report: where a value lies, and how it is written."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.domain.statistics.intervals import Interval
from wtb.reporting.markup import Markup, element
from wtb.reporting.numbers import NumberFormat
from wtb.reporting.svg import NARROW, WIDE, Axis, Format, Point, scale, scatter, share_of, track

numbers = st.floats(min_value=-1e9, max_value=1e9).map(lambda value: round(value, 9))


@given(values=st.lists(numbers, min_size=1, max_size=20))
def test_every_value_lies_within_its_axis_and_in_its_order(values: list[float]) -> None:
    axis = Axis.around(values, 100, 500)
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert 100 <= places[0] <= places[-1] <= 500


@given(values=st.lists(numbers, min_size=1, max_size=20))
def test_ticks_are_few_and_within_the_axis(values: list[float]) -> None:
    axis = Axis.around(values, 0, 100)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 7
    assert all(-0.1 <= axis.at(tick) <= 100.1 for tick in ticks)


def test_ticks_are_round_numbers() -> None:
    assert Axis(0.02, 0.98, 0, 1).ticks() == [0.2, 0.4, 0.6, 0.8]
    assert Axis(-3, 17, 0, 1).ticks() == [0, 5, 10, 15]


def test_an_axis_may_run_upwards() -> None:
    axis = Axis(0, 10, 300, 100)
    assert (axis.at(0), axis.at(5), axis.at(10)) == (300, 200, 100)


def test_a_value_alone_lies_in_the_middle() -> None:
    assert Axis.around([4.0], 0, 100).at(4.0) == 50
    assert Axis.around([0.0], 0, 100).at(0.0) == 50


@pytest.mark.parametrize(
    ("values", "value", "written"),
    [
        ([0.5, 0.81], 0.5, "0.500"),
        ([0.004], 0.0012, "0.00120"),
        ([1234.5], 1234.5, "1,234"),
        ([12.0], -3.0, "−3.0"),
        ([0.5], -0.0001, "0.000"),
        ([0.0], 0.0, "0.000"),
        ([None], None, "–"),
    ],
)
def test_numbers_of_a_metric_have_the_same_decimals(
    values: list[float | None], value: float | None, written: str
) -> None:
    assert NumberFormat.of(values).number(value) == written


def test_a_change_has_a_sign_unless_it_is_none() -> None:
    figures = NumberFormat(2)
    assert [figures.change(value) for value in (0.5, -0.5, 0.0, 0.001)] == ["+0.50", "−0.50", "0.00", "0.00"]


def test_whatever_is_no_markup_is_escaped() -> None:
    assert element("b", "<i>", Markup("<i></i>"), title='"&') == '<b title="&quot;&amp;">&lt;i&gt;<i></i></b>'


def test_what_has_no_end_is_not_closed() -> None:
    assert element("input", type="search", hidden="") == '<input type="search" hidden="">'


def test_a_track_shows_the_mean_its_interval_and_the_baseline_as_a_rule() -> None:
    axis = share_of([0.0, 1.0])
    drawn = track(axis, 0.5, Interval(0.0, 1.0), 0.25, "a=b: 0.5")
    assert '<circle cx="50.0%"' in drawn
    assert 'x1="4.5%" x2="95.5%" y1="50%"' in drawn
    assert drawn.count('class="rule"') == 1
    assert "<title>a=b: 0.5</title>" in drawn
    assert drawn.count('class="grid"') == scale(axis).count("<text") == 6


def test_a_track_without_scores_shows_the_scale_only() -> None:
    drawn = track(share_of([]), None, None, None, "none")
    assert 'class="grid"' in drawn
    assert not {"circle", "span", "rule"} & set(re.findall(r"\w+", drawn))


def test_a_scatter_names_the_front_and_the_baseline_only() -> None:
    points = [
        Point(key=key, label=f"a={key}", x=x, y=1.0, on_front=key == "71", is_baseline=key == "B")
        for key, x in (("B", 2.0), ("71", 1.0), ("72", 3.0))
    ]
    plot = scatter(points, "quality against price", ("price", "quality"))
    assert plot.count("<circle") == 2
    assert plot.count("<rect") == 1
    assert ">71</text>" in plot
    assert ">B</text>" in plot
    assert ">72</text>" not in plot


def test_the_front_is_joined_by_steps() -> None:
    points = [Point(key=str(x), label="", x=x, y=x * 10, on_front=True, is_baseline=False) for x in (3.0, 1.0, 2.0)]
    way = re.search(r'<polyline points="([^"]+)"', scatter(points, "", ("", "")))
    assert way is not None
    places = [tuple(map(float, place.split(","))) for place in way[1].split(" ")]
    assert len(places) == 5
    assert all(before[0] == after[0] or before[1] == after[1] for before, after in pairwise(places))


@pytest.mark.parametrize("format", [WIDE, NARROW])
@given(places=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30))
def test_keys_of_a_scatter_never_cover_each_other(format: Format, places: list[tuple[float, float]]) -> None:
    points = [
        Point(key=str(at), label="", x=x, y=y, on_front=at > 0, is_baseline=at == 0) for at, (x, y) in enumerate(places)
    ]
    plot = scatter(points, "", ("", ""), format)
    found = re.findall(r'<text x="([^"]+)" y="([^"]+)" text-anchor="middle" class="point-key">', plot)
    keys = [(float(x), float(y)) for x, y in found]
    assert keys
    assert all(abs(a[0] - b[0]) >= 7 or abs(a[1] - b[1]) >= 12 for at, a in enumerate(keys) for b in keys[at + 1 :])
    assert all(0 <= x <= format.width and 0 <= y <= format.height for x, y in keys)
