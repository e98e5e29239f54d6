"""RollbackExecutor: carries out a journalled rollback or redo, in steps that any process can take over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from wtb.application.runs.reversals import Doubt, RedoDiverged, ReversalFailed, Reversals
from wtb.application.runs.steps import Position
from wtb.application.time_travel.journals import last_undone, with_own_end_time
from wtb.application.workspaces import Workspaces
from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.errors import LeaseLost, WTBError
from wtb.domain.event_catalogue import CheckpointRestored, RollbackCompleted, RollbackStarted, RollbackStopped
from wtb.domain.events import Event
from wtb.domain.execution import Execution, ExecutionStatus, Pause, PauseKind
from wtb.domain.files import FileCommitId
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import NO_TELEMETRY, Clock, Measure, Storage, Telemetry, UnitOfWork, measured
from wtb.domain.rollback import Rollback, RollbackDirection, RollbackStatus, can_reverse, chosen
from wtb.domain.secrets import Masker, text_of
from wtb.domain.tools import CallStatus, Tool, ToolCall
from wtb.domain.values import evolve

_TOLD = 100
"""The most nodes and calls that an event names."""


_NOUNS = {
    RollbackDirection.ROLLBACK: "The rollback of",
    RollbackDirection.REDO: "The redo of",
    RollbackDirection.TAKE_BACK: "Taking back the calls of",
}


class RollbackFailed(WTBError):
    """A rollback or redo stopped half-way: the run stays `rolling_back`, and the journal lists what is left to do."""


class RollbackExecutor:
    """Undoes or repeats calls, then puts files in place, then moves the head. It records each step.

    The events name `user`.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        workspaces: Workspaces,
        reversals: Reversals,
        masker: Masker,
        *,
        telemetry: Telemetry = NO_TELEMETRY,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._workspaces = workspaces
        self._reversals = reversals.acting_for(user)
        self._masker = masker
        self._telemetry = telemetry
        self._user = user

    def carry_out(self, at: Position, journal: Rollback, doubt: Doubt | None = None) -> Execution:
        """Carry out a journal, or the rest of it. Files are prepared and verified before anything changes."""
        is_move = journal.direction is not RollbackDirection.TAKE_BACK
        work = self._carried_out if is_move else self._taken_back
        carry_out = measured(self._telemetry, Measure.ROLLBACK, journal.direction.value, work)
        return carry_out(at, journal, doubt)

    def _carried_out(self, at: Position, journal: Rollback, doubt: Doubt | None) -> Execution:
        target = self._checkpoint(journal.target_id)
        try:
            with self._staged(at, self._commit_of(journal)) as swap:
                if at.execution.status is not ExecutionStatus.ROLLING_BACK:
                    at = self._begun(at, journal)
                self._move(at, journal, swap, doubt)
        except RedoDiverged as error:
            text = self._masker.text(f"{error}; the run stays where it is: resume it to run the node again")
            self._end(at, journal.ended(RollbackStatus.ABANDONED, self._clock.now(), text), at.head)
            raise RedoDiverged(text) from error
        # The staged files are in place: from here on, another process may use the folder.
        return self._end(at, journal.ended(RollbackStatus.COMPLETED, self._clock.now()), target)

    def _taken_back(self, at: Position, journal: Rollback, doubt: Doubt | None) -> Execution:
        """Undo the calls of a run, or the rest of them, and release the run; its state and files stay."""
        if not self._is_known(journal):
            self._record_start(at, at.execution, journal)
        try:
            self._deal_with_calls(at, journal, doubt)
        except LeaseLost:
            raise
        except Exception as error:
            raise self._failed(at, journal, error) from error
        return self._let_go(at, journal.ended(RollbackStatus.COMPLETED, self._clock.now()))

    def _is_known(self, journal: Rollback) -> bool:
        with self._storage.unit_of_work(readonly=True) as uow:
            return any(each.id == journal.id for each in uow.rollbacks.list_rollbacks(journal.execution_id))

    def give_up(self, at: Position, journal: Rollback, doubt: Doubt | None) -> Execution:
        """Give up a rollback or redo: settle calls in doubt, and leave the run where it is."""
        self._settle(at, journal, doubt)
        if journal.direction is RollbackDirection.TAKE_BACK:
            return self._let_go(at, journal.ended(RollbackStatus.ABANDONED, self._clock.now()))
        if journal.direction is RollbackDirection.REDO:
            self._take_back(at, journal)
        files = at.head if journal.direction is RollbackDirection.REDO else self._checkpoint(journal.safety_id)
        with self._staged(at, files.file_commit) as swap:
            swap()
        return self._end(at, journal.ended(RollbackStatus.ABANDONED, self._clock.now()), at.head)

    def _commit_of(self, journal: Rollback) -> str | None:
        """Return the commit of the files to restore; for a redo, those from before the rollback."""
        wanted = journal.safety_id if journal.direction is RollbackDirection.REDO else journal.target_id
        return self._checkpoint(wanted).file_commit

    def _checkpoint(self, checkpoint_id: CheckpointId) -> Checkpoint:
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.checkpoints.get(checkpoint_id)

    @contextmanager
    def _staged(self, at: Position, commit: str | None) -> Iterator[Callable[[], object]]:
        """Prepare the files of a commit beside the current ones; a run that never had files has no folder."""
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
        """Record that the run is being rolled back, and its target; from here on any process can finish it."""
        execution = at.execution.moved_to(ExecutionStatus.ROLLING_BACK, journal.created_at)
        self._record_start(at, execution, journal)
        return replace(at, execution=execution)

    def _record_start(self, at: Position, execution: Execution, journal: Rollback) -> None:
        """Save the journal before anything is done, and the run with it if its status changes."""
        body = RollbackStarted(
            direction=journal.direction.value,
            from_=at.head.id,
            to=journal.target_id,
            calls=tuple(key.identity for key in journal.calls[:_TOLD]),
            by=self._user,
        )
        with self._storage.unit_of_work() as uow:
            if execution is at.execution:
                uow.executions.check_lease(execution.id, at.token)
            else:
                uow.executions.save(execution, token=at.token)
            uow.rollbacks.save(journal)
            uow.events.append(Event.of(body, stream=execution.id, at=journal.created_at))
            uow.commit()

    def _move(self, at: Position, journal: Rollback, swap: Callable[[], object], doubt: Doubt | None) -> None:
        """Handle the remaining calls, and put the files in place; a redo that diverges undoes its calls."""
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
            if journal.direction is RollbackDirection.REDO:
                self._reversals.repeat(call, at.token, journal.id, doubt)
            else:
                self._reverse(at, journal, call, doubt)

    def _settle(self, at: Position, journal: Rollback, doubt: Doubt | None) -> None:
        """Finish each interrupted reversal or repetition. If that fails, we know that it did not happen."""
        for call in self._calls(journal):
            with suppress(ReversalFailed, RedoDiverged):
                if call.status is CallStatus.REVERSING:
                    self._reversals.reverse(call, at.token, doubt, rollback_id=journal.id)
                elif call.status is CallStatus.REDOING:
                    self._reversals.repeat(call, at.token, journal.id, doubt)

    def _take_back(self, at: Position, journal: Rollback) -> None:
        """Undo the calls that a redo has repeated."""
        try:
            for call in reversed(self._calls(journal)):
                self._reverse(at, journal, call)
        except LeaseLost:
            raise
        except Exception as error:
            raise self._failed(at, journal, error) from error

    def _reverse(self, at: Position, journal: Rollback, call: ToolCall, doubt: Doubt | None = None) -> None:
        """Undo a call, or raise: the workflow may have lost the tool since the plan was made."""
        tool = self._reversals.find_tool(call.tool)
        if call.may_have_happened and not can_reverse(call, tool):
            raise ReversalFailed(f"{call.tool} ({call.identity}) cannot be undone: {_why_not(call, tool)}")
        self._reversals.reverse(call, at.token, doubt, rollback_id=journal.id)

    def _calls(self, journal: Rollback) -> list[ToolCall]:
        with self._storage.unit_of_work(readonly=True) as uow:
            calls = _calls_of(uow, journal)
        return chosen(calls, journal.calls)

    def _failed(self, at: Position, journal: Rollback, error: Exception) -> RollbackFailed:
        """Record why it stopped; it can be continued or abandoned from any process."""
        now = self._clock.now()
        text = self._masker.bounded(text_of(error))
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            uow.rollbacks.save(journal.ended(RollbackStatus.FAILED, now, text))
            body = RollbackStopped(direction=journal.direction.value, error=text, by=self._user)
            uow.events.append(Event.of(body, stream=at.execution.id, at=now))
            uow.commit()
        return RollbackFailed(
            f"{text}. {_NOUNS[journal.direction]} run {at.execution.id!r} is unfinished: fix the cause and finish it "
            f"with `wtb rollback {at.execution.id} --continue`, or give it up with `--abandon`"
        )

    def _let_go(self, at: Position, journal: Rollback) -> Execution:
        """Record the end of taking calls back, and release the run as it was."""
        assert at.token is not None
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            execution = uow.executions.get(at.execution.id).released(at.token, now)  # naming may have changed it
            uow.executions.save(execution, token=at.token)
            uow.rollbacks.save(with_own_end_time(journal, uow.rollbacks.list_rollbacks(execution.id)))
            uow.events.append(Event.of(self._outcome(uow, at, journal, at.head), stream=execution.id, at=now))
            uow.commit()
        return execution

    def _end(self, at: Position, journal: Rollback, head: Checkpoint) -> Execution:
        now = self._clock.now()
        was_done = journal.status is RollbackStatus.COMPLETED
        where = head.name or (f"{head.node}#{head.visit}" if head.node else f"step {head.step}")
        reason = f"{'rolled back' if journal.direction is RollbackDirection.ROLLBACK else 'moved forward'} to {where}"
        pause = Pause(reason=reason if was_done else f"{journal.direction} given up", kind=PauseKind.MOVED)
        execution = at.execution.moved_to(ExecutionStatus.PAUSED, now, pause=pause)
        with self._storage.unit_of_work() as uow:
            journals = uow.rollbacks.list_rollbacks(execution.id)
            journal = with_own_end_time(journal, journals)
            if was_done:
                for run in _left_or_taken_up(uow, at, journal, head, journals):
                    uow.node_runs.save(run)
                is_back = journal.direction is RollbackDirection.ROLLBACK and head.id != at.head.id
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


