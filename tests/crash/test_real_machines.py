"""Wrong clocks, containers and hidden processes as they really are: libfaketime, unshare, hidepid. For `make soak`.

The same rules are covered with injected clocks and owners in tests/integration, in `make test`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crash.machine_worker import POLL_S, RUN
from tests.services import PostgresServer
from wtb.application.runs.leases import LEASE
from wtb.bench import Bench
from wtb.domain.execution import ExecutionStatus

pytestmark = [
    pytest.mark.skipif(not os.environ.get("WTB_SOAK"), reason="needs root and minutes: `make soak` runs it"),
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]
LIBRARY = "libfaketimeMT.so.1"
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
HIDDEN = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    # uid 0 without capabilities and outside the group that hidepid leaves out: it sees no process but its own
    "mount -t proc -o hidepid=2 proc /proc && exec setpriv --regid=65534 --clear-groups --bounding-set=-all "
    '--inh-caps=-all "$@"',
    "sh",
)
MADE = ["a", "b", "c", "left", "right", "d", "e"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(request.getfixturevalue("migrated_database"))


def faketime(home: Path) -> dict[str, str]:
    """Return the environment in which a process takes its time from a file."""
    found = sorted(Path("/usr/lib").glob(f"*/faketime/{LIBRARY}"))
    assert found, f"{LIBRARY} is missing: `scripts/services soak` installs it"
    (home / "clock").write_text("+0\n")
    return {
        **os.environ,
        "LD_PRELOAD": str(found[0]),
        "FAKETIME_TIMESTAMP_FILE": str(home / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@contextmanager
def started(
    verb: str, home: Path, url: str | None, *, within: Sequence[str] = (), env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a worker, in a container when one is named; it is gone when the block ends."""
    command = [*within, sys.executable, "-m", "tests.crash.machine_worker", verb, str(home), *([url] if url else [])]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of a worker, and return what it said."""
    out, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    heard: dict[str, Any] = json.loads(out)
    return heard


def tried(verb: str, home: Path, url: str | None, **options: Any) -> dict[str, Any]:
    with started(verb, home, url, **options) as process:
        return said(process)


def world(home: Path) -> list[str]:
    path = home / "world"
    return path.read_text().splitlines() if path.exists() else []


def seats(home: Path, mark: str) -> list[str]:
    return [line[1:] for line in world(home) if line[0] == mark and line != "+linger"]


def in_order(seats: list[str]) -> list[str]:
    """Return seats without the names of the two that parallel nodes take: luck decides which of them is first."""
    return ["beside" if seat in ("left", "right") else seat for seat in seats]


@pytest.mark.parametrize("undone_by", ["the same process", "another, with the right time", "another, with a wrong one"])
def test_a_clock_that_jumps_in_a_real_process_changes_nothing_of_a_rollback(
    tmp_path: Path, url: str | None, undone_by: str
) -> None:
    (tmp_path / "go").touch()
    env = faketime(tmp_path)
    is_one = undone_by == "the same process"
    made = tried("run_and_roll_back" if is_one else "run", tmp_path, url, env=env)
    assert made["error"] is None
    assert abs(made["time"] - time.time()) > 3_600 * 20, "the last jump sets the clock back by a day"
    if not is_one:
        (tmp_path / "clock").write_text("+7200\n")
        tried("roll_back", tmp_path, url, env=env if undone_by == "another, with a wrong one" else None)
    taken = seats(tmp_path, "+")
    assert sorted(taken) == sorted(MADE)
    assert in_order(seats(tmp_path, "-")) == in_order(taken[::-1])
    at_mid = (tmp_path / "at_mid").read_text().splitlines()
    assert in_order([line[1:] for line in at_mid if line[0] == "-"]) == in_order(taken[:0:-1])
    with Bench(url, folder=tmp_path / "wtb") as bench:
        assert bench.get(RUN).status is ExecutionStatus.PAUSED
        assert bench.services.integrity.check().is_healthy


def wait_until_lingering(home: Path, process: subprocess.Popen[str]) -> None:
    while "+linger" not in world(home):
        assert process.poll() is None, process.communicate()
        time.sleep(POLL_S)


def machine(owner: str) -> str:
    return owner.partition("/")[0].rpartition(":")[0]


@pytest.mark.parametrize("from_where", [CONTAINER, HIDDEN, ()], ids=["container", "hidepid", "the machine itself"])
def test_a_run_in_a_container_is_not_stolen_while_it_lives_and_taken_over_when_it_is_dead(
    tmp_path: Path, url: str | None, from_where: Sequence[str]
) -> None:
    lives_in = () if from_where is HIDDEN else CONTAINER
    with started("run", tmp_path, url, within=lives_in) as live:
        wait_until_lingering(tmp_path, live)
        other = tried("resume", tmp_path, url, within=from_where)
        assert "is being run by" in other["refused"]
        with Bench(url, folder=tmp_path / "wtb") as bench:
            lease = bench.get(RUN).execution.lease
        assert lease is not None
        assert machine(lease.owner) == machine(other["owner"])  # one host name
        assert lease.owner != other["owner"]
        time.sleep(LEASE.total_seconds() + 5)  # its heartbeat keeps the lease
        assert "is being run by" in tried("resume", tmp_path, url, within=from_where)["refused"]
        assert world(tmp_path).count("+linger") == 1
        os.killpg(live.pid, signal.SIGKILL)
        live.wait(30)
    (tmp_path / "go").touch()
    began = time.monotonic()
    while "refused" in (found := tried("resume", tmp_path, url, within=from_where)):
        assert time.monotonic() - began < LEASE.total_seconds() + 60
    assert (found["status"], found["error"]) == ("completed", None)
    assert sorted(seats(tmp_path, "+")) == sorted(MADE)
    assert world(tmp_path).count("+linger") == 2, "it was in flight, and is idempotent"
