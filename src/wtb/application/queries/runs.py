"""Build a RunView; each function reads in the unit of work that it gets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from wtb.application.queries.run_scores import scores_of
from wtb.application.queries.views import FileTotals, OpenRollback, RunRow, RunTimes, RunView
from wtb.application.runs.run_figures import line_figures, measured_runs
from wtb.domain.checkpoint import Checkpoint, NodeStatus, Snapshot
from wtb.domain.errors import BatchNotFound, DamagedData
from wtb.domain.event_catalogue import ExecutionCompleted
from wtb.domain.events import EventType, RecordedEvent, bodies
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.figures import NOTHING, Usage
from wtb.domain.files import FileCommitId
from wtb.domain.ids import ExecutionId
from wtb.domain.job_origin import JobOrigin
from wtb.domain.ports import Clock, Owners, UnitOfWork

_ENDS = {
    ExecutionStatus.PAUSED: (EventType.EXECUTION_PAUSED, EventType.ROLLBACK_COMPLETED),
    ExecutionStatus.COMPLETED: (EventType.EXECUTION_COMPLETED,),
    ExecutionStatus.FAILED: (EventType.EXECUTION_FAILED,),
    ExecutionStatus.CANCELLED: (EventType.EXECUTION_CANCELLED,),
}
"""The events that mark when a run reached its status; searched from the end, where the last one usually is."""
_BEGINNINGS = (EventType.EXECUTION_STARTED, EventType.EXECUTION_RESUMED)


@dataclass(frozen=True, slots=True)
class RunReader:
    """Reads rows and views of runs; `clock` and `owners` tell whether a process still works on them."""

    clock: Clock
    owners: Owners

    def row(self, uow: UnitOfWork, execution: Execution) -> RunRow:
        """Return a run as a list shows it."""
        lease = execution.lease
        if not execution.is_busy or lease is None:
            return RunRow(execution=execution, neglect=execution.neglect(self.clock.now(), None))
        gone = self.owners.is_gone(lease.owner)
        return RunRow(
            execution=execution, neglect=execution.neglect(uow.now(), gone)
        )  # leases end by the store's clock

    def view(self, uow: UnitOfWork, execution: Execution) -> RunView:
        """Return everything about a run."""
        branches = uow.branches.list_branches(execution.id)
        head_id = next(branch.head_id for branch in branches if branch.id == execution.branch_id)
        snapshot = None if head_id is None else uow.checkpoints.load(head_id)
        end = _last(uow, execution.id, _ENDS[execution.status]) if execution.status in _ENDS else None
        neglect = self.row(uow, execution).neglect
        origin = JobOrigin.find(execution.metadata)
        return RunView(
            execution=execution,
            neglect=neglect,
            branches=branches,
            head=None if snapshot is None else snapshot.checkpoint,
            state={} if snapshot is None else snapshot.state,
            counts=uow.pages.count_checkpoints(execution.id),
            files=file_totals(uow, None if snapshot is None else snapshot.checkpoint.file_commit),
            usage=used(uow, execution),
            spent=spent(uow, execution.id),
            scores=scores_of(uow, execution),
            rollback=open_rollback(uow, execution.id),
            notes=_notes(end),
            times=self._times(uow, execution, end, is_neglected=neglect is not None),
            current_nodes=_current_nodes(uow, execution, snapshot),
            origin=origin,
            batch_name=None if origin is None else _batch_name(uow, origin.batch_id),
        )

    def _times(
        self, uow: UnitOfWork, execution: Execution, end: RecordedEvent | None, *, is_neglected: bool
    ) -> RunTimes:
        started_at = _started_at(uow, execution)
        stopped_at = None
        if execution.status in _ENDS:
            stopped_at = execution.updated_at if end is None else end.at
        last_heard_of = execution.updated_at if is_neglected else self.clock.now()
        is_paused = execution.status is ExecutionStatus.PAUSED
        return RunTimes(
            started_at=started_at,
            paused_at=stopped_at if is_paused else None,
            ended_at=None if is_paused else stopped_at,
            duration=None if started_at is None else (stopped_at or last_heard_of) - started_at,
        )


def _started_at(uow: UnitOfWork, execution: Execution) -> datetime | None:
    """Return when a run began. Events of a deleted run stay, also under a new run with its id: those do not count."""
    begun, after = _first_beginning(uow, execution.id), 0
    while begun is not None and begun.at < execution.created_at:
        after = begun.sequence
        begun = _first_beginning(uow, execution.id, after)
    return None if begun is None else begun.at


def _first_beginning(uow: UnitOfWork, run_id: ExecutionId, after: int = 0) -> RecordedEvent | None:
    found = uow.events.list_events(stream=run_id, by="sequence", types=_BEGINNINGS, after=after, limit=1)
    return found[0] if found else None


def _batch_name(uow: UnitOfWork, batch_id: str) -> str | None:
    try:
        return uow.batches.get(batch_id).name
    except (BatchNotFound, DamagedData):
        return None


def _notes(end: RecordedEvent | None) -> tuple[str, ...]:
    return () if end is None else next((body.notes for body in bodies([end], ExecutionCompleted)), ())


def _last(uow: UnitOfWork, run_id: ExecutionId, types: Collection[EventType]) -> RecordedEvent | None:
    found = uow.events.list_events(stream=run_id, by="sequence", types=types, limit=1, newest=True)
    return found[0] if found else None


def _current_nodes(uow: UnitOfWork, execution: Execution, head: Snapshot | None) -> tuple[str, ...]:
    if execution.status in (ExecutionStatus.COMPLETED, ExecutionStatus.CANCELLED):
        return ()
    runs = uow.node_runs.list_unfinished(execution.id) if execution.status is ExecutionStatus.RUNNING else ()
    begun = tuple(run.node for run in runs if run.status is NodeStatus.STARTED)
    return begun or (() if head is None else head.checkpoint.next_nodes)


def file_totals(uow: UnitOfWork, commit: str | None) -> FileTotals:
    """Return the number of files of a checkpoint, and their bytes."""
    return FileTotals() if commit is None else FileTotals.of(uow.files.get(FileCommitId(commit)))


def used(uow: UnitOfWork, execution: Execution) -> Usage:
    """Return what was used on the way to the head of a run."""
    head_id = uow.branches.get(execution.branch_id).head_id
    summed = NOTHING if head_id is None else uow.pages.sum_line(head_id)
    return line_figures(uow, execution.id).usage if summed is None else summed


def spent(uow: UnitOfWork, run_id: ExecutionId) -> Usage:
    """Return everything that a run has spent."""
    summed = uow.pages.sum_spent(run_id)
    if summed is not None:
        return summed
    return sum((run.figures.spent for run in measured_runs(uow, run_id) if run.figures is not None), NOTHING)


def open_rollback(uow: UnitOfWork, run_id: ExecutionId) -> OpenRollback | None:
    """Return the rollback that is not finished, if there is one."""
    journals = uow.rollbacks.list_rollbacks(run_id)
    journal = next((each for each in reversed(journals) if each.is_open), None)
    if journal is None:
        return None
    done, left = journal.progress(uow.tool_calls.list_calls(run_id))
    target: Checkpoint = uow.pages.list_line(journal.target_id, limit=1)[0]
    return OpenRollback(journal=journal, target=target, done=done, left=left)
