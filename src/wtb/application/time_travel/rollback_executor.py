"""RollbackExecutor: carries out a journalled rollback or redo, in steps that any process can take over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

from wtb.application.runs.reversals import Doubt, RedoDiverged, ReversalFailed, Reversals
from wtb.application.runs.steps import Position
from wtb.application.workspaces import Workspaces
from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.errors import LeaseLost, WTBError
from wtb.domain.event_catalogue import CheckpointRestored, RollbackCompleted, RollbackStarted, RollbackStopped
from wtb.domain.events import Event
from wtb.domain.execution import Execution, ExecutionStatus, Pause
from wtb.domain.files import FileCommitId
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import Clock, Storage, UnitOfWork
from wtb.domain.rollback import Direction, Rollback, RollbackStatus, chosen, redoable
from wtb.domain.secrets import Masker
from wtb.domain.tools import CallStatus, ToolCall
from wtb.domain.values import evolve

_TOLD = 100
"""How many nodes and calls an event names."""


class RollbackFailed(WTBError):
    """A rollback or redo stopped half-way; the run waits in `rolling_back`, and the journal knows what is left."""


class RollbackExecutor:
    """Takes back calls or makes them again, puts files in place and moves the head, in this order; each is recorded.

    `user` is the person whom the events name.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        workspaces: Workspaces,
        reversals: Reversals,
        masker: Masker,
        *,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._workspaces = workspaces
        self._reversals = reversals.acting_for(user)
        self._masker = masker
        self._user = user

    def carry_out(self, at: Position, journal: Rollback, doubt: Doubt | None = None) -> Execution:
        """Carry out a rollback or redo, or what is left of one; before it begins files are got ready and verified."""
        target = self._checkpoint(journal.target_id)
        try:
            with self._staged(at, self._commit_of(journal)) as swap:
                if at.execution.status is not ExecutionStatus.ROLLING_BACK:
                    at = self._begun(at, journal)
                self._move(at, journal, swap, doubt)
        except RedoDiverged as error:
            told = self._masker.text(f"{error}; the run stays where it is: resume it to run the node again")
            self._end(at, journal.ended(RollbackStatus.ABANDONED, self._clock.now(), told), at.head)
            raise RedoDiverged(told) from error
        # Nothing is staged any more: from here on the folder may be somebody else's.
        return self._end(at, journal.ended(RollbackStatus.COMPLETED, self._clock.now()), target)

    def give_up(self, at: Position, journal: Rollback, doubt: Doubt | None) -> Execution:
        """Leave the run where it is; calls of which nobody knows how they stand are settled first."""
        self._settle(at, journal, doubt)
        if journal.direction is Direction.REDO:
            self._take_back(at, journal)
        files = at.head if journal.direction is Direction.REDO else self._checkpoint(journal.safety_id)
        with self._staged(at, files.file_commit) as swap:
            swap()
        return self._end(at, journal.ended(RollbackStatus.ABANDONED, self._clock.now()), at.head)

    def _commit_of(self, journal: Rollback) -> str | None:
        """Return the files that belong to where it goes: forward, they are those that lay there before."""
        wanted = journal.safety_id if journal.direction is Direction.REDO else journal.target_id
        return self._checkpoint(wanted).file_commit

    def _checkpoint(self, checkpoint_id: CheckpointId) -> Checkpoint:
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.checkpoints.get(checkpoint_id)

    @contextmanager
    def _staged(self, at: Position, commit: str | None) -> Iterator[Callable[[], object]]:
        """Get the files of a commit ready beside those that are there; a run that never had files has no folder."""
        if commit is None and at.head.file_commit is None:
            yield lambda: None
            return
        folder = self._workspaces.path(at.execution.id, at.branch.id)
        wanted = None if commit is None else FileCommitId(commit)
        with self._workspaces.staged(folder, wanted) as swap:

            def swap_in() -> None:
                self._workspaces.note(folder, None)
                swap()
                self._workspaces.note(folder, wanted)

            yield swap_in

    def _begun(self, at: Position, journal: Rollback) -> Position:
        """Record that the run is being rolled back and how far; from here on anybody can finish it."""
        now = journal.created_at
        execution = at.execution.moved_to(ExecutionStatus.ROLLING_BACK, now)
        body = RollbackStarted(
            direction=journal.direction.value,
            from_=at.head.id,
            to=journal.target_id,
            calls=tuple(key.identity for key in journal.calls[:_TOLD]),
            by=self._user,
        )
        with self._storage.unit_of_work() as uow:
            uow.executions.save(execution, token=at.token)
            uow.rollbacks.save(journal)
            uow.events.append(Event.of(body, stream=execution.id, at=now))
            uow.commit()
        return replace(at, execution=execution)

    def _move(self, at: Position, journal: Rollback, swap: Callable[[], object], doubt: Doubt | None) -> None:
        """Deal with the calls that are left, and put the files in place; a redo that diverges takes its calls back."""
        try:
            self._deal_with_calls(at, journal, doubt)
            swap()
        except LeaseLost:
            raise
        except RedoDiverged:
            self._take_back(at, journal)
            raise
        except Exception as error:
            raise self._failed(at, journal, error) from error

    def _deal_with_calls(self, at: Position, journal: Rollback, doubt: Doubt | None) -> None:
        for call in self._calls(journal):
            if journal.direction is Direction.ROLLBACK:
                self._reverse(at, journal, call, doubt)
            else:
                self._reversals.repeat(call, at.token, journal.id, doubt)

    def _settle(self, at: Position, journal: Rollback, doubt: Doubt | None) -> None:
        """Finish what was being done to a call; when that fails, it is known that it was not done."""
        for call in self._calls(journal):
            with suppress(ReversalFailed, RedoDiverged):
                if call.status is CallStatus.REVERSING:
                    self._reversals.reverse(call, at.token, doubt, rollback_id=journal.id)
                elif call.status is CallStatus.REDOING:
                    self._reversals.repeat(call, at.token, journal.id, doubt)

    def _take_back(self, at: Position, journal: Rollback) -> None:
        """Take back what a redo has repeated."""
        try:
            for call in reversed(self._calls(journal)):
                self._reverse(at, journal, call)
        except LeaseLost:
            raise
        except Exception as error:
            raise self._failed(at, journal, error) from error

    def _reverse(self, at: Position, journal: Rollback, call: ToolCall, doubt: Doubt | None = None) -> None:
        """Take back a call, or raise: the workflow may have lost the tool since the plan was made."""
        tool = self._reversals.find_tool(call.tool)
        if call.may_have_happened and (tool is None or tool.reverse is None):
            raise ReversalFailed(
                f"{call.tool} ({call.identity}) cannot be taken back: no tool of that name with reverse= is known here"
            )
        self._reversals.reverse(call, at.token, doubt, rollback_id=journal.id)

    def _calls(self, journal: Rollback) -> list[ToolCall]:
        with self._storage.unit_of_work(readonly=True) as uow:
            calls = _calls_of(uow, journal)
        return chosen(calls, journal.calls)

    def _failed(self, at: Position, journal: Rollback, error: Exception) -> RollbackFailed:
        """Record why it stopped; it can be continued or abandoned from any process."""
        now = self._clock.now()
        told = self._masker.text(str(error))
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            uow.rollbacks.save(journal.ended(RollbackStatus.FAILED, now, told))
            body = RollbackStopped(direction=journal.direction.value, error=told, by=self._user)
            uow.events.append(Event.of(body, stream=at.execution.id, at=now))
            uow.commit()
        return RollbackFailed(
            f"{told}. Run {at.execution.id!r} waits in the middle of its {journal.direction}: put that right and go on "
            f"with `wtb rollback {at.execution.id} --continue`, or give it up with `--abandon`"
        )

    def _end(self, at: Position, journal: Rollback, head: Checkpoint) -> Execution:
        now = self._clock.now()
        was_done = journal.status is RollbackStatus.COMPLETED
        where = head.name or (f"{head.node}#{head.visit}" if head.node else f"step {head.step}")
        reason = f"{'rolled back' if journal.direction is Direction.ROLLBACK else 'gone forward'} to {where}"
        execution = at.execution.moved_to(
            ExecutionStatus.PAUSED, now, pause=Pause(reason=reason if was_done else f"{journal.direction} given up")
        )
        with self._storage.unit_of_work() as uow:
            journal = _told_apart(uow, journal)
            if was_done:
                for run in _left_or_taken_up(uow, at, journal, head):
                    uow.node_runs.save(run)
                is_back = journal.direction is Direction.ROLLBACK and head.id != at.head.id
                move = uow.branches.rewind if is_back else uow.branches.move_head
                move(at.branch.id, head.id, expected=at.head.id)
                there = CheckpointRestored(checkpoint=head.id, step=head.step, node=head.node, by=self._user)
                uow.events.append(Event.of(there, stream=execution.id, at=now))
            uow.executions.save(execution, token=at.token)
            uow.rollbacks.save(journal)
            uow.events.append(Event.of(self._outcome(uow, at, journal, head), stream=execution.id, at=now))
            uow.commit()
        return execution

    def _outcome(self, uow: UnitOfWork, at: Position, journal: Rollback, head: Checkpoint) -> RollbackCompleted:
        """Return what a rollback or redo has done, for its event."""
        done, _ = journal.progress(_calls_of(uow, journal))
        return RollbackCompleted(
            direction=journal.direction.value,
            status=journal.status.value,
            error=journal.error,
            from_=journal.head_id,
            to=journal.target_id,
            nodes=_nodes_between(uow, at.head, head),
            calls=tuple(call.identity for call in done[:_TOLD]),
            by=self._user,
        )


