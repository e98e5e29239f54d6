"""Returns the store's time, which all processes and machines that use the store share."""

from __future__ import annotations

from datetime import datetime

from wtb.domain.ports import Storage


def store_time(storage: Storage) -> datetime:
    """Return the time that leases use: the database's, if it has its own clock."""
    with storage.unit_of_work(readonly=True) as uow:
        return uow.now()
