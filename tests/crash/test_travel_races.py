"""Several processes take one run back, forward and apart at the same time: one is first, the others are told so."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.crash.engine_process import EngineProcess, prepared_database
from tests.crash.rollback_story import Story, real_state
from wtb.domain.errors import CheckpointNotFound, Conflict, InvalidInput, InvalidTransition

SOAK = bool(os.environ.get("WTB_SOAK"))
ROUNDS = 200 if SOAK else 12
DEEDS = ("rollback", "rollback", "redo", "fork", "name", "delete", "resume")
REFUSALS = (Conflict, InvalidTransition, InvalidInput, CheckpointNotFound)
"""What a process is told that was not first: somebody else is at it, or what it wanted is no more as it was."""


@pytest.fixture(params=["sqlite", "postgres"])
def processes(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[list[EngineProcess]]:
    url = prepared_database(request, tmp_path, sqlite_template)
    with ExitStack() as stack:
        yield [stack.enter_context(EngineProcess(tmp_path, url, "rollback_worker")) for _ in range(3)]


def test_whoever_is_not_first_is_told_so_and_nothing_is_half_done(processes: list[EngineProcess]) -> None:
    rng, names = random.Random("races"), (f"name-{number}" for number in itertools.count())
    story = Story.begun(processes[0], "raced")
    outcomes: Counter[str] = Counter()
    for _ in range(ROUNDS):
        for process in processes:
            deed, target = rng.choice(DEEDS), rng.choice(["a", "left", "b", "0"])
            job = {"verb": "race", "deed": deed, "target": target, "name": next(names)}
            process.send(story.run, **job, die_at=None, kill_after_s=None)
        said = [process.receive() for process in processes]
        outcomes += Counter(outcome(each) for each in said)
        check(story)
    assert outcomes.keys() <= {"done", *(kind.__name__ for kind in REFUSALS)}, outcomes
    assert outcomes["done"] >= ROUNDS // 2, outcomes  # in a round all may be refused, the more so the more cores
    assert outcomes.total() > outcomes["done"], "nobody was in anybody's way"


def outcome(said: dict[str, Any] | None) -> str:
    """Return what became of a deed: done, or the error that says why not."""
    assert said is not None
    if said["error"] is None:
        return "done"
    last = said["error"].strip().splitlines()[-1]
    kind, _, message = last.partition(": ")
    assert message, said["error"]
    return str(kind.rpartition(".")[2]) if kind.rpartition(".")[2] in {each.__name__ for each in REFUSALS} else last


def check(story: Story) -> None:
    """The run stands somewhere whole: calls are in effect that its record says, files are those of its head."""
    with story.travel.bench() as bench:
        run = bench.get(story.run)
        assert run.status in ("paused", "completed"), run
        latest = run.history.latest()
        assert latest is not None
        assert run.state == real_state(bench, latest.id)
        story.check_record(bench)
        for fork in bench.list_runs(prefix="name-"):
            assert fork.status == "pending"
