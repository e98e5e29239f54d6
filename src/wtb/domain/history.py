"""ExecutionHistory: what a run did, computed from its checkpoints, node runs and branches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial

from wtb.domain.checkpoint import Checkpoint, NodeBoundary, NodeRun, NodeStatus, Trigger
from wtb.domain.display import Display, Displayed, DisplayTable, counted
from wtb.domain.errors import BranchNotFound, CheckpointNotFound, InvalidInput
from wtb.domain.execution import Branch
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.tools import ToolCall

_TOOL_TRIGGERS = frozenset({Trigger.TOOL_START, Trigger.TOOL_END, Trigger.LLM_CALL})
_SHORTEST_PREFIX = 4


class Granularity(StrEnum):
    """How fine the rollback targets are: node exits, every checkpoint, or the latter in the current node only."""

    NODE = "node"
    TOOL = "tool"
    AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class ExecutionHistory(Displayed):
    """Everything that one run did. Methods look at the active branch unless you name another.

    `checkpoints` holds those of the run and, for a fork, those of the other run that lead to it. Deleted checkpoints
    stay as tombstones, so every lineage is whole. A history that is not `complete` holds only the end of the active
    lineage: what it finds is right, but what it does not find may come before.
    """

    execution_id: ExecutionId
    active_branch_id: BranchId
    branches: tuple[Branch, ...]
    checkpoints: tuple[Checkpoint, ...]
    node_runs: tuple[NodeRun, ...]
    complete: bool = True

    def __repr__(self) -> str:
        figures = f"{len(self.branches)} branches, {len(self.checkpoints)} checkpoints, {len(self.node_runs)} node runs"
        return f"<ExecutionHistory of {self.execution_id}: {figures}>"

    def _display(self) -> Display:
        rows = [
            (str(each.step), each.node and f"{each.node}#{each.visit}", each.trigger.value, each.name, each.id[:18])
            for each in self.lineage()
        ]
        branches = counted(len(self.branches), "branch")
        title = f"History of run {self.execution_id}: {branches}, {counted(len(self.checkpoints), 'checkpoint')}"
        return Display(title=title, tables=(DisplayTable.of(("step", "node", "trigger", "name", "checkpoint"), rows),))

    @cached_property
    def _by_id(self) -> dict[CheckpointId, Checkpoint]:
        return {checkpoint.id: checkpoint for checkpoint in self.checkpoints}

    @cached_property
    def _runs_by_input(self) -> dict[CheckpointId | None, list[NodeRun]]:
        runs: dict[CheckpointId | None, list[NodeRun]] = defaultdict(list)
        for run in self.node_runs:
            runs[run.input_id].append(run)
        return runs

    @cached_property
    def _runs_by_id(self) -> dict[NodeRunId, NodeRun]:
        return {run.id: run for run in self.node_runs}

    def branch(self, name_or_id: str | None = None) -> Branch:
        """Return a branch by name or id; by default the active one."""
        wanted = name_or_id or self.active_branch_id
        for branch in self.branches:
            if wanted in (branch.id, branch.name):
                return branch
        raise BranchNotFound(wanted, f"run {self.execution_id}")

    def lineage(self, branch: str | None = None) -> tuple[Checkpoint, ...]:
        """Return the checkpoints from the start to the head of a branch, including those shared with others."""
        return self.lineage_of(self.branch(branch).head_id)

    def lineage_of(self, checkpoint_id: CheckpointId | None) -> tuple[Checkpoint, ...]:
        """Return the checkpoints from the start to this one."""
        line: list[Checkpoint] = []
        while checkpoint_id is not None:
            checkpoint = self._by_id.get(checkpoint_id)
            if checkpoint is None:
                if line and not self.complete:
                    break
                raise CheckpointNotFound(checkpoint_id, f"run {self.execution_id}")
            line.append(checkpoint)
            checkpoint_id = checkpoint.parent_id
        return tuple(reversed(line))

    def latest(self, branch: str | None = None) -> Checkpoint | None:
        """Return the head of a branch; None before the first checkpoint."""
        line = self.lineage(branch)
        return line[-1] if line else None

    def boundaries(self, branch: str | None = None) -> tuple[NodeBoundary, ...]:
        """Return the boundary of every node visit on a branch, in the order they began.

        The first and last checkpoint and their count come from the checkpoints that the node run made. A node that ran
        beside others made none: its first and last are the checkpoint of the whole step. A visit whose checkpoint could
        not be written counts none, and ends with the checkpoint that made up for it.
        """
        line = self.lineage(branch)
        own: dict[NodeRunId, list[Checkpoint]] = defaultdict(list)
        for checkpoint in line:
            if checkpoint.node_run_id is not None:
                own[checkpoint.node_run_id].append(checkpoint)
        return tuple(_boundary(run, own[run.id]) for run in self._runs_on(line, open_at=self.branch(branch)))

    def runs(self, branch: str | None = None) -> tuple[NodeRun, ...]:
        """Return the node runs on a branch, in the order they began."""
        return tuple(self._runs_on(self.lineage(branch), open_at=self.branch(branch)))

    def _runs_on(self, line: tuple[Checkpoint, ...], open_at: Branch) -> Iterable[NodeRun]:
        """Yield the node runs that made the line, and those that began at its end and have no result yet.

        Several runs can begin at one checkpoint: the nodes of a superstep, or first tries that a rollback or a
        fork left behind. A run belongs to the line if its last checkpoint lies on it. If the line continues from an
        uncompleted run, another run took that one over and counts for both.
        """
        on_line = {checkpoint.id for checkpoint in line}
        for checkpoint in (None, *(checkpoint.id for checkpoint in line)):
            for run in self._runs_by_input.get(checkpoint, ()):
                ended_here = run.last_id in on_line if run.last_id else run.branch_id == open_at.id
                is_last = (run.last_id or checkpoint) == open_at.head_id
                if ended_here and (is_last or (run.last_id and run.status is NodeStatus.COMPLETED)):
                    yield run

    def is_inherited(self, call: ToolCall) -> bool:
        """Whether a node run took this call over from another run, in whose middle it began, instead of making it."""
        run = self._runs_by_id.get(call.node_run_id)
        began = self._by_id.get(run.input_id) if run is not None and run.input_id is not None else None
        if began is None or not began.is_inside:
            return False
        return call.had_ended_at(began.step, began.created_at)

    def original(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint inside a node that the node itself made and that this checkpoint repeats.

        A checkpoint that a person or a rollback added after it knows no more about the node's work. If the node run
        belongs to another execution, return the nearest checkpoint that is known to come from that execution.
        """
        run = self._runs_by_id.get(checkpoint.node_run_id) if checkpoint.node_run_id is not None else None
        while run is not None and checkpoint.is_inside and not self._was_made_by(run, checkpoint):
            before = self._by_id.get(checkpoint.parent_id) if checkpoint.parent_id is not None else None
            if before is None or before.node_run_id != run.id:
                break
            checkpoint = before
        return checkpoint

    def _was_made_by(self, run: NodeRun, checkpoint: Checkpoint) -> bool:
        if run.last_id not in self._by_id:
            return checkpoint.execution_id == run.execution_id
        return checkpoint.id in self._made

    @cached_property
    def _made(self) -> frozenset[CheckpointId]:
        """The checkpoints that node runs made themselves, found backwards from the last one of each run."""
        found: set[CheckpointId] = set()
        for run in self.node_runs:
            at = self._by_id.get(run.last_id) if run.last_id is not None else None
            while at is not None and at.node_run_id == run.id:
                found.add(at.id)
                at = self._by_id.get(at.parent_id) if at.parent_id is not None else None
        return frozenset(found)

    def builds_on(self, checkpoint_id: CheckpointId) -> set[CheckpointId]:
        """Return a checkpoint and all that come after it, on any line."""
        children: dict[CheckpointId | None, list[CheckpointId]] = defaultdict(list)
        for checkpoint in self.checkpoints:
            children[checkpoint.parent_id].append(checkpoint.id)
        found, ahead = {checkpoint_id}, [checkpoint_id]
        while ahead:
            after = [child for child in children[ahead.pop()] if child not in found]
            found.update(after)
            ahead += after
        return found

    def path(self, branch: str | None = None) -> tuple[tuple[str, int], ...]:
        """Return the visits on a branch in order, as `(node, visit)`, finished or not."""
        return tuple((boundary.node, boundary.visit) for boundary in self.boundaries(branch))

    def completed_nodes(self, branch: str | None = None) -> tuple[str, ...]:
        """Return the completed nodes in order, one entry per visit."""
        done = NodeStatus.COMPLETED
        return tuple(boundary.node for boundary in self.boundaries(branch) if boundary.status is done)

    def visits(self, branch: str | None = None) -> dict[str, int]:
        """Return how often each node was visited on a branch; the next visit counts on from there."""
        counters: dict[str, int] = {}
        for node, visit in self.path(branch):
            counters[node] = max(visit, counters.get(node, 0))
        return counters

    def rollback_targets(
        self, granularity: Granularity = Granularity.AUTO, branch: str | None = None
    ) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of a branch that a rollback can go to, oldest first, without the head."""
        line = self.lineage(branch)
        if not line:
            return ()
        current = line[-1].node_run_id
        return tuple(
            checkpoint
            for checkpoint in line[:-1]
            if checkpoint.restore_point and not checkpoint.deleted and _fits(checkpoint, granularity, current)
        )

    def by_node(self, node: str, visit: int | None = None, branch: str | None = None) -> Checkpoint:
        """Return the checkpoint at the end of a node's latest completed visit, or of the visit you name."""
        for boundary in reversed(self.boundaries(branch)):
            wanted = boundary.node == node and visit in (None, boundary.visit)
            if wanted and boundary.status is NodeStatus.COMPLETED and boundary.last_id is not None:
                checkpoint = self._by_id[boundary.last_id]
                if checkpoint.deleted or not boundary.checkpoint_count:
                    break  # the caller did not mean an earlier visit
                return checkpoint
        for checkpoint in reversed(self.lineage(branch)):  # a thread that LangGraph drives has no node runs
            is_exit = checkpoint.node_run_id is None and checkpoint.trigger is Trigger.NODE_END
            if is_exit and checkpoint.node == node and visit in (None, checkpoint.visit) and not checkpoint.deleted:
                return checkpoint
        label = node if visit is None else f"{node}#{visit}"
        raise CheckpointNotFound(label, f"run {self.execution_id}, branch {self.branch(branch).name}")

    def by_name(self, name: str) -> Checkpoint:
        """Return the checkpoint with this name, on any branch."""
        for checkpoint in self.checkpoints:
            if checkpoint.name == name and not checkpoint.deleted:
                return checkpoint
        raise CheckpointNotFound(name, f"run {self.execution_id}")

    def resolve(self, target: str | int, branch: str | None = None) -> Checkpoint:
        """Return the checkpoint for a step number, id, beginning of an id, name, node or `node#visit`."""
        text = str(target)
        visit, step = partial(self._by_visit, branch=branch), partial(self._by_step, branch=branch)
        for find in (step, self._by_id_or_name, visit, self._by_prefix):
            with suppress(CheckpointNotFound):
                return find(text)
        raise CheckpointNotFound(text, f"run {self.execution_id}")

    def _by_visit(self, label: str, branch: str | None) -> Checkpoint:
        node, mark, visit = label.partition("#")
        return self.by_node(node, _number(visit) if mark else None, branch)

    def _by_step(self, label: str, branch: str | None) -> Checkpoint:
        step = -1 if label in {run.node for run in self.node_runs} else _number(label)
        for checkpoint in reversed(self.lineage(branch)):
            if checkpoint.step == step and not checkpoint.deleted:
                return checkpoint
        raise CheckpointNotFound(label, f"run {self.execution_id}")

    def _by_id_or_name(self, label: str) -> Checkpoint:
        found = self._by_id.get(CheckpointId(label))
        return self.by_name(label) if found is None or found.deleted else found

    def _by_prefix(self, prefix: str) -> Checkpoint:
        living = (checkpoint for checkpoint in self.checkpoints if not checkpoint.deleted)
        found = [checkpoint for checkpoint in living if checkpoint.id.startswith(prefix)]
        if len(found) > 1 and len(prefix) >= _SHORTEST_PREFIX:
            raise InvalidInput(
                f"{len(found)} checkpoints of run {self.execution_id} start with {prefix!r}; give more of the id"
            )
        if len(found) == 1 and len(prefix) >= _SHORTEST_PREFIX and self.complete:
            return found[0]
        raise CheckpointNotFound(prefix, f"run {self.execution_id}")


def check_name(name: str, nodes: Collection[str]) -> None:
    """Raise InvalidInput for a name that would mean something else: an empty one, a step, or a visit of a node."""
    if not name.strip() or not name.isprintable() or name.isdecimal():
        raise InvalidInput(f"a checkpoint cannot be called {name!r}: give one or more words, not a number")
    if name.partition("#")[0] in nodes:
        raise InvalidInput(f"{name!r} means a visit of a node; choose another name for the checkpoint")


def _number(text: str) -> int:
    """Return the text as a number; -1, which matches nothing, if it is not a number."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _boundary(run: NodeRun, own: list[Checkpoint]) -> NodeBoundary:
    return run.bounded(own[0].id, own[-1].id, len(own)) if own else run.boundary()


def _fits(checkpoint: Checkpoint, granularity: Granularity, current: NodeRunId | None) -> bool:
    match granularity:
        case Granularity.TOOL:
            return True
        case Granularity.NODE:
            return checkpoint.trigger not in _TOOL_TRIGGERS
        case Granularity.AUTO:
            inside_current = current is not None and checkpoint.node_run_id == current
            return inside_current or checkpoint.trigger not in _TOOL_TRIGGERS
