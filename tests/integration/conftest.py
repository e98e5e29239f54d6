"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wtb.bench import Bench
from wtb.testing.fakes import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of every bench that is opened after this."""
    made = FakeClock()
    monkeypatch.setattr("wtb.bootstrap.SystemClock", lambda: made)
    return made


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A bench over each storage in turn."""
    match request.param:
        case "memory":
            opened = Bench("memory://")
        case "sqlite":
            opened = Bench(folder=tmp_path / "wtb")
        case _:
            name = request.getfixturevalue("migrated_database")
            opened = Bench(request.getfixturevalue("postgres").url(name), folder=tmp_path / "wtb")
    with opened:
        yield opened
