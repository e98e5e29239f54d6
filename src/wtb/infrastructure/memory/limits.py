"""MemoryLimitRepository: limits and their slots in dictionaries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from wtb.domain.limit_slots import LimitSlot
from wtb.domain.limits import LimitState
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryLimitRepository:
    """Limits inside one transaction; only one transaction at a time writes, so a lock is not needed."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def lock(self, scope: str, name: str) -> LimitState | None:
        found: LimitState | None = self._transaction.find("limits", (scope, name))
        return found

    def save(self, state: LimitState) -> None:
        self._transaction.put("limits", (state.scope, state.name), state)

    def list_limits(self, scope: str) -> tuple[LimitState, ...]:
        return tuple(sorted(self._transaction.group("limits", 0, scope), key=lambda state: state.name))

    def list_slots(self, scope: str, name: str) -> tuple[LimitSlot, ...]:
        found = self._transaction.group("limit_slots", 0, (scope, name))
        return tuple(sorted(found, key=lambda slot: (slot.since, slot.id)))

    def put(self, slot: LimitSlot) -> None:
        self._transaction.put("limit_slots", slot.id, slot)

    def renew(self, ids: Collection[str], expires_at: datetime) -> None:
        for id in ids:
            found: LimitSlot | None = self._transaction.find("limit_slots", id)
            if found is not None:
                self.put(replace(found, expires_at=expires_at))

    def drop(self, ids: Collection[str]) -> None:
        for id in ids:
            self._transaction.drop("limit_slots", id)

    def delete(self, scope: str) -> None:
        for state in self.list_limits(scope):
            self._transaction.drop("limits", (scope, state.name))
        self.drop([slot.id for slot in self._transaction.all("limit_slots") if slot.scope == scope])
