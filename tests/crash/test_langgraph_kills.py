"""kill -9 of a process that runs a LangGraph thread with the saver, again and again: nothing that was done is lost."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.engine_process import EngineProcess, prepared_database
from tests.crash.langgraph_worker import ROUNDS, graph
from wtb.langgraph import Saver

KILLS = 60 if os.environ.get("WTB_SOAK") else 5


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[EngineProcess]:
    url = prepared_database(request, tmp_path, sqlite_template)
    with EngineProcess(tmp_path, url, "langgraph_worker") as process:
        yield process


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_thread_survives_kills_anywhere(engine: EngineProcess, durability: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    job = {"log": str(log), "durability": durability}
    for number in range(KILLS):
        lines = len(log.read_text().splitlines()) + random.Random(number).randint(2, 40)
        engine.send("t", **job, lines=lines, kill_after_s=0)
        said = engine.receive()
        assert said is None or said["error"] is None, said
    engine.send("t", **job, kill_after_s=None)
    assert engine.receive() == {"error": None}

    with engine.bench() as bench:
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
