"""BlockedObjects: an object store in which a large file is a list of blocks, so that a small change stores one block.

Each block is an object under its own SHA-256. The list of blocks is stored under the digest of the whole file, and
begins with that digest: no file can be mistaken for a list, because no file can contain its own digest.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from wtb.domain.errors import DamagedData, ObjectNotFound
from wtb.domain.ports import ObjectStore, StoredObject

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class BlockSizes(NamedTuple):
    """The size above which a file is stored in blocks, and the size of the blocks; a smaller file is one object."""

    above_bytes: int = 64 << 20
    """Never raise it: a sweep looks only for the blocks of larger files."""
    block_bytes: int = 4 << 20


SIZES = BlockSizes()
SMALL_OBJECTS = BlockSizes(above_bytes=4 << 20)
"""For stores that handle each object in one piece: no object is larger than a block, so memory stays bounded."""

_MAGIC = b"wtb blocks 1\n"
_SIZES = struct.Struct(">QI")
"""The size of the file, and the size of all blocks but the last."""
_DIGEST_BYTES = 32


class BlockList(NamedTuple):
    """The blocks of one file, in their order."""

    digest: bytes
    size: int
    block_bytes: int
    blocks: tuple[bytes, ...]

    def encoded(self) -> bytes:
        """Return the bytes for the object store; they end with a checksum."""
        body = _MAGIC + self.digest + _SIZES.pack(self.size, self.block_bytes) + b"".join(self.blocks)
        return body + hashlib.sha256(body).digest()

    @classmethod
    def decoded(cls, digest: bytes, data: bytes) -> BlockList:
        """Read data that begins like the block list of this file; raise DamagedData if the rest does not fit."""
        body, start = data[:-_DIGEST_BYTES], len(_MAGIC) + _DIGEST_BYTES + _SIZES.size
        if len(body) < start or hashlib.sha256(body).digest() != data[-_DIGEST_BYTES:]:
            raise DamagedData(f"the list of blocks of object {digest.hex()[:16]} is damaged; `wtb doctor` shows more")
        size, block_bytes = _SIZES.unpack(body[start - _SIZES.size : start])
        blocks = tuple(body[at : at + _DIGEST_BYTES] for at in range(start, len(body), _DIGEST_BYTES))
        return cls(digest, size, block_bytes, blocks)

    def stored(self) -> Iterator[StoredObject]:
        """Yield the blocks as stored objects."""
        for number, digest in enumerate(self.blocks):
            yield StoredObject(digest, min(self.block_bytes, self.size - number * self.block_bytes))


class BlockStream(io.RawIOBase):
    """A file that is read block by block. Like other objects it is not verified."""

    def __init__(self, objects: ObjectStore, blocks: BlockList) -> None:
        super().__init__()
        self.blocks = blocks
        self._objects = objects
        self._next = 0
        self._open: BinaryIO | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        chunk = self.read(len(view))
        view[: len(chunk)] = chunk
        return len(chunk)

    def read(self, size: int = -1) -> bytes:
        """Read at most to the end of a block, like from a pipe; without a size, read everything."""
        if size < 0:
            return self.readall()
        while self._open is not None or self._next < len(self.blocks.blocks):
            if self._open is None:
                self._open = self.open_block(self._next)
                self._next += 1
            chunk = self._open.read(size)
            if chunk or not size:
                return chunk
            self._open.close()
            self._open = None
        return b""

    def open_block(self, number: int) -> BinaryIO:
        """Return one block for reading."""
        try:
            return cast("io.FileIO", self._objects.open(self.blocks.blocks[number]))
        except ObjectNotFound as error:
            raise DamagedData(
                f"block {number + 1} of {len(self.blocks.blocks)} of object {self.blocks.digest.hex()[:16]} is missing "
                f"({error}); `wtb doctor` shows more"
            ) from error

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        super().close()


class BlockedObjects:
    """Puts large files into another object store block by block, and returns them as one stream."""

    def __init__(self, objects: ObjectStore, sizes: BlockSizes = SIZES) -> None:
        self._objects = objects
        self._sizes = sizes

    def put(self, stream: BinaryIO) -> StoredObject:
        if _size_of(stream) <= self._sizes.above_bytes:
            return self._objects.put(stream)
        whole, size, blocks = hashlib.sha256(), 0, []
        with ThreadPoolExecutor(1) as thread:  # one pass over the file computes both hashes
            for block in blocks_in(stream, self._sizes.block_bytes):
                hashing = thread.submit(whole.update, block)
                stored = StoredObject(hashlib.sha256(block).digest(), len(block))
                self._objects.put_as(stored.digest, block)
                blocks.append(stored.digest)
                size += len(block)
                hashing.result()
        digest = whole.digest()
        # The list is stored last: a reader who finds it also finds the blocks.
        self._objects.put_as(digest, BlockList(digest, size, self._sizes.block_bytes, tuple(blocks)).encoded())
        return StoredObject(digest, size)

    def put_as(self, digest: bytes, content: bytes) -> None:
        self._objects.put_as(digest, content)

    def sync(self) -> None:
        self._objects.sync()

    def open(self, digest: bytes) -> BinaryIO:
        stream = self._objects.open(digest)
        try:
            head = stream.read(len(_MAGIC) + _DIGEST_BYTES)
            if head != _MAGIC + digest:
                stream.seek(0)
                return stream
            rest = stream.read()
        except BaseException:
            stream.close()
            raise
        stream.close()
        return cast("BinaryIO", BlockStream(self._objects, BlockList.decoded(digest, head + rest)))

    def list_objects(self, *, unused_since: datetime) -> Iterator[StoredObject]:
        return self._objects.list_objects(unused_since=unused_since)

    def delete(self, digest: bytes, *, unused_since: datetime | None = None) -> bool:
        return self._objects.delete(digest, unused_since=unused_since)

    def discard_unfinished(self, *, unused_since: datetime) -> int:
        return self._objects.discard_unfinished(unused_since=unused_since)


def find_blocks(objects: ObjectStore, digest: bytes) -> tuple[StoredObject, ...]:
    """Return the blocks of an object; empty if it is stored in one piece, or does not exist."""
    try:
        with objects.open(digest) as stream:
            return tuple(stream.blocks.stored()) if isinstance(stream, BlockStream) else ()
    except ObjectNotFound:
        return ()


def blocks_in(stream: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    """Yield the contents of a stream in blocks of this size; the last one may be smaller."""
    parts: list[bytes] = []
    missing = block_bytes
    while part := stream.read(missing):
        parts.append(part)
        missing -= len(part)
        if not missing:
            yield b"".join(parts)
            parts, missing = [], block_bytes
    if parts:
        yield b"".join(parts)


def _size_of(stream: BinaryIO) -> int:
    """Return the size of a stream; if it is unknown, the stream is treated as small and stored as one object."""
    if not stream.seekable():
        return 0
    at = stream.tell()
    size = stream.seek(0, io.SEEK_END) - at
    stream.seek(at)
    return size
