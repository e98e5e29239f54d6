"""Manifest: the encoded pieces of a state, and the hash of its content.

A manifest is immutable and cheap to derive: keys are spread over 256 buckets, so a change copies one bucket and hashes
that bucket and the root, whatever the size of the state. The hash of a list is a fold over its items, so an append
hashes only the new items. Neither hash depends on the history of the state, or on how it is stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from wtb.domain.errors import StateNotSerialisable, UnknownFormat
from wtb.domain.ports import Codec

INLINE_BYTES = 256
"""Values up to this size are stored in the delta itself; larger ones are blobs."""
INLINE_APPEND_BYTES = 4096
"""Appended items up to this size stay in the delta until a keyframe seals them into chunks."""
CHUNK_BYTES = 64 * 1024
"""Lists are cut into blobs of about this size."""
SEAL_BYTES = 16 * 1024
"""A keyframe seals inline items into a chunk from this size on."""

_ENTRY_BYTES = 48
"""The rough size of an entry in a keyframe, without its key and data."""


class Op:
    """Codes of operations."""

    VALUE = "v"
    BLOB = "b"
    LIST = "l"
    APPEND = "a"
    KEEP = "k"
    MAPPING = "m"
    MERGE = "g"
    DROP = "d"
    STATE = "s"
    """In a node's update: the value is the one that the state holds afterwards."""


Operation = Sequence[Any]
"""[code, digest of the value afterwards, …]; a keyframe consists of the same operations, applied to nothing."""
Operations = Mapping[str, Sequence[Operation]]


class Segment(NamedTuple):
    """The first `take` items of a packed array, which is here (`data`) or in the blob at `address`."""

    take: int
    data: bytes
    address: bytes
    size: int


class ValueEntry(NamedTuple):
    """A value other than a list: its data is here, or in a blob."""

    digest: bytes
    data: bytes
    address: bytes
    size: int

    def operation(self) -> Operation:
        if self.address:
            return (Op.BLOB, self.digest, self.address, self.size)
        return (Op.VALUE, self.digest, self.data)

    @property
    def weight(self) -> int:
        return _ENTRY_BYTES + len(self.data) + len(self.address)

    @property
    def addresses(self) -> tuple[bytes, ...]:
        return (self.address,) if self.address else ()


class ListEntry(NamedTuple):
    """A list in segments: those in a keyframe (`sealed`), and those that came later (`tail`)."""

    digest: bytes
    length: int
    sealed: tuple[Segment, ...]
    tail: tuple[Segment, ...]
    weight: int

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.sealed + self.tail

    @property
    def addresses(self) -> tuple[bytes, ...]:
        return tuple(segment.address for segment in self.segments if segment.address)

    def operation(self) -> Operation:
        return (Op.LIST, self.digest, segment_rows(self.segments))

    def appended(self, digest: bytes, segments: Sequence[Segment]) -> ListEntry:
        tail = (*self.tail, *segments)
        return ListEntry(digest, self.length + _length(segments), self.sealed, tail, self.weight + _weight(segments))


class MappingEntry(NamedTuple):
    """A mapping of many keys as the list of its changes: [key, value] sets a key, [key] removes it.

    `length` counts the keys; `changes.length` also counts keys that were set again or removed.
    """

    digest: bytes
    length: int
    changes: ListEntry

    @property
    def weight(self) -> int:
        return self.changes.weight

    @property
    def addresses(self) -> tuple[bytes, ...]:
        return self.changes.addresses

    def operation(self) -> Operation:
        return (Op.MAPPING, self.digest, segment_rows(self.changes.segments), self.length)


Entry = ValueEntry | ListEntry | MappingEntry


def list_entry(digest: bytes, segments: Sequence[Segment]) -> ListEntry:
    """Return the entry of a list made of these segments."""
    return ListEntry(digest, _length(segments), tuple(segments), (), _ENTRY_BYTES + _weight(segments))


def _length(segments: Sequence[Segment]) -> int:
    return sum(segment.take for segment in segments)


def _weight(segments: Sequence[Segment]) -> int:
    return sum(len(segment.data) + len(segment.address) + 8 for segment in segments)


