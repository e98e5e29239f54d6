"""The engine: a trivial step against one insert, DBOS and Burr; its share without a store; a long loop; a large graph.

A step is measured from one call of the node's function to the next, so that beginning and ending a run do not count;
it is the same span for all peers, and one that keeps the step before the next begins. They take turns of 50 steps,
medians unless said otherwise. Everybody's SQLite is in WAL mode with the same durability, set from outside where the
peer has another of its own; what the table says of it is what the peer's own connection answered after the last step.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, quantiles
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from benchmarks.engine_peers import Burr, Dbos, Peer, RawInserts, Wtb, loop
from benchmarks.report import Figure, Part, measure, timed
from wtb.application.runs.execution_controller import ExecutionController
from wtb.application.runs.function_caller import FunctionCaller
from wtb.application.runs.head_editor import HeadEditor
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.reversals import Reversals
from wtb.application.runs.run_creator import RunCreator
from wtb.application.tool_registry import TOOLS
from wtb.bootstrap import bootstrap
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Snapshot
from wtb.domain.execution import Branch, Execution
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import WorkflowId
from wtb.domain.routing import Router
from wtb.domain.secrets import Masker
from wtb.domain.state import State, StateDelta
from wtb.domain.workflow import END, WorkflowDefinition
from wtb.flow import Workflow
from wtb.infrastructure.conditions.cel import CelConditions
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.state_adapters.native import NativeEngine
from wtb.settings import load_settings

STEPS, TURNS = 50, 40
LONG = 10_000
NODES = 1_000


def spans(began: list[float]) -> list[float]:
    """Return how long each step took, the last one left out."""
    return [after - before for before, after in pairwise(began)]


def against_peers(folder: Path, synchronous: str, raw_bar: float | None) -> list[Figure]:
    """Take trivial steps in turns: ours, one insert and commit, DBOS and Burr."""
    place = Path(tempfile.mkdtemp(dir=folder))
    peers: dict[str, Peer] = {
        "WTB": Wtb(place, synchronous),
        "one insert and commit": RawInserts(place, synchronous),
        "DBOS": Dbos(place, synchronous),
        "Burr": Burr(place, synchronous),
    }
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(TURNS):
        for name in list(peers)[:: -1 if turn % 2 else 1]:
            seconds[name] += spans(peers[name].run(STEPS))
    kept = {name: peer.durability() for name, peer in peers.items()}
    for peer in peers.values():
        peer.close()
    step_us = {name: median(values) * 1e6 for name, values in seconds.items()}
    bars = {"one insert and commit": raw_bar, "DBOS": 0.5, "Burr": None}
    return [
        Figure(
            name=f"trivial step ÷ {name}, {synchronous}",
            value=step_us["WTB"] / step_us[name],
            unit="×",
            bar=bar,
            detail=f"{step_us['WTB']:.0f} and {step_us[name]:.0f} µs; {kept['WTB']} and {kept[name]}",
            raw={"wtb_us": step_us["WTB"], "peer_us": step_us[name]},
        )
        for name, bar in bars.items()
    ]


def ignore(*_: Any, **__: Any) -> None:
    """Do nothing."""


class NullStorage:
    """Storage, unit of work and repositories that store nothing: what a step takes with them is the engine's share.

    What beginning a run needs is remembered: the execution, its branch, the head, and the input as the state.
    """

    _workflow: Mapping[str, Any]
    _execution: Execution
    _branch: Branch
    _head: Checkpoint
    _input: StateDelta

    def __init__(self) -> None:
        self.workflows: Any = SimpleNamespace(save=self._keep_workflow, get=lambda _: self._workflow)
        self.executions: Any = SimpleNamespace(
            add=self._keep_execution,
            get=lambda _: self._execution,
            save=self._keep_execution,
            advance=self._keep_execution,
            request=ignore,
            renew=ignore,
        )
        self.branches: Any = SimpleNamespace(
            add=self._keep_branch, get=lambda _: self._branch.moved(self._head.id), move_head=ignore
        )
        self.node_runs: Any = SimpleNamespace(save=ignore)
        self.checkpoints: Any = SimpleNamespace(
            save=self._checkpoint, get=lambda _: self._head, load=self._load, load_history=self._history
        )
        self.tool_calls: Any = SimpleNamespace()
        self.rollbacks: Any = SimpleNamespace()
        self.evaluations: Any = SimpleNamespace()
        self.batches: Any = SimpleNamespace()
        self.baselines: Any = SimpleNamespace()
        self.cache: Any = SimpleNamespace()
        self.observations: Any = SimpleNamespace()
        self.limits: Any = SimpleNamespace()
        self.background_jobs: Any = SimpleNamespace()
        self.webhooks: Any = SimpleNamespace()
        self.deliveries: Any = SimpleNamespace()
        self.commands: Any = SimpleNamespace()
        self.tokens: Any = SimpleNamespace()
        self.sign_ins: Any = SimpleNamespace()
        self.events: Any = SimpleNamespace(append=ignore)
        self.audit: Any = SimpleNamespace()
        self.feed: Any = SimpleNamespace()
        self.files: Any = SimpleNamespace()
        self.pages: Any = SimpleNamespace()

    def unit_of_work(self, *, readonly: bool = False) -> Self:
        return self

    def now(self) -> datetime:
        return datetime.now(UTC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def commit(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _keep_workflow(self, workflow: Mapping[str, Any]) -> WorkflowId:
        self._workflow = workflow
        return WorkflowId("none")

    def _keep_execution(self, execution: Execution, token: int | None = None) -> None:
        self._execution = execution

    def _keep_branch(self, branch: Branch) -> None:
        self._branch = branch

    def _checkpoint(
        self, draft: CheckpointDraft, delta: StateDelta, returned: object = None, memory: object = None
    ) -> Checkpoint:
        if draft.parent_id is None:
            self._input = delta
        self._head = object.__new__(Checkpoint)
        self._head.__dict__.update(vars(draft), state_hash=b"", parent_hash=b"", hash=b"", size_bytes=0, deleted=False)
        return self._head

    def _load(self, _: object) -> Snapshot:
        return Snapshot(checkpoint=self._head, state=State().apply(self._input), returned={})

    def _history(self, _: object) -> ExecutionHistory:
        return ExecutionHistory(
            execution_id=self._execution.id,
            active_branch_id=self._branch.id,
            branches=(self._branch,),
            checkpoints=(self._head,),
            node_runs=(),
        )


def overhead() -> list[Figure]:
    """Take steps that are stored nowhere, in turns with steps that are stored in memory."""
    with bootstrap(load_settings(url="memory://")) as services:
        storage, masker, caller = NullStorage(), Masker(), FunctionCaller(sleep=time.sleep)
        nowhere = ExecutionController(
            storage=storage,
            anchor=services.anchor,
            clock=services.clock,
            codec=services.codec,
            conditions=services.conditions,
            owners=ProcessOwners(),
            workspaces=services.workspaces,
            creator=RunCreator(storage, services.clock, services.ids),
            recorder=Recorder(storage, services.clock, services.ids, masker),
            head_editor=HeadEditor(storage, services.clock, services.ids),
            reversals=Reversals(storage, services.clock, services.codec, TOOLS.get, masker, anchor=services.anchor),
            heartbeat=services.heartbeat,
            find_tool=TOOLS.get,
            masker=masker,
            limits=services.run_limits,
            caller=caller,
            engine_of=lambda definition: NativeEngine(definition, services.conditions, caller),
        )
        bare: list[float] = []
        memory: list[float] = []
        for _ in range(TURNS):
            bare += spans(loop(nowhere, STEPS * 2))
            memory += spans(loop(services.controller, STEPS * 2))
        nowhere.close()
    return [
        Figure(name="trivial step, stored nowhere", value=median(bare) * 1e6, unit="µs", bar=50),
        Figure(name="trivial step, stored in memory", value=median(memory) * 1e6, unit="µs"),
    ]


def resident_mb() -> float:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def long_loop(folder: Path) -> list[Figure]:
    """Take 10,000 steps in one run, and once more: the first time SQLite's cache of pages fills as well."""
    ours = Wtb(Path(tempfile.mkdtemp(dir=folder)), "NORMAL")
    ours.run(STEPS)
    held_mb = [resident_mb()]
    seconds = spans(ours.run(LONG))
    held_mb.append(resident_mb())
    ours.run(LONG)
    held_mb.append(resident_mb())
    ours.close()
    filled_mb, grown_mb = (after - before for before, after in pairwise(held_mb))
    first, last = median(seconds[:1_000]) * 1e6, median(seconds[-1_000:]) * 1e6
    p99 = quantiles(seconds, n=100)[98] * 1e6
    means = {"first_mean_us": mean(seconds[:1_000]) * 1e6, "last_mean_us": mean(seconds[-1_000:]) * 1e6}
    return [
        Figure(
            name=f"{LONG:,} steps: the last thousand ÷ the first",
            value=last / first,
            unit="×",
            bar=1.25,
            detail=f"{last:.0f} and {first:.0f} µs, p99 {p99:.0f} µs, NORMAL",
            raw={"first_us": first, "last_us": last, "p99_us": p99, **means},
        ),
        Figure(
            name=f"memory that {LONG:,} more steps add",
            value=grown_mb,
            unit="MB",
            bar=5,
            detail=f"a bar of our own; the first {LONG:,} added {filled_mb:.1f} MB, SQLite's 16 MB of pages included",
            raw={"first_mb": filled_mb},
        ),
    ]


