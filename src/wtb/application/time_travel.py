"""TimeTravel: rollback and redo. State, files and effects of tools move together, or nothing does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from wtb.application.branching import STILL, check_still, resolved
from wtb.application.heartbeat import Heartbeat
from wtb.application.leases import Leases, alone
from wtb.application.recorder import Position, Recorder
from wtb.application.recovery import is_open
from wtb.application.reversals import Doubt, RedoDiverged, ReversalFailed, Reversals
from wtb.application.workspaces import PreparedCommit, Workspaces
from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.errors import CheckpointNotFound, Conflict, InvalidInput, InvalidTransition, LeaseLost, WTBError
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Execution, ExecutionStatus, Pause
from wtb.domain.files import EMPTY_TREE, FileCommitId, TreeDelta, diff
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, ExecutionId, NodeRunId
from wtb.domain.ports import Clock, Ids, Owners, Storage, UnitOfWork
from wtb.domain.rollback import (
    CallKey,
    CannotUndo,
    Direction,
    Rollback,
    RollbackPlan,
    RollbackStatus,
    chosen,
    keys_of,
    plan_rollback,
)
from wtb.domain.secrets import Masker
from wtb.domain.tools import CallStatus, ToolCall
from wtb.domain.values import evolve


class RollbackFailed(WTBError):
    """A rollback or redo stopped half-way; the run waits in `rolling_back`, and the journal knows what is left."""


class TimeTravel:
    """Takes runs that nobody drives back in their own history, and forward again."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        owners: Owners,
        workspaces: Workspaces,
        recorder: Recorder,
        reversals: Reversals,
        heartbeat: Heartbeat,
        masker: Masker,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._workspaces = workspaces
        self._recorder = recorder
        self._reversals = reversals
        self._leases = Leases(storage, clock, owners)
        self._heartbeat = heartbeat
        self._masker = masker

    def plan(self, execution_id: ExecutionId, target: str | int, **options: Any) -> RollbackPlan:
        """Return what going back to a target would do (options as for `rollback`); nothing is changed."""
        return self._plan(self._recorder.load(execution_id), target, **options)

    def rollback(
        self,
        execution_id: ExecutionId,
        target: str | int,
        *,
        tools: bool = True,
        files: bool = True,
        allow_irreversible: bool = False,
        shared: str = "keep",
        expected: RollbackPlan | None = None,
        created_by: str | None = None,
    ) -> RollbackPlan:
        """Go back to a checkpoint of the run's own lineage; afterwards it is paused there. Return what was done.

        A safety checkpoint of the run as it is comes first, and files are staged and verified before any call is
        taken back. A reversal that fails leaves the run `rolling_back`. When anything else than an `expected` plan
        would be done, nothing is.
        """
        with self._claimed(execution_id) as at:
            plan = self._plan(at, target, tools=tools, files=files, shared=shared)
            if expected is not None and plan != expected:
                raise Conflict(
                    f"run {execution_id!r} has changed since its plan was made, and nothing was done; look at what "
                    "a rollback would do now, and decide anew"
                )
            if plan.irreversible and not allow_irreversible:
                raise CannotUndo(_cannot_undo(plan.irreversible))
            safety, goal = self._safety(at, plan.target, files=files)
            calls = keys_of(plan.reverse)
            journal = self._journal(Direction.ROLLBACK, at, goal.id, safety.id, calls, created_by)
            with self._staged(at, goal.file_commit) as swap:
                self._finish(self._begun(at, journal), journal, goal, swap, None)
        return plan

    def continue_rollback(self, execution_id: ExecutionId, in_doubt: str | None = None) -> Execution:
        """Finish a rollback or redo that failed or was killed; `in_doubt` says what is known of a doubtful call."""
        doubt = None if in_doubt is None else Doubt(in_doubt)
        with self._half_done(execution_id) as (at, journal):
            target = self._checkpoint(journal.target_id)
            with self._staged(at, self._commit_of(journal)) as swap:
                return self._finish(at, journal, target, swap, doubt)

    def abandon_rollback(self, execution_id: ExecutionId, in_doubt: str | None = None) -> Execution:
        """Give up a rollback or redo that failed: the run stays where it was; what was taken back stays so.

        A redo that is given up takes back again what it has repeated. A call that was being dealt with when a process
        was killed is settled first, so that everybody knows how it stands.
        """
        doubt = None if in_doubt is None else Doubt(in_doubt)
        with self._half_done(execution_id) as (at, journal):
            self._settle(at, journal, doubt)
            if journal.direction is Direction.REDO:
                self._take_back(at, journal)
            files = at.head if journal.direction is Direction.REDO else self._checkpoint(journal.safety_id)
            with self._staged(at, files.file_commit) as swap:
                swap()
            return self._end(at, journal.ended(RollbackStatus.ABANDONED, self._clock.now()), at.head)

    def redo(self, execution_id: ExecutionId, *, created_by: str | None = None) -> Execution:
        """Go forward again to where the last rollback came from; only from where it left the run.

        Calls that were taken back are made again, and must give what they gave before; if one does not, those that
        were made again are taken back, and the run stays where it is.
        """
        with self._claimed(execution_id) as at:
            last = self._last_rollback(at)
            calls = tuple(reversed(last.calls))
            journal = self._journal(Direction.REDO, at, last.head_id, last.safety_id, calls, created_by)
            with self._staged(at, self._commit_of(journal)) as swap:
                target = self._checkpoint(last.head_id)
                return self._finish(self._begun(at, journal), journal, target, swap, None)

    def _still(self, execution_id: ExecutionId) -> Position:
        at = self._recorder.load(execution_id)
        check_still(at.execution, STILL)
        return at

    def _plan(
        self, at: Position, target: str | int, *, tools: bool = True, files: bool = True, shared: str = "keep"
    ) -> RollbackPlan:
        if shared not in ("keep", "reverse"):
            raise InvalidInput(f"shared={shared!r} is unknown; calls that other branches build on: keep or reverse")
        with self._storage.unit_of_work(readonly=True) as uow:
            history, found = resolved(uow, at.execution.id, target)
            if _concerns_nobody_else(uow, at, history, found):
                calls = _calls_since(uow, history, found)
            else:
                calls = uow.tool_calls.list_calls(at.execution.id)
                if calls and not history.complete:
                    history = uow.checkpoints.load_history(at.execution.id)
            return plan_rollback(
                history,
                found,
                calls,
                find_tool=self._reversals.find_tool,
                files=_tree_delta(uow, at.head.file_commit, found.file_commit) if files else TreeDelta(),
                forks=uow.branches.list_forks(history.builds_on(found.id)) if calls else (),
                tools=tools,
                reverse_shared=shared == "reverse",
            )

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

    def _safety(self, at: Position, target: Checkpoint, *, files: bool) -> tuple[Checkpoint, Checkpoint]:
        """Keep the run as it is, and return that checkpoint with the one to go to.

        When the files are to stay as they are, that is a new one behind the target, which holds them.
        """
        present = self._present_files(at)
        save = None if present is None else present.save
        with self._storage.unit_of_work() as uow:
            safety = self._recorder.safety_checkpoint(uow, at, f"before a rollback to {target.id}", save)
            if not files and safety.file_commit != target.file_commit:
                behind = replace(at, head=evolve(target, file_commit=safety.file_commit))
                target = self._recorder.safety_checkpoint(uow, behind, "with the files of before the rollback", None)
            uow.commit()
        return safety, target

    def _journal(  # noqa: PLR0917  a private name for a value with many facts
        self,
        direction: Direction,
        at: Position,
        target_id: CheckpointId,
        safety_id: CheckpointId,
        calls: tuple[CallKey, ...],
        created_by: str | None,
    ) -> Rollback:
        return Rollback(
            id=self._ids.new(),
            execution_id=at.execution.id,
            branch_id=at.branch.id,
            direction=direction,
            head_id=at.head.id,
            target_id=target_id,
            safety_id=safety_id,
            calls=calls,
            created_by=created_by,
            created_at=self._clock.now(),
        )

    def _begun(self, at: Position, journal: Rollback) -> Position:
        """Record that the run is being rolled back and how far; from here on anybody can finish it."""
        now = journal.created_at
        execution = at.execution.moved_to(ExecutionStatus.ROLLING_BACK, now)
        data = {"direction": journal.direction.value, "from": at.head.id, "to": journal.target_id}
        with self._storage.unit_of_work() as uow:
            uow.executions.save(execution, token=at.token)
            uow.rollbacks.save(journal)
            uow.events.append(Event(type=EventType.ROLLBACK_STARTED, stream=execution.id, at=now, data=data))
            uow.commit()
        return replace(at, execution=execution)

    def _commit_of(self, journal: Rollback) -> str | None:
        """Return the files that belong to where it goes: forward, they are those that lay there before."""
        wanted = journal.safety_id if journal.direction is Direction.REDO else journal.target_id
        return self._checkpoint(wanted).file_commit

    def _present_files(self, at: Position) -> PreparedCommit | None:
        """Return the files as they lie in the folder now, if it held those of the head and a person changed them."""
        if at.head.file_commit is None:
            return None
        folder, commit = self._workspaces.path(at.execution.id, at.branch.id), FileCommitId(at.head.file_commit)
        return self._workspaces.prepare(folder, commit) if self._workspaces.is_noted(folder, commit) else None

    def _finish(
        self, at: Position, journal: Rollback, target: Checkpoint, swap: Callable[[], object], doubt: Doubt | None
    ) -> Execution:
        """Deal with the calls that are left, put the files in place and move the head."""
        try:
            self._deal_with_calls(at, journal, doubt)
            swap()
        except LeaseLost:
            raise
        except RedoDiverged as error:
            raise self._diverged(at, journal, error) from error
        except Exception as error:
            raise self._failed(at, journal, error) from error
        return self._end(at, journal.ended(RollbackStatus.COMPLETED, self._clock.now()), target)

    def _diverged(self, at: Position, journal: Rollback, error: RedoDiverged) -> WTBError:
        """Take back what the redo has repeated, and leave the run where it is."""
        try:
            self._take_back(at, journal)
        except LeaseLost:
            raise
        except Exception as second:  # noqa: BLE001  a reverse function may raise anything
            return self._failed(at, journal, second)
        told = f"{error}; the run stays where it is: resume it to run the node again"
        self._end(at, journal.ended(RollbackStatus.ABANDONED, self._clock.now(), told), at.head)
        return RedoDiverged(told)

    def _deal_with_calls(self, at: Position, journal: Rollback, doubt: Doubt | None) -> None:
        for call in self._calls(journal):
            if journal.direction is Direction.ROLLBACK:
                self._reverse(at, call, doubt)
            else:
                self._reversals.repeat(call, at.token, journal.id, doubt)

    def _settle(self, at: Position, journal: Rollback, doubt: Doubt | None) -> None:
        """Finish what was being done to a call; when that fails, it is known that it was not done."""
        for call in self._calls(journal):
            with suppress(ReversalFailed, RedoDiverged):
                if call.status is CallStatus.REVERSING:
                    self._reversals.reverse(call, at.token, doubt)
                elif call.status is CallStatus.REDOING:
                    self._reversals.repeat(call, at.token, journal.id, doubt)

    def _take_back(self, at: Position, journal: Rollback) -> None:
        try:
            for call in reversed(self._calls(journal)):
                self._reverse(at, call)
        except ReversalFailed as error:
            raise self._failed(at, journal, error) from error

    def _reverse(self, at: Position, call: ToolCall, doubt: Doubt | None = None) -> None:
        """Take back a call, or raise: the workflow may have lost the tool since the plan was made."""
        tool = self._reversals.find_tool(call.tool)
        if call.may_have_happened and (tool is None or tool.reverse is None):
            raise ReversalFailed(
                f"{call.tool} ({call.identity}) cannot be taken back: no tool of that name with reverse= is known here"
            )
        self._reversals.reverse(call, at.token, doubt)

    def _calls(self, journal: Rollback) -> list[ToolCall]:
        with self._storage.unit_of_work(readonly=True) as uow:
            runs = {key.node_run_id for key in journal.calls}
            calls = [call for run in runs for call in uow.tool_calls.list_calls(journal.execution_id, run)]
        return chosen(calls, journal.calls)

    def _failed(self, at: Position, journal: Rollback, error: Exception) -> RollbackFailed:
        """Record why it stopped; it can be continued or abandoned from any process."""
        now = self._clock.now()
        told = self._masker.text(str(error))
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            uow.rollbacks.save(journal.ended(RollbackStatus.FAILED, now, told))
            data = {"direction": journal.direction.value, "error": told}
            uow.events.append(Event(type=EventType.ROLLBACK_FAILED, stream=at.execution.id, at=now, data=data))
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
            if was_done:
                for run in _left_or_taken_up(uow, at, journal, head):
                    uow.node_runs.save(run)
                uow.branches.move_head(at.branch.id, head.id, expected=at.head.id)
                data: dict[str, Any] = {"checkpoint": head.id, "step": head.step, "node": head.node}
                uow.events.append(Event(type=EventType.CHECKPOINT_RESTORED, stream=execution.id, at=now, data=data))
            uow.executions.save(execution, token=at.token)
            uow.rollbacks.save(journal)
            data = {"direction": journal.direction.value, "status": journal.status.value, "error": journal.error}
            uow.events.append(Event(type=EventType.ROLLBACK_COMPLETED, stream=execution.id, at=now, data=data))
            uow.commit()
        return execution

    @contextmanager
    def _claimed(self, execution_id: ExecutionId) -> Iterator[Position]:
        """Hold the lease of a run that stands still, for the time of the block; it is let go of unless it has ended."""
        at = self._still(execution_id)
        with alone(at):
            at = replace(at, execution=self._leases.taken(at.execution))
            with self._letting_go(at):
                yield at

    @contextmanager
    def _half_done(self, execution_id: ExecutionId) -> Iterator[tuple[Position, Rollback]]:
        """Take over a rollback that is half done, unless somebody who is alive is at it."""
        at = self._recorder.load(execution_id)
        if at.execution.status is not ExecutionStatus.ROLLING_BACK:
            raise InvalidTransition(f"run {execution_id!r} is {at.execution.status}; there is no rollback to finish")
        with alone(at):
            at = replace(at, execution=self._leases.taken(at.execution))
            with self._storage.unit_of_work(readonly=True) as uow:
                journals = uow.rollbacks.list_rollbacks(execution_id)
            with self._letting_go(at):
                yield at, next(journal for journal in reversed(journals) if journal.is_open)

    @contextmanager
    def _letting_go(self, at: Position) -> Iterator[None]:
        with self._heartbeat.keeping(at):
            try:
                yield
            except Exception:
                current = self._recorder.load(at.execution.id).execution
                if current.lease is not None and current.lease.token == at.token:
                    self._leases.released(current)
                raise

    def _last_rollback(self, at: Position) -> Rollback:
        with self._storage.unit_of_work(readonly=True) as uow:
            found = [each for each in uow.rollbacks.list_rollbacks(at.execution.id) if each.branch_id == at.branch.id]
            begun = {
                run.id: run for run in uow.node_runs.list_leading_to(at.execution.id, [at.head]) if is_open(run, at)
            }
            called = [call for call in _calls_of(uow, begun) if call.may_have_happened]
        done = [each for each in found if each.status is RollbackStatus.COMPLETED]
        last = done[-1] if done else None
        if last is None or last.direction is not Direction.ROLLBACK:
            raise InvalidInput(f"run {at.execution.id!r} was not rolled back; there is nothing to redo")
        if at.head.id != last.target_id or called:
            raise InvalidInput(
                f"run {at.execution.id!r} has gone on since it was rolled back; what was undone lies at checkpoint "
                f"{last.safety_id}: fork it with `wtb fork {at.execution.id} {last.safety_id}`"
            )
        try:
            self._checkpoint(last.head_id)
            self._checkpoint(last.safety_id)
        except CheckpointNotFound as error:
            raise InvalidInput(
                f"what was undone of run {at.execution.id!r} has been deleted; resume it to run it anew"
            ) from error
        return last


