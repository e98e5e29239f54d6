"""Story: tells what a run did, and gives its history."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus, Trigger
from wtb.domain.execution import Branch, Failure
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Story:
    """Tells what a run did, and gives its history. Checkpoints are called c0, c1, … in the order of their making."""

    def __init__(self) -> None:
        self.run = ExecutionId("run")
        self.branches: dict[str, Branch] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.runs: dict[str, NodeRun] = {}
        self.active = "main"
        self._add_branch("main", None)
        self.checkpoint(trigger=Trigger.START)

    @property
    def head(self) -> CheckpointId | None:
        return self.branches[self.active].head_id

    def history(self) -> ExecutionHistory:
        return ExecutionHistory(
            execution_id=ExecutionId("run"),
            active_branch_id=self.branches[self.active].id,
            branches=tuple(self.branches.values()),
            checkpoints=tuple(self.checkpoints.values()),
            node_runs=tuple(self.runs.values()),
        )

    def checkpoint(self, **facts: Any) -> CheckpointId:
        """Add a checkpoint behind the head of the active branch."""
        number = len(self.checkpoints)
        checkpoint = Checkpoint(
            **{
                "id": CheckpointId(f"c{number}"),
                "execution_id": self.run,
                "branch_id": self.branches[self.active].id,
                "parent_id": self.head,
                "step": self.checkpoints[self.head].step + 1 if self.head else 0,
                "created_at": NOW + timedelta(seconds=number),
                "state_hash": b"",
                "parent_hash": b"",
                "hash": b"",
                "size_bytes": 0,
                **facts,
            }
        )
        self.checkpoints[checkpoint.id] = checkpoint
        self.move(checkpoint.id)
        return checkpoint.id

    def begin(self, node: str) -> NodeRun:
        """Start a node at the head."""
        visit = self.history().visits().get(node, 0) + 1
        run = NodeRun(
            id=NodeRunId(f"r{len(self.runs)}"),
            execution_id=self.run,
            branch_id=self.branches[self.active].id,
            node=node,
            visit=visit,
            input_id=self.head,
            started_at=NOW + timedelta(seconds=len(self.checkpoints)),
        )
        self.runs[run.id] = run
        return run

    def inside(self, run: NodeRun, trigger: Trigger, **facts: Any) -> CheckpointId:
        """Add a checkpoint of a node."""
        made = self.checkpoint(node=run.node, visit=run.visit, node_run_id=run.id, trigger=trigger, **facts)
        self.runs[run.id] = self.runs[run.id].reached(made)
        return made

    def end(self, run: NodeRun, status: NodeStatus = NodeStatus.COMPLETED) -> None:
        failure = Failure(type="ValueError", message="no") if status is NodeStatus.FAILED else None
        self.runs[run.id] = self.runs[run.id].ended(status, NOW, failure)

    def node(self, name: str) -> CheckpointId:
        """Run a node from beginning to end."""
        run = self.begin(name)
        made = self.inside(run, Trigger.NODE_END)
        self.end(run)
        return made

    def nodes(self, names: str) -> list[CheckpointId]:
        return [self.node(name) for name in names.split()]

    def together(self, names: str) -> CheckpointId:
        """Run nodes side by side, up to their barrier."""
        runs = [self.begin(name) for name in names.split()]
        made = self.checkpoint(trigger=Trigger.NODE_END)
        for run in runs:
            self.runs[run.id] = self.runs[run.id].reached(made)
            self.end(run)
        return made

    def move(self, head: CheckpointId) -> None:
        """Move the head of the active branch: forward with a step, back with a rollback."""
        self.branches[self.active] = self.branches[self.active].moved(head)

    def fork(self, name: str, at: CheckpointId) -> None:
        self._add_branch(name, at)
        self.active = name

    def _add_branch(self, name: str, at: CheckpointId | None) -> None:
        self.branches[name] = Branch(
            id=BranchId(f"b-{name}"),
            execution_id=self.run,
            name=name,
            head_id=at,
            forked_from_id=at,
            created_at=NOW + timedelta(seconds=len(self.branches)),
        )

    def delete(self, checkpoint_id: str) -> None:
        self.checkpoints[checkpoint_id] = replace(self.checkpoints[checkpoint_id], deleted=True)
