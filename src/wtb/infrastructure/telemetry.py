"""MemoryTelemetry: keeps counts and durations in this process, for tests and for a look at where time goes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from wtb.domain.ports.telemetry import Measure
from wtb.infrastructure.timed_spans import TimedSpans


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurements under one name so far; events that were only counted add no time."""

    count: int = 0
    raised: int = 0
    """How many spans an exception ended."""
    total_s: float = 0.0
    longest_s: float = 0.0

    def __add__(self, other: Measurement) -> Measurement:
        return Measurement(
            count=self.count + other.count,
            raised=self.raised + other.raised,
            total_s=self.total_s + other.total_s,
            longest_s=max(self.longest_s, other.longest_s),
        )


class MemoryTelemetry(TimedSpans):
    """Sums all spans and counts, by measure and name, and keeps the last levels."""

    is_on = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[Measure, str], Measurement] = {}
        self._levels: dict[tuple[Measure, str], int] = {}

    def count(self, measure: Measure, name: str = "", amount: int = 1) -> None:
        """Count something whose duration is not known."""
        self._add(measure, name, Measurement(count=amount))

    def took(self, measure: Measure, name: str, took_s: float, *, raised: bool = False) -> None:
        """Record a span that a worker process measured."""
        self._add(measure, name, Measurement(count=1, raised=int(raised), total_s=took_s, longest_s=took_s))

    def level(self, measure: Measure, name: str, value: int) -> None:
        """Say how much of something there is now."""
        with self._lock:
            self._levels[measure, name] = value

    def _add(self, measure: Measure, name: str, more: Measurement) -> None:
        with self._lock:
            self._found[measure, name] = self._found.get((measure, name), Measurement()) + more

    def by_name(self, measure: Measure) -> Mapping[str, Measurement]:
        """Return the measurements so far, by name."""
        with self._lock:
            return {name: found for (kind, name), found in self._found.items() if kind is measure}

    def levels(self, measure: Measure) -> Mapping[str, int]:
        """Return the last levels, by name."""
        with self._lock:
            return {name: value for (kind, name), value in self._levels.items() if kind is measure}

    def total(self, measure: Measure) -> Measurement:
        """Return the measurements so far, of all names together."""
        return sum(self.by_name(measure).values(), Measurement())
