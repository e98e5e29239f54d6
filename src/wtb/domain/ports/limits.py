"""Limits of concurrent calls and the slots that processes hold."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from wtb.domain.limit_slots import LimitSlot
from wtb.domain.limits import LimitState


class LimitRepository(Protocol):
    """The state of each limit by scope and name, and the slots that processes hold or wait for."""

    def lock(self, scope: str, name: str) -> LimitState | None:
        """Return the state of a limit, and let no other transaction lock it until this one ends."""
        ...

    def save(self, state: LimitState) -> None:
        """Store the state of a limit."""
        ...

    def list_limits(self, scope: str) -> tuple[LimitState, ...]:
        """Return the limits of a scope, sorted by name."""
        ...

    def list_slots(self, scope: str, name: str) -> tuple[LimitSlot, ...]:
        """Return the slots and the waiting marks of a limit, the oldest first; expired ones too."""
        ...

    def put(self, slot: LimitSlot) -> None:
        """Store a slot or a mark; it replaces the one with the same id."""
        ...

    def renew(self, ids: Collection[str], expires_at: datetime) -> None:
        """Extend slots that are still there."""
        ...

    def drop(self, ids: Collection[str]) -> None:
        """Remove slots and marks; those that are gone already do not matter."""
        ...

    def delete(self, scope: str) -> None:
        """Delete the limits of a scope with their slots."""
        ...
