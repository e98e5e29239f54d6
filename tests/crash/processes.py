"""Writers as a test sees them: started, listened to and killed; and what must be found afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.crash.writer import delta_at, input_of_run
from wtb.bootstrap import bootstrap
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import UnitOfWork
from wtb.domain.state import State
from wtb.settings import Settings

ROOT = Path(__file__).parents[2]

Fact = dict[str, Any]
"""What a writer said of one checkpoint: id, step, state_hash, hash."""


class WriterProcess:
    """The process of `writer.py`: one job after the other, each in a fork that can be killed."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "crash" / "writer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
        self._pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid:
            self.kill()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._errors.close()

    def start(
        self,
        settings: Mapping[str, Any],
        run: str,
        *,
        steps: int = 100_000,
        paced: bool = False,
        only_open: bool = False,
        dies_at: int = 0,
    ) -> None:
        """Fork a writer and return when it runs."""
        job = {"settings": settings, "run": run, "steps": steps, "paced": paced, "only_open": only_open}
        self.send(json.dumps({**job, "dies_at": dies_at}))
        verb, pid = self.read()
        assert verb == "started", pid
        self._pid = int(pid)

    def send(self, line: str = "") -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def read(self) -> tuple[str, str]:
        """The next line, as its first word and the rest."""
        assert self._process.stdout
        verb, _, rest = self._process.stdout.readline().decode().rstrip("\n").partition(" ")
        if not verb:
            raise AssertionError(f"the process of the writers ended:\n{Path(self._errors.name).read_text()[-4_000:]}")
        return verb, rest

    def acknowledged(self) -> Fact:
        """Wait for the next checkpoint that is committed."""
        return self.fact(*self.read())

    def fact(self, verb: str, rest: str) -> Fact:
        """What a line acknowledges."""
        assert verb == "acknowledged", json.loads(rest) if verb == "failed" else f"{verb} {rest}"
        facts: Fact = json.loads(rest)
        return facts

    def kill(self) -> list[Fact]:
        """Kill the writer with SIGKILL and return what it had acknowledged until then."""
        os.kill(self._pid, signal.SIGKILL)
        return self.finish()

    def finish(self) -> list[Fact]:
        """Wait for the end of the writer and return what it acknowledged."""
        found: list[Fact] = []
        while (line := self.read())[0] != "ended":
            if line[0] != "unavailable":
                found.append(self.fact(*line))
        self._pid = 0
        return found


@dataclass
class Witness:
    """Everything that writers acknowledged of one run, and what each step of it must hold."""

    settings: Mapping[str, Any]
    run: str
    seen: dict[int, Fact] = field(default_factory=dict)
    states: list[State] = field(default_factory=lambda: [State(input_of_run())])

    def hear(self, *facts: Fact) -> None:
        for fact in facts:
            assert self.seen.setdefault(fact["step"], fact) == fact, "a step was acknowledged twice, as two checkpoints"

    @property
    def last(self) -> int:
        """The newest step that was acknowledged."""
        return max(self.seen, default=-1)

    def state(self, step: int) -> State:
        while len(self.states) <= step:
            self.states.append(self.states[-1].apply(delta_at(len(self.states), self.states[-1])))
        return self.states[step]

    def check(self, since: int = 0) -> int:
        """Open the database as the next process would, and check everything; load states from a step on.

        Returns the step of the head.
        """
        with bootstrap(Settings(**self.settings)) as services, services.storage.unit_of_work(readonly=True) as uow:
            history = uow.checkpoints.load_history(ExecutionId(self.run))
            line = history.lineage()
            self._check_line(line)
            self._check_projections(uow, history, line)
            for step in (*range(since, len(line)), *random.sample(range(len(line)), min(3, len(line)))):
                snapshot = uow.checkpoints.load(line[step].id)
                # Not compared in the assertion, which would show megabytes.
                is_right = dict(snapshot.state) == dict(self.state(step))
                assert is_right, f"checkpoint {line[step].id} of step {step} has another state"
                assert snapshot.returned == ({"node": {"last": step}} if step else {})
        return len(line) - 1

    def _check_line(self, line: tuple[Checkpoint, ...]) -> None:
        assert [checkpoint.step for checkpoint in line] == list(range(len(line)))
        assert [checkpoint.parent_hash for checkpoint in line] == [b"", *(each.hash for each in line[:-1])]
        assert line[-1].step >= self.last
        for step, fact in self.seen.items():
            found = line[step]
            assert (found.id, found.state_hash.hex(), found.hash.hex()) == (
                fact["id"],
                fact["state_hash"],
                fact["hash"],
            )

    def _check_projections(self, uow: UnitOfWork, history: ExecutionHistory, line: tuple[Checkpoint, ...]) -> None:
        """A step is there with its boundary, its event and the version of its run, or nothing of it is."""
        ids = [checkpoint.id for checkpoint in line]
        run = ExecutionId(self.run)
        assert [info.id for info in uow.checkpoints.list_infos(run)] == ids
        assert uow.node_runs.list_boundaries(run) == history.boundaries()
        assert [boundary.last_id for boundary in history.boundaries()] == ids[1:]
        events = uow.events.list_events(stream=run, limit=1_000_000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        steps = [event for event in events if event.type is EventType.NODE_COMPLETED]
        assert [CheckpointId(event.data["checkpoint"]) for event in steps] == ids[1:]
        execution = uow.executions.get(run)
        assert execution.version == len(steps) + (execution.status is ExecutionStatus.RUNNING)


def a_moment(longest_s: float) -> None:
    """Let a random moment pass without giving the processor away: the kill then falls anywhere in a step."""
    end = time.perf_counter() + random.uniform(0, longest_s)
    while time.perf_counter() < end:
        pass
