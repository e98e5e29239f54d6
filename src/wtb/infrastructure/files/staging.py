"""Staging: writes new contents inside the workspace, on the same file system, and verifies them before any change."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import BinaryIO

from wtb.domain.errors import DamagedData, ObjectNotFound
from wtb.domain.files import RESERVED, EntryKind, FileEntry, TreeDelta
from wtb.domain.ports import ObjectStore
from wtb.infrastructure.files.confined import ConfinedFolder
from wtb.infrastructure.files.reflink import CLONE_BYTES, cloned
from wtb.infrastructure.files.scanner import SMALL_BYTES

STAGING = f"{RESERVED}/staging"
"""Leftovers after a kill are useless: the next restore stages everything again."""
HALF_DONE = f"{RESERVED}/half-restored"
"""Exists from the first change to the last, so that a half-restored workspace is not used."""

_BATCH = 256
_CHUNK_BYTES = 1 << 20

Read = Callable[[Collection[bytes]], Mapping[bytes, bytes]]
"""Returns small contents by digest; the others are in the object store."""


class ContentSource:
    """Contents of entries, from the database or the object store."""

    def __init__(self, objects: ObjectStore, read: Read) -> None:
        self._objects = objects
        self._read = read

    def streams(self, entries: Collection[FileEntry]) -> Iterator[tuple[FileEntry, BinaryIO]]:
        """Yield each entry with its content, which the caller closes; small ones are fetched many at a time."""
        remaining = list(entries)
        while remaining:
            batch, remaining = remaining[:_BATCH], remaining[_BATCH:]
            small = self._read({entry.digest for entry in batch if entry.size <= SMALL_BYTES})
            for entry in batch:
                content = small.get(entry.digest)
                yield entry, self._open(entry) if content is None else io.BytesIO(content)

    def _open(self, entry: FileEntry) -> BinaryIO:
        try:
            return self._objects.open(entry.digest)
        except ObjectNotFound as error:
            raise DamagedData(f"{entry.path!r} cannot be restored: {error}; `wtb doctor` shows more") from error

    def content(self, entry: FileEntry) -> bytes:
        """Return a whole content, verified."""
        [(_, stream)] = self.streams([entry])
        with stream:
            content = stream.read()
        if hashlib.sha256(content).digest() != entry.digest:
            raise _damaged(entry)
        return content

    def check(self, entries: Collection[FileEntry]) -> None:
        """Raise DamagedData unless all contents exist and are intact."""
        for entry, stream in self.streams(entries):
            digest = hashlib.sha256()
            with stream:
                while chunk := stream.read(min(entry.size + 1, _CHUNK_BYTES)):
                    digest.update(chunk)
            if digest.digest() != entry.digest:
                raise _damaged(entry)


def stage(folder: ConfinedFolder, delta: TreeDelta, source: ContentSource) -> dict[str, str]:
    """Write the files and links of a change into the staging folder; return their names there, by path."""
    for path in (RESERVED, STAGING):
        if folder.mode_at(path) is None:
            folder.make_folder(path)
    names = {path: str(number) for number, path in enumerate(delta.put)}
    for entry in delta.put.values():
        if entry.kind is EntryKind.LINK:
            folder.create_link(f"{STAGING}/{names[entry.path]}", entry.target)
    files = [entry for entry in delta.put.values() if entry.kind is EntryKind.FILE]
    for entry, stream in source.streams(files):
        with stream:
            _write(folder.create_file(f"{STAGING}/{names[entry.path]}"), entry, stream)
    return names


def _write(fd: int, entry: FileEntry, stream: BinaryIO) -> None:
    """Write a content and verify it: a clone is read again, a copy is hashed while it is written."""
    try:
        if entry.size >= CLONE_BYTES and cloned(stream, fd):
            with open(fd, "rb", buffering=0, closefd=False) as written:
                digest = hashlib.file_digest(written, "sha256").digest()
        else:
            digest = _copied(stream, fd, entry.size)
        if digest != entry.digest:
            raise _damaged(entry)
        os.fchmod(fd, entry.mode)
    finally:
        os.close(fd)


def _copied(stream: BinaryIO, fd: int, size: int) -> bytes:
    digest = hashlib.sha256()
    while chunk := stream.read(min(size + 1, _CHUNK_BYTES)):
        digest.update(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(fd, rest) :]
    return digest.digest()


def _damaged(entry: FileEntry) -> DamagedData:
    return DamagedData(
        f"{entry.path!r} cannot be restored: its content {entry.digest.hex()[:16]} is damaged; `wtb doctor` shows more"
    )


def clear(folder: ConfinedFolder) -> None:
    """Remove all staged files, including those of a killed restore."""
    folder.remove_all(STAGING)
    folder.remove_if_empty(RESERVED)