class _Bucket:
    """The entries whose keys share a checksum byte, with their common hash, computed when first needed."""

    __slots__ = ("_digest", "entries")

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self._digest = b""

    def digest(self, codec: Codec) -> bytes:
        if not self._digest:
            parts: list[bytes] = []
            for key in sorted(self.entries):
                name = key.encode()
                parts += (len(name).to_bytes(4, "big"), name, self.entries[key].digest)
            self._digest = codec.digest(*parts)
        return self._digest


_NO_KEYS = _Bucket({})


@dataclass(frozen=True, slots=True)
class Manifest:
    """All entries of a state. `weight` is about the size of its keyframe, `pending` that of the deltas since one."""

    buckets: Mapping[int, _Bucket]
    weight: int = 0
    pending: int = 0

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        for bucket in self.buckets.values():
            yield from bucket.entries.items()

    def find(self, key: str) -> Entry | None:
        bucket = self.buckets.get(_bucket_of(key))
        return None if bucket is None else bucket.entries.get(key)

    def apply(self, operations: Operations, cost: int = 0) -> Manifest:
        """Return the manifest after a delta that cost so many bytes to store."""
        buckets = dict(self.buckets)
        fresh: set[int] = set()
        weight = self.weight
        for key, changes in operations.items():
            index = _bucket_of(key)
            if index not in fresh:
                fresh.add(index)
                buckets[index] = _Bucket(dict(buckets[index].entries) if index in buckets else {})
            entries = buckets[index].entries
            for operation in changes:
                weight += _apply(entries, key, operation)
            if not entries:
                del buckets[index]
                fresh.remove(index)
        return Manifest(buckets, weight, self.pending + cost)

    def root(self, codec: Codec) -> bytes:
        """Return the hash of the state's content."""
        parts: list[bytes] = [b"state"]
        for index in sorted(self.buckets):
            parts += (bytes((index,)), self.buckets[index].digest(codec))
        return codec.digest(*parts)

    def differing(self, other: Manifest, codec: Codec) -> list[str]:
        """Return the keys, in order, whose values differ in content, or that only one of the two has."""
        keys: list[str] = []
        for index in self.buckets.keys() | other.buckets.keys():
            mine, theirs = self.buckets.get(index, _NO_KEYS), other.buckets.get(index, _NO_KEYS)
            if mine is not theirs and mine.digest(codec) != theirs.digest(codec):
                pairs = (
                    (key, mine.entries.get(key), theirs.entries.get(key)) for key in {**mine.entries, **theirs.entries}
                )
                keys += [key for key, one, two in pairs if one is None or two is None or one.digest != two.digest]
        return sorted(keys)

    def keyframe(self, codec: Codec) -> tuple[Operations, dict[bytes, bytes], Manifest]:
        """Return the manifest as operations, the chunks that lists were sealed into, and the sealed manifest."""
        blobs: dict[bytes, bytes] = {}
        operations: dict[str, Sequence[Operation]] = {}
        for key, entry in self:
            operations[key] = (_sealed(codec, entry, blobs).operation(),)
        return operations, blobs, EMPTY.apply(operations)


EMPTY = Manifest({})


def _sealed(codec: Codec, entry: Entry, blobs: dict[bytes, bytes]) -> Entry:
    if isinstance(entry, ListEntry) and entry.tail:
        return list_entry(entry.digest, _joined(codec, entry.segments, blobs))
    if isinstance(entry, MappingEntry) and entry.changes.tail:
        return entry._replace(changes=list_entry(b"", _joined(codec, entry.changes.segments, blobs)))
    return entry


def _bucket_of(key: str) -> int:
    try:
        return zlib.crc32(key.encode()) & 0xFF
    except UnicodeEncodeError as error:
        raise StateNotSerialisable(f"state[{key!r}]", "a key that is not valid text cannot be stored") from error


