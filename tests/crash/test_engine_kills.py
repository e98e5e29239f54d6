"""kill -9 anywhere in a run: nothing is lost, and no effect is repeated."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.engine_process import EngineProcess, prepared_database
from tests.crash.engine_story import kill_at_points, kill_at_random, kill_while_recovering

SOAK = bool(os.environ.get("WTB_SOAK"))
AT_POINTS = 280 if SOAK else 12
AT_RANDOM = 60 if SOAK else 4
"""Runs on each of the two databases; every second one is killed once more while it recovers."""

RECOVERIES = (
    ("before effect of plain", "after commit of begin"),
    ("before effect of plain", "before commit of answer"),
    ("after effect of plain", "after commit of answer"),
    ("before effect of plain", "before effect of plain", "after effect of plain"),
    ("after effect of plain", "after commit of begin", "after commit of end"),
    ("after effect of reserved", "before effect of reserved", "after effect of reserved", "after effect of reserved"),
    ("after effect of confirmed", "before commit of _write confirmed succeeded", "after effect of keyed"),
    ("after effect of noted", "before effect of noted", "after commit of _write noted succeeded"),
    ("before commit of step", "before Swap.run", "before ConfinedFolder.move", "after Swap.run"),
)
"""Points one after the other: the first while the run is begun, the others while it recovers from that."""


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[EngineProcess]:
    with EngineProcess(tmp_path, prepared_database(request, tmp_path, sqlite_template)) as process:
        yield process


def test_a_run_killed_at_named_points_loses_nothing_and_repeats_nothing(engine: EngineProcess) -> None:
    kill_at_points(engine, AT_POINTS, random.Random("points" if SOAK else None))  # few points, but others each time


@pytest.mark.parametrize("engine", ["sqlite", "postgres"] if SOAK else ["sqlite"], indirect=True)
def test_a_run_killed_while_it_recovers_loses_nothing_and_repeats_nothing(engine: EngineProcess) -> None:
    """Killed while a doubtful call is answered for, confirmed, reversed or made again."""
    kill_while_recovering(engine, RECOVERIES)


def test_a_run_killed_at_random_loses_nothing_and_repeats_nothing(engine: EngineProcess) -> None:
    kill_at_random(engine, AT_RANDOM)
