"""DeltaEncoder: deltas to operations on a manifest, and manifests back to states."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from wtb.domain.errors import InvalidStateChange
from wtb.domain.ports import Codec
from wtb.domain.state import DELETE, Append, Change, DeleteKey, SetValue, Splice, State, StateDelta, spliced
from wtb.infrastructure.checkpoints.manifest import (
    EMPTY,
    INLINE_APPEND_BYTES,
    INLINE_BYTES,
    Entry,
    ListEntry,
    Manifest,
    Op,
    Operation,
    Operations,
    cut,
    items_in,
    joined_arrays,
    list_entry,
    segment_rows,
)
from wtb.infrastructure.codecs.foreign import Encoded

Blobs = Mapping[bytes, bytes]
ReadBlobs = Callable[[Sequence[bytes]], Blobs]
Returned = Mapping[str, Mapping[str, Any]]

_SAME = None
"""Stands in the stored `returned` for a value that the delta of the same checkpoint holds already."""


class EncodedDelta(NamedTuple):
    """What is stored of a checkpoint: operations, what nodes returned, and the blobs that both refer to."""

    operations: dict[str, list[Operation]]
    returned: dict[str, dict[str, Operation | None]]
    blobs: dict[bytes, bytes]


class DeltaEncoder:
    """Turns values into operations with the digests of the results, and operations into values."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._empty_list = codec.digest(b"list")
        self._deleted = codec.digest(b"deleted")

    def encode(
        self, manifest: Manifest, delta: StateDelta, returned: Returned | None, read_blobs: ReadBlobs
    ) -> EncodedDelta:
        """Encode a delta against the manifest that it is applied to."""
        blobs: dict[bytes, bytes] = {}
        operations: dict[str, list[Operation]] = {}
        for key, changes in delta.changes.items():
            entry = manifest.find(key)
            encoded = operations[key] = []
            for change in changes:
                operation = self._operation(key, entry, change, blobs, read_blobs)
                encoded.append(operation)
                if len(changes) > 1:
                    entry = manifest.apply({key: encoded}).find(key)
        return EncodedDelta(operations, self._returned(returned, delta, blobs), blobs)

    def _operation(
        self, key: str, entry: Entry | None, change: Change, blobs: dict[bytes, bytes], read_blobs: ReadBlobs
    ) -> Operation:
        match change:
            case SetValue(value=value):
                return self._whole(value, f"state.{key}", blobs)
            case DeleteKey():
                return (Op.DROP,)
            case Append(items=items):
                digest = entry.digest if entry else self._empty_list
                packed, digest = self._items(items, f"state.{key}", _list(key, entry).length, digest)
                return (Op.APPEND, digest, self._cut(packed, INLINE_APPEND_BYTES, blobs))
            case Splice():
                held = _list(key, entry)
                # An earlier change of the same delta may have made blobs that are not stored yet.
                stored = read_blobs([address for address in held.addresses if address not in blobs])
                return self._splice(key, self.items(held, {**stored, **blobs}), change, blobs)

    def _splice(self, key: str, old: list[Any], change: Splice, blobs: dict[bytes, bytes]) -> Operation:
        """Keep what is before the splice, write the rest again: a list that is cut in the middle pays for its end."""
        items, digest = self._items(spliced(key, old, change), f"state.{key}", 0, self._empty_list)
        return (Op.KEEP, digest, change.start, self._cut(items[change.start :], INLINE_APPEND_BYTES, blobs))

    def _whole(self, value: Any, path: str, blobs: dict[bytes, bytes], inline_bytes: int = INLINE_BYTES) -> Operation:
        if type(value) is list:
            items, list_digest = self._items(value, path, 0, self._empty_list)
            return (Op.LIST, list_digest, self._cut(items, inline_bytes, blobs))
        data, canonical = self._codec.encode(value, path)
        digest = self._codec.digest(b"value", canonical)
        if len(data) <= inline_bytes:
            return (Op.VALUE, digest, data)
        address = self._codec.digest(data)
        blobs[address] = data
        return (Op.BLOB, digest, address, len(data))

    def _cut(self, items: list[bytes], inline_bytes: int, blobs: dict[bytes, bytes]) -> list[tuple[Any, ...]]:
        return segment_rows(cut(self._codec, items, inline_bytes, blobs))

    def _items(self, values: Sequence[Any], path: str, start: int, digest: bytes) -> tuple[list[bytes], bytes]:
        """Encode items and fold their content into the digest of the list before them."""
        items: list[bytes] = []
        for index, value in enumerate(values, start):
            data, canonical = self._codec.encode(value, f"{path}[{index}]")
            items.append(data)
            digest = self._codec.digest(digest, canonical)
        return items, digest

    def _returned(
        self, returned: Returned | None, delta: StateDelta, blobs: dict[bytes, bytes]
    ) -> dict[str, dict[str, Operation | None]]:
        encoded: dict[str, dict[str, Operation | None]] = {}
        for node, update in (returned or {}).items():
            encoded[node] = {
                key: _SAME if _is_written(value, delta.changes.get(key, ())) else self._given(node, key, value, blobs)
                for key, value in update.items()
            }
        return encoded

    def _given(self, node: str, key: str, value: Any, blobs: dict[bytes, bytes]) -> Operation:
        if value is DELETE:
            return (Op.DROP, self._deleted)
        # What comes encoded is the record of an adapter: read with its checkpoint only and shared with none, so up to
        # a page of it lies in the row itself.
        inline_bytes = INLINE_APPEND_BYTES if type(value) is Encoded else INLINE_BYTES
        return self._whole(value, f"returned.{node}.{key}", blobs, inline_bytes)

    def returned_digest(self, operations: Operations, returned: Mapping[str, Mapping[str, Operation | None]]) -> bytes:
        """Hash what nodes returned; empty when there is nothing."""
        if not returned:
            return b""
        parts: list[bytes] = []
        for node in sorted(returned):
            parts += (node.encode(), b"\0\0")  # a node that returned nothing counts too
            for key, operation in sorted(returned[node].items()):
                digest = (operation or operations[key][0])[1]
                parts += (node.encode(), b"\0", key.encode(), b"\0", digest)
        return self._codec.digest(b"returned", *parts)

    def returned(
        self, operations: Operations, returned: Mapping[str, Mapping[str, Operation | None]], blobs: Blobs
    ) -> dict[str, dict[str, Any]]:
        """Decode what nodes returned."""
        return {
            node: {
                key: DELETE if entry is None else self.value(entry, blobs)
                for key, operation in update.items()
                for entry in (_entry(operation or operations[key][0]),)
            }
            for node, update in returned.items()
        }

    def returned_addresses(
        self, operations: Operations, returned: Mapping[str, Mapping[str, Operation | None]]
    ) -> set[bytes]:
        """Return the blobs that decoding what nodes returned will need."""
        given = (operation or operations[key][0] for update in returned.values() for key, operation in update.items())
        return {address for operation in given for address in _addresses(operation)}

    def addresses(self, operations: Operations) -> set[bytes]:
        """Return the blobs that these operations bring."""
        return {address for changes in operations.values() for each in changes for address in _addresses(each)}

    def state(self, manifest: Manifest, blobs: Blobs) -> State:
        """Decode a whole state; `blobs` holds everything that the manifest refers to."""
        return State({key: self.value(entry, blobs) for key, entry in manifest})

    def value(self, entry: Entry, blobs: Blobs) -> Any:
        """Decode one entry."""
        if isinstance(entry, ListEntry):
            return self.items(entry, blobs)
        return self._codec.decode(blobs[entry.address] if entry.address else entry.data)

    def items(self, entry: ListEntry, blobs: Blobs) -> list[Any]:
        """Decode a list, all its pieces in one go: most lists are many small ones."""
        arrays = [segment.data or blobs[segment.address] for segment in entry.segments]
        if len(arrays) > 1 and items_in(arrays) == entry.length:  # else it takes part of one
            joined: list[Any] = self._codec.decode(joined_arrays(arrays, entry.length))
            return joined
        items: list[Any] = []
        for segment, array in zip(entry.segments, arrays, strict=True):
            items += self._codec.decode(array)[: segment.take]
        return items


def _list(key: str, entry: Entry | None) -> ListEntry:
    if entry is None:
        return list_entry(b"", ())
    if not isinstance(entry, ListEntry):
        raise InvalidStateChange(f"cannot append to or splice {key!r}: it does not hold a list")
    return entry


def _entry(operation: Operation) -> Entry | None:
    """Return what one operation alone makes: of an append, the list of what was appended; None of a deletion."""
    return EMPTY.apply({"": (operation,)}).find("")


def _addresses(operation: Operation) -> Sequence[bytes]:
    """Return the blobs that one operation refers to."""
    match operation[0]:
        case Op.BLOB:
            return (operation[2],)
        case Op.LIST | Op.APPEND:
            return [segment[2] for segment in operation[2] if segment[2]]
        case Op.KEEP:
            return [segment[2] for segment in operation[3] if segment[2]]
    return ()


def _is_written(value: Any, changes: Sequence[Change]) -> bool:
    """Whether the delta holds this very value already, so that it need not be stored twice."""
    match changes:
        case (SetValue(value=written),):
            return written is value
        case (Append(items=items),):
            return type(value) is list and len(value) == len(items) and all(map(operator.is_, value, items))
    return False
