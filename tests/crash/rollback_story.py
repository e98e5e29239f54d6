"""Story: one run that is taken back and forth and killed doing so; Points: where it can be killed."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import wtb
from tests.crash.engine_process import EngineProcess, Point
from tests.workspaces import Description, described


@dataclass
class Copy:
    """What a run was at one of its checkpoints."""

    state: dict[str, Any]
    files: Description
    effects: set[str]


@dataclass
class Story:
    """One run, taken back and forth and killed."""

    travel: EngineProcess
    run: str
    copies: dict[str, Copy] = field(default_factory=dict)
    end: str = ""
    kills: int = 0

    @classmethod
    def begun(cls, travel: EngineProcess, run: str) -> Story:
        """Run to the end, and keep a full copy of every checkpoint."""
        story = cls(travel, run)
        story.do("begin")
        with travel.bench() as bench:
            real = bench.get(run)
            story.end = real.history.lineage()[-1].id
            with bench.services.storage.unit_of_work(readonly=True) as uow:
                calls = uow.tool_calls.list_calls(real.id)
            for checkpoint in real.history.lineage():
                if checkpoint.trigger in ("node_end", "tool_end"):
                    texts = {c.arguments["text"] for c in calls if c.ended_at and c.ended_at <= checkpoint.created_at}
                    story.copies[checkpoint.id] = Copy(real_state(bench, checkpoint.id), {}, texts)
                    folder = travel.home / f"copy {run} {checkpoint.id}"
                    if real.files(checkpoint.id):
                        real.export(folder, checkpoint.id)
                        story.copies[checkpoint.id].files = described(folder)
        assert story.copies[story.end].effects == story.effects() == {call.arguments["text"] for call in calls}
        return story

    def do(self, verb: str, die_at: Point | None = None, **facts: Any) -> dict[str, Any] | None:
        self.travel.send(self.run, verb=verb, die_at=die_at, kill_after_s=None, **facts)
        said = self.travel.receive()
        self.kills += said is None
        assert said is None or said["error"] is None, said["error"]
        return said

    def finish(self, *deaths: Point, gives_up: bool = False) -> str:
        """Finish what is half done, killed again at these points; return how the run stands."""
        for death in (*deaths, None):
            if (said := self.do("finish", death, gives_up=gives_up)) is not None:
                return str(said["status"])
        raise AssertionError(f"{self} cannot be finished")

    def done(self, verb: str, *deaths: Point, target: str = "") -> None:
        """Do something, killed at the first point; then finish it, killed at the others; then see that it was done."""
        self.do(verb, deaths[0] if deaths else None, target=target)
        self.finish(*deaths[1:])
        assert self.do(verb, target=target) is not None

    def effects(self) -> set[str]:
        """Return what is in effect; nothing is there twice, and nothing was undone that was not there."""
        path = self.travel.effects(self.run) / "world"
        there: Counter[str] = Counter()
        for line in path.read_text().splitlines():
            there[line[1:]] += 1 if line[0] == "+" else -1
            assert there[line[1:]] in (0, 1), f"{line} in {self}"
        return {text for text, times in there.items() if times}

    def check(self, at: str) -> None:
        """State, files and effects are those of a checkpoint, and everything on record is whole."""
        copy = self.copies[at]
        assert self.effects() == copy.effects
        with self.travel.bench() as bench:
            run = bench.get(self.run)
            assert (run.status, run.history.latest().id) == ("paused", at)  # type: ignore[union-attr]
            folder = bench.services.workspaces.path(run.id, run.execution.branch_id)
            lying = described(folder).items()
            # A kill right after the last commit leaves what was staged where no scan looks; a restore clears it.
            assert {path: entry for path, entry in lying if not path.startswith(".wtb")} == copy.files
            assert (run.state, described(run.workspace)) == (copy.state, copy.files)
            self.check_record(bench)

    def check_record(self, bench: wtb.Bench) -> None:
        """Every call is on record as it is, every checkpoint loads, nobody holds the run, no event is missing."""
        run, there = bench.get(self.run), self.effects()
        assert run.execution.lease is None
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            calls = uow.tool_calls.list_calls(run.id)
            for checkpoint in run.history.checkpoints:
                if not checkpoint.deleted:
                    assert uow.checkpoints.load(checkpoint.id).checkpoint.hash == checkpoint.hash
        assert {call.status.value for call in calls} <= {"succeeded", "reversed"}
        assert sorted(call.arguments["text"] for call in calls if call.status == "succeeded") == sorted(there)
        events = run.all_events()
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))


def real_state(bench: wtb.Bench, checkpoint_id: Any) -> dict[str, Any]:
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        return dict(uow.checkpoints.load(checkpoint_id).state)


class Points:
    """Where each verb can be killed, found by doing it once without a kill."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._ahead: dict[str, Iterator[str]] = {}
        self._passed: dict[str, dict[str, int]] = {}

    @classmethod
    def counted(cls, travel: EngineProcess, seed: str) -> Points:
        points, story = cls(seed), Story.begun(travel, "counted")
        for verb in ("rollback", "redo", "fork", "delete_checkpoint"):
            points.note(verb, story.do(verb, target="a"))
        story.do("rollback", ("before effect of world", 2), target="a")
        points.note("finish", story.do("finish", gives_up=False))
        points.note("delete_run", story.do("delete_run"))
        assert len(points._passed["rollback"]) > 20
        return points

    def note(self, verb: str, said: dict[str, Any] | None) -> None:
        """Remember what was passed on the way."""
        assert said is not None
        names = sorted(said["passed"])
        self._rng.shuffle(names)
        self._passed[verb], self._ahead[verb] = said["passed"], itertools.cycle(names)

    def next(self, verb: str) -> Point:
        """Return the next point of a verb, at any of its passings; all names come before one comes again."""
        name = next(self._ahead[verb])
        return name, self._rng.randint(1, self._passed[verb][name])
