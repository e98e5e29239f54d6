"""SqlLimitRepository: limits and their slots in two tables.

The rows carry no seal. They change with every call, and damage to them passes: a slot expires, and a state that cannot
be read counts as none, so that the limit starts again.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from wtb.domain.errors import DamagedData
from wtb.domain.limit_slots import LimitSlot
from wtb.domain.limits import BreakerState, LimitState
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.timestamps import from_us, from_us_or_none, to_us, to_us_or_none

_STATE = "scope, name, width, successes, failures, breaker, until_us, narrowed_at_us, told_width"
_SAVE = (
    f"INSERT INTO wtb_limits ({_STATE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, name) DO UPDATE SET "
    "width = excluded.width, successes = excluded.successes, failures = excluded.failures, breaker = excluded.breaker, "
    "until_us = excluded.until_us, narrowed_at_us = excluded.narrowed_at_us, told_width = excluded.told_width"
)
_SLOT = "id, scope, name, owner, since_us, expires_at_us, waiting"
_PUT = (
    f"INSERT INTO wtb_limit_slots ({_SLOT}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
    "since_us = excluded.since_us, expires_at_us = excluded.expires_at_us, waiting = excluded.waiting"
)
_LOCKED = f"SELECT {_STATE} FROM wtb_limits WHERE scope = ? AND name = ?"
_LIMITS = f"SELECT {_STATE} FROM wtb_limits WHERE scope = ?"
_SLOTS = f"SELECT {_SLOT} FROM wtb_limit_slots WHERE scope = ? AND name = ? ORDER BY since_us, id"


class SqlLimitRepository:
    """Limits inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def lock(self, scope: str, name: str) -> LimitState | None:
        self._transaction.lock(f"limit {name} of {scope}")
        row = self._transaction.row(_LOCKED, (scope, name))
        return None if row is None else _find_state(row)

    def save(self, state: LimitState) -> None:
        counts = (state.width, state.successes, state.failures, state.breaker.value)
        times = (to_us_or_none(state.until), to_us_or_none(state.narrowed_at))
        self._transaction.run(_SAVE, (state.scope, state.name, *counts, *times, state.told_width))

    def list_limits(self, scope: str) -> tuple[LimitState, ...]:
        found = [state for row in self._transaction.rows(_LIMITS, (scope,)) if (state := _find_state(row)) is not None]
        return tuple(sorted(found, key=lambda state: state.name))  # databases sort texts in different ways

    def list_slots(self, scope: str, name: str) -> tuple[LimitSlot, ...]:
        return tuple(map(_slot, self._transaction.rows(_SLOTS, (scope, name))))

    def put(self, slot: LimitSlot) -> None:
        times = (to_us(slot.since), to_us(slot.expires_at))
        self._transaction.run(_PUT, (slot.id, slot.scope, slot.name, slot.owner, *times, slot.waiting))

    def renew(self, ids: Collection[str], expires_at: datetime) -> None:
        statement = "UPDATE wtb_limit_slots SET expires_at_us = ? WHERE id IN (??)"
        self._transaction.change_in(statement, ids, to_us(expires_at))

    def drop(self, ids: Collection[str]) -> None:
        for id in ids:
            self._transaction.run("DELETE FROM wtb_limit_slots WHERE id = ?", (id,))

    def delete(self, scope: str) -> None:
        self._transaction.run("DELETE FROM wtb_limit_slots WHERE scope = ?", (scope,))
        self._transaction.run("DELETE FROM wtb_limits WHERE scope = ?", (scope,))


def _find_state(row: Any) -> LimitState | None:
    """Return the state in a row; None if it is damaged."""
    try:
        return _state(row)
    except DamagedData:
        return None


@mapping("limit")
def _state(row: Any) -> LimitState:
    return LimitState(
        scope=row[0],
        name=row[1],
        width=int(row[2]),
        successes=int(row[3]),
        failures=int(row[4]),
        breaker=BreakerState(row[5]),
        until=from_us_or_none(row[6]),
        narrowed_at=from_us_or_none(row[7]),
        told_width=int(row[8]),
    )


def _slot(row: Any) -> LimitSlot:
    return LimitSlot(
        id=row[0],
        scope=row[1],
        name=row[2],
        owner=row[3],
        since=from_us(row[4]),
        expires_at=from_us(row[5]),
        waiting=row[6],
    )
