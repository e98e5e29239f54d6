"""Heartbeat: one thread per process that keeps the leases of all its runs alive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from wtb.application.runs.leases import LEASE
from wtb.application.runs.steps import Position
from wtb.domain.errors import WTBError
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.secrets import masked_logger

_log = masked_logger(__name__)


class Heartbeat:
    """Renews each lease three times within its duration, for as long as its run is being driven."""

    def __init__(self, storage: Storage, lease: timedelta = LEASE) -> None:
        self._storage = storage
        self._lease = lease
        self._tokens: dict[ExecutionId, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def keeping(self, at: Position) -> Iterator[None]:
        """Keep the lease of a run alive inside the block."""
        assert at.token is not None
        with self._lock:
            self._tokens[at.execution.id] = at.token
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="wtb-heartbeat", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._tokens.pop(at.execution.id, None)

    def _beat(self) -> None:
        while not self._ended.wait(self._lease.total_seconds() / 3):
            with self._lock:
                tokens = dict(self._tokens)
            for execution_id, token in tokens.items():
                self._renew(execution_id, token)

    def _renew(self, execution_id: ExecutionId, token: int) -> None:
        try:
            with self._storage.unit_of_work() as uow:
                uow.executions.renew(execution_id, token, uow.now() + self._lease)
                uow.commit()
        except WTBError as error:
            if self._has_ended(execution_id, token):
                return
            # Not fatal here: the run's next write fails at the fence, where the error can be reported.
            _log.warning("the lease of run %s could not be renewed: %s", execution_id, error)

    def _has_ended(self, execution_id: ExecutionId, token: int) -> bool:
        """Whether a run has released its lease itself meanwhile."""
        with self._lock:
            if self._tokens.get(execution_id) != token:
                return True
        try:
            with self._storage.unit_of_work(readonly=True) as uow:
                return uow.executions.get(execution_id).lease is None
        except WTBError:
            return False

    def close(self) -> None:
        """Stop beating."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
