"""kill -9 anywhere in a rollback, a redo, a fork or a deletion: what is found is before, after, or can be finished."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.engine_process import EngineProcess, prepared_database
from tests.crash.rollback_story import Points, Story
from tests.workspaces import described

SOAK = bool(os.environ.get("WTB_SOAK"))
ROUNDS = 50 if SOAK else 2
"""On each of the two databases; a round is at least ten kills."""


@pytest.fixture(params=["sqlite", "postgres"])
def travel(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[EngineProcess]:
    with EngineProcess(tmp_path, prepared_database(request, tmp_path, sqlite_template), "rollback_worker") as process:
        yield process


def test_a_rollback_killed_anywhere_is_before_after_or_can_be_finished(travel: EngineProcess) -> None:
    seed = "sqlite" if travel.url is None else "postgres"
    points, rng = Points.counted(travel, seed), random.Random(seed)
    kills = 0
    for number in range(ROUNDS):
        story = Story.begun(travel, f"run-{number}")
        for again in range(4):  # back and forth
            target = rng.choice(sorted(story.copies.keys() - {story.end}))
            deaths = 1 + again % 2
            story.done("rollback", *map(points.next, ["rollback", "finish"][:deaths]), target=target)
            story.check(target)
            story.done("redo", *map(points.next, ["redo", "finish"][:deaths]))
            story.check(story.end)
        fork_and_delete(story, points, rng.choice(["a", "left", "b"]))
        give_up(story, points)
        delete(story, points)
        kills += story.kills
    assert kills >= 10 * ROUNDS, f"{kills} kills"


def fork_and_delete(story: Story, points: Points, target: str) -> None:
    """A fork is there with its other state, or not at all; a checkpoint that is deleted leaves the others whole."""
    story.do("fork", points.next("fork"), target=target)
    with story.travel.bench() as bench:
        forks = [run for run in bench.list_runs() if run.id == f"fork-of-{story.run}"]
        assert all(fork.state["forked"] for fork in forks)
    assert story.do("fork", target=target) is not None
    story.do("delete_checkpoint", points.next("delete_checkpoint"))
    assert story.do("delete_checkpoint") is not None
    with story.travel.bench() as bench:
        fork = bench.get(f"fork-of-{story.run}")
        at = bench.get(story.run).history.resolve(target) if target != "left" else None
        assert at is None or fork.state == {**story.copies[at.id].state, "forked": True}
        fork.delete()
    story.check(story.end)


def give_up(story: Story, points: Points) -> None:
    """What was taken back stays so; state and files are as before."""
    story.do("rollback", ("before effect of world", 3), target=min(story.copies))
    assert story.finish(points.next("finish"), gives_up=True) == "paused"
    with story.travel.bench() as bench:
        run, copy = bench.get(story.run), story.copies[story.end]
        assert (run.state, described(run.workspace)) == (copy.state, copy.files)
        assert story.effects() < copy.effects
        story.check_record(bench)
    story.done("rollback", points.next("rollback"), target=min(story.copies))
    story.check(min(story.copies))


def delete(story: Story, points: Points) -> None:
    """A run whose deletion was killed is there, or it is not; then it is deleted."""
    story.do("delete_run", points.next("delete_run"))
    with story.travel.bench() as bench:
        is_there = any(run.id == story.run for run in bench.list_runs())
    if is_there:
        story.check(min(story.copies))
    said = story.do("delete_run")
    assert said is not None
    assert said["status"] == "gone"
