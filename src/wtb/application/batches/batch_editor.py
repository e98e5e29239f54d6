"""BatchEditor: cancels and deletes batches."""

from __future__ import annotations

from wtb.application.runs.promised_reversals import PromisedReversal, promised_reversals
from wtb.domain.batch import Batch, BatchStatus
from wtb.domain.errors import DamagedData, InvalidInput
from wtb.domain.event_catalogue import BatchCancelled, BatchDeleted
from wtb.domain.events import Event
from wtb.domain.ports import Clock, Storage, UnitOfWork


class BatchEditor:
    """Changes what is stored about batches; runs stay as they are."""

    def __init__(self, storage: Storage, clock: Clock, *, user: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._user = user

    def cancel(self, batch: Batch, *, by: str | None = None) -> None:
        """Mark a batch as cancelled: no process starts any more of its jobs."""
        if batch.status not in (BatchStatus.PENDING, BatchStatus.RUNNING, BatchStatus.PAUSED):
            raise InvalidInput(f"batch {batch.name!r} is {batch.status}: there is nothing to cancel")
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            uow.batches.save(batch.moved_to(BatchStatus.CANCELLED, now))
            uow.events.append(Event.of(BatchCancelled(by=by or self._user), stream=batch.id, at=now))
            uow.commit()

    def delete(self, batch: Batch, *, by: str | None = None) -> None:
        """Delete a batch with its results."""
        if batch.status is BatchStatus.RUNNING:
            raise InvalidInput(f"batch {batch.name!r} is running; cancel it first: `wtb batch cancel {batch.name}`")
        with self._storage.unit_of_work() as uow:
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


def _left_to_take_back(uow: UnitOfWork, batch: Batch) -> PromisedReversal | None:
    try:
        return next(promised_reversals(uow, uow.batches.list_jobs(batch.id)), None)
    except DamagedData:  # a damaged batch must be deletable, or nobody could get rid of it
        return None