def _cannot_undo(calls: Sequence[ToolCall]) -> str:
    named = ", ".join(f"{call.tool} ({call.identity})" for call in calls)
    return (
        f"{named} cannot be taken back: no reverse= is known for it, or nobody knows whether it happened; roll back "
        "with allow_irreversible=True (`--allow-irreversible`) to leave it in effect"
    )


def _calls_of(uow: UnitOfWork, runs: Mapping[NodeRunId, NodeRun]) -> list[ToolCall]:
    return [
        call for run in runs.values() if run.tool_count for call in uow.tool_calls.list_calls(run.execution_id, run.id)
    ]


def _concerns_nobody_else(uow: UnitOfWork, at: Position, history: ExecutionHistory, target: Checkpoint) -> bool:
    """Whether a run has one line only, and nobody branched off what would be undone: then its end tells all.

    A degraded run may hold visits that the end of its history does not show.
    """
    if at.execution.degraded or uow.rollbacks.list_rollbacks(at.execution.id):
        return False
    if len(uow.branches.list_branches(at.execution.id)) > 1:
        return False
    return not uow.branches.list_forks([target.id, *(checkpoint.id for checkpoint in _after(history, target))])


def _calls_since(uow: UnitOfWork, history: ExecutionHistory, target: Checkpoint) -> Sequence[ToolCall]:
    """Return the calls of the node runs that led on from a checkpoint, or have not ended."""
    undone = _after(history, target)
    own, ends = {checkpoint.node_run_id for checkpoint in undone}, {checkpoint.id for checkpoint in undone}
    head = history.branch().head_id
    runs = [run for run in history.node_runs if run.id in own or run.last_id in ends or run.last_id in (None, head)]
    if len(runs) > _MANY:
        return uow.tool_calls.list_calls(history.execution_id)
    return [call for run in runs for call in uow.tool_calls.list_calls(history.execution_id, run.id)]


