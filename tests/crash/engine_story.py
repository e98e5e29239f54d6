"""Story: one run that is killed and taken up again until it completes, and what must be found then."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import wtb
from tests.crash import engine_worker
from tests.crash.engine_process import EngineProcess, Point
from tests.crash.engine_worker import ROUNDS
from wtb.domain.execution import ExecutionStatus

NODES = ("collect", "left", "right", "join")
PATH = [
    [(node, visit) for node in nodes]
    for visit in range(1, ROUNDS + 1)
    for nodes in (["collect"], ["left", "right"], ["join"])
]
IN_DOUBT = {
    "after commit of _write plain intended",
    "before effect of plain",
    "after effect of plain",
    "before commit of _write plain succeeded",
}
"""Where nobody can know whether the call that cannot be asked about was made."""


@dataclass
class Story:
    """One run, killed and taken up again until it completes."""

    engine: EngineProcess
    run: str
    killed: list[Point | None] = field(default_factory=list)
    questions: int = 0
    in_doubt: bool = False

    def go_on(self, **how: Any) -> dict[str, Any] | None:
        said = self.engine.go_on(self.run, **how)
        if said is None:
            point = how.get("die_at")
            self.killed.append(point)
            self.in_doubt = self.in_doubt or point is None or point[0] in IN_DOUBT
        else:
            assert said["error"] is None, f"{self}: {said['error']}"
        return said

    def tell(self, *points: Point) -> None:
        """Kill it at these points, one after the other, then go on until the end; answer truthfully what is asked."""
        answer, ahead = None, list(points)
        for _ in range(len(points) + 5):
            said = self.go_on(answer=answer, die_at=ahead[0] if ahead else None)
            answer = None
            if said is None:
                ahead = ahead[1:]
            elif said["status"] == "completed":
                return
            else:
                assert said["waiting"]["reason"] == "in doubt", said["waiting"]
                assert self.in_doubt, f"asked about a call whose fate is known: {said['waiting']}"
                self.questions += 1
                answer = self.truth(said["waiting"]["question"])
        raise AssertionError(f"{self} does not come to an end")

    def truth(self, question: str) -> str:
        text = re.search(r"'text': '([^']+)'", question)
        assert text is not None, question
        return "done" if text[1] in self.lines("plain") else "again"

    def lines(self, name: str) -> list[str]:
        path = self.engine.effects(self.run) / name
        return path.read_text().splitlines() if path.exists() else []

    def check(self, bench: wtb.Bench) -> None:
        """Everything is there exactly once, and exactly as it is without kills."""
        run = bench.get(self.run)
        assert run.status is ExecutionStatus.COMPLETED
        assert supersteps(run) == PATH
        self.check_effects(run.state)
        self.check_trace()
        self.check_record(bench, run)
        commit = run.checkpoints[-1].file_commit
        export = self.engine.home / f"files of {self.run}"
        bench.services.workspaces.export(commit, export)  # type: ignore[arg-type]
        assert {path.name: path.read_bytes() for path in export.iterdir()} == self.files()

    def check_effects(self, state: dict[str, Any]) -> None:
        """What a step gave is what every later call was given, and each call had its effect once."""
        for node in NODES:
            assert [text.rpartition("-")[0] or text for text in state[node]] == [
                f"{node}-{visit}" if node != "join" else "join" for visit in range(1, ROUNDS + 1)
            ]
        sent = sorted([*state["collect"], *state["left"], *state["right"]])
        assert sorted(self.lines("confirmed")) == sent
        assert sorted(line.split()[1] for line in self.lines("keyed")) == sent
        assert self.lines("plain") == state["collect"]
        booked = self.lines("reserved")
        assert {line[1:] for line in booked} == set(sent)
        for text in sent:
            assert [line[0] for line in booked if line[1:] == text] == ["+", *"-+" * booked.count(f"-{text}")]

    def check_trace(self) -> None:
        """A node whose result was kept is never begun again, and joins see what the members made."""
        began: set[str] = set()
        kept: set[str] = set()
        for line in self.lines("trace"):
            verb, _, what = line.partition(" ")
            assert verb != "began" or what not in kept, f"{what} was run again"
            began |= {what} if verb == "began" else set()
            kept |= {what} if verb == "kept" else set()
            if verb == "found":
                collected = {name for name in what.split() if name.startswith("collect-")}
                # A kill between the commit and the line that tells of it leaves a result that is kept untold.
                assert {name for name in kept if name.startswith("collect-")} <= collected <= began
                assert sorted({*what.split()} - collected) == ["left", "log", "noted", "right"]

    def files(self) -> dict[str, bytes]:
        def visits(node: str) -> list[str]:
            return [f"{node}-{visit}" for visit in range(1, ROUNDS + 1)]

        names = {"log": "collect", "noted": "collect", "left": "left", "right": "right"}
        written = {name: "".join(f"{visit}\n" for visit in visits(node)).encode() for name, node in names.items()}
        engine_worker.effects = self.engine.effects(self.run)
        return written | {visit: engine_worker.large(visit) for visit in visits("collect")}

    def check_record(self, bench: wtb.Bench, run: wtb.Run) -> None:
        """The line of checkpoints is whole and chained, every one can be loaded, and no event is missing."""
        line = run.history.lineage()
        assert [checkpoint.step for checkpoint in line] == list(range(len(line)))
        assert all(after.parent_hash == before.hash for before, after in pairwise(line))
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            assert [uow.checkpoints.load(each.id).checkpoint.hash for each in line] == [each.hash for each in line]
            calls = uow.tool_calls.list_calls(run.id)
        assert {call.status for call in calls} == {"succeeded"}
        events = run.events(limit=10_000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))


def supersteps(run: wtb.Run) -> list[list[tuple[str, int]]]:
    """Return the visits of each superstep, whichever of its members began first."""
    groups = groupby(run.history.boundaries(), key=lambda boundary: boundary.last_id)
    return [sorted((boundary.node, boundary.visit) for boundary in group) for _, group in groups]


def points_of(engine: EngineProcess, rng: random.Random) -> tuple[list[str], dict[str, int]]:
    """Run once without a kill; return the names of all points in some order, and how often each was passed."""
    said = engine.go_on("counted")
    assert said is not None
    assert said["status"] == "completed", said
    names = sorted(said["passed"])
    rng.shuffle(names)
    return names, said["passed"]


def kill_at_points(engine: EngineProcess, count: int, rng: random.Random) -> None:
    """Kill so many runs at points that have a name, every second one once more while it recovers."""
    names, passed = points_of(engine, rng)
    assert len(names) > 60
    offset = 0 if engine.url is None else count  # the two databases meet different names first
    stories = [Story(engine, f"run-{number}") for number in range(count)]
    for number, story in enumerate(stories):
        first, again = names[(offset + number) % len(names)], rng.choice(names)
        points = [(first, rng.randint(1, passed[first])), (again, rng.randint(1, max(1, passed[again] // 2)))]
        story.tell(*points[: 1 + number % 2])
        if number % 2 == 0:
            assert story.questions == (first in IN_DOUBT), f"{story}: asked {story.questions} times"
    check(stories)
    assert sum(len(story.killed) for story in stories) >= count


def kill_while_recovering(engine: EngineProcess, recoveries: Sequence[tuple[str, ...]]) -> None:
    """Kill each run at these points, one after the other."""
    stories = [Story(engine, f"run-{number}") for number in range(len(recoveries))]
    for story, points in zip(stories, recoveries, strict=True):
        story.tell(*((name, 1) for name in points))
        assert story.killed == [(name, 1) for name in points]
    check(stories)


def kill_at_random(engine: EngineProcess, count: int) -> None:
    """Kill so many runs at any moment, every second one twice; those that were quicker than that come on top."""
    rng = random.Random("moments")
    said = engine.go_on("counted")
    assert said is not None
    longest_s, stories = said["seconds"], list[Story]()
    while sum(bool(story.killed) for story in stories) < count:
        story = Story(engine, f"run-{len(stories)}")
        for _ in range(1 + len(stories) % 2):
            if story.go_on(kill_after_s=rng.uniform(0, longest_s)) is not None:
                longest_s *= 0.8
        story.tell()
        stories.append(story)
    check(stories)


def check(stories: list[Story]) -> None:
    with stories[0].engine.bench() as bench:
        for story in stories:
            story.check(bench)
