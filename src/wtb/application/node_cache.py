"""NodeCache: shares results of node runs between the jobs of a batch, so that each result is made only once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from wtb.application.dependencies.fingerprint import Fingerprint
from wtb.application.dependencies.traces import Traces, merged
from wtb.application.store_time import store_time
from wtb.domain.batch import CacheEntry, CacheStatus
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import DatabaseAway
from wtb.domain.execution import Failure
from wtb.domain.figures import Figures
from wtb.domain.files import EMPTY_TREE
from wtb.domain.observation import Window, run_of
from wtb.domain.ports import Clock, Codec, Owners, Storage, UnitOfWork
from wtb.domain.secrets import Masker
from wtb.domain.spending import Spent
from wtb.domain.statistics.measurement import Measured
from wtb.domain.tool_answers import External
from wtb.domain.updates import restored, shortened
from wtb.domain.workflow import Node

LEASE = timedelta(seconds=60)
"""How long a process on another machine may be silent while it makes a result; on this machine we see if it lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResult:
    """The result of a node run: its update before reducers, its files, what it used and how long it took."""

    returned: Mapping[str, Any]
    file_commit: str | None
    usage: Mapping[str, Any]
    ms: float
    tool_errors: int = 0
    window: Window | None = None
    """The part of a trace in which it was made, to check what it read."""
    held: Mapping[str, str] = field(default_factory=dict)
    """The digests at that time of values that runs may change: attributes of objects, lists."""
    measured: Measured | None = None
    """When and where its time was measured; None for one that was made just now."""


