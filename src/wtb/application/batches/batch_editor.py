"""BatchEditor: cancels and deletes batches."""

from __future__ import annotations

from wtb.application.batch_driving import is_driven_here
from wtb.application.runs.promised_reversals import PromisedReversal, promised_reversals
from wtb.domain.batch import Batch, BatchStatus
from wtb.domain.errors import DamagedData, InvalidInput
from wtb.domain.event_catalogue import BatchCancelled, BatchDeleted
from wtb.domain.events import Event
from wtb.domain.ports import Clock, Owners, Storage, UnitOfWork


class BatchEditor:
    """Changes what is stored about batches; runs stay as they are."""

    def __init__(self, storage: Storage, clock: Clock, owners: Owners, *, user: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._owners = owners
        self._user = user

    def cancel(self, batch: Batch, *, by: str | None = None) -> None:
        """Mark a batch as cancelled: no process starts any more of its jobs."""
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            uow.batches.lock(batch.name)
            batch = uow.batches.get(batch.id)  # as it is now: it may have ended, or somebody may have deleted it
            if batch.status not in (BatchStatus.PENDING, BatchStatus.RUNNING, BatchStatus.PAUSED):
                raise InvalidInput(f"batch {batch.name!r} is {batch.status}: there is nothing to cancel")
            uow.batches.save(batch.moved_to(BatchStatus.CANCELLED, now))
            uow.events.append(Event.of(BatchCancelled(by=by or self._user), stream=batch.id, at=now))
            uow.commit()

    def delete(self, batch: Batch, *, by: str | None = None) -> None:
        """Delete a batch with its results."""
        if batch.status is BatchStatus.RUNNING:
            raise InvalidInput(f"batch {batch.name!r} is running; cancel it first: `wtb batch cancel {batch.name}`")
        with self._storage.unit_of_work() as uow:
            uow.batches.lock(batch.name)
            if batch.status is BatchStatus.CANCELLED and self._is_driven(batch, uow):
                raise InvalidInput(
                    f"batch {batch.name!r} is cancelled, and its process still finishes the jobs that it had begun; "
                    "delete it when they have ended"
                )
            left = _left_to_take_back(uow, batch)
            if left is not None:
                raise InvalidInput(
                    f"batch {batch.name!r} has external calls left to take back ({', '.join(left.tools)} in run "
                    f"{left.execution.id}); run it again to take them back, then delete it"
                )
            uow.batches.delete(batch.id)
            uow.limits.delete(batch.id)
            body = BatchDeleted(name=batch.name, by=by or self._user)
            uow.events.append(Event.of(body, stream=batch.id, at=self._clock.now()))
            uow.commit()

    def _is_driven(self, batch: Batch, uow: UnitOfWork) -> bool:
        """Whether a process may still store results of a batch: they would come back after it was deleted."""
        driver = batch.driver
        if driver is None or driver.is_silent(uow.now()):
            return False
        if driver.owner == self._owners.me():
            return is_driven_here(batch.id)
        return not self._owners.is_gone(driver.owner)


def _left_to_take_back(uow: UnitOfWork, batch: Batch) -> PromisedReversal | None:
    try:
        return next(promised_reversals(uow, uow.batches.list_jobs(batch.id)), None)
    except DamagedData:  # a damaged batch must be deletable, or nobody could get rid of it
        return None
