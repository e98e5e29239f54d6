"""SqlObservationRepository: what runs read, in a table."""

from __future__ import annotations

from collections.abc import Mapping

from wtb.domain.observation import Observation, Source, SourceKind
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping

_INSERT = """
INSERT INTO wtb_observations (trace_id, number, reader, kind, name, digest) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_LIST = "SELECT number, reader, kind, name, digest FROM wtb_observations WHERE trace_id = ? ORDER BY number"


class SqlObservationRepository:
    """Observations inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, trace_id: str, observations: Mapping[int, Observation]) -> None:
        for number, each in observations.items():
            source = (each.source.kind.value, each.source.name)
            self._transaction.run(_INSERT, (trace_id, number, each.reader, *source, each.digest))

    def list_observations(self, trace_id: str) -> dict[int, Observation]:
        return dict(map(_observation, self._transaction.rows(_LIST, (trace_id,))))


@mapping("observation")
def _observation(row: tuple[int, str, str, str, str]) -> tuple[int, Observation]:
    return row[0], Observation(row[1], Source(SourceKind(row[2]), row[3]), row[4])
