"""kill -9 anywhere in a run of a graph: nothing is lost, and no effect is repeated."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.test_engine_kills import IN_DOUBT, EngineProcess, Story, check, points_of
from tests.services import PostgresServer

SOAK = bool(os.environ.get("WTB_SOAK"))
AT_POINTS = 200 if SOAK else 10
AT_RANDOM = 60 if SOAK else 3
"""Runs on each of the two databases; every second one is killed once more while it recovers."""

RECOVERIES = (
    ("before effect of plain", "before commit of answer", "after commit of answer"),
    ("after effect of reserved", "before effect of reserved", "after effect of reserved"),
    ("after effect of confirmed", "before commit of _write confirmed succeeded", "after effect of keyed"),
    ("after effect of noted", "before effect of noted", "after commit of _write noted succeeded"),
    ("after commit of keep_pending", "after commit of begin", "before commit of step", "after commit of step"),
)
"""Points one after the other: the first while the run is begun, the others while it recovers from that."""


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[EngineProcess]:
    url = None
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(request.getfixturevalue("migrated_database"))
    else:
        (tmp_path / "wtb").mkdir(mode=0o700)
        shutil.copyfile(sqlite_template, tmp_path / "wtb" / "wtb.db")
    with EngineProcess(tmp_path, url, "graph_worker") as process:
        yield process


def test_a_graph_killed_at_named_points_loses_nothing_and_repeats_nothing(engine: EngineProcess) -> None:
    rng = random.Random("graphs")
    names, passed = points_of(engine, rng)
    assert len(names) > 60
    offset = 0 if engine.url is None else AT_POINTS  # the two databases meet different names first
    stories = [Story(engine, f"run-{number}") for number in range(AT_POINTS)]
    for number, story in enumerate(stories):
        first, again = names[(offset + number) % len(names)], rng.choice(names)
        points = [(first, rng.randint(1, passed[first])), (again, rng.randint(1, max(1, passed[again] // 2)))]
        story.tell(*points[: 1 + number % 2])
        if number % 2 == 0:
            assert story.questions == (first in IN_DOUBT), f"{story}: asked {story.questions} times"
    check(stories)
    assert sum(len(story.killed) for story in stories) >= AT_POINTS


@pytest.mark.parametrize("engine", ["sqlite", "postgres"] if SOAK else ["sqlite"], indirect=True)
def test_a_graph_killed_while_it_recovers_loses_nothing_and_repeats_nothing(engine: EngineProcess) -> None:
    stories = [Story(engine, f"run-{number}") for number in range(len(RECOVERIES))]
    for story, points in zip(stories, RECOVERIES, strict=True):
        story.tell(*((name, 1) for name in points))
        assert story.killed == [(name, 1) for name in points]
    check(stories)


def test_a_graph_killed_at_random_loses_nothing_and_repeats_nothing(engine: EngineProcess) -> None:
    rng = random.Random("moments")
    said = engine.go_on("counted")
    assert said is not None
    stories = [Story(engine, f"run-{number}") for number in range(AT_RANDOM)]
    for number, story in enumerate(stories):
        for _ in range(1 + number % 2):
            story.go_on(kill_after_s=rng.uniform(0.02, said["seconds"]))
        story.tell()
    check(stories)
    assert sum(len(story.killed) for story in stories) >= AT_RANDOM // 2
