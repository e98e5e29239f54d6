"""TakeBack: undoes the external calls of a run, and leaves the run itself as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from wtb.application.runs.heartbeat import Heartbeat
from wtb.application.runs.leases import Leases, alone, check_not_rolling_back
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.reversals import Reversals
from wtb.application.runs.steps import Position
from wtb.application.time_travel.journals import Journals
from wtb.application.time_travel.rollback_executor import RollbackExecutor
from wtb.domain.event_catalogue import ExecutionPaused
from wtb.domain.events import Event
from wtb.domain.execution import Execution, ExecutionStatus, Pause, PauseKind
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.rollback import Rollback, RollbackDirection, calls_left, in_order_of_undoing, keys_of
from wtb.domain.tools import ToolCall

_PROCESS_GONE = Pause(reason="its process was gone", kind=PauseKind.PROCESS_GONE)


class TakeBack:
    """Takes back the external calls of runs. It keeps a journal like a rollback, so any process can finish it."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        recorder: Recorder,
        leases: Leases,
        heartbeat: Heartbeat,
        reversals: Reversals,
        executor: RollbackExecutor,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._journals = Journals(storage, clock, ids)
        self._recorder = recorder
        self._leases = leases
        self._heartbeat = heartbeat
        self._reversals = reversals
        self._executor = executor
        self._user = user

    def run(self, execution_id: ExecutionId) -> None:
        """Undo the external calls of a run that are in effect, newest first.

        If a call cannot be undone, RollbackFailed names it, and the journal stays open until somebody continues or
        abandons it. Calls that somebody has abandoned are left alone.
        """
        while self._list_calls(execution_id):
            with self.held(execution_id) as at:
                check_not_rolling_back(at.execution)
                # An earlier journal may lack calls that were made since; the next round has them.
                self._executor.carry_out(at, self._journals.find_open(execution_id) or self._journal(at))

    def _list_calls(self, execution_id: ExecutionId) -> list[ToolCall]:
        """Return the calls to undo, in order, without those that somebody wants to keep."""
        with self._storage.unit_of_work(readonly=True) as uow:
            found = calls_left(uow.tool_calls.list_calls(execution_id), uow.rollbacks.list_rollbacks(execution_id))
            if not found:
                return []
            history = uow.checkpoints.load_history(execution_id)
        own = [call for call in found if not history.is_inherited(call)]
        return in_order_of_undoing(own, self._reversals.find_tool)

    def _journal(self, at: Position) -> Rollback:
        here = at.head.id
        calls = keys_of(self._list_calls(at.execution.id))
        return self._journals.new(
            RollbackDirection.TAKE_BACK, at, target=here, safety=here, calls=calls, created_by=self._user
        )

    @contextmanager
    def held(self, execution_id: ExecutionId) -> Iterator[Position]:
        """Hold the lease of a run during the block, whatever its status; Conflict if somebody else works on it.

        A run that claims to be running although its process is gone is paused first.
        """
        at = self._recorder.load(execution_id)
        with alone(at):
            at = replace(at, execution=self._leases.taken(self._paused(at.execution)))
            with self._heartbeat.keeping(at):
                try:
                    yield at
                finally:
                    self._leases.let_go(at)

    def _paused(self, execution: Execution) -> Execution:
        """Return a run that no process is running. If its process is gone, pause it first."""
        left_by = self._leases.check_free(execution)
        if execution.status is not ExecutionStatus.RUNNING:
            return execution
        now = self._clock.now()
        paused = execution.moved_to(ExecutionStatus.PAUSED, now, pause=_PROCESS_GONE)
        with self._storage.unit_of_work() as uow:
            uow.executions.save(paused)
            body = ExecutionPaused(reason=left_by or _PROCESS_GONE.reason, by=self._user)
            uow.events.append(Event.of(body, stream=execution.id, at=now))
            uow.commit()
        return paused
