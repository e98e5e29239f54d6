"""NumberFormat: how a report writes the numbers of a metric."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wtb.domain.statistics.intervals import Interval


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Formats the numbers of one metric, all with as many decimals as the largest one needs for three digits.

    Much smaller numbers get up to two more decimals, so that they keep significant digits.
    """

    decimals: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> NumberFormat:
        """Choose the decimals for these numbers."""
        sizes = [abs(value) for value in values if value is not None and abs(value) >= 1e-9]
        if not sizes:
            return cls(3)
        enough, for_smallest = (
            most - math.floor(math.log10(size)) for most, size in ((2, max(sizes)), (1, min(sizes)))
        )
        return cls(max(enough, min(for_smallest, enough + 2)))

    def number(self, value: float | None) -> str:
        """Return a number as text; a dash if there is none."""
        if value is None:
            return "–"
        text = f"{value:,.{max(0, min(self.decimals, 9))}f}"
        return text.replace("-", "−") if float(text.replace(",", "")) else text.removeprefix("-")

    def change(self, value: float | None) -> str:
        """Return a difference with its sign."""
        text = self.number(value)
        return f"+{text}" if value is not None and value > 0 and text.strip("0.") else text

    def interval(self, interval: Interval | None, frame: str = "{}", *, signed: bool = False) -> str:
        """Return both ends of an interval in a frame; empty if there is no interval."""
        if interval is None:
            return ""
        write = self.change if signed else self.number
        return frame.format(f"{write(interval.low)} to {write(interval.high)}")
