"""SqlObservationRepository: observations of what runs read, in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.domain.integrity import FaultKind
from wtb.domain.observation import Observation, ObservedSource, SourceKind
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.seals import RowSeal

OBSERVATION_SEAL = RowSeal(
    kind=FaultKind.OBSERVATION,
    table="wtb_observations",
    key=("trace_id", "number"),
    rest=("reader", "kind", "name", "digest"),
)
_FIELDS = f"{OBSERVATION_SEAL.covered}, seal"
_INSERT = f"INSERT INTO wtb_observations ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_LIST = f"SELECT {_FIELDS} FROM wtb_observations WHERE trace_id = ? ORDER BY number"


class SqlObservationRepository:
    """Observations inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, trace_id: str, observations: Mapping[int, Observation]) -> None:
        for number, each in observations.items():
            source = (each.source.kind.value, each.source.name)
            row = (trace_id, number, each.reader, *source, each.digest)
            self._transaction.run(_INSERT, (*row, OBSERVATION_SEAL.of(row)))

    def list_observations(self, trace_id: str) -> dict[int, Observation]:
        return dict(map(_observation, self._transaction.rows(_LIST, (trace_id,))))


@mapping("observation")
def _observation(row: Any) -> tuple[int, Observation]:
    OBSERVATION_SEAL.check(row[:-1], row[-1])
    return row[1], Observation(row[2], ObservedSource(SourceKind(row[3]), row[4]), row[5])
