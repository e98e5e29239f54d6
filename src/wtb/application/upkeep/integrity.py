"""Integrity: finds all faults in a store, names the runs that they affect, and repairs what it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from wtb.application.runs.leases import is_holder_gone, time_for
from wtb.application.runs.promised_reversals import PromisedReversal, promised_reversals
from wtb.application.store_time import store_time
from wtb.application.upkeep.abandoned_runs import AbandonedRuns, neglect_fault
from wtb.application.upkeep.listing import every_execution
from wtb.application.workspaces import WorkspaceFolder, Workspaces
from wtb.domain.batch import Batch
from wtb.domain.errors import DamagedData, NotFound, StorageError, UnknownFormat
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.files import FileCommitId
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import CallAnchor, Clock, FolderCare, Garbage, Inspection, Owners, Storage, Swept, UnitOfWork

_BUSY = (ExecutionStatus.RUNNING, ExecutionStatus.ROLLING_BACK)
_ENDED = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
_ALL = 1_000_000

Watch = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityReport:
    """The faults that were found. `garbage` is the unused data, `swept` the part of it that was deleted."""

    faults: tuple[Fault, ...]
    looked_at: Mapping[str, int]
    garbage: Swept
    swept: Swept | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether no fault is left."""
        return all(fault.repaired for fault in self.faults)


