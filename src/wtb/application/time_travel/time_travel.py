"""TimeTravel: plans rollbacks and redos and checks that they are allowed; `RollbackExecutor` carries them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from wtb.application.runs.consistency import check_calls
from wtb.application.runs.head_editor import HeadEditor
from wtb.application.runs.heartbeat import Heartbeat
from wtb.application.runs.leases import Leases, alone
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.recovery import is_open
from wtb.application.runs.reversals import Doubt, Reversals
from wtb.application.runs.steps import Position
from wtb.application.time_travel.journals import Journals, last_undone
from wtb.application.time_travel.rollback_executor import RollbackExecutor
from wtb.application.time_travel.run_editor import STILL, check_still, resolved
from wtb.application.workspaces import PreparedCommit, Workspaces
from wtb.domain.checkpoint import Checkpoint, NodeRun
from wtb.domain.errors import CheckpointNotFound, Conflict, InvalidInput, InvalidTransition
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.files import EMPTY_TREE, FileCommitId, TreeDelta, diff
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.ports import NO_TELEMETRY, Clock, Ids, Owners, Storage, Telemetry, UnitOfWork
from wtb.domain.rollback import (
    HEADS,
    CannotUndo,
    Rollback,
    RollbackDirection,
    RollbackPlan,
    keys_of,
    plan_rollback,
)
from wtb.domain.secrets import Masker
from wtb.domain.tools import ToolCall
from wtb.domain.values import evolve


class TimeTravel:
    """Takes idle runs back in their own history, and forward again."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        owners: Owners,
        workspaces: Workspaces,
        recorder: Recorder,
        head_editor: HeadEditor,
        reversals: Reversals,
        heartbeat: Heartbeat,
        masker: Masker,
        telemetry: Telemetry = NO_TELEMETRY,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._journals = Journals(storage, clock, ids)
        self._workspaces = workspaces
        self._recorder = recorder
        self._head_editor = head_editor
        self._reversals = reversals
        self._leases = Leases(storage, clock, owners, user=user)
        self._heartbeat = heartbeat
        self._masker = masker
        self._user = user
        self._telemetry = telemetry

    def plan(self, execution_id: ExecutionId, target: str | int, **options: Any) -> RollbackPlan:
        """Return what a rollback to a target would do, with the options of `rollback`; nothing is changed."""
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
        version: int | None = None,
    ) -> RollbackPlan:
        """Go back to a checkpoint in the run's own history, and pause there. Return what was done.

        First a safety checkpoint saves the run as it is. Files are staged and verified before any call is undone. If
        undoing a call fails, the run stays `rolling_back`. With `expected`, nothing is done unless the plan is equal;
        with `version`, unless the run has this version.
        """
        with self._claimed(execution_id, version) as at:
            plan = self._plan(at, target, tools=tools, files=files, shared=shared)
            if expected is not None and plan != expected:
                raise Conflict(
                    f"run {execution_id!r} has changed since you saw the plan, so nothing was done; look at the new "
                    "plan, and decide again"
                )
            if plan.irreversible and not allow_irreversible:
                raise CannotUndo(_cannot_undo(plan.irreversible))
            safety, goal = self._safety(at, plan.target, files=files, created_by=created_by)
            journal = self._journals.new(
                RollbackDirection.ROLLBACK,
                at,
                target=goal.id,
                safety=safety.id,
                calls=keys_of(plan.reverse),
                created_by=created_by or self._user,
            )
            self._executor(journal.created_by).carry_out(at, journal)
        return plan

    def continue_rollback(
        self, execution_id: ExecutionId, in_doubt: str | None = None, *, take_over: bool = False
    ) -> Execution:
        """Finish a rollback or redo that failed or was killed; `in_doubt` says whether a call in doubt happened.

        `take_over` takes the run even if a wrong clock has put the end of its lease far into the future.
        """
        doubt = None if in_doubt is None else Doubt(in_doubt)
        with self._half_done(execution_id, take_over=take_over) as (at, journal):
            return self._executor(self._user).carry_out(at, journal, doubt)

    def abandon_rollback(
        self, execution_id: ExecutionId, in_doubt: str | None = None, *, take_over: bool = False
    ) -> Execution:
        """Give up a rollback or redo that failed: the run stays where it was, and undone calls stay undone.

        Giving up a redo undoes the calls that it has repeated. If a process was killed while it handled a call, that
        call is settled first. `take_over` works as in `continue_rollback`.
        """
        doubt = None if in_doubt is None else Doubt(in_doubt)
        with self._half_done(execution_id, take_over=take_over) as (at, journal):
            return self._executor(self._user).give_up(at, journal, doubt)

    def redo(
        self, execution_id: ExecutionId, *, created_by: str | None = None, version: int | None = None
    ) -> Execution:
        """Go forward to where the last rollback started, if the run has not gone on since.

        The next redo reverses the rollback before that one, and so on. Undone calls are repeated, and must give the
        same results as before. If one does not, the repeated calls are undone again, and the run stays where it is.
        With `version`, nothing is done unless the run has this version.
        """
        with self._claimed(execution_id, version) as at:
            last = self._last_rollback(at)
            self._keep_changes(at, created_by)
            journal = self._journals.new(
                RollbackDirection.REDO,
                at,
                target=last.head_id,
                safety=last.safety_id,
                calls=tuple(reversed(last.calls)),
                created_by=created_by or self._user,
            )
            return self._executor(journal.created_by).carry_out(at, journal)

    def _executor(self, user: str | None) -> RollbackExecutor:
        return RollbackExecutor(
            self._storage,
            self._clock,
            self._workspaces,
            self._reversals,
            self._masker,
            telemetry=self._telemetry,
            user=user,
        )

    def _still(self, execution_id: ExecutionId) -> Position:
        at = self._recorder.load(execution_id)
        check_still(at.execution, STILL)
        return at

    def _plan(
        self, at: Position, target: str | int, *, tools: bool = True, files: bool = True, shared: str = "keep"
    ) -> RollbackPlan:
        if shared not in ("keep", "reverse"):
            raise InvalidInput(f"shared={shared!r}: give 'keep' or 'reverse', for calls that other branches build on")
        with self._storage.unit_of_work(readonly=True) as uow:
            check_calls(uow, at.execution.id)
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

    def _safety(
        self, at: Position, target: Checkpoint, *, files: bool, created_by: str | None
    ) -> tuple[Checkpoint, Checkpoint]:
        """Save the run as it is, and return that checkpoint and the one to go to.

        If the files are to stay, the one to go to is a new checkpoint after the target, which holds the present files.
        """
        present = self._present_files(at)
        save = None if present is None else present.save
        with self._storage.unit_of_work() as uow:
            heads = _heads_of_thread(uow, at.execution)
            why = f"before a rollback to {target.id}"
            safety = self._head_editor.safety_checkpoint(uow, at, why, save, heads, created_by=created_by)
            if not files and safety.file_commit != target.file_commit:
                behind = replace(at, head=evolve(target, file_commit=safety.file_commit))
                why = "with the files of before the rollback"
                target = self._head_editor.safety_checkpoint(uow, behind, why, None, created_by=created_by)
            uow.commit()
        return safety, target

    def _present_files(self, at: Position) -> PreparedCommit | None:
        """Return the current files of the folder, if it held the files of the head and a person has changed them."""
        if at.head.file_commit is None:
            return None
        folder, commit = self._workspaces.path(at.execution.id, at.branch.id), FileCommitId(at.head.file_commit)
        return self._workspaces.prepare(folder, commit) if self._workspaces.is_noted(folder, commit) else None

    def _keep_changes(self, at: Position, created_by: str | None) -> None:
        """Save files that a person has changed since the rollback, because a redo replaces them."""
        present = self._present_files(at)
        if present is not None:
            with self._storage.unit_of_work() as uow:
                why = "before a redo"
                safety = self._head_editor.safety_checkpoint(uow, at, why, present.save, created_by=created_by)
                if safety.file_commit != at.head.file_commit:
                    uow.commit()

    @contextmanager
    def _claimed(self, execution_id: ExecutionId, version: int | None = None) -> Iterator[Position]:
        """Hold the lease of an idle run during the block, and give it back if the block fails."""
        at = self._still(execution_id)
        at.execution.check_version(version)
        with alone(at):
            at = replace(at, execution=self._leases.taken(at.execution))
            with self._letting_go(at):
                yield at

    @contextmanager
    def _half_done(self, execution_id: ExecutionId, *, take_over: bool) -> Iterator[tuple[Position, Rollback]]:
        """Take over an unfinished rollback, unless a living process is working on it."""
        at = self._recorder.load(execution_id)
        journal = self._journals.find_open(execution_id)
        is_rolling_back = at.execution.status is ExecutionStatus.ROLLING_BACK
        if not is_rolling_back and (journal is None or journal.direction is not RollbackDirection.TAKE_BACK):
            raise InvalidTransition(f"run {execution_id!r} is {at.execution.status}; there is no rollback to finish")
        with alone(at):
            at = replace(at, execution=self._leases.taken(at.execution, take_over=take_over))
            journal = self._journals.find_open(execution_id)
            assert journal is not None
            with self._letting_go(at):
                yield at, journal

    @contextmanager
    def _letting_go(self, at: Position) -> Iterator[None]:
        with self._heartbeat.keeping(at):
            try:
                yield
            except Exception:
                self._leases.let_go(at)
                raise

    def _last_rollback(self, at: Position) -> Rollback:
        with self._storage.unit_of_work(readonly=True) as uow:
            check_calls(uow, at.execution.id)
            last = last_undone(uow.rollbacks.list_rollbacks(at.execution.id), at)
            begun = {
                run.id: run for run in uow.node_runs.list_leading_to(at.execution.id, [at.head]) if is_open(run, at)
            }
            called = [call for call in _calls_of(uow, begun) if call.may_have_happened]
        if last is None:
            raise InvalidInput(f"run {at.execution.id!r} has no rollback to redo")
        if at.head.id != last.target_id or called:
            raise InvalidInput(
                f"run {at.execution.id!r} has gone on since it was rolled back; the undone steps end at checkpoint "
                f"{last.safety_id}: fork it with `wtb fork {at.execution.id} {last.safety_id}`"
            )
        try:
            with self._storage.unit_of_work(readonly=True) as uow:
                uow.checkpoints.get(last.head_id)
                uow.checkpoints.get(last.safety_id)
        except CheckpointNotFound as error:
            raise InvalidInput(
                f"the undone steps of run {at.execution.id!r} have been deleted; resume the run to run them again"
            ) from error
        return last