def _why_not(call: ToolCall, tool: Tool | None) -> str:
    if tool is None or tool.reverse is None:
        return "this program has no tool of that name with reverse="
    return (
        "nobody knows whether it happened, and the tool has no confirm= to find out; resume the run with "
        f"`wtb resume {call.execution_id}`, and answer the question"
    )


def _nodes_between(uow: UnitOfWork, one: Checkpoint, other: Checkpoint) -> tuple[str, ...]:
    """Return the last node visits between two checkpoints of one line, oldest first."""
    newer, steps = max(one, other, key=lambda each: each.step), abs(one.step - other.step)
    line = uow.pages.list_line(newer.id, limit=min(steps, _TOLD)) if steps else ()
    joins = [checkpoint for checkpoint in line if checkpoint.node_run_id is None]  # parallel nodes ended there
    joined = uow.node_runs.list_leading_to(newer.execution_id, joins) if joins else ()
    return tuple(visit for checkpoint in line for visit in _visits_at(checkpoint, joined))


def _visits_at(checkpoint: Checkpoint, joined: Sequence[NodeRun]) -> Sequence[str]:
    """Return the node visits that ended at a checkpoint; `joined` holds those of parallel nodes."""
    if checkpoint.node_run_id is None:
        return [f"{run.node}#{run.visit}" for run in joined if run.last_id == checkpoint.id]
    return () if checkpoint.is_inside else (f"{checkpoint.node}#{checkpoint.visit}",)


