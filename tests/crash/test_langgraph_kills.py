"""kill -9 of a process that runs a LangGraph thread with the saver, again and again: nothing that was done is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.langgraph_worker import ROUNDS, graph
from wtb.bench import Bench
from wtb.langgraph import Saver

ROOT = Path(__file__).parents[2]
KILLS = 60 if os.environ.get("WTB_SOAK") else 5


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_thread_survives_kills_anywhere(
    kind: str, durability: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "" if kind == "sqlite" else _postgres(request)
    log = tmp_path / "log"
    log.touch()
    for number in range(KILLS):
        process = _started(url, tmp_path, durability)
        _wait_for_lines(log, len(log.read_text().splitlines()) + random.Random(number).randint(2, 40), process)
        process.kill()
        process.wait()
    last = _started(url, tmp_path, durability)
    assert last.wait(timeout=120) == 0

    with Bench(url or None, folder=tmp_path / "wtb") as bench:
        compiled = graph(os.open(os.devnull, os.O_WRONLY)).compile(checkpointer=Saver(bench))
        config: Any = {"configurable": {"thread_id": "t"}}
        values = compiled.get_state(config).values
        assert [message.id for message in values["messages"]] == [str(number) for number in range(ROUNDS)]
        assert values["left"] == values["right"] == list(range(1, ROUNDS + 1))
        assert len(list(compiled.get_state_history(config))) == 3 * ROUNDS + 2
        assert not bench.services.integrity.check().faults
    if durability == "sync":  # else LangGraph runs ahead of its checkpoints, with any saver
        _check_little_was_repeated(log.read_text().splitlines())


def _check_little_was_repeated(lines: list[str]) -> None:
    """A node that was interrupted runs again; one whose checkpoint was written before the kill does not."""
    ran = Counter(line for line in lines if line != "started")
    starts = lines.count("started")
    assert set(ran) == {f"say {n}" for n in range(ROUNDS)} | {
        f"{s} {n + 1}" for s in ("left", "right") for n in range(ROUNDS)
    }
    assert sum(count - 1 for count in ran.values()) <= 3 * (starts - 1)
    furthest = -1
    for line in lines:
        if line.startswith("say"):
            number = int(line.split()[1])
            assert furthest - number < 2, "a finished superstep was run again"
            furthest = max(furthest, number)


def _postgres(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database")))


def _started(url: str, folder: Path, durability: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.crash.langgraph_worker", url, str(folder), durability]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def _wait_for_lines(log: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while len(log.read_text().splitlines()) < count and process.poll() is None:
        assert time.monotonic() < end, "the worker does not get on"
        time.sleep(0.002)
