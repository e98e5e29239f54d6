"""LimitSlot: a place that a limit gives to one call; and the rule that decides which process gets the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSlot:
    """A slot that a process holds for a call until `expires_at`, unless it extends it.

    With `waiting`, it is no slot but the mark of a process in which that many calls wait for one.
    """

    id: str
    scope: str
    name: str
    owner: str
    """The process."""
    since: datetime
    expires_at: datetime
    waiting: int = 0


def is_free_for(owner: str, slots: Sequence[LimitSlot], width: int) -> bool:
    """Whether a process may take another slot now; `slots` are those that count, with the marks of who waits.

    If several processes want slots, none takes more than its share while another with less waits. Among those with
    less than their share, the one that has waited longest comes first.
    """
    held = Counter(slot.owner for slot in slots if not slot.waiting)
    waits = {slot.owner: slot.since for slot in slots if slot.waiting}
    free = width - held.total()
    if free <= 0:
        return False
    share = -(-width // len({owner, *held, *waits}))
    mine = waits.get(owner)

    def goes_first(other: str) -> bool:
        if other == owner or held[other] >= share:
            return False
        return held[owner] >= share or mine is None or waits[other] < mine

    return free > sum(map(goes_first, waits))
