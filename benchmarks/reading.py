"""Reading: what it takes to look at a run of 100,000 checkpoints and at one of a million events.

Each command runs as a process of its own, as a person types it. The bars hold for its processor time, start included,
and for its peak memory above that of `wtb --help`. SQLite, NORMAL. Set WTB_READING_STORE to keep the store in a folder
and use it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Figure, measure
from wtb.bench import Bench
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeRun, Trigger
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.figures import Figures, Usage
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.ports import UnitOfWork
from wtb.domain.state import StateDelta

CHECKPOINTS = 100_000
EVENTS = 1_000_000
AT_ONCE = 1_000
"""Steps in one transaction while the store is made."""
TURNS = 3
BAR_S, BAR_MB = 1.0, 100.0
WORKFLOW: dict[str, Any] = {"name": "flow", "version": "1", "nodes": [], "edges": [], "reducers": {}}

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "long"),
    ("show", "long", "--json"),
    ("show", "long", "--at", "50000"),
    ("history", "long"),
    ("history", "long", "--before", "50000"),
    ("show", "busy", "--events", "--limit", "20"),
    ("show", "busy", "--events", "--before", "500000", "--limit", "20"),
    ("show", "busy", "--errors", "--limit", "20"),
)


class Maker:
    """Fills a store through its repositories, many steps in one transaction."""

    def __init__(self, bench: Bench) -> None:
        self._storage, self._new, self._now = bench.services.storage, bench.services.ids.new, bench.services.clock.now

    def make_run(self, run_id: str, checkpoints: int) -> None:
        """Make a run that has completed so many steps, each of which used tokens."""
        now, branch_id = self._now(), BranchId(self._new())
        with self._storage.unit_of_work() as uow:
            workflow_id = uow.workflows.save(WORKFLOW)
            execution = Execution(
                id=ExecutionId(run_id),
                workflow_id=workflow_id,
                workflow_name="flow",
                branch_id=branch_id,
                created_at=now,
                updated_at=now,
                status=ExecutionStatus.COMPLETED,
            )
            uow.executions.add(execution)
            uow.branches.add(Branch(id=branch_id, execution_id=execution.id, name="main", head_id=None, created_at=now))
            head = uow.checkpoints.save(self._draft(execution, None), StateDelta.setting({"n": 0}))
            uow.branches.move_head(branch_id, head.id, expected=None)
            uow.events.append(Event(type=EventType.EXECUTION_STARTED, stream=execution.id, at=now))
            uow.commit()
        while head.step < checkpoints:
            with self._storage.unit_of_work() as uow:
                begin = head.id
                for _ in range(min(AT_ONCE, checkpoints - head.step)):
                    head = self._step(uow, execution, head)
                uow.branches.move_head(branch_id, head.id, expected=begin)
                uow.commit()
        with self._storage.unit_of_work() as uow:
            uow.events.append(Event(type=EventType.EXECUTION_COMPLETED, stream=execution.id, at=self._now()))
            uow.commit()

    def _step(self, uow: UnitOfWork, execution: Execution, head: Checkpoint) -> Checkpoint:
        run = NodeRun(
            id=NodeRunId(self._new()),
            execution_id=execution.id,
            branch_id=execution.branch_id,
            node="work",
            visit=head.step + 1,
            input_id=head.id,
            started_at=self._now(),
        )
        made = uow.checkpoints.save(self._draft(execution, head, run), StateDelta.setting({"n": head.step + 1}))
        used = Usage(input_tokens=100, output_tokens=10, cost_usd=0.001, models=("model",))
        uow.node_runs.save(run.completed(made.id, made.created_at).measured(Figures(ms=1.5, usage=used, spent=used)))
        data = {"node": "work", "visit": run.visit, "checkpoint": made.id, "ms": 1.5, "usage": used.to_data()}
        uow.events.append(Event(type=EventType.NODE_COMPLETED, stream=execution.id, at=self._now(), data=data))
        return made

    def _draft(self, execution: Execution, parent: Checkpoint | None, run: NodeRun | None = None) -> CheckpointDraft:
        return CheckpointDraft(
            id=CheckpointId(self._new()),
            execution_id=execution.id,
            branch_id=execution.branch_id,
            parent_id=None if parent is None else parent.id,
            step=0 if parent is None else parent.step + 1,
            node=None if run is None else run.node,
            visit=None if run is None else run.visit,
            node_run_id=None if run is None else run.id,
            trigger=Trigger.START if run is None else Trigger.NODE_END,
            next_nodes=("work",),
            created_at=self._now(),
        )

    def add_events(self, run_id: str, count: int) -> None:
        """Record so many calls of a tool, of which one in a thousand failed."""
        for begin in range(0, count, AT_ONCE):
            with self._storage.unit_of_work() as uow:
                for number in range(begin, min(begin + AT_ONCE, count)):
                    kind = EventType.TOOL_FAILED if number % 1_000 == 500 else EventType.TOOL_COMPLETED
                    data = {"node": "work", "visit": 1, "tool": "search", "call": f"search#{number}", "ms": 0.5}
                    uow.events.append(Event(type=kind, stream=run_id, at=self._now(), data=data))
                uow.commit()


@contextmanager
def made_store() -> Iterator[dict[str, str]]:
    """Give the environment in which `wtb` finds the store."""
    kept = os.environ.get("WTB_READING_STORE")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(kept or temporary) / ".wtb"
        if not folder.exists():  # in another process: what this one has used would be counted for those that it starts
            subprocess.run([sys.executable, "-m", "benchmarks.reading", str(folder)], check=True)
        yield {**os.environ, "WTB_FOLDER": str(folder)}


def make_store(folder: Path) -> None:
    """Make a store with a run of many checkpoints and one of many events."""
    with Bench(folder=folder) as bench:
        maker = Maker(bench)
        maker.make_run("long", CHECKPOINTS)
        maker.make_run("busy", 10)
        maker.add_events("busy", EVENTS)


def run_once(arguments: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds of the processor that a command took, and its peak memory in MB."""
    process = subprocess.Popen([sys.executable, "-m", "wtb", *arguments], env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"wtb {' '.join(arguments)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def run_often(arguments: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the median of the seconds and of the MB."""
    taken = [run_once(arguments, environment) for _ in range(TURNS)]
    return median(seconds for seconds, _ in taken), median(mb for _, mb in taken)


def commands() -> list[Figure]:
    """Measure every command on one store."""
    with made_store() as environment:
        base_s, base_mb = run_often(["--help"], environment)
        figures = [Figure(name="wtb --help", value=base_s, unit="s", detail=f"{base_mb:.0f} MB")]
        for command in COMMANDS:
            seconds, mb = run_often(command, environment)
            name = f"wtb {' '.join(command)}"
            figures.append(Figure(name=name, value=seconds, unit="s", bar=BAR_S))
            above = f"{mb:.0f} MB in all"
            figures.append(Figure(name=f"{name}: memory", value=mb - base_mb, unit="MB", bar=BAR_MB, detail=above))
    return figures


if __name__ == "__main__" and sys.argv[1:]:
    make_store(Path(sys.argv[1]))
elif __name__ == "__main__":
    measure("Reading", Path("build/benchmarks/reading.json"), [("reading", commands)])