class Integrity:
    """Checks the store, the leases of runs, and the workspaces on this machine. It does not stop at the first fault."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        owners: Owners,
        inspection: Inspection,
        anchor: CallAnchor,
        garbage: Garbage,
        workspaces: Workspaces,
        folders: FolderCare,
        grace: timedelta,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._owners = owners
        self._inspection = inspection
        self._anchor = anchor
        self._garbage = garbage
        self._workspaces = workspaces
        self._folders = folders
        self._grace = grace
        self._abandoned = AbandonedRuns(storage, clock, owners, user=user)

    def check(self, watch: Watch = lambda kind: None) -> IntegrityReport:
        """Check everything and change nothing."""
        inspected = self._inspection.inspect(watch)
        here = (*self._neglected(), *self._too_long_leases(), *self._half_restored(), *self._damaged_indexes())
        here = (*self._anchor.inspect(), *here, *self._open_reversals())
        return IntegrityReport(
            faults=(*inspected.faults, *here), looked_at=inspected.looked_at, garbage=inspected.garbage
        )

    def repair(self, watch: Watch = lambda kind: None) -> IntegrityReport:
        """Repair faults, delete unused data, and check again: a fault that is not found again was repaired."""
        before = self.check(watch)
        self._inspection.repair(before.faults)
        self._anchor.repair(before.faults)
        for fault in before.faults:
            self._mend(fault)
        after = self.check(watch)
        left = {(fault.kind, fault.what) for fault in after.faults}
        faults = tuple(fault if (fault.kind, fault.what) in left else fault.mended() for fault in before.faults)
        known = {(fault.kind, fault.what) for fault in faults}
        faults += tuple(fault for fault in after.faults if (fault.kind, fault.what) not in known)
        return IntegrityReport(faults=faults, looked_at=after.looked_at, garbage=after.garbage, swept=self._swept())

    def _swept(self) -> Swept | None:
        try:
            return self._garbage.sweep(self._grace)
        except (DamagedData, UnknownFormat):
            return None  # damaged data may refer to anything

    def _neglected(self) -> Iterator[Fault]:
        for found in self._abandoned.list_neglected():
            yield neglect_fault(found)

    def _too_long_leases(self) -> Iterator[Fault]:
        """Yield runs that cannot be taken over for a long time. A repair skips them: their process may be alive."""
        now = store_time(self._storage)
        for execution in every_execution(self._storage, statuses=_BUSY):
            lease = execution.lease
            if lease is not None and lease.is_too_long(now) and is_holder_gone(execution, self._owners) is None:
                yield Fault(
                    kind=FaultKind.LEASE,
                    what=execution.id,
                    problem=f"the lease of run {execution.id!r} ({lease.owner}) ends at {lease.expires_at}, too late "
                    "for any lease: a clock is or was wrong; correct the clocks, and if that process has ended, "
                    f"use `{execution.take_over_command}`",
                    runs=(execution.id,),
                    remedy=None,
                )

    def _open_reversals(self) -> Iterator[Fault]:
        """Yield the runs of batches whose external calls are still to be taken back, and that no process is running."""
        with self._storage.unit_of_work(readonly=True) as uow:
            for batch in _readable_batches(uow):
                with suppress(StorageError):  # the inspection reports what cannot be read
                    for each in promised_reversals(uow, uow.batches.list_jobs(batch.id)):
                        if each.execution.lease is None or is_holder_gone(each.execution, self._owners):
                            yield _open_reversal(batch, each)

    def _half_restored(self) -> Iterator[Fault]:
        half = [each for each in self._workspaces.list_folders() if self._folders.is_half_restored(each.folder)]
        for each in half:
            remedy: str | None = "restores it again, or removes it if no run owns it"
            try:
                execution = self._owner(each)
            except StorageError:  # the inspection reports it; the owner of the folder is unknown
                execution, remedy = None, None
            if execution is not None and self._is_being_run(execution):
                continue  # its process may be restoring the folder right now
            if execution is not None and each.is_member and execution.status in _ENDED:
                continue  # it is no longer needed: a new attempt of the node restores it first
            yield Fault(
                kind=FaultKind.WORKSPACE,
                what=str(each.folder),
                problem=f"a restore of the workspace {each.folder} was interrupted",
                runs=() if execution is None else (execution.id,),
                remedy=remedy,
            )

    def _is_being_run(self, execution: Execution) -> bool:
        if not execution.is_busy:
            return False
        now = time_for(execution, self._storage, self._clock)
        return execution.neglect(now, is_holder_gone(execution, self._owners)) is None

    def _damaged_indexes(self) -> Iterator[Fault]:
        damaged = self._folders.list_damaged_indexes()
        owners = {self._folders.index_of(each.folder): each for each in self._workspaces.list_folders() if damaged}
        for index in damaged:
            execution = None
            with suppress(StorageError):
                execution = self._owner(owners[index]) if index in owners else None
            yield Fault(
                kind=FaultKind.STAT_INDEX,
                what=str(index),
                problem=f"the stat index {index} is damaged; no data is lost, since it only saves time",
                runs=() if execution is None else (execution.id,),
                remedy="removes it; the next scan creates it again",
            )

    def _owner(self, place: WorkspaceFolder) -> Execution | None:
        """Return the run that a folder belongs to; None if the run no longer exists."""
        with self._storage.unit_of_work(readonly=True) as uow:
            try:
                found = uow.executions.get(ExecutionId(place.execution_name))
            except NotFound:
                found = None
        if found is not None and place.is_of(found.id):
            return found
        return next((each for each in every_execution(self._storage) if place.is_of(each.id)), None)

    def _mend(self, fault: Fault) -> None:
        """Repair a fault that is outside the database and the object store."""
        if fault.remedy is None:
            return
        match fault.kind:
            case FaultKind.ABANDONED_RUN:
                self._abandoned.pause(ExecutionId(fault.what), fault.problem)
            case FaultKind.WORKSPACE:
                for place in self._workspaces.list_folders():
                    if str(place.folder) == fault.what:
                        self._put_right(place)
            case FaultKind.STAT_INDEX:
                for index in self._folders.list_damaged_indexes():
                    if str(index) == fault.what:
                        self._folders.drop_index(index)

    def _put_right(self, place: WorkspaceFolder) -> None:
        execution = self._owner(place)
        if execution is None or place.is_member:  # a new attempt of the node begins with a fresh folder
            self._workspaces.discard(place.folder)
            return
        with suppress(StorageError, NotFound):  # its commit may be damaged itself, and is reported then
            self._workspaces.restore(place.folder, self._head_commit(execution, place))

    def _head_commit(self, execution: Execution, place: WorkspaceFolder) -> FileCommitId | None:
        with self._storage.unit_of_work(readonly=True) as uow:
            heads = [each.head_id for each in uow.branches.list_branches(execution.id) if place.is_on(each.id)]
            found = uow.checkpoints.get(heads[0]).file_commit if heads and heads[0] is not None else None
        return None if found is None else FileCommitId(found)


def _readable_batches(uow: UnitOfWork) -> tuple[Batch, ...]:
    try:
        return uow.batches.list_batches(limit=_ALL)
    except DamagedData:  # the inspection reports the batch; once it is deleted, the others can be read
        return ()


def _open_reversal(batch: Batch, left: PromisedReversal) -> Fault:
    why = f" ({left.why})" if left.why else ""
    return Fault(
        kind=FaultKind.OPEN_REVERSAL,
        what=left.execution.id,
        problem=f"batch {batch.name!r} has not taken back the external calls of run {left.execution.id!r}: "
        f"{', '.join(left.tools)}{why}; run the batch again to take them back",
        runs=(left.execution.id,),
        remedy=None,
    )