def _calls_of(uow: UnitOfWork, journal: Rollback) -> list[ToolCall]:
    runs = {key.node_run_id for key in journal.calls}
    return [call for run in runs for call in uow.tool_calls.list_calls(journal.execution_id, run)]


def _left_or_taken_up(
    uow: UnitOfWork, at: Position, journal: Rollback, head: Checkpoint, journals: Sequence[Rollback]
) -> list[NodeRun]:
    """Return the node runs to change at the target: a rollback skips those that began there, a redo revives them."""
    begun = [run for run in uow.node_runs.list_leading_to(at.execution.id, [head]) if _was_begun_at(run, at, head)]
    current = [run for run in begun if run.status is not NodeStatus.SKIPPED]
    assert journal.ended_at is not None
    left = [run.ended(NodeStatus.SKIPPED, journal.ended_at) for run in current]
    if journal.direction is RollbackDirection.ROLLBACK:
        return left
    undone = last_undone(journals, at)
    assert undone is not None
    again = [run for run in begun if run.status is NodeStatus.SKIPPED and run.ended_at == undone.ended_at]
    begun_since = left if head.id == at.head.id else []  # after a rollback to the run's own position and a new try
    return [*begun_since, *(evolve(run, status=NodeStatus.STARTED) for run in again)]


def _was_begun_at(run: NodeRun, at: Position, head: Checkpoint) -> bool:
    """Whether a node run began at a checkpoint, or made it inside the node, and got no further."""
    began = run.input_id == head.id and run.last_id is None
    return run.branch_id == at.branch.id and (began or (head.is_inside and run.last_id == head.id))
