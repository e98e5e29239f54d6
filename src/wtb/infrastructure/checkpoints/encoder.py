"""DeltaEncoder: turns deltas into operations on a manifest, and manifests back into states."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from wtb.domain.errors import InvalidStateChange
from wtb.domain.held import SMALLEST_MERGE, merged
from wtb.domain.ports import Codec
from wtb.domain.state import DELETE, Append, Change, DeleteKey, Merge, SetValue, Splice, State, StateDelta, spliced
from wtb.infrastructure.checkpoints.key_digests import KeyDigestCache, KeyDigests
from wtb.infrastructure.checkpoints.manifest import (
    EMPTY,
    INLINE_APPEND_BYTES,
    INLINE_BYTES,
    Entry,
    ListEntry,
    Manifest,
    MappingEntry,
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
"""The mark in the stored `returned` for a value that the same checkpoint's delta already holds."""

_MOST_CHANGES = 4
"""A mapping is rewritten if it has this many times more changes than keys: then only a quarter is in use."""


class EncodedDelta(NamedTuple):
    """The stored form of a checkpoint: operations, the nodes' updates, and the blobs that both refer to."""

    operations: dict[str, list[Operation]]
    returned: dict[str, dict[str, Operation | None]]
    blobs: dict[bytes, bytes]


class DeltaEncoder:
    """Turns values into operations with the digests of the results, and operations into values."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._empty_list = codec.digest(b"list")
        self._deleted = codec.digest(b"deleted")
        self._keys = KeyDigestCache()

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
        return EncodedDelta(operations, self._returned(returned, delta, operations, blobs), blobs)

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
                return self._splice(key, self._read(held, blobs, read_blobs), change, blobs)
            case Merge():
                return self._merge(key, entry, change, blobs, read_blobs)

    def _read(self, entry: Entry, blobs: Blobs, read_blobs: ReadBlobs) -> Any:
        """Decode an entry; an earlier change of the same delta may have made blobs that are not stored yet."""
        stored = read_blobs([address for address in entry.addresses if address not in blobs])
        return self.value(entry, {**stored, **blobs})

    def _splice(self, key: str, old: list[Any], change: Splice, blobs: dict[bytes, bytes]) -> Operation:
        """Keep the items before the splice and write the rest again: a change in the middle costs the whole end."""
        items, digest = self._items(spliced(key, old, change), f"state.{key}", 0, self._empty_list)
        return (Op.KEEP, digest, change.start, self._cut(items[change.start :], INLINE_APPEND_BYTES, blobs))

    def _merge(
        self, key: str, entry: Entry | None, change: Merge, blobs: dict[bytes, bytes], read_blobs: ReadBlobs
    ) -> Operation:
        """Write the changes, or the whole mapping if it is small, not stored by key, or mostly changed."""
        path = f"state.{key}"
        if isinstance(entry, MappingEntry) and _are_texts([*change.items, *change.removed]):
            items, digests = self._pairs(change.items, path)
            items = [*(b"\x91" + self._codec.encode(gone, path)[0] for gone in change.removed), *items]
            before = self._keys.find(entry.digest) or self._digests(self._read(entry, blobs, read_blobs), path)
            after = before.changed(self._codec, digests, change.removed)
            if max(SMALLEST_MERGE, (entry.changes.length + len(items)) / _MOST_CHANGES) <= len(after):
                rows = self._cut(items, INLINE_APPEND_BYTES, blobs)
                return (Op.MERGE, self._remembered(after), rows, len(after))
        whole = change.whole
        if whole is None:
            old = {} if entry is None else self._read(entry, blobs, read_blobs)
            if type(old) is not dict:
                raise InvalidStateChange(f"cannot merge into {key!r}: it does not hold a mapping")
            whole = merged(old, change.items, change.removed)
        return self._whole(whole, path, blobs)

    def _digests(self, mapping: Mapping[str, Any], path: str) -> KeyDigests:
        return KeyDigests().changed(self._codec, self._pairs(mapping, path)[1])

    def _remembered(self, keys: KeyDigests) -> bytes:
        digest = keys.root(self._codec)
        self._keys.put(digest, keys)
        return digest

    def _pairs(self, mapping: Mapping[str, Any], path: str) -> tuple[list[bytes], dict[str, bytes]]:
        """Encode the keys and values of a mapping; return them as pairs, and the hash of each value."""
        pairs: list[bytes] = []
        digests: dict[str, bytes] = {}
        for key, value in mapping.items():
            data, canonical = self._codec.encode(value, f"{path}.{key}")
            pairs.append(b"\x92" + self._codec.encode(key, path)[0] + data)
            digests[key] = self._codec.digest(canonical)
        return pairs, digests

    def _whole(self, value: Any, path: str, blobs: dict[bytes, bytes], inline_bytes: int = INLINE_BYTES) -> Operation:
        if type(value) is list:
            items, list_digest = self._items(value, path, 0, self._empty_list)
            return (Op.LIST, list_digest, self._cut(items, inline_bytes, blobs))
        if type(value) is dict and len(value) >= SMALLEST_MERGE and _are_texts(value):
            pairs, digests = self._pairs(value, path)
            digest = self._remembered(KeyDigests().changed(self._codec, digests))
            return (Op.MAPPING, digest, self._cut(pairs, inline_bytes, blobs), len(value))
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
        self,
        returned: Returned | None,
        delta: StateDelta,
        operations: Mapping[str, Sequence[Operation]],
        blobs: dict[bytes, bytes],
    ) -> dict[str, dict[str, Operation | None]]:
        encoded: dict[str, dict[str, Operation | None]] = {}
        for node, update in (returned or {}).items():
            encoded[node] = {}
            for key, value in update.items():
                changes = delta.changes.get(key, ())
                if _is_written(value, changes, operations.get(key, ())):
                    encoded[node][key] = _SAME
                elif _is_held(value, changes):
                    encoded[node][key] = (Op.STATE, operations[key][0][1])
                else:
                    encoded[node][key] = self._given(node, key, value, blobs)
        return encoded

    def _given(self, node: str, key: str, value: Any, blobs: dict[bytes, bytes]) -> Operation:
        if value is DELETE:
            return (Op.DROP, self._deleted)
        # An encoded value is the record of an adapter: it is read only with its checkpoint and never shared, so up to
        # a page of it is stored in the row itself.
        inline_bytes = INLINE_APPEND_BYTES if type(value) is Encoded else INLINE_BYTES
        return self._whole(value, f"returned.{node}.{key}", blobs, inline_bytes)

    def returned_digest(self, operations: Operations, returned: Mapping[str, Mapping[str, Operation | None]]) -> bytes:
        """Hash the nodes' updates; empty if there are none."""
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
        self,
        operations: Operations,
        returned: Mapping[str, Mapping[str, Operation | None]],
        manifest: Manifest,
        blobs: Blobs,
    ) -> dict[str, dict[str, Any]]:
        """Decode the nodes' updates; `manifest` belongs to the state after the step."""

        def decoded(key: str, operation: Operation) -> Any:
            entry = manifest.find(key) if operation[0] == Op.STATE else _entry(operation)
            return DELETE if entry is None else self.value(entry, blobs)

        return {
            node: {key: decoded(key, operation or operations[key][0]) for key, operation in update.items()}
            for node, update in returned.items()
        }

    def returned_addresses(
        self, operations: Operations, returned: Mapping[str, Mapping[str, Operation | None]]
    ) -> set[bytes]:
        """Return the blobs that are needed to decode the nodes' updates."""
        given = (operation or operations[key][0] for update in returned.values() for key, operation in update.items())
        return {address for operation in given for address in _addresses(operation)}

    def addresses(self, operations: Operations) -> set[bytes]:
        """Return the blobs that these operations refer to."""
        return {address for changes in operations.values() for each in changes for address in _addresses(each)}

    def state(self, manifest: Manifest, blobs: Blobs) -> State:
        """Decode a whole state; `blobs` holds everything that the manifest refers to."""
        return State({key: self.value(entry, blobs) for key, entry in manifest})

    def value(self, entry: Entry, blobs: Blobs) -> Any:
        """Decode one entry."""
        if isinstance(entry, ListEntry):
            return self.items(entry, blobs)
        if isinstance(entry, MappingEntry):
            return changed_mapping(self.items(entry.changes, blobs))
        return self._codec.decode(blobs[entry.address] if entry.address else entry.data)

    def items(self, entry: ListEntry, blobs: Blobs) -> list[Any]:
        """Decode a list with all its pieces at once: most lists consist of many small pieces."""
        arrays = [segment.data or blobs[segment.address] for segment in entry.segments]
        if len(arrays) > 1 and items_in(arrays) == entry.length:  # otherwise only part of an array counts
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
    """Return the entry that one operation alone makes: for an append the appended list, for a deletion None."""
    return EMPTY.apply({"": (operation,)}).find("")