class Busy:
    """Somebody else is making the result."""

    def __init__(self, key: bytes) -> None:
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFailure:
    """A node run that failed for good in this attempt at the batch: no retry would help."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    """An attempt at a batch, by its id and its start.

    A failure is final within its attempt, and within other attempts that run at the same time. `began_at` is the
    store's time, which all machines share.
    """

    id: str
    began_at: datetime


class NodeCache:
    """Claims, results and failures by key, in the database, so that processes share them too."""

    def __init__(self, storage: Storage, clock: Clock, owners: Owners, masker: Masker | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._owners = owners
        self._masker = masker or Masker()
        self._listeners: list[Callable[[bytes], None]] = []
        self._for_each: set[bytes] = set()
        self._given_up: set[bytes] = set()
        """Claims that this process gave up while the database was away, and that the database still has."""
        self._lock = threading.Lock()
        self._renewed_at = clock.now()

    def keep_claims(self) -> None:
        """Extend the claims of this process now and then: a node may take longer than a claim lasts."""
        given_up, self._given_up = self._given_up, set()
        for key in given_up:
            self.release(key)
        now = self._clock.now()
        if abs(now - self._renewed_at) > LEASE / 3:  # also when the clock was set back
            self._renewed_at = now
            with self._storage.unit_of_work() as uow:
                uow.cache.renew(self._owners.me(), uow.now() + LEASE)
                uow.commit()

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call the listener with the key of each settled claim of this process; return a function that stops it."""
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def claim(
        self, key: bytes, attempt: AttemptRef, state: Mapping[str, Any], is_current: Callable[[SharedResult], bool]
    ) -> SharedResult | SharedFailure | Busy | None:
        """Return the result, or Busy if somebody is making it; None if the caller must make it now.

        `state` is the state that the node gets: results are stored as changes to it. A result that is no longer current
        is made again and replaced.
        """
        with self._storage.unit_of_work(readonly=True) as uow:
            found = uow.cache.find(key)
        is_legible = found is not None and found.value is not None  # a damaged result is made again
        if found is not None and found.status is CacheStatus.DONE and is_legible:
            result = _result(found, state)
            if is_current(result):
                return result
        if found is not None and found.status is CacheStatus.FAILED and is_legible and _is_final(found, attempt):
            assert found.value is not None
            return SharedFailure(failure=Failure(**found.value))
        if found is not None and found.status is CacheStatus.RUNNING and not self._is_free(found):
            return Busy(key)
        with self._storage.unit_of_work() as uow:
            ends = uow.now() + LEASE
            mine = CacheEntry(
                key=key, status=CacheStatus.RUNNING, owner=self._me(), attempt=attempt.id, expires_at=ends
            )
            claimed = uow.cache.claim(mine, instead_of=found)
            uow.commit()
        if claimed:
            self._given_up.discard(key)
            return None
        return self.claim(key, attempt, state, is_current)

    def find(self, key: bytes) -> SharedResult | None:
        """Return a result that does not depend on a state, if there is one."""
        with self._storage.unit_of_work(readonly=True) as uow:
            found = uow.cache.find(key)
        is_done = found is not None and found.status is CacheStatus.DONE and found.value is not None
        return _result(found, {}) if found is not None and is_done else None

    def find_left(self, key: bytes) -> str | None:
        """Return the attempt whose process died before it made the result; None if there is none."""
        with self._storage.unit_of_work(readonly=True) as uow:
            found = uow.cache.find(key)
        is_left = found is not None and found.status is CacheStatus.RUNNING and self._is_free(found)
        return found.attempt if found is not None and is_left else None

    def is_being_made(self, key: bytes) -> bool:
        """Whether a living process is making the result."""
        with self._storage.unit_of_work(readonly=True) as uow:
            found = uow.cache.find(key)
        return found is not None and found.status is CacheStatus.RUNNING and not self._is_free(found)

    def _is_free(self, entry: CacheEntry) -> bool:
        if entry.key in self._given_up and entry.owner == self._me():
            return True
        gone = self._owners.is_gone(entry.owner)
        return gone is True or (gone is None and entry.expires_at < store_time(self._storage))

    def _me(self) -> str:
        return self._owners.me()

    def measured_here(self) -> Measured:
        """Return a measurement at this moment by this process."""
        return Measured.once(self._clock.now(), self._me())

    def settle(self, uow: UnitOfWork, key: bytes, attempt: AttemptRef, result: SharedResult | SharedFailure) -> None:
        """Store the result for everybody who needs it. If another owner has taken over the claim, store nothing.

        Call it in the transaction that stores the run's own step, so that a crash loses both or neither.
        """
        done = isinstance(result, SharedResult)
        value = _value(result) if isinstance(result, SharedResult) else _failure(self._masker.failure(result.failure))
        entry = CacheEntry(
            key=key,
            status=CacheStatus.DONE if done else CacheStatus.FAILED,
            owner=self._me(),
            attempt=attempt.id,
            expires_at=self._clock.now() if done else uow.now(),
            value=value,
        )
        uow.cache.settle(entry)

    def settle_now(self, key: bytes, attempt: AttemptRef, result: SharedResult | SharedFailure) -> None:
        """Store a result in a transaction of its own."""
        with self._storage.unit_of_work() as uow:
            self.settle(uow, key, attempt, result)
            uow.commit()
        self.tell(key)

    def leave_to_each(self, key: bytes) -> None:
        """Give up a claim, because the result cannot be shared: every job makes its own, and none waits."""
        self._for_each.add(key)
        self.release(key)

    def is_for_each(self, key: bytes) -> bool:
        """Whether every job must make this result itself."""
        return key in self._for_each

    def release(self, key: bytes) -> None:
        """Give up a claim: the result was not made. If the database is away, it hears of this later."""
        try:
            with self._storage.unit_of_work() as uow:
                uow.cache.release(key, self._me())
                uow.commit()
        except DatabaseAway:
            self._given_up.add(key)
        self.tell(key)

    def tell(self, key: bytes) -> None:
        """Tell the listeners that this result is no longer being made: it exists, or another job must make it."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(key)


def _is_final(failed: CacheEntry, attempt: AttemptRef) -> bool:
    """Whether a failure is final in this attempt at a batch: it happened in it, or in another at the same time."""
    return failed.attempt == attempt.id or failed.expires_at >= attempt.began_at


def _value(result: SharedResult) -> dict[str, Any]:
    return shortened(result.returned) | {
        "file_commit": result.file_commit,
        "usage": dict(result.usage),
        "ms": result.ms,
        "tool_errors": result.tool_errors,
        "window": None if result.window is None else result.window.to_data(),
        "held": dict(result.held),
    }


def _result(entry: CacheEntry, state: Mapping[str, Any]) -> SharedResult:
    value = entry.value or {}
    return SharedResult(
        returned=restored(value, state),
        file_commit=value["file_commit"],
        usage=value["usage"],
        ms=value["ms"],
        tool_errors=value["tool_errors"],
        window=None if value.get("window") is None else Window.from_data(value["window"]),
        held=value.get("held", {}),
        measured=Measured.once(entry.expires_at, entry.owner),  # once settled, this is the time of settling
    )


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "type": failure.type,
        "message": failure.message,
        "traceback": failure.traceback,
        "node": failure.node,
        "visit": failure.visit,
    }


@dataclass(kw_only=True)
class Sharing:
    """The sharing of one job, with counts; the key of a node run covers everything that its result depends on."""

    cache: NodeCache
    codec: Codec
    fingerprints: Mapping[str, Fingerprint]
    traces: Traces
    trace_id: str
    case_id: str
    repeat: int
    seed: int
    attempt: AttemptRef
    enabled: bool = True
    """Whether anything is shared; executed node runs are counted either way."""
    external: External = External.RUN
    fresh: frozenset[str] = frozenset()
    """The nodes whose results are used only if they were made in this run of the batch."""
    begun_elsewhere: bool = False
    """Whether another process began the run of the job, so that not all of it was counted here."""
    executed: int = 0
    shared: int = 0
    failed: int = 0
    spent: Spent = field(default_factory=Spent)
    unshared: dict[str, str] = field(default_factory=dict)
    """Nodes whose runs were not shared, and why."""
    begun_at: int = 0
    """The place in the trace where the job began."""
    windows: list[Window] = field(default_factory=list)
    """The parts of traces in which the results of the job were made."""
    taken: dict[str, list[Window]] = field(default_factory=dict)
    """By node, the parts of other traces in which results that the job took over were made."""
    claimed: set[bytes] = field(default_factory=set)
    """Results that this job must make and has not made yet."""
    measured: Measured | None = None
    """When and where the times of its node runs were measured."""

    def count(self, *, shared: bool) -> None:
        """Count a node run as shared or as executed."""
        self.shared += shared
        self.executed += not shared
        if not shared:
            self._measure(self.cache.measured_here())

    def _measure(self, node_run: Measured) -> None:
        self.measured = node_run if self.measured is None else self.measured | node_run

    def count_anew(self, recorded: Sequence[Figures]) -> None:
        """Count only these node runs, and forget earlier counts."""
        self.shared = self.executed = 0
        self.spent = Spent()
        for figures in recorded:
            self.count_again(figures.spent.totals(), shared=figures.is_shared)

    def count_again(self, usage: Mapping[str, Any] | None, *, shared: bool) -> None:
        """Count a node run of an earlier process, with what it used."""
        self.count(shared=shared)
        if not shared:
            self.charge(usage or {})

    def charge(self, usage: Mapping[str, Any]) -> None:
        """Add what an attempt of a node used, whether it succeeded or not."""
        self.spent += Spent.of(usage)

    def claim(self, key: bytes, node: str, state: Mapping[str, Any]) -> SharedResult | SharedFailure | Busy | None:
        """Return the result, or Busy if somebody is making it; None if this job must make it."""
        found = self.cache.claim(
            key, self.attempt, state, lambda result: self.is_current(result, node, self.fingerprints[node])
        )
        if found is None:
            self.claimed.add(key)
        elif isinstance(found, SharedResult):
            self._take(found, node)
        return found

    def _take(self, result: SharedResult, node: str) -> None:
        """Remember the window and the measurement of a result that another job made."""
        if result.window is not None and result.window.trace_id == self.trace_id:
            self.windows.append(result.window)
        elif result.window is not None:
            self.taken.setdefault(node, []).append(result.window)
        if result.measured is not None:
            self._measure(result.measured)

    def is_current(self, result: SharedResult, node: str, fingerprint: Fingerprint) -> bool:
        """Whether nothing that a result depends on has changed; the node says whether it has to be fresh."""
        window = result.window
        if window is None or (node in self.fresh and not self.is_of_this_run(window)):
            return False
        if any(result.held.get(name, part) != part for name, part in fingerprint.mutable_parts.items()):
            return False
        return not self.traces.changed([window], [fingerprint])

    def is_of_this_run(self, window: Window) -> bool:
        """Whether a result was made in this run of the batch, by any worker."""
        return run_of(window.trace_id) == run_of(self.trace_id)

    def begin(self) -> int:
        """Return the place in the trace where a node run begins."""
        return self.traces.position()

    def observed(self, begin: int) -> Window:
        """Store what was read while a node ran, before its result is stored; return that window of the trace."""
        window = Window(self.trace_id, begin, self.traces.keep(self.trace_id))
        self.windows.append(window)
        return window

    def read_since(self, begin: int) -> Window:
        """Store what was read since a place in the trace, and return that window."""
        return Window(self.trace_id, begin, self.traces.keep(self.trace_id))

    def all_windows(self) -> tuple[Window, ...]:
        """Return all windows but those of results that were taken over, one per trace.

        The job itself is one of them, because conditions and reducers may read too.
        """
        whole = Window(self.trace_id, self.begun_at, self.traces.keep(self.trace_id))
        return merged([*self.windows, whole])

    def taken_windows(self) -> dict[str, tuple[Window, ...]]:
        """Return by node the windows of results that were taken over, one per trace."""
        return {node: merged(windows) for node, windows in self.taken.items()}

    def settle(self, uow: UnitOfWork, key: bytes, result: SharedResult | SharedFailure) -> None:
        """Store a result for everybody who needs it, in the transaction that stores the run's own step."""
        self.cache.settle(uow, key, self.attempt, result)

    def settle_now(self, key: bytes, result: SharedResult | SharedFailure) -> None:
        """Store a result in a transaction of its own, for everybody who needs it."""
        self.cache.settle_now(key, self.attempt, result)
        self.claimed.discard(key)

    def settled(self, key: bytes) -> None:
        """Tell the listeners that the transaction of `settle` is committed."""
        self.claimed.discard(key)
        self.cache.tell(key)

    def leave_to_each(self, key: bytes) -> None:
        """Give up a claim, because the result cannot be shared: every job makes its own."""
        self.cache.leave_to_each(key)
        self.claimed.discard(key)

    def close(self) -> None:
        """Give up the claims whose results were never made; the job has ended."""
        for key in tuple(self.claimed):
            self.cache.release(key)
            self.claimed.discard(key)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digest of each node's parts that no run can change."""
        return {node: fingerprint.fixed_digest for node, fingerprint in self.fingerprints.items()}

    def key(self, node: Node, run: NodeRun, state: Mapping[str, Any], file_commit: str | None) -> bytes | None:
        """Return the key of everything that a node run's result depends on; None if it must not be shared."""
        if not self.enabled:
            return None
        if not node.cache:
            self.unshared[node.name] = "cache=False"
            return None
        seen = state if node.reads is None else [key for key in node.reads if key in state]
        values = [(key, self.codec.encode(state[key], f"state.{key}")[1]) for key in sorted(seen)]
        facts = [
            self.digests[node.name],
            node.name,
            node.variant,
            str(run.visit),
            file_commit or EMPTY_TREE.id,
            self.case_id,
            str(self.repeat),
            str(self.seed),
            "" if node.reads is None else repr(sorted(node.reads)),  # an absent key differs from one that is not read
        ]
        parts = [part for key, value in values for part in (key.encode("utf-8", "surrogatepass"), value)]
        key = self.codec.digest(*(self.codec.digest(part) for part in (*(each.encode() for each in facts), *parts)))
        return None if self.cache.is_for_each(key) else key