def _nodes_between(uow: UnitOfWork, one: Checkpoint, other: Checkpoint) -> tuple[str, ...]:
    """Return the last node visits that lie between two checkpoints of one line, oldest first."""
    newer, steps = max(one, other, key=lambda each: each.step), abs(one.step - other.step)
    line = uow.pages.list_line(newer.id, limit=min(steps, _TOLD)) if steps else ()
    ids = {checkpoint.id for checkpoint in line}
    runs = uow.node_runs.list_leading_to(newer.execution_id, line) if line else ()
    return tuple(f"{run.node}#{run.visit}" for run in runs if run.last_id in ids)


def _calls_of(uow: UnitOfWork, journal: Rollback) -> list[ToolCall]:
    runs = {key.node_run_id for key in journal.calls}
    return [call for run in runs for call in uow.tool_calls.list_calls(journal.execution_id, run)]


def _told_apart(uow: UnitOfWork, journal: Rollback) -> Rollback:
    """Return a journal whose end no other of the run has: by its end a redo knows the node runs that it left behind."""
    ended_at = journal.ended_at
    assert ended_at is not None
    taken = {other.ended_at for other in uow.rollbacks.list_rollbacks(journal.execution_id)}
    while ended_at in taken:
        ended_at += timedelta(microseconds=1)
    return replace(journal, ended_at=ended_at)


