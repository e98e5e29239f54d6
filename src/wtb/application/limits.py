"""Limits: gives the slots of limits to calls of this process, and tells all processes how calls ended.

A slot is a row with a lease, so that all workers of a batch count the same slots, and those of a killed worker come
back. Calls of this process wait in line here; only the first in line asks the database.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from wtb.domain.errors import ConnectionLost, WTBError
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import BreakerClosed, BreakerOpened, LimitChanged
from wtb.domain.events import SYSTEM_STREAM, Event
from wtb.domain.limit_slots import LimitSlot, is_free_for
from wtb.domain.limits import BreakerState, CallEnd, Limit, LimitState
from wtb.domain.ports import Clock, Ids, Owners, Storage, UnitOfWork
from wtb.domain.secrets import Masker, masked_logger

_log = masked_logger(__name__)

LEASE = timedelta(seconds=60)
"""How long a process on another machine may be silent before its slots come back; here we see whether it lives."""

MARK_LEASE = timedelta(seconds=4)
"""How long the mark of a process that waits counts; looks at the database extend it."""

_PAUSE_PER_PROCESS_S = 0.01
"""The shortest pause between two looks for a slot that another process gives back, for each process that wants one: so
the database answers at most about 130 looks a second, however many processes wait."""

_SHARE_OF_WAIT = 0.05
_LONGEST_PAUSE_S = 1.0
"""The pause grows with the time that a call has waited: it may wait a twentieth longer than it has to, or a second."""

_CHECK_S = 0.5
"""How often a call further back in line checks whether it was given up."""

Check = Callable[[], None]
"""Raises if the call that waits was given up meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSlot:
    """A slot that a call of this process holds."""

    slot: LimitSlot
    limit: Limit
    is_trial: bool = False


@dataclass(frozen=True, slots=True)
class _Busy:
    """No slot is free, and this many processes hold one or wait."""

    processes: int

    def pause_s(self, waited_s: float) -> float:
        """Return how long to wait before the next look; by chance, so that processes do not look at the same time."""
        pause_s = max(self.processes * _PAUSE_PER_PROCESS_S, waited_s * _SHARE_OF_WAIT)
        return min(pause_s, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)