def _heads_of_thread(uow: UnitOfWork, execution: Execution) -> Mapping[str, Any] | None:
    """Return the heads of all branches of a LangGraph thread; None for any other run.

    Its subgraphs have their own branches, which a rollback does not move. These heads show what they had made before
    the rollback, whatever the clock says.
    """
    if not execution.is_thread:
        return None
    return {HEADS: {branch.id: branch.head_id for branch in uow.branches.list_branches(execution.id)}}


def _cannot_undo(calls: Sequence[ToolCall]) -> str:
    named = ", ".join(f"{call.tool} ({call.identity})" for call in calls)
    return (
        f"{named} cannot be undone: it has no reverse=, or it is unknown whether it happened; to roll back and leave "
        "it in effect, use allow_irreversible=True (`--allow-irreversible`)"
    )


def _calls_of(uow: UnitOfWork, runs: Mapping[NodeRunId, NodeRun]) -> list[ToolCall]:
    return [
        call for run in runs.values() if run.tool_count for call in uow.tool_calls.list_calls(run.execution_id, run.id)
    ]


def _concerns_nobody_else(uow: UnitOfWork, at: Position, history: ExecutionHistory, target: Checkpoint) -> bool:
    """Whether a run has only one line, and no fork starts in the part to undo: then its end is enough for a plan.

    A degraded run may hold visits that the end of its history does not show.
    """
    if at.execution.degraded or uow.rollbacks.list_rollbacks(at.execution.id):
        return False
    if len(uow.branches.list_branches(at.execution.id)) > 1:
        return False
    return not uow.branches.list_forks([target.id, *(checkpoint.id for checkpoint in _after(history, target))])


