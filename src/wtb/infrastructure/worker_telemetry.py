"""WorkerTelemetry: keeps what a worker process measures until the driver, which has the real Telemetry, gets it."""

from __future__ import annotations

import threading

from wtb.domain.ports.telemetry import Measure
from wtb.domain.runner import MeasuredSpan, WorkMeasured
from wtb.infrastructure.timed_spans import TimedSpans

_MOST = 10_000
"""How many spans it keeps; a job that has more than this loses the rest."""


class WorkerTelemetry(TimedSpans):
    """Keeps spans, counts and levels, to be sent with the report of each job."""

    is_on = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[MeasuredSpan] = []

    def count(self, measure: Measure, name: str = "", amount: int = 1) -> None:
        """Count something whose duration is not known."""
        self._keep(MeasuredSpan(measure.value, name, None, amount))

    def took(self, measure: Measure, name: str, took_s: float, *, raised: bool = False) -> None:
        """Record a span."""
        self._keep(MeasuredSpan(measure.value, name, took_s, int(raised)))

    def level(self, measure: Measure, name: str, value: int) -> None:
        """Say how much of something there is now."""
        self._keep(MeasuredSpan(measure.value, name, None, value, is_level=True))

    def _keep(self, span: MeasuredSpan) -> None:
        with self._lock:
            if len(self._kept) < _MOST:
                self._kept.append(span)

    def taken(self) -> WorkMeasured | None:
        """Return what was kept since the last call, and keep it no longer; None if there is nothing."""
        with self._lock:
            kept, self._kept = self._kept, []
        return WorkMeasured(tuple(kept)) if kept else None
