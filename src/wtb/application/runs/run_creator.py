"""RunCreator: records new runs, from an input or from a checkpoint of another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from wtb.application.runs.heads import HeadDrafts, edit_of, move_head
from wtb.application.runs.leases import LEASE
from wtb.application.runs.steps import Position, SaveFiles
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Trigger
from wtb.domain.engine import Standpoint
from wtb.domain.event_catalogue import BranchCreated, ExecutionCreated, ExecutionStarted, StateUpdated
from wtb.domain.events import Event
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, check_id
from wtb.domain.job_origin import of_fork
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve

MAIN = "main"
"""The branch that every run begins with."""


class RunCreator:
    """Creates runs, pending or under way.

    One transaction stores the execution, the branch, the first checkpoint and the events.
    """

    def __init__(self, storage: Storage, clock: Clock, ids: Ids, *, user: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._user = user
        self._drafts = HeadDrafts(clock, ids)

    def create(
        self,
        workflow: Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        execution_id: str | None = None,
        next_nodes: tuple[str, ...] = (),
        joins: Mapping[str, tuple[str, ...]] | None = None,
        memory: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        source: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        files: SaveFiles | None = None,
        owner: str | None = None,
        before_commit: Callable[[Position], object] = lambda at: None,
    ) -> Position:
        """Record a new run of a workflow (as data) with checkpoint 0 holding its input.

        Unless `created_by` names somebody else, the user of this process created it. The run is pending. If `owner`
        names a process, that process runs it from now on and has its lease: this takes no second transaction.
        """
        now, created_by = self._clock.now(), created_by or self._user
        execution_id = self._execution_id(execution_id)
        branch = self._branch(execution_id, MAIN, None, now)
        draft = CheckpointDraft(
            id=CheckpointId(self._ids.new()),
            execution_id=execution_id,
            branch_id=branch.id,
            parent_id=None,
            step=0,
            trigger=Trigger.START,
            next_nodes=next_nodes,
            joins=joins or {},
            created_by=created_by,
            created_at=now,
        )
        with self._storage.unit_of_work() as uow:
            if files is not None:
                draft = evolve(draft, file_commit=files(uow))
            execution = Execution(
                id=execution_id,
                workflow_id=uow.workflows.save(workflow),
                workflow_name=workflow["name"],
                workflow_source=source,
                branch_id=branch.id,
                options=options or {},
                metadata=metadata or {},
                created_by=created_by,
                created_at=now,
                updated_at=now,
            )
            if owner is not None:
                execution = execution.moved_to(ExecutionStatus.RUNNING, now).owned(owner, uow.now(), LEASE)
            uow.executions.add(execution)
            uow.branches.add(branch)
            head = uow.checkpoints.save(draft, StateDelta.setting(state), memory=memory)
            uow.branches.move_head(branch.id, head.id, expected=None)
            variants = execution.options.get("variants") or None
            body = ExecutionCreated(
                workflow=execution.workflow_name, checkpoint=head.id, variants=variants, by=created_by
            )
            uow.events.append(Event.of(body, stream=execution_id, at=now))
            if owner is not None:
                begun = ExecutionStarted(checkpoint=head.id, by=self._user)
                uow.events.append(Event.of(begun, stream=execution_id, at=now))
            at = Position(execution=execution, branch=branch.moved(head.id), head=head)
            before_commit(at)
            uow.commit()
        return at

    def fork(
        self,
        source: Execution,
        point: Checkpoint,
        *,
        name: str,
        execution_id: str | None = None,
        change: StateDelta | None = None,
        begun: Standpoint | None = None,
        created_by: str | None = None,
    ) -> Position:
        """Record a new pending run that continues from a checkpoint of another run, with its workflow and options.

        A `change` of the state becomes its own first checkpoint; `begun` says where its engine begins after that.
        """
        now, created_by = self._clock.now(), created_by or self._user
        execution_id = self._execution_id(execution_id)
        branch = self._branch(execution_id, name, point.id, now)
        execution = Execution(
            id=execution_id,
            workflow_id=source.workflow_id,
            workflow_name=source.workflow_name,
            workflow_source=source.workflow_source,
            branch_id=branch.id,
            options={**source.options, "break_before": (), "break_after": ()},
            metadata=of_fork(source.metadata),
            created_by=created_by,
            created_at=now,
            updated_at=now,
        )
        with self._storage.unit_of_work() as uow:
            uow.executions.add(execution)
            uow.branches.add(branch)
            at = Position(execution=execution, branch=branch, head=point)
            if change:
                next_nodes = point.next_nodes if begun is None else begun.next_nodes
                text = "another input" if begun is not None else edit_of(change)
                facts = {"trigger": Trigger.PAUSE, "description": text, "created_by": created_by}
                draft = self._drafts.after(at, next_nodes=next_nodes, **facts)
                memory = None if begun is None else begun.memory or None
                at = move_head(uow, at, uow.checkpoints.save(draft, change, memory=memory))
            body = BranchCreated(branch=name, checkpoint=point.id, run=execution_id, from_=source.id, by=created_by)
            for stream in (source.id, execution_id):
                uow.events.append(Event.of(body, stream=stream, at=now))
            if change:
                edit = StateUpdated(checkpoint=at.head.id, keys=tuple(sorted(change.changes)), by=created_by)
                uow.events.append(Event.of(edit, stream=execution_id, at=now))
            uow.commit()
        return at

    def _execution_id(self, given: str | None) -> ExecutionId:
        return ExecutionId(self._ids.new() if given is None else check_id(given, "the run id"))

    def _branch(self, execution_id: ExecutionId, name: str, origin: CheckpointId | None, now: datetime) -> Branch:
        """Return a new branch that begins at a checkpoint, or empty."""
        return Branch(
            id=BranchId(self._ids.new()),
            execution_id=execution_id,
            name=name,
            head_id=origin,
            forked_from_id=origin,
            created_at=now,
        )
