"""MemoryObservationRepository: observations of what runs read, in a dictionary."""

from __future__ import annotations

from collections.abc import Mapping

from wtb.domain.observation import Observation
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryObservationRepository:
    """Observations inside one transaction."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, trace_id: str, observations: Mapping[int, Observation]) -> None:
        for number, observation in observations.items():
            if self._transaction.find("observations", (trace_id, number)) is None:
                self._transaction.put("observations", (trace_id, number), (trace_id, number, observation))

    def list_observations(self, trace_id: str) -> dict[int, Observation]:
        rows = sorted(self._transaction.group("observations", 0, trace_id), key=lambda row: row[1])
        return {number: observation for _, number, observation in rows}
