"""AbandonedRuns: finds runs that no living process works on, and pauses them, so that nobody waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wtb.application.runs.leases import is_holder_gone, time_for
from wtb.application.upkeep.listing import every_execution
from wtb.domain.errors import Conflict
from wtb.domain.event_catalogue import ExecutionAbandoned, ExecutionPaused
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Execution, ExecutionStatus, Neglect, Pause, PauseKind
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import Clock, Owners, Storage

_BUSY = (ExecutionStatus.RUNNING, ExecutionStatus.ROLLING_BACK)
_PROCESS_GONE = Pause(reason="its process was gone", kind=PauseKind.PROCESS_GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeglectedRun:
    """A run that makes no progress, and whether its process has ended: None if this machine cannot see it."""

    execution: Execution
    neglect: Neglect
    is_gone: bool | None

    @property
    def can_be_paused(self) -> bool:
        """Whether pausing it is right: not in a rollback, which somebody has to finish, nor if its process lives."""
        return self.execution.status is ExecutionStatus.RUNNING and self.is_gone is not False

    @property
    def problem(self) -> str:
        """What is wrong, for people."""
        execution = self.execution
        owner = "nobody" if execution.lease is None else execution.lease.owner
        why = "has ended" if self.neglect is Neglect.GONE else "has given no sign of life for an hour"
        half_done = f"; finish it with `wtb rollback {execution.id} --continue`, or give it up with `--abandon`"
        return (
            f"run {execution.id!r} is {execution.status}, but its process {why} ({owner})"
            f"{half_done if execution.status is ExecutionStatus.ROLLING_BACK else ''}"
        )


class AbandonedRuns:
    """Judges by leases: a process that works on a run extends its lease, so a node may take hours."""

    def __init__(self, storage: Storage, clock: Clock, owners: Owners, *, user: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._owners = owners
        self._user = user

    def list_neglected(self) -> Iterator[NeglectedRun]:
        """Yield the runs that make no progress, newest first."""
        for execution in every_execution(self._storage, statuses=_BUSY):
            gone = is_holder_gone(execution, self._owners)
            neglect = execution.neglect(time_for(execution, self._storage, self._clock), gone)
            if neglect is not None:
                yield NeglectedRun(execution=execution, neglect=neglect, is_gone=gone)

    def settle(self, found: NeglectedRun, *, by: str | None) -> bool:
        """Pause an abandoned run, or tell once of one that was left in a rollback; return whether that was done.

        A run that was left less than an hour ago is not touched: the server that ran it may take it up again.
        """
        if found.neglect is not Neglect.ABANDONED or found.is_gone is False:
            return False
        if found.can_be_paused:
            return self.pause(found.execution.id, found.problem, by=by)
        return self._tell(found, by)

    def pause(self, execution_id: ExecutionId, reason: str, *, by: str | None = None) -> bool:
        """Pause a run whose process is gone; return whether it was so still."""
        now, who = self._clock.now(), by or self._user
        with self._storage.unit_of_work() as uow:
            execution = uow.executions.get(execution_id)
            if (
                execution.status is not ExecutionStatus.RUNNING
                or execution.neglect(uow.now() if execution.lease else now, is_holder_gone(execution, self._owners))
                is None
            ):
                return False
            try:
                uow.executions.save(execution.moved_to(ExecutionStatus.PAUSED, now, pause=_PROCESS_GONE))
            except Conflict:
                return False  # a process continues it
            for body in (ExecutionAbandoned(reason=reason, by=who), ExecutionPaused(reason=reason, by=who)):
                uow.events.append(Event.of(body, stream=execution_id, at=now))
            uow.commit()
        return True

    def _tell(self, found: NeglectedRun, by: str | None) -> bool:
        """Tell that a rollback was left, unless the last event of the run says so already."""
        stream = found.execution.id
        with self._storage.unit_of_work() as uow:
            last = uow.events.list_events(stream=stream, newest=True, limit=1, by="sequence")
            if last and last[-1].type is EventType.EXECUTION_ABANDONED:
                return False
            body = ExecutionAbandoned(reason=found.problem, by=by or self._user)
            uow.events.append(Event.of(body, stream=stream, at=self._clock.now()))
            uow.commit()
        return True


def neglect_fault(found: NeglectedRun) -> Fault:
    """Return a neglected run as a fault of the store."""
    return Fault(
        kind=FaultKind.ABANDONED_RUN,
        what=found.execution.id,
        problem=found.problem,
        runs=(found.execution.id,),
        remedy="pauses it, so that you can resume it" if found.can_be_paused else None,
    )
