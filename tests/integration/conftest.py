"""What the tests of the engine share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
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
            opened = Bench(folder=request.getfixturevalue("sqlite_folder"))
        case _:
            name = request.getfixturevalue("migrated_database")
            opened = Bench(request.getfixturevalue("postgres").url(name), folder=tmp_path / "wtb")
    with opened:
        yield opened


@pytest.fixture(scope="session")
def namespace() -> Sequence[str]:
    """The command that gives a process mounts of its own: for root, or for anybody who may have a user namespace."""
    ways = [["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]]
    for way in ways:
        tried = subprocess.run([*way, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
        if tried.returncode == 0:
            return way
    raise RuntimeError(
        "a full disk is tried on a tmpfs, and neither root nor a user namespace may mount one here: run as root with "
        "CAP_SYS_ADMIN, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
    )