def _calls_since(uow: UnitOfWork, history: ExecutionHistory, target: Checkpoint) -> Sequence[ToolCall]:
    """Return the calls of the node runs after a checkpoint, and of those that have not ended."""
    undone = _after(history, target)
    own, ends = {checkpoint.node_run_id for checkpoint in undone}, {checkpoint.id for checkpoint in undone}
    head = history.branch().head_id
    runs = [run for run in history.node_runs if run.id in own or run.last_id in ends or run.last_id in (None, head)]
    if len(runs) > _MANY:
        return uow.tool_calls.list_calls(history.execution_id)
    return [call for run in runs for call in uow.tool_calls.list_calls(history.execution_id, run.id)]


def _after(history: ExecutionHistory, target: Checkpoint) -> Sequence[Checkpoint]:
    """Return the checkpoints after one on the active line; none if it is not on that line."""
    line = history.lineage()
    return line[line.index(target) + 1 :] if target in line else ()


_MANY = 200
"""Above this number of node runs, all calls of the run are read at once."""


def _tree_delta(uow: UnitOfWork, old: str | None, new: str | None) -> TreeDelta:
    if old == new:
        return TreeDelta()
    trees = [EMPTY_TREE if commit is None else uow.files.get(FileCommitId(commit)) for commit in (old, new)]
    return diff(trees[0], trees[1])