def _apply(entries: dict[str, Entry], key: str, operation: Operation) -> int:
    """Change the entries in place and return the growth of their weight."""
    old = entries.get(key)
    before = 0 if old is None else len(key) + old.weight
    new: Entry
    match operation[0]:
        case Op.VALUE:
            new = ValueEntry(operation[1], operation[2], b"", len(operation[2]))
        case Op.BLOB:
            new = ValueEntry(operation[1], b"", operation[2], operation[3])
        case Op.LIST:
            new = list_entry(operation[1], _segments(operation[2]))
        case Op.APPEND:
            base = old if isinstance(old, ListEntry) else list_entry(b"", ())
            new = base.appended(operation[1], _segments(operation[2]))
        case Op.KEEP:
            kept = first_items(old.segments if isinstance(old, ListEntry) else (), operation[2])
            new = list_entry(operation[1], (*kept, *_segments(operation[3])))
        case Op.MAPPING:
            new = MappingEntry(operation[1], operation[3], list_entry(b"", _segments(operation[2])))
        case Op.MERGE:
            changes = old.changes if isinstance(old, MappingEntry) else list_entry(b"", ())
            new = MappingEntry(operation[1], operation[3], changes.appended(b"", _segments(operation[2])))
        case Op.DROP:
            entries.pop(key, None)
            return -before
        case code:
            raise UnknownFormat(f"key {key!r} has the unknown operation {code!r}; a newer wtb may have written it")
    entries[key] = new
    return len(key) + new.weight - before


def segment_rows(segments: Sequence[Segment]) -> list[tuple[Any, ...]]:
    """Return segments in the form of an operation: msgpack knows only plain tuples."""
    return [tuple(segment) for segment in segments]


def _segments(rows: Sequence[Sequence[Any]]) -> list[Segment]:
    return [Segment(*row) for row in rows]


def first_items(segments: Sequence[Segment], count: int) -> list[Segment]:
    """Return segments that hold the first `count` items."""
    kept: list[Segment] = []
    for segment in segments:
        if count <= 0:
            break
        kept.append(segment._replace(take=min(segment.take, count)))
        count -= segment.take
    return kept


HEADER_BYTES = 5


def array_header(count: int) -> bytes:
    """Return the header of an array of `count` items; its size is fixed, so that arrays can be joined undecoded."""
    return b"\xdd" + count.to_bytes(4, "big")


def packed_array(items: Sequence[bytes]) -> bytes:
    """Return encoded items as one array."""
    return b"".join([array_header(len(items)), *items])


def item_count(array: bytes) -> int:
    """Return how many items a packed array holds."""
    return int.from_bytes(array[1:HEADER_BYTES], "big")


def items_in(arrays: Sequence[bytes]) -> int:
    """Return how many items packed arrays hold together; written inline, because histories have hundreds of arrays."""
    return sum([int.from_bytes(array[1:HEADER_BYTES], "big") for array in arrays])


def cut(codec: Codec, items: Sequence[bytes], inline_bytes: int, blobs: dict[bytes, bytes]) -> list[Segment]:
    """Return encoded items as segments: one inline segment if they are small, otherwise chunks, added to `blobs`."""
    total = sum(map(len, items))
    if not items:
        return []
    if total <= inline_bytes:
        return [Segment(len(items), packed_array(items), b"", total)]
    segments: list[Segment] = []
    start, size = 0, 0
    for end, item in enumerate(items, 1):
        size += len(item)
        if size >= CHUNK_BYTES or end == len(items):
            segments.append(_chunk(codec, packed_array(items[start:end]), blobs))
            start, size = end, 0
    return segments


def _chunk(codec: Codec, array: bytes, blobs: dict[bytes, bytes]) -> Segment:
    address = codec.digest(array)
    blobs[address] = array
    return Segment(item_count(array), b"", address, len(array))


def _joined(codec: Codec, segments: Sequence[Segment], blobs: dict[bytes, bytes]) -> list[Segment]:
    """Return the segments with neighbouring inline ones joined, into a blob if they are large enough."""
    joined: list[Segment] = []
    run: list[bytes] = []

    def close_run() -> None:
        if run:
            array = _concatenated(run)
            inline = Segment(item_count(array), array, b"", len(array))
            joined.append(_chunk(codec, array, blobs) if len(array) >= SEAL_BYTES else inline)
            run.clear()

    for segment in segments:
        if segment.data and segment.take == item_count(segment.data):
            run.append(segment.data)
            if sum(map(len, run)) >= CHUNK_BYTES:
                close_run()
        else:
            close_run()
            joined.append(segment)
    close_run()
    return joined


def _concatenated(arrays: Sequence[bytes]) -> bytes:
    return joined_arrays(arrays, items_in(arrays))


def joined_arrays(arrays: Sequence[bytes], count: int) -> bytes:
    """Return packed arrays as one array; `count` is the number of all their items."""
    return b"".join([array_header(count), *[memoryview(array)[HEADER_BYTES:] for array in arrays]])
