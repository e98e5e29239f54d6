"""kill -9 anywhere in a prune, a removal of workspaces or a sweep: all is whole, and doing it again finishes it."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.crash.engine_process import EngineProcess, Point, prepared_database
from tests.crash.rollback_story import Points
from tests.crash.upkeep_worker import SETTINGS
from tests.workspaces import Description, described
from wtb.domain.events import EventType
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import Swept

ROUNDS = 50 if os.environ.get("WTB_SOAK") else 3
"""On each of the two databases; a round is three kills at a point, and three at any time that may come too late."""


@pytest.fixture(params=["sqlite", "postgres"])
def upkeep(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[EngineProcess]:
    with EngineProcess(tmp_path, prepared_database(request, tmp_path, sqlite_template), "upkeep_worker") as process:
        yield process


@dataclass
class Copy:
    """What a checkpoint must give for ever."""

    hash: bytes
    state: dict[str, Any]
    files: Description


@dataclass
class Story:
    """A run and its fork, with full copies of all their checkpoints."""

    upkeep: EngineProcess
    run: str
    copies: dict[CheckpointId, Copy] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)
    kills: int = 0

    @property
    def runs(self) -> tuple[str, str]:
        return self.run, f"fork-of-{self.run}"

    def tell(self) -> None:
        self.do("tell")
        with self.bench() as bench:
            for run in self.runs:
                for checkpoint in bench.get(run).history.checkpoints:
                    self.copies[checkpoint.id] = self.read(bench, run, checkpoint.id)

    def bench(self) -> wtb.Bench:
        return wtb.Bench(self.upkeep.url, folder=self.upkeep.home / "wtb", **SETTINGS)

    def read(self, bench: wtb.Bench, run: str, checkpoint_id: CheckpointId) -> Copy:
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            snapshot = uow.checkpoints.load(checkpoint_id)
        folder = self.upkeep.home / "exported"
        shutil.rmtree(folder, ignore_errors=True)
        if snapshot.checkpoint.file_commit is None:
            return Copy(snapshot.checkpoint.hash, dict(snapshot.state), {})
        bench.get(run).export(folder, checkpoint_id)
        return Copy(snapshot.checkpoint.hash, dict(snapshot.state), described(folder))

    def do(self, verb: str, die_at: Point | None = None, kill_after_s: float | None = None) -> dict[str, Any] | None:
        began = time.perf_counter()
        self.upkeep.send(self.run, verb=verb, die_at=die_at, kill_after_s=kill_after_s)
        said = self.upkeep.receive()
        if said is None:
            self.kills += 1
        else:
            assert said["error"] is None, said["error"]
            self.took_s[verb] = time.perf_counter() - began
        return said

    def done(self, verb: str, point: Point, chance: random.Random) -> None:
        """Do something, killed at a point and then at any time; see that all is well, and do it to the end."""
        self.do(verb, point)
        self.check()
        self.do(verb, kill_after_s=chance.uniform(0, self.took_s[verb]))
        self.check()
        self.do(verb)
        self.check()

    def check(self) -> None:
        """Nothing is wrong; every checkpoint that is left gives what it was made with; the others were told of."""
        with self.bench() as bench:
            assert bench.services.integrity.check().faults == ()
            for run in self.runs:
                checkpoints = bench.get(run).history.checkpoints
                for checkpoint in checkpoints:
                    if not checkpoint.deleted:
                        assert self.read(bench, run, checkpoint.id) == self.copies[checkpoint.id]
                own = [each for each in checkpoints if each.execution_id == run]
                told = [e.data["count"] for e in bench.get(run).all_events() if e.type == EventType.CHECKPOINT_DELETED]
                assert sum(told) == sum(each.deleted for each in own)

    def living(self) -> int:
        with self.bench() as bench:
            return sum(len(bench.get(run).checkpoints) for run in self.runs)

    def expected(self) -> int:
        """Return how many checkpoints a plan would leave."""
        with self.bench() as bench:
            planned = sum(sum(each.counts.values()) for each in bench.services.retention.plan())
        assert planned > 5
        return self.living() - planned

    def check_swept(self) -> None:
        """Nothing is left over, neither in the tables nor in the folder of the objects."""
        with self.bench() as bench:
            assert bench.services.integrity.check().garbage == Swept()
            assert bench.services.retention.count_garbage() == Swept()
        assert list((self.upkeep.home / "wtb" / "objects" / "tmp").iterdir()) == []

    def check_collected(self) -> None:
        """No folder is left, nor a part of one; those of the runs come back with the files of their heads."""
        left = [path for path in (self.upkeep.home / "wtb" / "workspaces").rglob("*") if not path.is_dir()]
        assert [path.name for path in left if path.suffix != ".slot"] == []
        with self.bench() as bench:
            for run in map(bench.get, self.runs):
                head = run.history.latest()
                assert head is not None
                assert described(run.workspace) == self.copies[head.id].files

    def delete(self) -> None:
        with self.bench() as bench:
            for run in reversed(self.runs):
                bench.get(run).delete()


def test_a_prune_a_collection_or_a_sweep_killed_anywhere_leaves_everything_whole_and_is_finished_by_the_next(
    upkeep: EngineProcess,
) -> None:
    seed = "sqlite" if upkeep.url is None else "postgres"
    points, chance, kills = Points(seed), random.Random(seed), 0
    counted = Story(upkeep, "counted")
    for verb in ("tell", "prune", "collect", "sweep"):
        points.note(verb, counted.do(verb))
    counted.delete()
    for number in range(ROUNDS):
        story = Story(upkeep, f"run-{number}", took_s=counted.took_s)
        story.tell()
        expected = story.expected()
        story.done("prune", points.next("prune"), chance)
        assert story.living() == expected
        story.done("collect", points.next("collect"), chance)
        story.check_collected()
        story.done("sweep", points.next("sweep"), chance)
        story.check_swept()
        story.delete()
        kills += story.kills
    assert kills >= 3 * ROUNDS, f"{kills} kills"
