"""KeyDigests: the hash of a mapping's content; a change of one key hashes only a small part again.

Keys are spread over 256 buckets by checksum, like the keys of a state. A bucket's hash covers its keys and the hashes
of their values in order; the mapping's hash covers the buckets. It depends only on the content, not on the history of
the mapping or the order of its keys.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from threading import Lock

from wtb.domain.ports import Codec

_MOST_MAPPINGS = 32
_MOST_KEYS = 1_000_000
"""The most keys that a process remembers: about 150 bytes per key, less if mappings share most of their keys."""


_BUCKETS = 256
_HASH_BYTES = 32


class KeyDigests:
    """The hashes of a mapping's values by key; immutable, and cheap to derive from another."""

    __slots__ = ("_buckets", "_hashes", "_length")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[str, bytes]] = {}
        self._hashes = bytes(_BUCKETS * _HASH_BYTES)
        """The hashes of all buckets, joined; zeros for an empty bucket."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def changed(self, codec: Codec, values: Mapping[str, bytes], removed: Collection[str] = ()) -> KeyDigests:
        """Return the hashes of the mapping with some keys removed and others set."""
        fresh: dict[int, dict[str, bytes]] = {}
        after = KeyDigests()
        after._length = self._length
        for key in removed:
            after._length -= self._bucket(key, fresh).pop(key, None) is not None
        for key, digest in values.items():
            bucket = self._bucket(key, fresh)
            after._length += key not in bucket
            bucket[key] = digest
        after._buckets = self._buckets | fresh
        hashes = bytearray(self._hashes)
        for index, bucket in fresh.items():
            hashes[index * _HASH_BYTES : (index + 1) * _HASH_BYTES] = _hash_of(codec, bucket)
        after._hashes = bytes(hashes)
        return after

    def _bucket(self, key: str, fresh: dict[int, dict[str, bytes]]) -> dict[str, bytes]:
        index = zlib.crc32(key.encode()) % _BUCKETS
        if index not in fresh:
            fresh[index] = dict(self._buckets.get(index, {}))
        return fresh[index]

    def root(self, codec: Codec) -> bytes:
        """Return the hash of the mapping's content."""
        return codec.digest(b"mapping", self._hashes)


def _hash_of(codec: Codec, bucket: Mapping[str, bytes]) -> bytes:
    if not bucket:
        return bytes(_HASH_BYTES)
    parts: list[bytes] = []
    for key in sorted(bucket):
        name = key.encode()
        parts += (len(name).to_bytes(4, "big"), name, bucket[key])
    return codec.digest(*parts)


class KeyDigestCache:
    """The hashes of recently stored mappings, by the hash of the whole mapping, so they cannot be wrong."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, KeyDigests] = OrderedDict()
        self._keys = 0
        self._lock = Lock()

    def find(self, digest: bytes) -> KeyDigests | None:
        """Return the hashes of a mapping; None if they are not known."""
        with self._lock:
            found = self._known.get(digest)
            if found is not None:
                self._known.move_to_end(digest)
            return found

    def put(self, digest: bytes, keys: KeyDigests) -> None:
        """Remember the hashes of a mapping; forget the oldest ones to make room."""
        with self._lock:
            if digest not in self._known:
                self._known[digest] = keys
                self._keys += len(keys)
            while len(self._known) > _MOST_MAPPINGS or (self._keys > _MOST_KEYS and len(self._known) > 1):
                self._keys -= len(self._known.popitem(last=False)[1])