class Limits:
    """The slots that this process holds, and its lines of waiting calls."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids, owners: Owners, masker: Masker) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._owners = owners
        self._masker = masker
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, str], _Line] = {}
        self._held: dict[str, HeldSlot] = {}
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def take(self, scope: str, name: str, limit: Limit, check: Check) -> HeldSlot:
        """Wait for a slot and return it; raise CircuitOpen if the breaker is open."""
        with self._lock:
            line = self._lines.setdefault((scope, name), _Line())
        held = line.wait(lambda waiting: self._tried(scope, name, limit, waiting, check), check)
        with self._lock:
            self._held[held.slot.id] = held
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="wtb-limits", daemon=True)
                self._keeper.start()
        return held

    def end(self, held: HeldSlot, end: CallEnd, error: BaseException | None = None) -> None:
        """Give a slot back, and store how its call ended. If the database does not answer, the slot expires."""
        with self._lock:
            self._held.pop(held.slot.id, None)
            line = self._lines.get((held.slot.scope, held.slot.name))
        if not (held.limit.learns and self._given_back(held, end, error)) and not self._given_back(held):
            _log.warning("a slot of limit %s could not be given back, and expires in a minute", held.slot.name)
        if line is not None:
            line.look()

    def _given_back(self, held: HeldSlot, end: CallEnd | None = None, error: BaseException | None = None) -> bool:
        """Give a slot back, and learn from the end of its call if it is given. A failure must not change its result."""
        try:
            with self._storage.unit_of_work() as uow:
                if end is not None:
                    self._learn(uow, held, end, error)
                uow.limits.drop([held.slot.id])
                uow.commit()
        except WTBError as fault:
            _log.debug("a slot of limit %s was not given back at once: %s", held.slot.name, fault)
            return False
        return True

    def begin(self, uow: UnitOfWork, scope: str, limits: Mapping[str, Limit]) -> None:
        """Prepare the limits of a batch that starts or continues: learned widths stay, breakers are closed."""
        known = {state.name: state for state in uow.limits.list_limits(scope)}
        for name, limit in limits.items():
            state = known.get(name)
            uow.limits.save(LimitState.first(scope, name, limit) if state is None else state.begun(limit))

    def _tried(self, scope: str, name: str, limit: Limit, waiting: int, check: Check) -> HeldSlot | _Busy:
        """Like `_try`, again if the connection is lost: others change the slots, so it cannot be repeated as it was."""
        while True:
            try:
                return self._try(scope, name, limit, waiting)
            except ConnectionLost:
                check()

    def _try(self, scope: str, name: str, limit: Limit, waiting: int) -> HeldSlot | _Busy:
        """Take a slot if there is one; otherwise note that this many calls of this process wait."""
        with self._storage.unit_of_work() as uow:
            known = uow.limits.lock(scope, name)
            stored = uow.limits.list_slots(scope, name)
            now = uow.now()
            state = (known or LimitState.first(scope, name, limit)).fitted(limit)
            admitted = state.admitted(limit, now)
            me = self._owners.me()
            slots = [slot for slot in stored if slot.expires_at > now]
            if not is_free_for(me, slots, state.width):
                slots = self._of_living(slots)
            mark = LimitSlot(
                id=f"waiting {scope}/{name} {me}",
                scope=scope,
                name=name,
                owner=me,
                since=now,
                expires_at=now + MARK_LEASE,
                waiting=waiting,
            )
            if not is_free_for(me, slots, state.width):
                _wait(uow, mark, slots)
                return _Busy(processes=len({me, *(slot.owner for slot in slots)}))
            slot = replace(mark, id=self._ids.new(), expires_at=now + LEASE, waiting=0)
            uow.limits.put(slot)
            if waiting > 1:
                uow.limits.put(replace(mark, waiting=waiting - 1))
            gone = {each.id for each in stored} - {each.id for each in slots}
            uow.limits.drop([*gone, *([mark.id] if waiting == 1 and _has(slots, mark) else [])])
            if admitted != known:
                uow.limits.save(admitted)
            uow.commit()
        return HeldSlot(slot=slot, limit=limit, is_trial=admitted.breaker is BreakerState.TRIAL)

    def _of_living(self, slots: Sequence[LimitSlot]) -> list[LimitSlot]:
        """Return the slots and marks of processes that may be alive; finding out takes a while."""
        gone = {owner for owner in {slot.owner for slot in slots} if self._owners.is_gone(owner)}
        return [slot for slot in slots if slot.owner not in gone]

    def _learn(self, uow: UnitOfWork, held: HeldSlot, end: CallEnd, error: BaseException | None) -> None:
        """Store how a call ended, and tell what follows from it."""
        scope, name, limit = held.slot.scope, held.slot.name, held.limit
        before = uow.limits.lock(scope, name) or LimitState.first(scope, name, limit)
        busy = sum(not slot.waiting for slot in uow.limits.list_slots(scope, name)) if limit.adaptive else 0
        after = before.ended(
            limit,
            end,
            began_at=held.slot.since,
            now=uow.now(),
            is_full=busy >= before.width,
            is_trial=held.is_trial,
        )
        if after == before:
            return
        uow.limits.save(after)
        for body in _change_events(before, after, "" if error is None else self._masker.error(error)):
            uow.events.append(Event.of(body, stream=scope or SYSTEM_STREAM, at=self._clock.now()))

    def _keep(self) -> None:
        """Extend the slots of this process three times within their lease."""
        while not self._ended.wait(LEASE.total_seconds() / 3):
            with self._lock:
                ids = tuple(self._held)
            if ids:
                self._renew(ids)

    def _renew(self, ids: Sequence[str]) -> None:
        try:
            with self._storage.unit_of_work() as uow:
                uow.limits.renew(ids, uow.now() + LEASE)
                uow.commit()
        except WTBError as error:
            _log.warning("the slots of %d calls could not be extended; it is tried again: %s", len(ids), error)

    def close(self) -> None:
        """Stop extending slots."""
        self._ended.set()
        if self._keeper is not None:
            self._keeper.join()


class _Line:
    """The calls of this process that wait for one limit. Each has an event that tells it to look again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def wait(self, attempt: Callable[[int], HeldSlot | _Busy], check: Check) -> HeldSlot:
        """Stand in line; once first, try until a slot is there. `attempt` gets the number of calls in line."""
        me, began = threading.Event(), time.monotonic()
        with self._lock:
            self._waiting.append(me)
        try:
            while True:
                me.clear()  # before the attempt, so that no slot which is given back meanwhile is missed
                waiting = self._length_if_first(me)
                found = attempt(waiting) if waiting else None
                if isinstance(found, HeldSlot):
                    return found
                check()
                me.wait(_CHECK_S if found is None else found.pause_s(time.monotonic() - began))
        finally:
            with self._lock:
                self._waiting.remove(me)
            self.look()

    def _length_if_first(self, me: threading.Event) -> int:
        with self._lock:
            return len(self._waiting) if self._waiting[0] is me else 0

    def look(self) -> None:
        """Let the first in line look at once."""
        with self._lock:
            if self._waiting:
                self._waiting[0].set()


def _wait(uow: UnitOfWork, mark: LimitSlot, slots: Iterable[LimitSlot]) -> None:
    """Store the mark of a process that waits. One that counts already keeps its place."""
    known = next((slot for slot in slots if slot.id == mark.id), None)
    if known is not None:
        if known.waiting == mark.waiting and mark.expires_at - known.expires_at < MARK_LEASE / 2:
            return
        mark = replace(mark, since=known.since)
    uow.limits.put(mark)
    uow.commit()


def _has(slots: Iterable[LimitSlot], mark: LimitSlot) -> bool:
    return any(slot.id == mark.id for slot in slots)


def _change_events(before: LimitState, after: LimitState, error: str) -> list[EventBody]:
    """Return the events that a change is worth."""
    events: list[EventBody] = []
    if after.told_width != before.told_width:
        events.append(LimitChanged(limit=after.name, width=after.width, before=before.told_width))
    if before.breaker is BreakerState.CLOSED and after.breaker is BreakerState.OPEN:
        assert after.until is not None
        until = after.until.isoformat(timespec="seconds")
        events.append(BreakerOpened(limit=after.name, failures=after.failures, until=until, error=error))
    if before.breaker is not BreakerState.CLOSED and after.breaker is BreakerState.CLOSED:
        events.append(BreakerClosed(limit=after.name))
    return events
