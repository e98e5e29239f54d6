"""Recorder: writes the steps of a run, one transaction each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from wtb.application.runs.heads import HeadDrafts, move_head
from wtb.application.runs.leases import LEASE
from wtb.application.runs.run_request import read_request
from wtb.application.runs.steps import NO_REPORT, Also, Ending, NodeReport, Position, SaveFiles, Step
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Kind, NodeRun, NodeStatus, Trigger
from wtb.domain.errors import AlreadyExists
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import (
    CheckpointCreated,
    CheckpointFailed,
    ExecutionAbandoned,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionDegraded,
    ExecutionFailed,
    ExecutionPaused,
    ExecutionResumed,
    ExecutionStarted,
    NodeCompleted,
    NodeFailed,
    NodeReplaced,
    NodeSkipped,
)
from wtb.domain.events import Event
from wtb.domain.execution import Execution, ExecutionStatus, Failure, Pause
from wtb.domain.ids import CheckpointId, ExecutionId, NodeRunId
from wtb.domain.ports import Clock, HeadMove, Ids, Storage, UnitOfWork
from wtb.domain.secrets import Masker
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve

_MS = timedelta(milliseconds=1)

# Making a frozen dataclass of twenty fields takes five times as long as copying one with other values.
_UNKNOWN: Any = None
_NODE_RUN = NodeRun(
    id=_UNKNOWN, execution_id=_UNKNOWN, branch_id=_UNKNOWN, node="", visit=0, input_id=None, started_at=_UNKNOWN
)


class Recorder:
    """Records the start, steps and end of a run. A step's checkpoint, node runs, head and events go together."""

    def __init__(
        self, storage: Storage, clock: Clock, ids: Ids, masker: Masker | None = None, *, user: str | None = None
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._masker = masker or Masker()
        self._user = user
        self._drafts = HeadDrafts(clock, ids, user)

    def begin(
        self,
        at: Position,
        owner: str | None,
        *,
        abandoned: str | None = None,
        changed: Sequence[str] = (),
        replaced: Mapping[str, tuple[str, str]] | None = None,
    ) -> Position:
        """Record that a process runs the execution from now on, under a lease if `owner` names the process.

        `abandoned` says why the run was taken from its last process, `changed` what has changed since the run began,
        and `replaced` which nodes have another variant from now on.
        """
        now = self._clock.now()
        execution = at.execution
        begun = ExecutionStarted if execution.status is ExecutionStatus.PENDING else ExecutionResumed
        if execution.status is not ExecutionStatus.RUNNING:
            execution = execution.moved_to(ExecutionStatus.RUNNING, now)
        elif owner is not None:
            execution = execution.stepped(now)
        with self._storage.unit_of_work() as uow:
            if owner is not None:
                execution = execution.owned(owner, uow.now(), LEASE)
            uow.executions.save(execution)
            if abandoned is not None:
                left = ExecutionAbandoned(reason=self._masker.text(abandoned), by=self._user)
                uow.events.append(Event.of(left, stream=execution.id, at=now))
            for node, (old, new) in (replaced or {}).items():
                other = NodeReplaced(node=node, from_=old, to=new, by=self._user)
                uow.events.append(Event.of(other, stream=execution.id, at=now))
            body = begun(checkpoint=at.head.id, changed=tuple(map(self._masker.text, changed)), by=self._user)
            uow.events.append(Event.of(body, stream=execution.id, at=now))
            uow.commit()
        return Position(execution=execution, branch=at.branch, head=at.head)

    def load(self, execution_id: ExecutionId) -> Position:
        """Return the position of a run."""
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
            branch = uow.branches.get(execution.branch_id)
            assert branch.head_id is not None
            return Position(execution=execution, branch=branch, head=uow.checkpoints.get(branch.head_id))

    def node_run(self, at: Position, node: str, visit: int) -> NodeRun:
        """Return a new run of a node that begins here; it is stored with its first checkpoint or call."""
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

    def step(self, at: Position, step: Step, *, degraded: str | None = None) -> Position:
        """Record a superstep in one transaction, fenced by the lease if there is one."""
        draft = self._drafts.after(at, next_nodes=step.next_nodes, joins=step.joins)
        if len(step.runs) == 1:
            run = step.runs[0]
            draft = evolve(draft, node=run.node, visit=run.visit, node_run_id=run.id)
        else:
            draft = evolve(draft, description=", ".join(dict.fromkeys(run.node for run in step.runs)))
        now = draft.created_at
        with self._storage.unit_of_work() as uow:
            if step.files is not None:
                draft = evolve(draft, file_commit=step.files(uow))
            head = uow.checkpoints.save(draft, step.delta, step.returned, step.memory)
            for write in step.also:
                write(uow, head.file_commit)
            for run in step.missed:
                done = run.missed(head.id, now)
                uow.node_runs.save(done)
                uow.events.append(self._completed(done, None, NO_REPORT, now))
            for position, run in enumerate(step.runs):
                done = run.completed(head.id, now)
                uow.node_runs.save(done)
                report = step.reports[position] if step.reports else NO_REPORT
                uow.events.append(self._completed(done, head.id, report, now))
                for inside in report.inside:
                    uow.events.append(Event.of(inside, stream=run.execution_id, at=now))
            if degraded is not None:
                at = self._degraded(uow, at, degraded, now)
            after = self._moved(uow, at, head, step.ending)
            uow.commit()
        return after

    def _moved(self, uow: UnitOfWork, at: Position, head: Checkpoint, ending: Ending | None = None) -> Position:
        """Move the head, and end the run there if it is due to end or somebody has asked for it."""
        execution = at.execution
        move = HeadMove(at.branch.id, head.id, at.head.id)
        if ending is None:
            execution = execution.stepped(head.created_at)
            request = uow.executions.advance(execution, token=at.token, move=move)
            if request is not None:
                execution = self._saved_end(uow, at, execution, Ending.requested(*read_request(request)), head)
        else:
            execution = self._saved_end(uow, at, execution, ending, head)
            uow.branches.move_head(move.branch_id, move.head_id, expected=move.expected)
        return Position(execution=execution, branch=at.branch.moved(head.id), head=head)

    def _saved_end(
        self, uow: UnitOfWork, at: Position, execution: Execution, ending: Ending, head: Checkpoint
    ) -> Execution:
        execution = self._ended(uow, execution, ending, head)
        uow.executions.save(execution, token=at.token)
        return execution

    def _degraded(self, uow: UnitOfWork, at: Position, reason: str, now: datetime) -> Position:
        reason = self._masker.text(reason)
        execution = evolve(at.execution.stepped(now), degraded=reason)
        uow.executions.save(execution, token=at.token)
        for body in (CheckpointFailed(error=reason), ExecutionDegraded(error=reason)):
            uow.events.append(Event.of(body, stream=execution.id, at=now))
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
        """Record a checkpoint in the middle of a node, with everything that belongs to it, in one transaction.

        It has the state that the node began with, since the node has not returned yet. A name that is taken gets a
        number, as visits do.
        """
        facts = {"trigger": trigger, "kind": kind, "name": name, "description": description}
        node = {"node": run.node, "visit": run.visit, "node_run_id": run.id}
        draft = self._drafts.after(at, **facts, **node)
        run = run.reached(draft.id)
        with self._storage.unit_of_work() as uow:
            if files is not None:
                draft = evolve(draft, file_commit=files(uow))
            head = _saved_under_a_free_name(uow, draft)
            uow.node_runs.save(run)
            also(uow, run)
            body = CheckpointCreated(
                node=run.node, visit=run.visit, checkpoint=head.id, name=head.name, step=head.step, by=self._user
            )
            uow.events.append(Event.of(body, stream=head.execution_id, at=head.created_at))
            after = move_head(uow, at, head)
            uow.commit()
        return after, run

    def _ended(self, uow: UnitOfWork, execution: Execution, ending: Ending, head: Checkpoint) -> Execution:
        now = self._clock.now()
        ending = self._masked(ending)
        execution = execution.moved_to(ending.status, now, failure=ending.failure, pause=ending.pause)
        uow.executions.request(execution.id, None)  # or the request would end the run again when it is resumed
        uow.events.append(Event.of(_end_of(execution, ending, head), stream=execution.id, at=now))
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
        """Mask the question, but not the identity of the call that asks: its digits may look like a secret."""
        masked: Mapping[str, Any] = self._masker.data(question)
        return {**masked, "identity": question["identity"]} if "identity" in question else masked

    def end(self, at: Position, ending: Ending, runs: Sequence[NodeRun] = ()) -> Position:
        """Record that this process stops driving the run: it is paused, completed, failed or cancelled."""
        with self._storage.unit_of_work() as uow:
            execution = self._ended(uow, at.execution, ending, at.head)
            for run in runs:
                if run.failure is not None:
                    run = evolve(run, failure=self._masker.failure(run.failure))  # noqa: PLW2901
                uow.node_runs.save(run)
                if run.status is NodeStatus.FAILED:
                    uow.events.append(self._failed(run, execution.updated_at))
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
        """Record that a node run is left behind, because the node starts over."""
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            uow.node_runs.save(run.ended(NodeStatus.SKIPPED, now))
            body = NodeSkipped(node=run.node, visit=run.visit, by=self._user)
            uow.events.append(Event.of(body, stream=at.execution.id, at=now))
            uow.commit()

    def note(self, at: Position, body: EventBody, run: NodeRun | None = None) -> None:
        """Record an event of the run in its own transaction, with the spending of its node run, if any."""
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            if run is not None and run.figures is not None:
                uow.node_runs.save(run)
            uow.events.append(Event.of(body, stream=at.execution.id, at=self._clock.now()))
            uow.commit()

    def _completed(self, run: NodeRun, checkpoint_id: CheckpointId | None, report: NodeReport, now: datetime) -> Event:
        took_ms = round(((run.ended_at or now) - run.started_at) / _MS, 3) if run.figures is None else run.figures.ms
        body = NodeCompleted(
            node=run.node,
            visit=run.visit,
            checkpoint=checkpoint_id,
            ms=took_ms,
            usage=report.usage,
            shared=report.shared,
            tool_errors=report.tool_errors,
            trace=report.trace,
            by=self._user,
        )
        return Event.of(body, stream=run.execution_id, at=now)

    def _failed(self, run: NodeRun, at: datetime) -> Event:
        assert run.failure is not None
        error = f"{run.failure.type}: {run.failure.message}"
        body = NodeFailed(node=run.node, visit=run.visit, error=error, attempt=run.attempt, by=self._user)
        return Event.of(body, stream=run.execution_id, at=at)


def _end_of(execution: Execution, ending: Ending, head: Checkpoint) -> EventBody:
    """Return the event for the ending of a run."""
    match ending:
        case Ending(status=ExecutionStatus.COMPLETED):
            ms = round((execution.updated_at - execution.created_at) / _MS, 3)
            return ExecutionCompleted(checkpoint=head.id, nodes=ending.nodes, ms=ms, notes=ending.notes)
        case Ending(status=ExecutionStatus.CANCELLED):
            return ExecutionCancelled(checkpoint=head.id, notes=ending.notes, by=ending.by)
        case Ending(failure=Failure() as failure):
            error = f"{failure.type}: {failure.message}"
            return ExecutionFailed(
                error=error, node=failure.node, visit=failure.visit, checkpoint=head.id, notes=ending.notes
            )
        case Ending(pause=Pause() as pause):
            return ExecutionPaused(
                reason=pause.reason, node=pause.node, checkpoint=head.id, notes=ending.notes, by=ending.by
            )
    raise AssertionError(ending)


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
