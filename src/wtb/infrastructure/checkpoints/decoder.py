"""HistoryDecoder: decodes states that share most of their content, as in a history, without repeating the work.

Mutable values are built anew for each state; only texts and numbers are shared. States come newest first, so a list is
often the beginning of the list before it; it is then cut from the bytes that were joined for that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import is_
from typing import Any

from wtb.domain.ports import Codec
from wtb.domain.state import State
from wtb.infrastructure.checkpoints.encoder import Blobs, DeltaEncoder, changed_mapping
from wtb.infrastructure.checkpoints.manifest import (
    HEADER_BYTES,
    Entry,
    ListEntry,
    Manifest,
    MappingEntry,
    Segment,
    ValueEntry,
    array_header,
    item_count,
    joined_arrays,
)

_ATOMS = frozenset({str, bytes, int, float, bool, type(None)})


class HistoryDecoder:
    """Decodes the states of some manifests; all their blobs are in memory."""

    def __init__(self, codec: Codec, encoder: DeltaEncoder, blobs: Blobs) -> None:
        self._codec = codec
        self._encoder = encoder
        self._blobs = blobs
        self._atoms: dict[bytes, Any] = {}
        self._joined: dict[str, _Joined] = {}

    def state(self, manifest: Manifest) -> State:
        """Decode a whole state."""
        return State({key: self._entry(key, entry) for key, entry in manifest})

    def _entry(self, key: str, entry: Entry) -> Any:
        if isinstance(entry, ListEntry):
            return self._items(key, entry)
        return (
            changed_mapping(self._items(key, entry.changes)) if isinstance(entry, MappingEntry) else self._value(entry)
        )

    def _value(self, entry: ValueEntry) -> Any:
        if entry.digest in self._atoms:
            return self._atoms[entry.digest]
        value = self._encoder.value(entry, self._blobs)
        if type(value) in _ATOMS:
            self._atoms[entry.digest] = value
        return value

    def _items(self, key: str, entry: ListEntry) -> list[Any]:
        segments = entry.segments
        joined = self._joined.get(key)
        if joined is None or not joined.begins_with(segments):
            joined = self._joined[key] = _Joined(segments, self._blobs)
        data = joined.first(len(segments), entry.length)
        items: list[Any] = self._encoder.items(entry, self._blobs) if data is None else self._codec.decode(data)
        return items


class _Joined:
    """The joined pieces of a list, and the end of each."""

    def __init__(self, segments: Sequence[Segment], blobs: Blobs) -> None:
        arrays = [segment.data or blobs[segment.address] for segment in segments]
        self._segments = segments
        self._counts = [*accumulate(map(item_count, arrays))]
        self._ends = [*accumulate(len(array) - HEADER_BYTES for array in arrays)]
        self._array = bytearray(joined_arrays(arrays, 0))

    def begins_with(self, segments: Sequence[Segment]) -> bool:
        return len(segments) <= len(self._segments) and all(map(is_, segments, self._segments))

    def first(self, pieces: int, length: int) -> memoryview | None:
        """Return the first pieces as one array, valid until the next call; None unless they hold `length` items."""
        if not pieces or self._counts[pieces - 1] != length:
            return None
        self._array[:HEADER_BYTES] = array_header(length)
        return memoryview(self._array)[: HEADER_BYTES + self._ends[pieces - 1]]
