"""LimitView: a limit of a batch as people see it, and how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wtb.domain.batch import Batch
from wtb.domain.limit_slots import LimitSlot
from wtb.domain.limits import BreakerState, Limit, LimitState
from wtb.domain.ports import Owners, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView:
    """A limit of a batch: how many calls may run at a time, how many do, and whether its breaker is open."""

    name: str
    limit: Limit
    width: int
    """How many calls may run at a time now."""
    held: int
    """How many calls run now."""
    waiting: int
    """How many calls wait for a slot now; a second may pass before a new one is counted."""
    breaker: BreakerState
    until: datetime | None
    """When the next call is tried, if the breaker is not closed."""

    def to_data(self) -> dict[str, Any]:
        """Return the limit for programs."""
        return {
            "name": self.name,
            "adaptive": self.limit.adaptive,
            "width": self.width,
            "held": self.held,
            "waiting": self.waiting,
            "breaker": self.breaker.value if self.limit.break_after is not None else None,
            "until": None if self.until is None else self.until.isoformat(),
        }


def limit_views(uow: UnitOfWork, batch: Batch, owners: Owners) -> tuple[LimitView, ...]:
    """Return the limits of a batch, sorted by name."""
    states = {state.name: state for state in uow.limits.list_limits(batch.id)}
    now = uow.now() if batch.record.limits else None
    views = []
    for name, limit in sorted(batch.record.limits.items()):
        assert now is not None
        state = states.get(name) or LimitState.first(batch.id, name, limit)
        slots = [slot for slot in uow.limits.list_slots(batch.id, name) if slot.expires_at > now]
        views.append(_view(state.fitted(limit), limit, _of_living(slots, owners)))
    return tuple(views)


def _of_living(slots: Sequence[LimitSlot], owners: Owners) -> list[LimitSlot]:
    gone = {owner for owner in {slot.owner for slot in slots} if owners.is_gone(owner)}
    return [slot for slot in slots if slot.owner not in gone]


def _view(state: LimitState, limit: Limit, slots: Sequence[LimitSlot]) -> LimitView:
    return LimitView(
        name=state.name,
        limit=limit,
        width=state.width,
        held=sum(not slot.waiting for slot in slots),
        waiting=sum(slot.waiting for slot in slots),
        breaker=state.breaker,
        until=state.until,
    )
