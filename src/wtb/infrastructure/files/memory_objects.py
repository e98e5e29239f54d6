"""MemoryObjectStore: objects in a dictionary, gone with the process. For tests and throw-away runs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from datetime import datetime
from threading import Lock
from typing import BinaryIO

from wtb.domain.errors import ObjectNotFound
from wtb.domain.ports import Clock, StoredObject


class MemoryObjectStore:
    """Contents, each with the time of its last use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[bytes, tuple[bytes, datetime]] = {}
        self._lock = Lock()

    def put(self, stream: BinaryIO) -> StoredObject:
        content = stream.read()
        digest = hashlib.sha256(content).digest()
        self.put_as(digest, content)
        return StoredObject(digest, len(content))

    def put_as(self, digest: bytes, content: bytes) -> None:
        with self._lock:
            self._objects[digest] = (content, self._clock.now())

    def sync(self) -> None:
        """Nothing outlives the process."""

    def open(self, digest: bytes) -> BinaryIO:
        with self._lock:
            found = self._objects.get(digest)
        if found is None:
            raise ObjectNotFound(digest.hex(), "memory")
        return io.BytesIO(found[0])

    def list_objects(self, *, unused_since: datetime) -> Iterator[StoredObject]:
        with self._lock:
            objects = list(self._objects.items())
        yield from (StoredObject(digest, len(content)) for digest, (content, at) in objects if at < unused_since)

    def delete(self, digest: bytes, *, unused_since: datetime | None = None) -> bool:
        with self._lock:
            found = self._objects.get(digest)
            if found is None or (unused_since is not None and found[1] >= unused_since):
                return False
            del self._objects[digest]
        return True

    def discard_unfinished(self, *, unused_since: datetime) -> int:
        """Nothing is ever half written here."""
        return 0