def last_undone(uow: UnitOfWork, at: Position) -> Rollback | None:
    """Return the rollback of a run that the next redo takes back."""
    found = uow.rollbacks.list_rollbacks(at.execution.id)
    return redoable([journal for journal in found if journal.branch_id == at.branch.id])


def _left_or_taken_up(uow: UnitOfWork, at: Position, journal: Rollback, head: Checkpoint) -> list[NodeRun]:
    """Return the runs that were begun where a rollback goes to, as left behind; and a redo those that it left there."""
    begun = [run for run in uow.node_runs.list_leading_to(at.execution.id, [head]) if _was_begun_at(run, at, head)]
    current = [run for run in begun if run.status is not NodeStatus.SKIPPED]
    assert journal.ended_at is not None
    left = [run.ended(NodeStatus.SKIPPED, journal.ended_at) for run in current]
    if journal.direction is Direction.ROLLBACK:
        return left
    undone = last_undone(uow, at)
    assert undone is not None
    again = [run for run in begun if run.status is NodeStatus.SKIPPED and run.ended_at == undone.ended_at]
    begun_since = left if head.id == at.head.id else []  # a rollback to where the run stood, and a new try from there
    return [*begun_since, *(evolve(run, status=NodeStatus.STARTED) for run in again)]


def _was_begun_at(run: NodeRun, at: Position, head: Checkpoint) -> bool:
    """Whether a run began at a checkpoint, or made it in its middle, and got no further."""
    began = run.input_id == head.id and run.last_id is None
    return run.branch_id == at.branch.id and (began or (head.is_inside and run.last_id == head.id))
