"""Figures of a batch: small numbers keep the digits that count."""

from __future__ import annotations

import pytest

from wtb.cli.output import dollars
from wtb.domain.display import figure_or_dash
from wtb.reporting.numbers import NumberFormat


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0.000"), (1234.4, "1,234"), (0.5, "0.500"), (0.0012345, "0.00123"), (-3.7e-6, "-0.00000370")],
)
def test_a_small_figure_keeps_three_digits(value: float | None, text: str) -> None:
    assert figure_or_dash(value) == text


@pytest.mark.parametrize(
    ("usd", "text"), [(0, "$0.0000"), (1.5, "$1.5000"), (0.00001234, "$0.0000123"), (2e-9, "$2e-09")]
)
def test_a_small_amount_is_not_zero(usd: float, text: str) -> None:
    assert dollars(usd) == text


def test_a_report_writes_small_figures_beside_large_ones_with_digits() -> None:
    figures = NumberFormat.of([0.0123, 0.00045])
    assert [figures.number(each) for each in (0.0123, 0.00045)] == ["0.01230", "0.00045"]
