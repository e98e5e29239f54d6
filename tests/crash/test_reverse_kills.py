"""kill -9 anywhere in a batch with external="reverse": once it has been run again, no external call is in effect."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.engine_process import EngineProcess, prepared_database
from tests.crash.reverse_worker import CASES
from tests.integration.booking_office import BookingOffice, open_office
from wtb.domain.integrity import FaultKind

SOAK = bool(os.environ.get("WTB_SOAK"))
KILLS = 6
"""So many of the points are tried, unless it is to soak: then all of them are, at their first and last passing."""


@pytest.fixture(params=["sqlite", "postgres"] if SOAK else ["sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[EngineProcess]:
    with EngineProcess(tmp_path, prepared_database(request, tmp_path, sqlite_template), "reverse_worker") as process:
        yield process


@pytest.fixture
def office() -> Iterator[BookingOffice]:
    with open_office() as opened:
        yield opened


def test_every_external_call_is_taken_back_wherever_a_batch_is_killed(
    engine: EngineProcess, office: BookingOffice
) -> None:
    go = partial(run, engine, office, record=False)
    said = go("whole")
    assert said is not None
    assert (said["status"], office.booked) == ("completed", {})
    assert len(office.log) == CASES * 2 * 2 * 2, "two tools in two nodes, each called and taken back"
    points, kills = chosen(said["passed"]), 0
    for number, point in enumerate(points):
        name, seen = f"batch-{number}", len(office.log)
        if go(name, point) is not None:
            continue  # a point that is passed now and then, as when a second is over
        kills += 1
        in_effect, named = {room.split(".")[0] for room in office.booked}, open_reversals(engine)
        assert in_effect <= named, f"after a kill at {point} the doctor does not name {in_effect - named}"
        said = go(name, seed=number % 2)  # with another seed, the run that was killed is given up for a new one
        assert (said or {}).get("status") == "completed", f"after a kill at {point}: {said}"
        assert office.booked == {}, f"after a kill at {point}: {office.booked}, {office.log[seen:]}"
        assert open_reversals(engine) == set(), point
    assert kills > len(points) / 2


def test_a_recorded_call_is_made_once_for_its_case_wherever_a_batch_is_killed(
    engine: EngineProcess, office: BookingOffice
) -> None:
    go = partial(run, engine, office, record=True)
    said = go("whole")
    assert said is not None
    assert (said["status"], len(office.log)) == ("completed", CASES * 2 * 2), "for both repeats"
    kills, names = 0, [name for name in said["passed"] if SOAK or "book" in name or "settle_now" in name]
    for number, name in enumerate(sorted(names)):
        if go(f"batch-{number}", (name, 1)) is not None:
            continue
        kills += 1
        said = go(f"batch-{number}")
        assert (said or {}).get("status") == "completed", f"after a kill at {name}: {said}"
        booked = Counter(line for line in office.log if line.startswith(f"book batch-{number}-"))
        assert set(booked.values()) == {1}, f"after a kill at {name}: {booked}"
        assert len(booked) == CASES * 2, name
    assert kills > len(names) / 2


def run(
    engine: EngineProcess,
    office: BookingOffice,
    name: str,
    die_at: tuple[str, int] | None = None,
    seed: int = 0,
    *,
    record: bool,
) -> dict[str, Any] | None:
    """Run a batch, or go on with it; return what the worker said, None when it was killed."""
    engine.send(name, office=office.url, die_at=die_at, seed=seed, record=record, kill_after_s=None)
    said = engine.receive()
    assert said is None or said["error"] is None, said
    return said


def chosen(passed: dict[str, int]) -> list[tuple[str, int]]:
    """Return the points at which to kill: all of them, or some that are other ones for every seed."""
    every = sorted({(name, passing) for name, times in passed.items() for passing in (1, times)})
    return every if SOAK else random.Random(1).sample(every, KILLS)


def open_reversals(engine: EngineProcess) -> set[str]:
    """Return the runs of which the doctor says that calls are still to be taken back."""
    with engine.bench() as bench:
        faults = bench.services.integrity.check().faults
    return {fault.what for fault in faults if fault.kind is FaultKind.OPEN_REVERSAL}
