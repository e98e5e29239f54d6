"""Measurements: sides that were measured at another time or on another machine are told from those that were not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from wtb.domain.batch import Job
from wtb.domain.job_record import JobRecord
from wtb.domain.statistics.measurement import Measured, apart_from_baseline, is_measured, measured_apart

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def jobs(
    *hours: float, machine: str = "here", combination: str = "a", before: float = 0.0, count: int = 10
) -> list[Job]:
    """Jobs at these hours after the start; results that they took over are older by `before`."""
    return [
        Job(
            batch_id="b",
            number=number,
            combination=combination,
            case_id=str(number),
            repeat=0,
            fingerprint="",
            record=JobRecord(measured=_measured(hours[number % len(hours)], before, machine)),
        )
        for number in range(count)
    ]


def _measured(hour: float, before: float, machine: str) -> Measured:
    newest = Measured.once(START + hour * HOUR, f"{machine}/17/4")
    return newest | Measured.once(newest.ended_at - before * HOUR, f"{machine}/18/4")


def test_what_was_measured_side_by_side_is_not_apart() -> None:
    assert measured_apart(jobs(0, 1, 2), jobs(0, 1, 2)) is None
    assert measured_apart(jobs(0), jobs(0.1)) is None, "six minutes make no difference"


def test_what_was_measured_later_is_apart() -> None:
    how = "at different times (2026-01-02 12:00 and 2026-01-01 12:00 UTC)"
    assert measured_apart(jobs(24), jobs(0)) == how
    assert measured_apart(jobs(0, 24), jobs(0)) is not None, "half of it"


def test_a_job_that_was_retried_later_does_not_make_a_side_apart() -> None:
    assert measured_apart([*jobs(0, count=19), *jobs(24, count=1)], jobs(0)) is None


def test_a_variant_that_takes_over_old_results_and_runs_the_rest_later_is_apart() -> None:
    assert measured_apart(jobs(24, before=24), jobs(0)) is not None
    assert measured_apart(jobs(24), jobs(24, before=24)) is not None


def test_another_machine_is_apart() -> None:
    assert measured_apart(jobs(0, machine="there"), jobs(0)) == "on different machines"


def test_where_no_time_is_known_nothing_is_said() -> None:
    old = Job(
        batch_id="b", number=0, combination="a", case_id="c", repeat=0, fingerprint="", record=JobRecord(scores={})
    )
    assert measured_apart([old], jobs(0)) is None
    assert measured_apart([], jobs(0)) is None


def test_the_combinations_of_a_batch_are_held_against_its_baseline() -> None:
    batch = [*jobs(0, combination="baseline"), *jobs(0, combination="early"), *jobs(48, combination="late")]
    assert [*apart_from_baseline(batch, "baseline")] == ["late"]
    assert apart_from_baseline(jobs(0, combination="alone"), "baseline") == {}


@pytest.mark.parametrize(
    ("metric", "weights", "expected"),
    [
        ("latency_s", {}, True),
        ("cost_usd", {}, True),
        ("exact_match", {}, False),
        ("overall", {"f1": 1.0}, False),
        ("overall", {"f1": 1.0, "latency_s": 1.0}, True),
    ],
)
def test_times_and_costs_are_measured_other_metrics_are_scored(
    metric: str, weights: dict[str, float], expected: bool
) -> None:
    assert is_measured(metric, weights) is expected
