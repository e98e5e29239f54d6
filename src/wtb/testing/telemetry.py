"""The contract of Telemetry: a subclass gives the fixture `telemetry`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from wtb.domain.ports.telemetry import Measure, Telemetry, measured


class TelemetryContract:
    """What every telemetry does."""

    @pytest.mark.parametrize("measure", Measure)
    def test_a_span_runs_its_block(self, telemetry: Telemetry, measure: Measure) -> None:
        done = []
        with telemetry.span(measure, "name"):
            done.append(1)
        with telemetry.span(measure):
            done.append(2)
        assert done == [1, 2]

    @pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
    def test_a_span_lets_exceptions_through(self, telemetry: Telemetry, error: BaseException) -> None:
        with pytest.raises(type(error)) as found, telemetry.span(Measure.NODE, "name"):
            raise error
        assert found.value is error

    def test_a_span_that_a_worker_measured_is_taken(self, telemetry: Telemetry) -> None:
        telemetry.took(Measure.NODE, "name", 0.5)
        telemetry.took(Measure.NODE, "", 0.0, raised=True)

    def test_a_level_may_rise_and_fall(self, telemetry: Telemetry) -> None:
        for value in (3, 1, 0):
            telemetry.level(Measure.CONNECTIONS, "host/1", value)

    def test_spans_lie_inside_each_other(self, telemetry: Telemetry) -> None:
        def inner(value: int) -> int:
            return measured(telemetry, Measure.NODE, "inner", lambda: value + 1)()

        assert measured(telemetry, Measure.STEP, "outer", inner)(1) == 2

    def test_threads_share_it(self, telemetry: Telemetry) -> None:
        def use(number: int) -> int:
            telemetry.count(Measure.CALL, f"tool {number % 3}", amount=2)
            return measured(telemetry, Measure.JOB, "", lambda: number)()

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(use, range(500))) == list(range(500))

    @pytest.mark.parametrize("name", ["", "ünï ☃", "\x00", "\ud800", "x" * 10_000])
    def test_any_name_is_taken(self, telemetry: Telemetry, name: str) -> None:
        telemetry.count(Measure.CALL, name)
        with telemetry.span(Measure.CALL, name):
            assert telemetry.is_on in {True, False}

    def test_whether_it_is_on_never_changes(self, telemetry: Telemetry) -> None:
        before = telemetry.is_on
        telemetry.count(Measure.SWEEP)
        assert telemetry.is_on is before
