"""ConnectionCount: tells the Telemetry how many connections to the server this process has open."""

from __future__ import annotations

import threading

import sqlalchemy as sa

from wtb.domain.job_attempt import WorkerName
from wtb.domain.ports import Measure, Telemetry
from wtb.infrastructure.owners import ProcessOwners


class ConnectionCount:
    """Counts the connections of one engine, each time that one is opened or closed."""

    def __init__(self, engine: sa.Engine, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._open = 0
        sa.event.listen(engine, "connect", self._opened)
        sa.event.listen(engine, "close", self._closed)

    def _opened(self, connection: object, record: object) -> None:
        self._add(1)

    def _closed(self, connection: object, record: object) -> None:
        self._add(-1)

    def _add(self, amount: int) -> None:
        with self._lock:
            self._open += amount
            self._telemetry.level(Measure.CONNECTIONS, WorkerName(ProcessOwners().me()).label, self._open)
