"""Driving: this process says that it runs a batch, so that readers can tell a running batch from a paused one.

If the database is away for too long, or the process is killed, nobody can store that the batch has paused. So the
driver reports while it runs, and readers conclude from its silence.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.domain.batch import BatchDriver
from wtb.domain.ports import Owners, UnitOfWork

_DRIVEN: Counter[str] = Counter()
"""How often this process is running each batch, in any bench: its name in the store cannot tell this."""
_LOCK = threading.Lock()


@contextmanager
def driving(batch_id: str) -> Iterator[None]:
    """Say, in this process, that the block runs a batch."""
    with _LOCK:
        _DRIVEN[batch_id] += 1
    try:
        yield
    finally:
        with _LOCK:
            _DRIVEN[batch_id] -= 1
            if not _DRIVEN[batch_id]:
                del _DRIVEN[batch_id]


def is_driven_here(batch_id: str) -> bool:
    """Whether this process is running a batch."""
    with _LOCK:
        return _DRIVEN[batch_id] > 0


def report_driver(uow: UnitOfWork, batch_id: str, owners: Owners) -> None:
    """Store that this process runs a batch, and that it lives."""
    uow.batches.note_driver(batch_id, BatchDriver(owner=owners.me(), seen_at=uow.now()))
