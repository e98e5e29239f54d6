"""kill -9 anywhere in a run: nothing is lost, and no effect that can be known again is repeated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wtb
from tests.crash.engine_worker import VISITS

KILLS = 1_000 if os.environ.get("WTB_SOAK") else 60
RUNS = KILLS // 8
"""A run of 40 visits is over after eight or nine kills; then another begins."""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.crash.engine_worker", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def go_on(folder: Path, rng: random.Random) -> tuple[str, bool]:
    """Start the worker and kill it after a few visits; return its last line and whether it was killed."""
    with start(folder) as process:
        assert process.stdout is not None
        last = ""
        for _ in range(rng.randint(1, 8)):
            last = process.stdout.readline().strip() or last
        spin_until = time.perf_counter() + rng.random() * 0.004  # anywhere within the next step
        while time.perf_counter() < spin_until:
            pass
        if last == "completed":
            return last, False
        process.send_signal(signal.SIGKILL)
        return last, True


@pytest.mark.parametrize("number", range(RUNS))
def test_a_killed_run_loses_nothing_and_repeats_nothing(tmp_path: Path, number: int) -> None:
    rng, kills, last = random.Random(f"engine {number}"), 0, ""
    while last != "completed" and kills < 100:
        last, killed = go_on(tmp_path, rng)
        kills += killed
    with start(tmp_path) as process:  # the last word may have been lost with the last kill
        process.wait(60)
    expected = [f"visit-{visit}" for visit in range(1, VISITS + 1)]
    assert (tmp_path / "confirmed").read_text().split() == expected
    assert [line.split()[1] for line in (tmp_path / "keyed").read_text().splitlines()] == expected
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        run = bench.get("run")
        assert (run.status.value, run.state["n"], len(run.state["pids"])) == ("completed", VISITS, VISITS)
        assert run.history.path() == tuple(("work", visit) for visit in range(1, VISITS + 1))
        commit = run.checkpoints[-1].file_commit
        assert commit is not None
        bench.services.workspaces.export(commit, tmp_path / "export")  # type: ignore[arg-type]
    assert (tmp_path / "export" / "log").read_text().split() == [str(visit) for visit in range(1, VISITS + 1)]
    assert kills > 0
