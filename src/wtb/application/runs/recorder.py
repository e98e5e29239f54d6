"""Recorder: writes what a run does, one transaction per step, whoever drives the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from wtb.application.runs.leases import LEASE
from wtb.application.runs.steps import Also, Ending, Position, SaveFiles, Step
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Kind, NodeRun, NodeStatus, Trigger
from wtb.domain.engine import Standpoint
from wtb.domain.errors import AlreadyExists
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, check_id
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.secrets import Masker
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve

_MS = timedelta(milliseconds=1)

MAIN = "main"
"""The branch that every execution begins with."""

# A frozen dataclass of twenty fields takes five times as long to make as to copy with other values.
_UNKNOWN: Any = None
_NODE_RUN = NodeRun(
    id=_UNKNOWN, execution_id=_UNKNOWN, branch_id=_UNKNOWN, node="", visit=0, input_id=None, started_at=_UNKNOWN
)
_DRAFT = CheckpointDraft(
    id=_UNKNOWN, execution_id=_UNKNOWN, branch_id=_UNKNOWN, parent_id=None, step=0, created_at=datetime.now(UTC)
)

_ENDED = {
    ExecutionStatus.PAUSED: EventType.EXECUTION_PAUSED,
    ExecutionStatus.COMPLETED: EventType.EXECUTION_COMPLETED,
    ExecutionStatus.FAILED: EventType.EXECUTION_FAILED,
    ExecutionStatus.CANCELLED: EventType.EXECUTION_CANCELLED,
}


class Recorder:
    """Starts runs, adds steps and forks branches; checkpoint, boundary, head, version and events go together."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids, masker: Masker | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._masker = masker or Masker()

    def create(
        self,
        workflow: Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        execution_id: str | None = None,
        next_nodes: tuple[str, ...] = (),
        joins: Mapping[str, tuple[str, ...]] | None = None,
        memory: Mapping[str, Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        source: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        files: SaveFiles | None = None,
    ) -> Position:
        """Record a new run of a workflow (as data), pending, with checkpoint 0 holding its input."""
        now = self._clock.now()
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
            uow.executions.add(execution)
            uow.branches.add(branch)
            head = uow.checkpoints.save(draft, StateDelta.setting(state), memory)
            uow.branches.move_head(branch.id, head.id, expected=None)
            data = {"workflow": execution.workflow_name, "checkpoint": head.id}
            uow.events.append(Event(type=EventType.EXECUTION_CREATED, stream=execution_id, at=now, data=data))
            uow.commit()
        return Position(execution=execution, branch=branch.moved(head.id), head=head)

    def _execution_id(self, given: str | None) -> ExecutionId:
        return ExecutionId(self._ids.new() if given is None else check_id(given, "the run id"))

    def _branch(self, execution_id: ExecutionId, name: str, origin: CheckpointId | None, now: datetime) -> Branch:
        """Return a new branch that begins at a checkpoint, or at nothing."""
        return Branch(
            id=BranchId(self._ids.new()),
            execution_id=execution_id,
            name=name,
            head_id=origin,
            forked_from_id=origin,
            created_at=now,
        )

    def start(self, workflow: Mapping[str, Any], state: Mapping[str, Any], **facts: Any) -> Position:
        """Record a new run that is running from the beginning, without a lease."""
        return self.begin(self.create(workflow, state, **facts), owner=None)

    def begin(
        self,
        at: Position,
        owner: str | None,
        *,
        abandoned: str | None = None,
        changed: Sequence[str] = (),
        replaced: Mapping[str, tuple[str, str]] | None = None,
    ) -> Position:
        """Record that a process runs the execution from now on, under a lease when it names itself.

        `abandoned` says why it was taken from whoever ran it before, `changed` what is not as it was when it began,
        `replaced` which nodes have another variant from now on.
        """
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
                execution = execution.owned(owner, uow.now(), LEASE)
            uow.executions.save(execution)
            if abandoned is not None:
                data: dict[str, Any] = {"reason": self._masker.text(abandoned)}
                uow.events.append(Event(type=EventType.EXECUTION_ABANDONED, stream=execution.id, at=now, data=data))
            for node, (old, new) in (replaced or {}).items():
                data = {"node": node, "from": old, "to": new}
                uow.events.append(Event(type=EventType.NODE_REPLACED, stream=execution.id, at=now, data=data))
            data = {"checkpoint": at.head.id} | ({"changed": self._masker.data(list(changed))} if changed else {})
            uow.events.append(Event(type=kind, stream=execution.id, at=now, data=data))
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
        return evolve(
            _NODE_RUN,
            id=NodeRunId(self._ids.new()),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            node=node,
            visit=visit,
            input_id=at.head.id,
            started_at=self._clock.now(),
        )

    def complete(
        self, at: Position, run: NodeRun, delta: StateDelta, *, returned: Mapping[str, Any] | None = None, **facts: Any
    ) -> Position:
        """Record that one node completed; the other facts are those of a Step."""
        update = None if returned is None else {run.node: returned}
        return self.step(at, Step(runs=(run,), delta=delta, returned=update, **facts))

    def step(self, at: Position, step: Step, *, degraded: str | None = None) -> Position:
        """Record a superstep in one transaction, fenced by the lease when there is one."""
        draft = self._draft(at, step.next_nodes, step.joins)
        if len(step.runs) == 1:
            run = step.runs[0]
            draft = evolve(draft, node=run.node, visit=run.visit, node_run_id=run.id)
        now = draft.created_at
        with self._storage.unit_of_work() as uow:
            if step.files is not None:
                draft = evolve(draft, file_commit=step.files(uow))
            head = uow.checkpoints.save(draft, step.delta, {**(step.returned or {}), **step.memory} or None)
            for write in step.also:
                write(uow, head.file_commit)
            for run in step.missed:
                done = run.missed(head.id, now)
                uow.node_runs.save(done)
                uow.events.append(_completed(done, None, {}, now))
            for position, run in enumerate(step.runs):
                done = run.completed(head.id, now)
                uow.node_runs.save(done)
                data = step.data[position] if step.data else {}
                uow.events.append(_completed(done, head.id, data, now))
                for inside in data.get("inside", ()):
                    uow.events.append(Event(type=EventType.NODE_INSIDE, stream=run.execution_id, at=now, data=inside))
            if degraded is not None:
                at = self._degraded(uow, at, degraded, now)
            after = self._moved(uow, at, head, step.ending)
            uow.commit()
        return after

    def _draft(
        self, at: Position, next_nodes: tuple[str, ...], joins: Mapping[str, tuple[str, ...]], **facts: Any
    ) -> CheckpointDraft:
        """Return the checkpoint that follows the head."""
        head = at.head
        return evolve(
            _DRAFT,
            id=CheckpointId(self._ids.new()),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            parent_id=head.id,
            step=head.step + 1,
            next_nodes=next_nodes,
            joins=joins,
            agent=head.agent,
            file_commit=head.file_commit,
            created_at=self._clock.now(),
            **facts,
        )

    def _moved(self, uow: UnitOfWork, at: Position, head: Checkpoint, ending: Ending | None = None) -> Position:
        """Move the head, and end the run there when that is due or somebody has asked for it."""
        execution = at.execution
        if ending is None:
            execution = execution.stepped(head.created_at)
            request = uow.executions.advance(execution, token=at.token)
            ending = None if request is None else Ending.requested(request)
        if ending is not None:
            execution = self._ended(uow, execution, ending)
            uow.executions.save(execution, token=at.token)
        uow.branches.move_head(at.branch.id, head.id, expected=at.head.id)
        return Position(execution=execution, branch=at.branch.moved(head.id), head=head)

    def _degraded(self, uow: UnitOfWork, at: Position, reason: str, now: datetime) -> Position:
        reason = self._masker.text(reason)
        execution = evolve(at.execution.stepped(now), degraded=reason)
        uow.executions.save(execution, token=at.token)
        for kind in (EventType.CHECKPOINT_FAILED, EventType.EXECUTION_DEGRADED):
            uow.events.append(Event(type=kind, stream=execution.id, at=now, data={"error": reason}))
        return replace(at, execution=execution)

    def mark(
        self,
        at: Position,
        run: NodeRun,
        *,
        trigger: Trigger,
        kind: Kind = Kind.AUTO,
        name: str | None = None,
        description: str = "",
        files: SaveFiles | None = None,
        also: Callable[[UnitOfWork, NodeRun], None],
    ) -> tuple[Position, NodeRun]:
        """Record a checkpoint in the middle of a node, with what belongs to it, in one transaction.

        The state is that of the node's start: what the node will return is not known yet. A name that is taken is
        given a number, as visits are.
        """
        facts = {"trigger": trigger, "kind": kind, "name": name, "description": description}
        node = {"node": run.node, "visit": run.visit, "node_run_id": run.id}
        draft = self._draft(at, at.head.next_nodes, at.head.joins, **facts, **node)
        run = run.reached(draft.id)
        with self._storage.unit_of_work() as uow:
            if files is not None:
                draft = evolve(draft, file_commit=files(uow))
            head = _saved_under_a_free_name(uow, draft)
            uow.node_runs.save(run)
            also(uow, run)
            data = {"node": run.node, "visit": run.visit, "checkpoint": head.id, "name": head.name}
            uow.events.append(
                Event(type=EventType.CHECKPOINT_CREATED, stream=head.execution_id, at=head.created_at, data=data)
            )
            execution = at.execution.stepped(head.created_at)
            uow.executions.advance(execution, token=at.token)  # what was requested waits for the end of the node
            uow.branches.move_head(at.branch.id, head.id, expected=at.head.id)
            uow.commit()
        return Position(execution=execution, branch=at.branch.moved(head.id), head=head), run

    def _ended(self, uow: UnitOfWork, execution: Execution, ending: Ending) -> Execution:
        now = self._clock.now()
        ending = self._masked(ending)
        execution = execution.moved_to(ending.status, now, failure=ending.failure, pause=ending.pause)
        data: dict[str, Any] = {"notes": list(ending.notes)} if ending.notes else {}
        uow.executions.request(execution.id, None)  # or it would end the run again when somebody goes on with it
        if ending.pause is not None:
            data["reason"] = ending.pause.reason
        if ending.failure is not None:
            data |= {"error": f"{ending.failure.type}: {ending.failure.message}", "node": ending.failure.node}
        uow.events.append(Event(type=_ENDED[ending.status], stream=execution.id, at=now, data=data))
        return execution

    def _masked(self, ending: Ending) -> Ending:
        failure, pause, notes = ending.failure, ending.pause, ending.notes
        if failure is None and pause is None and not notes:
            return ending
        if pause is not None:
            question = None if pause.question is None else self._masked_question(pause.question)
            pause = replace(pause, reason=self._masker.text(pause.reason), question=question)
        notes = tuple(map(self._masker.text, notes))
        return replace(ending, failure=failure and self._masker.failure(failure), pause=pause, notes=notes)

    def _masked_question(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Mask what is asked, but not which call asks: digits of its identity may look like a secret."""
        masked: Mapping[str, Any] = self._masker.data(question)
        return {**masked, "identity": question["identity"]} if "identity" in question else masked

    def end(self, at: Position, ending: Ending, runs: Sequence[NodeRun] = ()) -> Position:
        """Record that the run is not driven any further here: paused, completed, failed or cancelled."""
        with self._storage.unit_of_work() as uow:
            execution = self._ended(uow, at.execution, ending)
            for run in runs:
                if run.failure is not None:
                    run = evolve(run, failure=self._masker.failure(run.failure))  # noqa: PLW2901
                uow.node_runs.save(run)
                if run.status is NodeStatus.FAILED:
                    uow.events.append(_failed(run, execution.updated_at))
            uow.executions.save(execution, token=at.token)
            uow.commit()
        return Position(execution=execution, branch=at.branch, head=at.head)

    def keep_pending(self, at: Position, run: NodeRun, files: SaveFiles | None, also: Also | None = None) -> None:
        """Record the result of one member of a parallel superstep, so that a crash before the barrier loses nothing."""
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            if files is not None:
                files(uow)
            if also is not None:
                also(uow, None if run.pending is None else run.pending["file_commit"])
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

    def note(self, at: Position, type: EventType, data: Mapping[str, Any], run: NodeRun | None = None) -> None:
        """Record an event of the run by itself, with what the node run that it is about has spent, if anything."""
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            if run is not None and run.figures is not None:
                uow.node_runs.save(run)
            told = self._masker.data(data)
            uow.events.append(Event(type=type, stream=at.execution.id, at=self._clock.now(), data=told))
            uow.commit()

    def change_state(self, at: Position, delta: StateDelta, created_by: str | None = None) -> Position:
        """Record a change that a person made while the run was paused, as a checkpoint of its own."""
        with self._storage.unit_of_work() as uow:
            after = self._changed(uow, at, delta, created_by)
            uow.commit()
        return after

    def _changed(
        self,
        uow: UnitOfWork,
        at: Position,
        delta: StateDelta,
        created_by: str | None,
        *,
        begun: Standpoint | None = None,
        remembers: str = "",
    ) -> Position:
        next_nodes = at.head.next_nodes if begun is None else begun.next_nodes
        draft = self._draft(at, next_nodes, at.head.joins, trigger=Trigger.PAUSE, created_by=created_by)
        memory = {remembers: begun.memory} if begun is not None and remembers else None
        return self._moved(uow, at, uow.checkpoints.save(draft, delta, memory))

    def thin(self, at: Position) -> None:
        """Delete the checkpoints between the first and the last of the run that nobody named or branched from."""
        with self._storage.unit_of_work() as uow:
            history = uow.checkpoints.load_history(at.execution.id)
            kept = {id for branch in history.branches for id in (branch.forked_from_id, branch.head_id)}
            gone = [
                checkpoint.id
                for checkpoint in history.lineage()[1:]
                if checkpoint.execution_id == at.execution.id
                and checkpoint.kind is Kind.AUTO
                and not checkpoint.deleted
                and checkpoint.id not in kept
            ]
            if gone:
                uow.checkpoints.delete(gone)
                data = {"count": len(gone), "reason": f"checkpoints={at.execution.options.get('checkpoints')}"}
                now = self._clock.now()
                uow.events.append(Event(type=EventType.CHECKPOINT_DELETED, stream=at.execution.id, at=now, data=data))
                uow.commit()

    def safety_checkpoint(
        self,
        uow: UnitOfWork,
        at: Position,
        description: str,
        files: SaveFiles | None,
        memory: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Checkpoint:
        """Keep the run as it is before it is changed, beside its line; the head stays where it is."""
        facts = {"trigger": Trigger.USER_REQUEST, "kind": Kind.SYSTEM, "description": description}
        draft = self._draft(at, at.head.next_nodes, at.head.joins, **facts, **_inside(at.head))
        if files is not None:
            draft = evolve(draft, file_commit=files(uow))
        return uow.checkpoints.save(draft, StateDelta(), memory)

    def name_head(self, at: Position, begun: NodeRun | None, **facts: Any) -> Checkpoint:
        """Make a checkpoint that somebody named where the run stands; when a node was begun there, it belongs to it."""
        facts |= {"trigger": Trigger.USER_REQUEST, "kind": Kind.MANUAL}
        draft = self._draft(at, at.head.next_nodes, at.head.joins, **facts, **_inside(at.head))
        if begun is not None:
            draft = evolve(draft, node=begun.node, visit=begun.visit, node_run_id=begun.id)
        with self._storage.unit_of_work() as uow:
            head = uow.checkpoints.save(draft, StateDelta())
            if begun is not None:
                uow.node_runs.save(begun.reached(head.id))
            data = {"checkpoint": head.id, "name": head.name}
            uow.events.append(
                Event(type=EventType.CHECKPOINT_CREATED, stream=head.execution_id, at=head.created_at, data=data)
            )
            uow.executions.advance(at.execution.stepped(head.created_at))
            uow.branches.move_head(at.branch.id, head.id, expected=at.head.id)
            uow.commit()
        return head

    def fork_run(
        self,
        source: Execution,
        point: Checkpoint,
        *,
        name: str,
        execution_id: str | None = None,
        change: StateDelta | None = None,
        begun: Standpoint | None = None,
        remembers: str = "",
        created_by: str | None = None,
    ) -> Position:
        """Record a new pending run that goes on from a checkpoint of another, with its workflow and options.

        A `change` of its state is a first checkpoint of its own; `begun` says where its engine begins after it.
        """
        now = self._clock.now()
        execution_id = self._execution_id(execution_id)
        branch = self._branch(execution_id, name, point.id, now)
        execution = Execution(
            id=execution_id,
            workflow_id=source.workflow_id,
            workflow_name=source.workflow_name,
            workflow_source=source.workflow_source,
            branch_id=branch.id,
            options={**source.options, "break_before": (), "break_after": ()},
            metadata=source.metadata,
            created_by=created_by,
            created_at=now,
            updated_at=now,
        )
        with self._storage.unit_of_work() as uow:
            uow.executions.add(execution)
            uow.branches.add(branch)
            at = Position(execution=execution, branch=branch, head=point)
            if change:
                at = self._changed(uow, at, change, created_by, begun=begun, remembers=remembers)
            data = {"branch": name, "checkpoint": point.id, "run": execution_id, "from": source.id}
            for stream in (source.id, execution_id):
                uow.events.append(Event(type=EventType.BRANCH_CREATED, stream=stream, at=now, data=data))
            uow.commit()
        return at

    def fork(self, at: Position, checkpoint_id: CheckpointId, name: str) -> Position:
        """Record a new branch of the run that begins at a checkpoint, and make it the active one."""
        now = self._clock.now()
        branch = self._branch(at.execution.id, name, checkpoint_id, now)
        with self._storage.unit_of_work() as uow:
            head = uow.checkpoints.get(checkpoint_id)
            execution = at.execution.on_branch(branch.id, now)
            uow.executions.save(execution)
            uow.branches.add(branch)
            data = {"branch": name, "checkpoint": checkpoint_id}
            uow.events.append(Event(type=EventType.BRANCH_CREATED, stream=at.execution.id, at=now, data=data))
            uow.commit()
        return Position(execution=execution, branch=branch, head=head)


def _completed(run: NodeRun, checkpoint_id: CheckpointId | None, more: Mapping[str, Any], now: datetime) -> Event:
    took_ms = round(((run.ended_at or now) - run.started_at) / _MS, 3) if run.figures is None else run.figures.ms
    said = {key: value for key, value in more.items() if key != "inside"}
    data = {"node": run.node, "visit": run.visit, "checkpoint": checkpoint_id, "ms": took_ms, **said}
    return Event(type=EventType.NODE_COMPLETED, stream=run.execution_id, at=now, data=data)


def _inside(head: Checkpoint) -> dict[str, Any]:
    """Return the node in the middle of which a checkpoint lies: one made right behind it lies there as well."""
    return {"node": head.node, "visit": head.visit, "node_run_id": head.node_run_id} if head.is_inside else {}


def _saved_under_a_free_name(uow: UnitOfWork, draft: CheckpointDraft) -> Checkpoint:
    name = draft.name
    for number in count(2):
        try:
            return uow.checkpoints.save(draft, StateDelta())
        except AlreadyExists:
            if name is None:
                raise
            draft = evolve(draft, name=f"{name}#{number}")
    raise AssertionError


def _failed(run: NodeRun, at: datetime) -> Event:
    assert run.failure is not None
    data = {"node": run.node, "visit": run.visit, "error": f"{run.failure.type}: {run.failure.message}"}
    return Event(type=EventType.NODE_FAILED, stream=run.execution_id, at=at, data=data)
