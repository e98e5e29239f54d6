"""Plots and figures of a report: where a value lies, and how it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.domain.intervals import Interval
from wtb.reporting.content import Figures
from wtb.reporting.markup import Markup, element
from wtb.reporting.svg import Axis, Cell, Line, Point, heat, interval_plot, scatter

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
    assert Figures.of(values).number(value) == written


def test_a_change_has_a_sign_unless_it_is_none() -> None:
    figures = Figures(2)
    assert [figures.change(value) for value in (0.5, -0.5, 0.0, 0.001)] == ["+0.50", "−0.50", "0.00", "0.00"]


def test_whatever_is_no_markup_is_escaped() -> None:
    assert element("b", "<i>", Markup("<i></i>"), title='"&') == '<b title="&quot;&amp;">&lt;i&gt;<i></i></b>'


def test_an_interval_plot_has_a_line_a_combination_and_the_baseline_as_a_rule() -> None:
    lines = [
        Line(key="B", label="baseline", mean=0.5, interval=Interval(0.4, 0.6), finding="baseline"),
        Line(key="1", label="a=b", mean=0.7, interval=None, finding="better"),
        Line(key="2", label="a=c", mean=None, interval=None, finding=""),
    ]
    plot = interval_plot(lines, "score", lambda value: f"{value:.1f}")
    assert plot.count("<circle") == 2
    assert plot.count('class="span"') == 1
    assert plot.count('class="rule"') == 1
    assert "a=b: 0.7" in plot
    assert "no scores" in plot


def test_a_scatter_names_the_front_and_the_baseline_only() -> None:
    points = [
        Point(key=key, label=f"a={key}", x=x, y=1.0, on_front=key == "71", is_baseline=key == "B")
        for key, x in (("B", 2.0), ("71", 1.0), ("72", 3.0))
    ]
    plot = scatter(points, "quality against price", ("price", "quality"))
    assert plot.count("<circle") == 3
    assert ">71</text>" in plot
    assert ">B</text>" in plot
    assert ">72</text>" not in plot


def test_errors_and_missing_scores_are_marked_in_the_heat() -> None:
    cells = [
        Cell(quality=1.0, failed=False, title="good"),
        Cell(quality=0.0, failed=True, title="failed"),
        Cell(quality=None, failed=False, title="missing"),
    ]
    plot = heat(["c1"], ["B", "1", "2"], [cells], "scores")
    assert plot.count("<rect") == 3
    assert plot.count("×") == plot.count("·") == 1
