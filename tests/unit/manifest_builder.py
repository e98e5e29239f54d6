"""Builder: applies deltas to a manifest as the store does."""

from collections.abc import Mapping
from typing import Any

from wtb.domain.state import Change, SetValue, State, StateDelta
from wtb.infrastructure.checkpoints.encoder import DeltaEncoder
from wtb.infrastructure.checkpoints.manifest import (
    EMPTY,
    ListEntry,
)
from wtb.infrastructure.codecs.msgpack import MsgpackCodec


class CountingCodec(MsgpackCodec):
    """Counts the bytes that are hashed."""

    hashed_bytes = 0

    def digest(self, *parts: bytes) -> bytes:
        self.hashed_bytes += sum(map(len, parts))
        return super().digest(*parts)


class Builder:
    """Applies deltas to a manifest as the store does, and keeps the blobs."""

    def __init__(self) -> None:
        self.codec = CountingCodec()
        self.encoder = DeltaEncoder(self.codec)
        self.blobs: dict[bytes, bytes] = {}
        self.manifest = EMPTY

    def apply(self, **changes: Change) -> "Builder":
        encoded = self.encoder.encode(self.manifest, StateDelta.of(**changes), None, lambda _: self.blobs)
        self.blobs |= encoded.blobs
        self.manifest = self.manifest.apply(encoded.operations)
        return self

    def setting(self, values: Mapping[str, Any]) -> "Builder":
        return self.apply(**{key: SetValue(value) for key, value in values.items()})

    def seal(self) -> "Builder":
        _, blobs, self.manifest = self.manifest.keyframe(self.codec)
        self.blobs |= blobs
        return self

    @property
    def root(self) -> bytes:
        return self.manifest.root(self.codec)

    @property
    def state(self) -> State:
        return self.encoder.state(self.manifest, self.blobs)

    def list_at(self, key: str) -> ListEntry:
        entry = self.manifest.find(key)
        assert isinstance(entry, ListEntry)
        return entry