def _addresses(operation: Operation) -> Sequence[bytes]:
    """Return the blobs that one operation refers to."""
    match operation[0]:
        case Op.BLOB:
            return (operation[2],)
        case Op.LIST | Op.APPEND | Op.MAPPING | Op.MERGE:
            return [segment[2] for segment in operation[2] if segment[2]]
        case Op.KEEP:
            return [segment[2] for segment in operation[3] if segment[2]]
    return ()


def _is_written(value: Any, changes: Sequence[Change], operations: Sequence[Operation]) -> bool:
    """Whether the delta already holds this very value, so that it need not be stored twice."""
    match changes:
        case (SetValue(value=written),):
            return written is value
        case (Append(items=items),):
            return type(value) is list and len(value) == len(items) and all(map(operator.is_, value, items))
        case (Merge(items=values, removed=()),) if operations[0][0] == Op.MERGE:  # else it wrote it whole
            return type(value) is dict and len(value) == len(values) and _are_held(value, values)
    return False


def _are_held(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Whether two mappings hold the very same keys and values."""
    return all(map(operator.is_, one, other)) and all(map(operator.is_, one.values(), other.values()))


def _is_held(value: Any, changes: Sequence[Change]) -> bool:
    """Whether the state holds this very value afterwards."""
    match changes:
        case (Append(whole=whole) | Merge(whole=whole),):
            return whole is not None and whole is value
    return False


def _are_texts(keys: Collection[Any]) -> bool:
    """Whether all are plain valid texts."""
    if {str}.issuperset(map(type, keys)):
        with suppress(UnicodeEncodeError):
            "".join(keys).encode()
            return True
    return False


def changed_mapping(changes: list[Any]) -> dict[str, Any]:
    """Return the mapping that results from changes: [key, value] sets a key, [key] removes it."""
    with suppress(ValueError):  # raised if a key was removed
        return dict(changes)
    mapping: dict[str, Any] = {}
    for key, *value in changes:
        if value:
            mapping[key] = value[0]
        else:
            mapping.pop(key, None)
    return mapping
