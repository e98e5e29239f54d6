"""Leases: make sure that only one process, and in it one thread, changes a run at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from wtb.application.runs.steps import Position
from wtb.application.store_time import store_time
from wtb.domain.errors import Conflict, ExecutionNotFound, InvalidTransition, StorageReplaced
from wtb.domain.event_catalogue import ExecutionAbandoned
from wtb.domain.events import Event
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.ids import BranchId
from wtb.domain.ports import Clock, Owners, Storage

LEASE = timedelta(seconds=30)
"""How long a process may be silent before others may take over its run."""

_TRIES = 5
"""How often we try to give back a lease while others change the run."""

_TAKEN: set[BranchId] = set()
"""Branches that a thread of this process works on, in any bench: a lease cannot tell threads apart."""
_LOCK = threading.Lock()


@contextmanager
def alone(at: Position) -> Iterator[None]:
    """Refuse a run that another thread of this process is running."""
    with _LOCK:
        if at.branch.id in _TAKEN:
            raise Conflict(
                f"run {at.execution.id!r} is already running in another thread of this process; pause it first"
            )
        _TAKEN.add(at.branch.id)
    try:
        yield
    finally:
        with _LOCK:
            _TAKEN.discard(at.branch.id)


def is_holder_gone(execution: Execution, owners: Owners) -> bool | None:
    """Whether the process that holds a run's lease has ended; None without a lease, or if that cannot be seen here."""
    return None if execution.lease is None else owners.is_gone(execution.lease.owner)


def time_for(execution: Execution, storage: Storage, clock: Clock) -> datetime:
    """Return the time by which to judge whether a run is neglected: without a lease, that of this machine's clock."""
    return clock.now() if execution.lease is None else store_time(storage)


SET_BACK = (
    "the database was set back to an earlier state while this process used it. What the process had written since then "
    "is gone, and it has stopped"
)


def check_not_set_back(storage: Storage, at: Position) -> None:
    """Raise StorageReplaced if the store has lost something that this process stored for the run."""
    execution = at.execution
    with storage.unit_of_work(readonly=True) as uow:
        try:
            stored = uow.executions.get(execution.id)
        except ExecutionNotFound as error:
            raise StorageReplaced(f"run {execution.id!r} is no longer there: {SET_BACK}") from error
    if stored.version < execution.version or stored.lease_token < execution.lease_token:
        raise StorageReplaced(
            f"run {execution.id!r} has version {stored.version}, after {execution.version}: {SET_BACK}"
        )


class Leases:
    """Takes, checks and releases the leases of runs."""

    def __init__(self, storage: Storage, clock: Clock, owners: Owners, *, user: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._owners = owners
        self._user = user

    def check_free(self, execution: Execution, *, take_over: bool = False) -> str | None:
        """Raise Conflict if a living process holds the lease; otherwise say who left it, and how that is known.

        With `take_over`, allow taking a lease that a wrong clock has put far into the future.
        """
        lease, me = execution.lease, self._owners.me()
        if lease is None:
            return None
        gone = self._owners.is_gone(lease.owner)
        now = store_time(self._storage)
        execution.check_free(me, now, gone, is_clock_distrusted=take_over)
        if lease.owner == me:
            return None
        if not gone and lease.is_too_long(now):
            return f"{lease.owner} had a lease until {lease.expires_at} by a wrong clock; somebody said to take over"
        return f"{lease.owner} {'is gone' if gone else f'was last heard of before {lease.expires_at}'}"

    def taken(self, execution: Execution, *, take_over: bool = False) -> Execution:
        """Take the lease of a run and change nothing else; `take_over` as for `check_free`."""
        abandoned = self.check_free(execution, take_over=take_over)
        now = self._clock.now()
        try:
            with self._storage.unit_of_work() as uow:
                execution = execution.stepped(now).owned(self._owners.me(), uow.now(), LEASE)
                uow.executions.save(execution)
                if abandoned is not None:
                    body = ExecutionAbandoned(reason=abandoned, by=self._user)
                    uow.events.append(Event.of(body, stream=execution.id, at=now))
                uow.commit()
        except Conflict as error:
            raise Conflict(
                f"somebody else changed run {execution.id!r} at the same moment, and nothing was done; look at the run "
                f"with `wtb show {execution.id}`, and try again"
            ) from error
        return execution

    def released(self, execution: Execution) -> Execution:
        """Release the lease of a run."""
        assert execution.lease is not None
        token = execution.lease.token
        execution = execution.released(token, self._clock.now())
        with self._storage.unit_of_work() as uow:
            uow.executions.save(execution, token=token)
            uow.commit()
        return execution

    def let_go(self, at: Position) -> None:
        """Release a lease if it is still ours. Naming a checkpoint may change the run meanwhile."""
        for _ in range(_TRIES):
            with self._storage.unit_of_work(readonly=True) as uow:
                current = uow.executions.get(at.execution.id)
            if current.lease is None or current.lease.token != at.token:
                return
            with suppress(Conflict):
                self.released(current)

    def me(self) -> str:
        """Return the name of this process."""
        return self._owners.me()


def check_not_rolling_back(execution: Execution) -> None:
    """Raise InvalidTransition, saying what to do, if a rollback of the run is unfinished."""
    if execution.status is ExecutionStatus.ROLLING_BACK:
        raise InvalidTransition(
            f"run {execution.id!r} is in the middle of a rollback; finish it with `wtb rollback {execution.id} "
            "--continue`, or give it up with `--abandon`"
        )