def chain(first: int, *, conditional: bool) -> WorkflowDefinition:
    """Return 1,000 nodes in a row with an edge from each; conditions compare with numbers from `first` on."""
    flow = Workflow("chain")
    for number in range(NODES):
        flow.add_node(f"node{number}", ignore, start=number == 0)
        target = END if number == NODES - 1 else f"node{number + 1}"
        flow.edge(f"node{number}", target, when=f"x > {first + number}" if conditional else None)
    return flow.definition()


def graph(*, conditional: bool) -> list[Figure]:
    """Validate a large graph and compile its routes, with other conditions each time."""
    conditions = CelConditions()
    conditions.compile("x > 0")  # the first one imports the language, which takes 0.2 s once
    checks, routes = [], []
    for turn in range(10):
        definition = chain(turn * NODES, conditional=conditional)
        checks.append(timed(definition.validate, conditions))
        routes.append(timed(Router, definition, conditions))
    check, route = median(checks) * 1e3, median(routes) * 1e3
    return [
        Figure(
            name=f"{NODES:,} nodes, {NODES:,} {'conditional' if conditional else 'plain'} edges: check and compile",
            value=check + route,
            unit="ms",
            bar=100,
            detail=f"validate {check:.1f} ms, Router {route:.1f} ms",
            raw={"validate_ms": check, "router_ms": route},
        )
    ]


def main() -> None:
    """Measure everything."""
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name:
        folder = Path(name)
        parts: list[Part] = [
            ("against peers, FULL", partial(against_peers, folder, "FULL", 1.6)),
            ("against peers, NORMAL", partial(against_peers, folder, "NORMAL", None)),
            ("without a store", overhead),
            ("10,000 steps", partial(long_loop, folder)),
            ("conditional edges", partial(graph, conditional=True)),
            ("plain edges", partial(graph, conditional=False)),
        ]
        measure("The engine", Path("build/benchmarks/engine.json"), parts)


if __name__ == "__main__":
    main()
