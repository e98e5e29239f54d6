"""Histories: what is computed from checkpoints is what was kept while running, through loops, forks and rollbacks."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.run_writer import RunWriter
from wtb.application.runs.run_creator import MAIN
from wtb.application.runs.steps import Position
from wtb.bootstrap import Services, bootstrap
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeBoundary, NodeRun, NodeStatus, Trigger
from wtb.domain.execution import Branch, Execution
from wtb.domain.history import ExecutionHistory, Granularity
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.state import Append, SetValue, StateDelta
from wtb.settings import Settings

WORKFLOW = {"name": "flow", "version": "1"}


@dataclass
class Line:
    """What a branch should look like: its checkpoints, and the visits that end on it."""

    branch: Branch
    checkpoints: list[Checkpoint]
    visits: list[NodeRun] = field(default_factory=list)

    def next_visit(self, node: str) -> int:
        return max((run.visit for run in self.visits if run.node == node), default=0) + 1

    def until(self, checkpoint: Checkpoint, branch: Branch) -> "Line":
        """Return the line up to a checkpoint of it, for a rollback or a fork."""
        kept = self.checkpoints[: self.checkpoints.index(checkpoint) + 1]
        ids = {found.id for found in kept}
        return Line(branch.moved(checkpoint.id), kept, [run for run in self.visits if run.last_id in ids])


class Traveller:
    """Runs nodes, forks and goes back, in the storage and in a plain model of it."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.recorder = RunWriter(services.storage, services.clock, services.ids)
        start = self.recorder.start(WORKFLOW, {"items": []})
        self.execution = start.execution
        self.executions = {start.execution.id}
        self.lines = {MAIN: Line(start.branch, [start.head])}
        self.active = MAIN
        self._numbers = count(1)

    @property
    def line(self) -> Line:
        return self.lines[self.active]

    @property
    def position(self) -> Position:
        return Position(execution=self.execution, branch=self.line.branch, head=self.line.checkpoints[-1])

    def run_node(self, node: str) -> None:
        """One node, one checkpoint."""
        run = self._begin(node)
        delta = StateDelta.of(items=Append((node,)), last=SetValue(node))
        after = self.recorder.complete(self.position, run, delta, returned={"last": node})
        self._arrive(after, run)

    def run_node_with_tools(self, node: str, tools: int) -> None:
        """One node with a checkpoint before and after each tool call."""
        run = self._begin(node)
        for _ in range(tools):
            run = self._step(run.called_tool(), Trigger.TOOL_START)
            run = self._step(run, Trigger.TOOL_END)
        run = self._step(run.ended(NodeStatus.COMPLETED, self.services.clock.now()), Trigger.NODE_END)
        self.line.visits.append(run)

    def run_together(self, *nodes: str) -> None:
        """A parallel superstep: members without checkpoints of their own, then the barrier."""
        runs = [self._begin(node) for node in nodes]
        draft = self._draft(trigger=Trigger.NODE_END)
        now = self.services.clock.now()
        runs = [run.reached(draft.id).ended(NodeStatus.COMPLETED, now) for run in runs]
        self._commit(draft, *runs)
        self.line.visits += runs

    def fork(self, at: int) -> None:
        """A new branch of this run, from any checkpoint of the active one."""
        checkpoint = self._pick(at)
        name = f"fork {next(self._numbers)}"
        after = self.recorder.fork(self.position, checkpoint.id, name)
        self.execution = after.execution
        self.lines[name] = self.line.until(checkpoint, after.branch)
        self.active = name

    def emigrate(self, at: int) -> None:
        """A new run that goes on from a checkpoint of this one."""
        checkpoint, now = self._pick(at), self.services.clock.now()
        execution_id = ExecutionId(self.services.ids.new())
        branch = Branch(
            id=BranchId(self.services.ids.new()),
            execution_id=execution_id,
            name=MAIN,
            head_id=checkpoint.id,
            forked_from_id=checkpoint.id,
            created_at=now,
        )
        changes = {"id": execution_id, "version": 0, "branch_id": branch.id, "created_at": now, "updated_at": now}
        self.execution = replace(self.execution, **changes)  # type: ignore[arg-type]
        with self.services.storage.unit_of_work() as uow:
            uow.executions.add(self.execution)
            uow.branches.add(branch)
            uow.commit()
        self.executions.add(execution_id)
        self.lines = {MAIN: self.line.until(checkpoint, branch)}
        self.active = MAIN

    def switch(self, to: int) -> None:
        """Make another branch of this run the active one."""
        self.active = sorted(self.lines)[to % len(self.lines)]
        self._save(self.execution.on_branch(self.line.branch.id, self.services.clock.now()))

    def roll_back(self, to: int) -> None:
        """Move the head of the active branch back; what was after it is left behind."""
        checkpoint = self._pick(to)
        before = self.line.checkpoints[-1].id
        with self.services.storage.unit_of_work() as uow:
            uow.branches.move_head(self.line.branch.id, checkpoint.id, expected=before)
            uow.commit()
        self.lines[self.active] = self.line.until(checkpoint, self.line.branch)

    def _pick(self, number: int) -> Checkpoint:
        return self.line.checkpoints[number % len(self.line.checkpoints)]

    def _begin(self, node: str) -> NodeRun:
        return self.recorder.node_run(self.position, node, self.line.next_visit(node))

    def _arrive(self, after: Position, run: NodeRun) -> None:
        self.execution = after.execution
        self.line.branch = after.branch
        self.line.checkpoints.append(after.head)
        with self.services.storage.unit_of_work(readonly=True) as uow:
            self.line.visits += [kept for kept in uow.node_runs.list_runs(self.execution.id) if kept.id == run.id]

    def _draft(self, *, trigger: Trigger, run: NodeRun | None = None) -> CheckpointDraft:
        head = self.line.checkpoints[-1]
        return CheckpointDraft(
            id=CheckpointId(self.services.ids.new()),
            execution_id=self.execution.id,
            branch_id=self.line.branch.id,
            parent_id=head.id,
            step=head.step + 1,
            node=run.node if run else None,
            visit=run.visit if run else None,
            node_run_id=run.id if run else None,
            trigger=trigger,
            created_at=self.services.clock.now(),
        )

    def _step(self, run: NodeRun, trigger: Trigger) -> NodeRun:
        draft = self._draft(trigger=trigger, run=run)
        run = run.reached(draft.id)
        self._commit(draft, run)
        return run

    def _commit(self, draft: CheckpointDraft, *runs: NodeRun) -> None:
        with self.services.storage.unit_of_work() as uow:
            saved = uow.checkpoints.save(draft, StateDelta.of(items=Append((draft.id,))))
            for run in runs:
                uow.node_runs.save(run)
            uow.branches.move_head(self.line.branch.id, saved.id, expected=draft.parent_id)
            uow.commit()
        self.line.branch = self.line.branch.moved(saved.id)
        self.line.checkpoints.append(saved)

    def _save(self, execution: Execution) -> None:
        with self.services.storage.unit_of_work() as uow:
            uow.executions.save(execution)
            uow.commit()
        self.execution = execution

    def history(self) -> ExecutionHistory:
        with self.services.storage.unit_of_work(readonly=True) as uow:
            return uow.checkpoints.load_history(self.execution.id)

    def kept_boundaries(self) -> dict[NodeRunId, NodeBoundary]:
        """Return the projection that was written with every step."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            rows = [row for execution_id in self.executions for row in uow.node_runs.list_boundaries(execution_id)]
        return {row.node_run_id: row for row in rows}


NODES = st.sampled_from("abc")
NUMBERS = st.integers(0, 50)
ACTIONS = st.one_of(
    st.tuples(st.just("run_node"), NODES),
    st.tuples(st.just("run_node"), NODES),
    st.tuples(st.just("run_node_with_tools"), NODES, st.integers(0, 2)),
    st.tuples(st.just("run_together"), st.just("a"), st.just("b")),
    st.tuples(st.just("run_together"), st.just("c")),
    st.tuples(st.just("fork"), NUMBERS),
    st.tuples(st.just("switch"), NUMBERS),
    st.tuples(st.just("roll_back"), NUMBERS),
    st.tuples(st.just("emigrate"), NUMBERS),
)
JOURNEYS = st.lists(ACTIONS, max_size=20)


def travel(services: Services, journey: list[tuple[object, ...]]) -> Traveller:
    traveller = Traveller(services)
    for name, *arguments in journey:
        getattr(traveller, str(name))(*arguments)
    return traveller


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def services(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[Services]:
    path = tmp_path_factory.mktemp("history") / "wtb.db"
    shutil.copyfile(sqlite_template, path)
    url = "memory://" if request.param == "memory" else f"sqlite:///{path}"
    with bootstrap(Settings(url=url)) as services:
        yield services


def check_boundaries(line: Line, history: ExecutionHistory, kept: dict[NodeRunId, NodeBoundary]) -> None:
    found = history.boundaries(line.branch.name)
    assert list(found) == [kept[run.id] for run in line.visits]
    assert history.path(line.branch.name) == tuple((run.node, run.visit) for run in line.visits)
    assert history.completed_nodes(line.branch.name) == tuple(run.node for run in line.visits)
    assert history.visits(line.branch.name) == {run.node: line.next_visit(run.node) - 1 for run in line.visits}


def check_lineage(line: Line, history: ExecutionHistory) -> None:
    assert list(history.lineage(line.branch.name)) == line.checkpoints
    assert history.latest(line.branch.name) == line.checkpoints[-1]
    targets = history.rollback_targets(Granularity.TOOL, line.branch.name)
    assert list(targets) == line.checkpoints[:-1]
    for checkpoint in line.checkpoints:
        assert history.resolve(checkpoint.step, line.branch.name) == checkpoint
        assert history.resolve(checkpoint.id) == checkpoint


def check_visits(line: Line, history: ExecutionHistory) -> None:
    for run in line.visits:
        exit_of_visit = history.resolve(f"{run.node}#{run.visit}", line.branch.name)
        assert exit_of_visit.id == run.last_id
    latest = {run.node: run.last_id for run in line.visits}
    assert {node: history.resolve(node, line.branch.name).id for node in latest} == latest


@given(journey=JOURNEYS)
def test_a_history_is_what_the_run_did(services: Services, journey: list[tuple[object, ...]]) -> None:
    traveller = travel(services, journey)
    history, kept = traveller.history(), traveller.kept_boundaries()
    assert history.branch().name == traveller.active
    assert {branch.name for branch in history.branches} == set(traveller.lines)
    for line in traveller.lines.values():
        check_boundaries(line, history, kept)
        check_lineage(line, history)
        check_visits(line, history)


@given(journey=JOURNEYS)
def test_every_state_of_a_lineage_holds_the_items_of_the_steps_before_it(
    services: Services, journey: list[tuple[object, ...]]
) -> None:
    traveller = travel(services, journey)
    with services.storage.unit_of_work(readonly=True) as uow:
        for line in traveller.lines.values():
            states = [uow.checkpoints.load(checkpoint.id).state for checkpoint in line.checkpoints]
            assert [len(state["items"]) for state in states] == list(range(len(states)))
            assert all(later["items"][:-1] == earlier["items"] for earlier, later in pairwise(states))
