"""Traces: stores what the runs of a batch were seen to read, and checks it before their results are used again.

A trace belongs to one run of a batch in one process. Its observations are numbered in the order in which they were
made, and a result remembers the window of numbers in which it was made.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wtb.application.dependencies.fingerprint import Fingerprint
from wtb.domain.observation import ANYBODY, WRITTEN, Observation, ObservedSource, SourceKind, Window
from wtb.domain.ports import DependencyObserver, Storage

_CHECKED_FOR_S = 1.0
"""How long files are assumed unchanged after a check."""

Key = tuple[str, ObservedSource]


def merged(windows: Iterable[Window]) -> tuple[Window, ...]:
    """Return one window per trace, wide enough for all."""
    found: dict[str, Window] = {}
    for each in windows:
        known = found.get(each.trace_id, each)
        found[each.trace_id] = Window(each.trace_id, min(known.begin, each.begin), max(known.end, each.end))
    return tuple(found.values())


@dataclass(slots=True)
class _Looked:
    """The observations of a trace by reader and source, and whether each still holds."""

    at: float
    size: int
    changed: dict[Key, list[tuple[int, bool]]] = field(default_factory=dict)


class Traces:
    """Stores what was read in this process, and checks whether what others read is still the same."""

    def __init__(self, storage: Storage, observer: DependencyObserver) -> None:
        self._storage = storage
        self._observer = observer
        self._kept: dict[str, int] = {}
        """Traces of this process, and how many observations of each are stored."""
        self._others: dict[str, Sequence[tuple[int, Observation]]] = {}
        self._looked: dict[str, _Looked] = {}
        self._lock = threading.Lock()

    def begin(self, trace_id: str) -> None:
        """Begin the trace of a batch run; it includes earlier reads of this process, which functions may have kept."""
        self._observer.start()
        self._kept[trace_id] = 0
        self.look_again()

    def look_again(self) -> None:
        """Check files again, however recent the last check was: somebody may have edited one since."""
        with self._lock:
            self._looked.clear()

    def position(self) -> int:
        """Return the number of the next observation."""
        return self._observer.count()

    def keep(self, trace_id: str) -> int:
        """Store what was read and is not stored yet; return the number of the next observation.

        Call it before the result that depends on it is stored: a crash in between only leaves unneeded observations.
        """
        with self._lock:
            first, end = self._kept[trace_id], self._observer.count()
            if first < end:
                with self._storage.unit_of_work() as uow:
                    uow.observations.add(trace_id, dict(enumerate(self._observer.seen(first)[: end - first], first)))
                    uow.commit()
                self._kept[trace_id] = end
            return end

    def changed(self, windows: Iterable[Window], fingerprints: Sequence[Fingerprint]) -> tuple[ObservedSource, ...]:
        """Return the sources that have changed since these functions made results in these windows."""
        found = {
            source
            for window in windows
            for (reader, source), states in self._look(window).changed.items()
            if _concerns(reader, fingerprints) and _is_stale(states, window)
        }
        return tuple(sorted(found))

    def read_again(self, window: Window, trace_id: str, fingerprint: Fingerprint) -> None:
        """Let what a function read in a window of an older trace count as read in this one, too.

        Who gets its result without calling it depends on that as well.
        """
        if window.trace_id == trace_id:
            return
        before = [(number, each) for number, each in self._observations(window.trace_id) if number < window.end]
        mine = [each for _, each in _checkable(before) if _concerns(each.reader, [fingerprint])]
        self._observer.add([each for each in mine if self._observer.digest(each.source) == each.digest])

    def outside(self, trace_ids: Iterable[str], fingerprint: Fingerprint) -> tuple[ObservedSource, ...]:
        """Return the servers and programs that a function was seen to use. WTB cannot check what they answer now."""
        found = {
            each.source
            for trace_id in trace_ids
            for _, each in self._observations(trace_id)
            if not each.source.kind.is_verifiable and _concerns(each.reader, [fingerprint])
        }
        return tuple(sorted(found))

    def _observations(self, trace_id: str, end: int = 0) -> Sequence[tuple[int, Observation]]:
        """Return the observations of a trace; if another process still adds to it, at least those up to `end`."""
        if trace_id in self._kept:
            return list(enumerate(self._observer.seen()))
        if trace_id not in self._others or len(self._others[trace_id]) < end:
            with self._storage.unit_of_work(readonly=True) as uow:
                self._others[trace_id] = list(uow.observations.list_observations(trace_id).items())
        return self._others[trace_id]

    def _look(self, window: Window) -> _Looked:
        trace_id = window.trace_id
        with self._lock:
            looked, now = self._looked.get(trace_id), time.monotonic()
            observations = self._observations(trace_id, window.end)
            if looked is None or now - looked.at > _CHECKED_FOR_S or looked.size != len(observations):
                looked = self._looked[trace_id] = _Looked(now, len(observations), self._compared(observations))
            return looked

    def _compared(self, observations: Sequence[tuple[int, Observation]]) -> dict[Key, list[tuple[int, bool]]]:
        now: dict[ObservedSource, str] = {}
        found: dict[Key, list[tuple[int, bool]]] = defaultdict(list)
        for number, each in _checkable(observations):
            if each.source not in now:
                now[each.source] = self._observer.digest(each.source)
            found[each.reader, each.source].append((number, now[each.source] == each.digest))
        return {key: states for key, states in found.items() if not all(holds for _, holds in states)}


def _checkable(observations: Sequence[tuple[int, Observation]]) -> list[tuple[int, Observation]]:
    """Return the observations of sources that WTB can check later and that no run has written."""
    written = {each.source for _, each in observations if each.digest == WRITTEN}
    return [
        (number, each) for number, each in observations if each.source.kind.is_verifiable and each.source not in written
    ]


def _concerns(reader: str, fingerprints: Sequence[Fingerprint]) -> bool:
    return reader == ANYBODY or any(each.reads_anything or reader in each.readers for each in fingerprints)


def _is_stale(states: Sequence[tuple[int, bool]], window: Window) -> bool:
    """Whether a result made in a window used something that has changed.

    Everything that was read in the window must be unchanged. A source that was not read in it may have been kept in
    memory from before: then its last observation counts.
    """
    within = [holds for number, holds in states if window.begin <= number < window.end]
    before = [holds for number, holds in states if number < window.begin][-1:]
    return not all(within or before)


def in_words(sources: Iterable[ObservedSource]) -> Iterator[str]:
    """Yield the changed sources, in words."""
    kinds: Mapping[SourceKind, str] = {SourceKind.MODULE: "module "}
    for source in sources:
        yield f"{kinds.get(source.kind, '')}{source}"
