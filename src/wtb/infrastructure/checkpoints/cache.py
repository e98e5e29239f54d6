"""ManifestCache: remembers checkpoints in this process, so that it need not read them again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import NamedTuple

from wtb.infrastructure.checkpoints.encoder import Blobs
from wtb.infrastructure.checkpoints.manifest import Manifest
from wtb.infrastructure.checkpoints.rows import ParentRow


class Known(NamedTuple):
    """A cached checkpoint: its manifest, and its row if this process has written or read it."""

    manifest: Manifest
    row: ParentRow | None


class ManifestCache:
    """Manifests of recently used checkpoints, shared by all units of work of a storage.

    A checkpoint never changes and its id is never reused, so an entry cannot become wrong. It may name chunks that a
    sweep has collected, after another process rewrote keyframes; code that needs the chunks checks for that.
    """

    def __init__(self, size: int = 256, blob_bytes: int = 16 * 1024 * 1024) -> None:
        self._size = size
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._blob_bytes = blob_bytes
        self._blobs: dict[bytes, bytes] = {}
        self._held = 0
        self._lock = Lock()

    def blobs(self, addresses: Collection[bytes], read: Callable[[Sequence[bytes]], Blobs]) -> Blobs:
        """Return blobs, recently verified ones from memory; an address is the hash of its content."""
        found = {address: data for address in addresses if (data := self._blobs.get(address)) is not None}
        missing = [address for address in addresses if address not in found]
        if not missing:
            return found
        new = read(missing)
        with self._lock:
            self._held += sum(map(len, new.values()))
            if self._held > self._blob_bytes:
                self._blobs, self._held = {}, sum(map(len, new.values()))
            self._blobs.update(new)
        return {**found, **new}

    def find(self, checkpoint_id: str) -> Known | None:
        with self._lock:
            known = self._known.get(checkpoint_id)
            if known is not None:
                self._known.move_to_end(checkpoint_id)
            return known

    def put(self, checkpoint_id: str, known: Known) -> None:
        with self._lock:
            self._known[checkpoint_id] = known
            if len(self._known) > self._size:
                self._known.popitem(last=False)

    def forget(self, checkpoint_ids: Collection[str]) -> None:
        with self._lock:
            for checkpoint_id in checkpoint_ids:
                self._known.pop(checkpoint_id, None)
