"""Recorder: writes what a run does, one transaction a step, whoever drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeRun, NodeStatus, Trigger
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Branch, Execution, ExecutionStatus, Failure, Pause
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, check_id
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve

MAIN = "main"
"""The branch that every execution begins with."""

LEASE = timedelta(seconds=30)
"""How long a process may be silent before others may take its run over."""

SaveFiles = Callable[[UnitOfWork], str]
"""Saves the files of a step in its transaction, and returns their commit."""

_ENDED = {
    ExecutionStatus.PAUSED: EventType.EXECUTION_PAUSED,
    ExecutionStatus.COMPLETED: EventType.EXECUTION_COMPLETED,
    ExecutionStatus.FAILED: EventType.EXECUTION_FAILED,
    ExecutionStatus.CANCELLED: EventType.EXECUTION_CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a run stands: its execution, the branch that it is on and the head of that branch."""

    execution: Execution
    branch: Branch
    head: Checkpoint

    @property
    def token(self) -> int | None:
        """The token of the lease that this process holds."""
        return None if self.execution.lease is None else self.execution.lease.token


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a run stops being driven here, and how it stands then."""

    status: ExecutionStatus
    pause: Pause | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


class Recorder:
    """Starts runs, adds steps and forks branches; checkpoint, boundary, head, version and events go together."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids

    def create(
        self,
        workflow: Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        execution_id: str | None = None,
        next_nodes: tuple[str, ...] = (),
        options: Mapping[str, Any] | None = None,
        source: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
    ) -> Position:
        """Record a new run of a workflow (as data), pending, with checkpoint 0 holding its input."""
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
            next_nodes=next_nodes,
            created_by=created_by,
            created_at=now,
        )
        with self._storage.unit_of_work() as uow:
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
            uow.executions.add(execution)
            uow.branches.add(branch)
            head = uow.checkpoints.save(draft, StateDelta.setting(state))
            uow.branches.move_head(branch.id, head.id, expected=None)
            data = {"workflow": execution.workflow_name, "checkpoint": head.id}
            uow.events.append(Event(type=EventType.EXECUTION_CREATED, stream=execution_id, at=now, data=data))
            uow.commit()
        return Position(execution=execution, branch=branch.moved(head.id), head=head)

    def start(self, workflow: Mapping[str, Any], state: Mapping[str, Any], **facts: Any) -> Position:
        """Record a new run that is running from the beginning, without a lease."""
        return self.begin(self.create(workflow, state, **facts), owner=None)

    def begin(self, at: Position, owner: str | None) -> Position:
        """Record that a process runs the execution from now on, under a lease when it names itself."""
        now = self._clock.now()
        execution = at.execution
        kind = EventType.EXECUTION_RESUMED
        if execution.status is not ExecutionStatus.RUNNING:
            kind = EventType.EXECUTION_STARTED if execution.status is ExecutionStatus.PENDING else kind
            execution = execution.moved_to(ExecutionStatus.RUNNING, now)
        elif owner is not None:
            execution = execution.stepped(now)
        with self._storage.unit_of_work() as uow:
            if owner is not None:
                execution = execution.owned(owner, now, LEASE)
            uow.executions.save(execution)
            uow.events.append(Event(type=kind, stream=execution.id, at=now, data={"checkpoint": at.head.id}))
            uow.commit()
        return Position(execution=execution, branch=at.branch, head=at.head)

    def load(self, execution_id: ExecutionId) -> Position:
        """Return where a run stands."""
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
            branch = uow.branches.get(execution.branch_id)
            assert branch.head_id is not None
            return Position(execution=execution, branch=branch, head=uow.checkpoints.get(branch.head_id))

    def node_run(self, at: Position, node: str, visit: int) -> NodeRun:
        """Return a new run of a node that begins here; it is written with its first checkpoint or call."""
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
        joins: Mapping[str, tuple[str, ...]] | None = None,
        ending: Ending | None = None,
        data: Mapping[str, Any] | None = None,
        files: SaveFiles | None = None,
    ) -> Position:
        """Record that a node completed: one transaction, fenced by the lease when there is one."""
        draft = self._draft(at, run.node, run, next_nodes, joins)
        everything = None if returned is None else {run.node: returned}
        return self._step(
            at, draft, delta, returned=everything, runs=[run], data=[data or {}], ending=ending, files=files
        )

    def barrier(
        self,
        at: Position,
        runs: Sequence[NodeRun],
        delta: StateDelta,
        *,
        returned: Mapping[str, Mapping[str, Any]],
        next_nodes: tuple[str, ...] = (),
        joins: Mapping[str, tuple[str, ...]] | None = None,
        ending: Ending | None = None,
        data: Sequence[Mapping[str, Any]] = (),
        files: SaveFiles | None = None,
    ) -> Position:
        """Record that all members of a parallel superstep completed."""
        draft = self._draft(at, None, None, next_nodes, joins)
        return self._step(at, draft, delta, returned=returned, runs=runs, data=data, ending=ending, files=files)

    def _draft(
        self,
        at: Position,
        node: str | None,
        run: NodeRun | None,
        next_nodes: tuple[str, ...],
        joins: Mapping[str, tuple[str, ...]] | None,
    ) -> CheckpointDraft:
        return CheckpointDraft(
            id=CheckpointId(self._ids.new()),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            parent_id=at.head.id,
            step=at.head.step + 1,
            node=node,
            visit=None if run is None else run.visit,
            node_run_id=None if run is None else run.id,
            next_nodes=next_nodes,
            joins=joins or {},
            agent=at.head.agent,
            file_commit=at.head.file_commit,
            created_at=self._clock.now(),
        )

    def _step(
        self,
        at: Position,
        draft: CheckpointDraft,
        delta: StateDelta,
        *,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
        runs: Sequence[NodeRun] = (),
        data: Sequence[Mapping[str, Any]] = (),
        ending: Ending | None = None,
        files: SaveFiles | None = None,
    ) -> Position:
        now = draft.created_at
        with self._storage.unit_of_work() as uow:
            if files is not None:
                draft = evolve(draft, file_commit=files(uow))
            head = uow.checkpoints.save(draft, delta, returned)
            for run, more in zip(runs, data, strict=True):
                done = run.completed(head.id, now)
                uow.node_runs.save(done)
                took_ms = ((done.ended_at or now) - done.started_at) // timedelta(milliseconds=1)
                facts = {"node": run.node, "visit": run.visit, "checkpoint": head.id, "ms": took_ms, **more}
                uow.events.append(Event(type=EventType.NODE_COMPLETED, stream=draft.execution_id, at=now, data=facts))
            ending = ending or _requested(uow, at)
            execution = self._ended(uow, at, ending) if ending else at.execution.stepped(now)
            uow.executions.save(execution, token=at.token)
            uow.branches.move_head(at.branch.id, head.id, expected=at.head.id)
            uow.commit()
        return Position(execution=execution, branch=at.branch.moved(head.id), head=head)

    def _ended(self, uow: UnitOfWork, at: Position, ending: Ending) -> Execution:
        now = self._clock.now()
        execution = at.execution.moved_to(ending.status, now, failure=ending.failure, pause=ending.pause)
        data: dict[str, Any] = {"notes": list(ending.notes)} if ending.notes else {}
        uow.executions.request(execution.id, None)  # or it would end the run again when somebody goes on with it
        if ending.pause is not None:
            data["reason"] = ending.pause.reason
        if ending.failure is not None:
            data |= {"error": f"{ending.failure.type}: {ending.failure.message}", "node": ending.failure.node}
        uow.events.append(Event(type=_ENDED[ending.status], stream=execution.id, at=now, data=data))
        return execution

    def end(self, at: Position, ending: Ending, runs: Sequence[NodeRun] = ()) -> Position:
        """Record that the run is not driven any further here: paused, completed, failed or cancelled."""
        with self._storage.unit_of_work() as uow:
            execution = self._ended(uow, at, ending)
            for run in runs:
                uow.node_runs.save(run)
                if run.status is NodeStatus.FAILED:
                    uow.events.append(_failed(run, execution.updated_at))
            uow.executions.save(execution, token=at.token)
            uow.commit()
        return Position(execution=execution, branch=at.branch, head=at.head)

    def keep_pending(self, at: Position, run: NodeRun, files: SaveFiles | None) -> None:
        """Record the result of one member of a parallel superstep, so that a crash before the barrier loses nothing."""
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            if files is not None:
                files(uow)
            uow.node_runs.save(run)
            uow.commit()

    def abandon(self, at: Position, run: NodeRun) -> None:
        """Record that a node run is left behind: the node is begun afresh."""
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            uow.node_runs.save(run.ended(NodeStatus.SKIPPED, now))
            data = {"node": run.node, "visit": run.visit}
            uow.events.append(Event(type=EventType.NODE_SKIPPED, stream=at.execution.id, at=now, data=data))
            uow.commit()

    def note(self, at: Position, type: EventType, data: Mapping[str, Any]) -> None:
        """Record an event of the run by itself."""
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            uow.events.append(Event(type=type, stream=at.execution.id, at=self._clock.now(), data=data))
            uow.commit()

    def change_state(self, at: Position, delta: StateDelta, created_by: str | None = None) -> Position:
        """Record a change that a person made while the run was paused, as a checkpoint of its own."""
        draft = CheckpointDraft(
            id=CheckpointId(self._ids.new()),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            parent_id=at.head.id,
            step=at.head.step + 1,
            trigger=Trigger.PAUSE,
            next_nodes=at.head.next_nodes,
            joins=at.head.joins,
            agent=at.head.agent,
            file_commit=at.head.file_commit,
            created_by=created_by,
            created_at=self._clock.now(),
        )
        return self._step(at, draft, delta)

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
            data = {"branch": name, "checkpoint": checkpoint_id}
            uow.events.append(Event(type=EventType.BRANCH_CREATED, stream=at.execution.id, at=now, data=data))
            uow.commit()
        return Position(execution=execution, branch=branch, head=head)


def _requested(uow: UnitOfWork, at: Position) -> Ending | None:
    """Return what another process asked for meanwhile."""
    match uow.executions.find_request(at.execution.id):
        case "pause":
            return Ending(status=ExecutionStatus.PAUSED, pause=Pause(reason="asked to pause"))
        case "stop":
            return Ending(status=ExecutionStatus.CANCELLED)
    return None


def _failed(run: NodeRun, at: Any) -> Event:
    assert run.failure is not None
    data = {"node": run.node, "visit": run.visit, "error": f"{run.failure.type}: {run.failure.message}"}
    return Event(type=EventType.NODE_FAILED, stream=run.execution_id, at=at, data=data)
