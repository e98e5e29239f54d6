"""TimedSpans: the part that all implementations of Telemetry share which time their spans themselves."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.domain.ports.telemetry import Measure


class TimedSpans(ABC):
    """Times a block, and passes its duration on to `took`."""

    @contextmanager
    def span(self, measure: Measure, name: str = "") -> Iterator[None]:
        """Return a context manager that measures its block."""
        began, raised = time.perf_counter(), True
        try:
            yield
            raised = False
        finally:
            self.took(measure, name, time.perf_counter() - began, raised=raised)

    @abstractmethod
    def took(self, measure: Measure, name: str, took_s: float, *, raised: bool = False) -> None:
        """Record a span."""
