"""Recorder: writes what a run does, one transaction a step, whoever drives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeRun, Trigger
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, check_id
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import StateDelta

MAIN = "main"
"""The branch that every execution begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a run stands: its execution, the branch that it is on and the head of that branch."""

    execution: Execution
    branch: Branch
    head: Checkpoint


class Recorder:
    """Starts runs, adds steps and forks branches; checkpoint, boundary, head, version and events go together."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids

    def start(
        self,
        workflow: Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        execution_id: str | None = None,
        created_by: str | None = None,
    ) -> Position:
        """Record a new run of a workflow (as data), with checkpoint 0 holding its input."""
        now = self._clock.now()
        execution_id = ExecutionId(self._ids.new() if execution_id is None else check_id(execution_id, "the run id"))
        branch = Branch(
            id=BranchId(self._ids.new()), execution_id=execution_id, name=MAIN, head_id=None, created_at=now
        )
        draft = CheckpointDraft(
            id=CheckpointId(self._ids.new()),
            execution_id=execution_id,
            branch_id=branch.id,
            parent_id=None,
            step=0,
            trigger=Trigger.START,
            created_by=created_by,
            created_at=now,
        )
        with self._storage.unit_of_work() as uow:
            execution = Execution(
                id=execution_id,
                workflow_id=uow.workflows.save(workflow),
                workflow_name=workflow["name"],
                branch_id=branch.id,
                created_by=created_by,
                created_at=now,
                updated_at=now,
            )
            execution = execution.moved_to(ExecutionStatus.RUNNING, now)
            uow.executions.add(execution)
            uow.branches.add(branch)
            head = uow.checkpoints.save(draft, StateDelta.setting(state))
            uow.branches.move_head(branch.id, head.id, expected=None)
            uow.events.append(
                Event(
                    type=EventType.EXECUTION_STARTED,
                    stream=execution_id,
                    at=now,
                    data={"workflow": execution.workflow_name, "checkpoint": head.id},
                )
            )
            uow.commit()
        return Position(execution=execution, branch=branch.moved(head.id), head=head)

    def node_run(self, at: Position, node: str, visit: int) -> NodeRun:
        """Return a new run of a node that begins here; it is written with its first checkpoint."""
        return NodeRun(
            id=NodeRunId(self._ids.new()),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            node=node,
            visit=visit,
            input_id=at.head.id,
            started_at=self._clock.now(),
        )

    def complete(
        self,
        at: Position,
        run: NodeRun,
        delta: StateDelta,
        *,
        returned: Mapping[str, Any] | None = None,
        next_nodes: tuple[str, ...] = (),
        token: int | None = None,
    ) -> Position:
        """Record that a node completed: one transaction, fenced by the lease token when there is one."""
        now = self._clock.now()
        draft = CheckpointDraft(
            id=CheckpointId(self._ids.new()),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            parent_id=at.head.id,
            step=at.head.step + 1,
            node=run.node,
            visit=run.visit,
            node_run_id=run.id,
            next_nodes=next_nodes,
            agent=at.head.agent,
            file_commit=at.head.file_commit,
            created_at=now,
        )
        run = run.completed(draft.id, now)
        with self._storage.unit_of_work() as uow:
            head = uow.checkpoints.save(draft, delta, None if returned is None else {run.node: returned})
            uow.node_runs.save(run)
            uow.events.append(
                Event(
                    type=EventType.NODE_COMPLETED,
                    stream=at.execution.id,
                    at=now,
                    data={"node": run.node, "visit": run.visit, "checkpoint": head.id},
                )
            )
            position = self._advance(uow, at, head, token)
            uow.commit()
        return position

    def _advance(self, uow: UnitOfWork, at: Position, head: Checkpoint, token: int | None) -> Position:
        execution = at.execution.stepped(head.created_at)
        uow.executions.save(execution, token=token)
        uow.branches.move_head(at.branch.id, head.id, expected=at.head.id)
        return Position(execution=execution, branch=at.branch.moved(head.id), head=head)

    def fork(self, at: Position, checkpoint_id: CheckpointId, name: str) -> Position:
        """Record a new branch of the run that begins at a checkpoint, and make it the active one."""
        now = self._clock.now()
        branch = Branch(
            id=BranchId(self._ids.new()),
            execution_id=at.execution.id,
            name=name,
            head_id=checkpoint_id,
            forked_from_id=checkpoint_id,
            created_at=now,
        )
        with self._storage.unit_of_work() as uow:
            head = uow.checkpoints.get(checkpoint_id)
            execution = at.execution.on_branch(branch.id, now)
            uow.executions.save(execution)
            uow.branches.add(branch)
            uow.events.append(
                Event(
                    type=EventType.BRANCH_CREATED,
                    stream=at.execution.id,
                    at=now,
                    data={"branch": name, "checkpoint": checkpoint_id},
                )
            )
            uow.commit()
        return Position(execution=execution, branch=branch, head=head)