def _after(history: ExecutionHistory, target: Checkpoint) -> Sequence[Checkpoint]:
    """Return what follows a checkpoint on the active line; nothing when it does not lie there."""
    line = history.lineage()
    return line[line.index(target) + 1 :] if target in line else ()


_MANY = 200
"""More node runs than this are not asked for their calls one by one."""


def _tree_delta(uow: UnitOfWork, old: str | None, new: str | None) -> TreeDelta:
    if old == new:
        return TreeDelta()
    trees = [EMPTY_TREE if commit is None else uow.files.get(FileCommitId(commit)) for commit in (old, new)]
    return diff(trees[0], trees[1])


def _left_or_taken_up(uow: UnitOfWork, at: Position, journal: Rollback, head: Checkpoint) -> list[NodeRun]:
    """Return the runs that were begun where a rollback goes to, as left behind; and a redo those that it left there."""
    begun = [run for run in uow.node_runs.list_leading_to(at.execution.id, [head]) if _was_begun_at(run, at, head)]
    current = [run for run in begun if run.status is not NodeStatus.SKIPPED]
    assert journal.ended_at is not None
    left = [run.ended(NodeStatus.SKIPPED, journal.ended_at) for run in current]
    if journal.direction is Direction.ROLLBACK:
        return left
    done = [each for each in uow.rollbacks.list_rollbacks(at.execution.id) if each.status is RollbackStatus.COMPLETED]
    again = [run for run in begun if run.status is NodeStatus.SKIPPED and run.ended_at == done[-1].ended_at]
    begun_since = left if head.id == at.head.id else []  # a rollback to where the run stood, and a new try from there
    return [*begun_since, *(evolve(run, status=NodeStatus.STARTED) for run in again)]


def _was_begun_at(run: NodeRun, at: Position, head: Checkpoint) -> bool:
    """Whether a run began at a checkpoint, or made it in its middle, and got no further."""
    began = run.input_id == head.id and run.last_id is None
    return run.branch_id == at.branch.id and (began or (head.is_inside and run.last_id == head.id))
