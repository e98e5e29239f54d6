"""kill -9 anywhere in a batch, and the same again: the results are those of a batch that nobody killed.

No node run is executed twice, except those that were in flight: begun, and their results not yet kept.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.crash.batch_worker import CASES, ROUNDS, WORKERS
from tests.crash.engine_process import EngineProcess, prepared_database

SOAK = bool(os.environ.get("WTB_SOAK"))
KILLS = 40 if SOAK else 3
"""At least so many in each test on each database; every story is told to its end."""
AT_WORK = 0.8
"""How many of the kills come when a node has begun; the others come at any time, while a batch is planned too."""
MEMBERS = 2
"""Nodes that run at the same time in one job."""
JOBS = CASES * 8
FAILING = 2
SHARED = CASES * (2 + 2 * ROUNDS + 2 + 2 * 2 + 8)
"""Distinct runs of nodes that may be shared: prepare, refine, right, left, answer."""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> tuple[Path, str | None]:
    """A folder, and the url of a database for those who do not keep it there."""
    return tmp_path, prepared_database(request, tmp_path, sqlite_template)


@pytest.fixture
def engines(place: tuple[Path, str | None]) -> Iterator[list[EngineProcess]]:
    """Two processes that fork workers over one database."""
    with EngineProcess(*place, "batch_worker") as one, EngineProcess(*place, "batch_worker") as other:
        yield [one, other]


@dataclass
class Story:
    """One batch, killed and gone on with until it is done."""

    engines: list[EngineProcess]
    name: str
    kills: int = 0
    goes: int = 0

    def go_on(self, longest_s: float) -> bool:
        """Run the batch in every process, each killed after a moment; return whether it has come to its end.

        It has not when one process ended it and another was killed as it ran the failed jobs anew.
        """
        for engine in self.engines:
            moment_s = random.uniform(0, longest_s)
            engine.send(self.name, kill_after_s=moment_s, at_work=random.random() < AT_WORK)
            self.goes += 1
        ended = False
        for engine in self.engines:
            said = engine.receive()
            self.kills += said is None
            if said is not None:
                assert said["error"] is None, said["error"]
                assert said["status"] in ("completed_with_errors", "running"), "or another process goes on with it"
                ended = ended or said["status"] == "completed_with_errors"
        if not ended:
            return False
        with self.engines[0].bench() as bench:
            return bench.get_batch(self.name).status == "completed_with_errors"

    def tell(self, longest_s: float) -> None:
        """Kill it until it is done."""
        for _ in range(100):
            if self.go_on(longest_s):
                return
        raise AssertionError(f"{self} does not come to an end")

    def check(self) -> None:
        """What was kept is never made again, and nothing else than what was in flight."""
        begun, kept = self.begun()
        failing = {key for key in begun if key.endswith(">short") and "-1:" in key and "quick" in key}
        sent = {key for key in begun if key.endswith("/send")}
        in_flight = self.kills * WORKERS * MEMBERS
        assert len(begun.keys() - kept - failing) <= in_flight, "killed before it could say what was kept"
        for key in failing:
            assert len(begun[key]) == len(set(begun[key])), f"{key} failed, and was tried again by the same process"
        assert (len(failing), len(begun) - len(sent)) == (FAILING, SHARED)
        assert 0 <= len(sent) - JOBS <= FAILING * (self.goes - 1), "a job that failed is run anew when somebody goes on"
        assert sum(len(begun[key]) - 1 for key in begun.keys() - failing) <= in_flight

    def begun(self) -> tuple[dict[str, list[str]], set[str]]:
        """Return the processes that began each node run, and what was kept; nothing is begun that was kept before."""
        begun: dict[str, list[str]] = defaultdict(list)
        places: dict[str, str] = {}
        kept: set[str] = set()
        for line in self.engines[0].effects(self.name).joinpath("log").read_text().splitlines():
            verb, *words = line.split()
            if verb == "began":
                process, where, key = words
                assert key not in kept, f"{key} was run again"
                begun[key].append(process)
                places[where] = key
            elif words[0] in places:  # else a result that was taken
                kept.add(places[words[0]])
        return begun, kept

    def results(self, bench: wtb.Bench) -> dict[Any, Any]:
        """Return what came of it, without names and times."""
        result = bench.get_batch(self.name)
        assert result.status == "completed_with_errors"
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            counted = [(job.record.executed or 0) + job.record.shared for job in uow.batches.list_jobs(result.id)]
        assert sum(counted) == total_runs(), "whichever process made them"
        return {
            "matrix": [
                (row.combination, *((each.mean, each.errors, each.missing) for each in row.summaries.values()))
                for row in result.matrix
            ],
            "jobs": {
                (each.combination, each.case_id.removeprefix(self.name), each.repeat): (
                    each.status,
                    each.scores,
                    None if each.error is None else each.error["message"],
                    {key: str(value).replace(self.name, "") for key, value in each.state.items() if key != "random"},
                    [(step.node, step.visit) for step in each.run.history.lineage()],
                )
                for each in result.results
            },
        }


def total_runs() -> int:
    """Return how many node runs all jobs have in all, each for itself."""
    return JOBS * (1 + ROUNDS + 1 + 2 + 1 + 1)


def check(stories: list[Story], straight: Story) -> None:
    for story in stories:
        story.check()
    with straight.engines[0].bench() as bench:
        expected = straight.results(bench)
        for story in stories:
            assert story.results(bench) == expected
        assert {run.status for run in bench.list_runs(limit=100_000)} == {"completed", "failed"}


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_batch_killed_at_random_ends_as_if_nobody_had_and_repeats_only_what_was_in_flight(
    engines: list[EngineProcess], at_once: int
) -> None:
    straight = Story(engines[:1], "straight", goes=1)
    engines[0].send("straight", kill_after_s=None)
    said = engines[0].receive()
    assert said is not None
    assert said["error"] is None, said["error"]
    straight.check()
    stories: list[Story] = []
    for number in count():
        stories.append(Story(engines[:at_once], f"batch{number}"))
        stories[-1].tell(said["seconds"] / 2)
        if sum(story.kills for story in stories) >= KILLS:
            break
    check(stories, straight)
