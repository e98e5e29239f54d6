"""LocalObjectStore: objects as files in a folder, `ab/cdef…` by their SHA-256."""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from wtb.domain.errors import ObjectNotFound, StorageUnavailable
from wtb.domain.ports import StoredObject
from wtb.infrastructure.files.os_errors import reported_as

FIRST_BYTES = 64 * 1024
"""Contents up to this size are hashed before they are written; larger ones are hashed while they are written."""
CHUNK_BYTES = 1 << 20
_DIGEST_CHARS = 64
_SYNC_THREADS = 16
"""Parallel flushes share a commit of the file system's journal: measured 20 times quicker than one by one."""


class LocalObjectStore:
    """A folder of objects, private to this user; created with the first object.

    An object is written under a temporary name and renamed. A durable store flushes objects and folders in `sync`,
    before a row can refer to them. A loss of power can leave a name whose content was never flushed; the wrong size
    shows this, and the next put writes it again.
    """

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = os.fspath(folder.absolute())
        self._durable = durable
        self._unsynced: set[str] = set()
        self._lock = Lock()

    def put(self, stream: BinaryIO) -> StoredObject:
        with reported_as(StorageUnavailable, f"objects cannot be written to {self._folder}"):
            first = stream.read(FIRST_BYTES)
            second = stream.read(CHUNK_BYTES) if first else b""
            if not second:
                stored = StoredObject(hashlib.sha256(first).digest(), len(first))
                self._write_once(first, stored)
                return stored
            return self._write(itertools.chain((first, second), iter(lambda: stream.read(CHUNK_BYTES), b"")))

    def put_as(self, digest: bytes, content: bytes) -> None:
        with reported_as(StorageUnavailable, f"objects cannot be written to {self._folder}"):
            self._write_once(content, StoredObject(digest, len(content)))

    def _write_once(self, content: bytes, stored: StoredObject) -> None:
        if not self._use(stored):
            self._write((content,), stored)

    def _write(self, chunks: Iterable[bytes], stored: StoredObject | None = None) -> StoredObject:
        """Write an object under a temporary name, then rename it."""
        temporary = f"{self._folder}/tmp/{secrets.token_hex(8)}"
        fd = _create(temporary)
        try:
            try:
                stored = _copied(chunks, fd, stored)
            finally:
                os.close(fd)
            self._rename(temporary, self._path(stored.digest))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return stored

    def _rename(self, temporary: str, path: str) -> None:
        try:
            os.rename(temporary, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.rename(temporary, path)
        self._note(path)

    def _use(self, stored: StoredObject) -> bool:
        """Mark an object as used now; False if it is missing or incomplete."""
        path = self._path(stored.digest)
        try:
            if os.stat(path).st_size != stored.size:
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        self._note(path)  # another process may have written it and not flushed it yet
        return True

    def _note(self, path: str) -> None:
        if self._durable:
            with self._lock:
                self._unsynced.add(path)

    def sync(self) -> None:
        with self._lock:
            paths = self._unsynced
            self._unsynced = set()
        if not paths:
            return
        folders = {os.path.dirname(path) for path in paths} | {self._folder, os.path.dirname(self._folder)}
        try:
            with (
                reported_as(StorageUnavailable, f"objects in {self._folder} cannot be flushed"),
                ThreadPoolExecutor(min(_SYNC_THREADS, len(paths))) as threads,
            ):
                list(threads.map(_flush, sorted(paths)))
                list(threads.map(_flush, folders))
        except BaseException:
            with self._lock:
                self._unsynced |= paths
            raise

    def open(self, digest: bytes) -> BinaryIO:
        with reported_as(StorageUnavailable, f"object {digest.hex()} in {self._folder} cannot be read"):
            for path in (self._path(digest), self._aside(digest)):
                with suppress(FileNotFoundError):
                    return open(path, "rb", buffering=0)
            raise ObjectNotFound(digest.hex(), self._folder)

    def list_objects(self, *, unused_since: datetime) -> Iterator[StoredObject]:
        with reported_as(StorageUnavailable, f"objects in {self._folder} cannot be listed"):
            for folder in Path(self._folder).glob("[0-9a-f][0-9a-f]"):
                for item in os.scandir(folder):
                    stat = item.stat(follow_symlinks=False)
                    if len(item.name) == 62 and stat.st_mtime < unused_since.timestamp():
                        yield StoredObject(bytes.fromhex(folder.name + item.name), stat.st_size)

    def delete(self, digest: bytes, *, unused_since: datetime | None = None) -> bool:
        """Rename an object before removing it: a put at this moment finds none, and writes it again.

        The new name still identifies the object: if a kill leaves it there, `open` finds it and restores it.
        """
        path, aside = self._path(digest), self._aside(digest)
        with reported_as(StorageUnavailable, f"object {digest.hex()} in {self._folder} cannot be deleted"):
            if unused_since is not None and not _is_older(path, unused_since):
                return False
            os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
            try:
                os.rename(path, aside)
            except FileNotFoundError:
                return False
            if unused_since is not None and not _is_older(aside, unused_since):
                os.rename(aside, path)  # it was put again after the first check
                return False
            with suppress(FileNotFoundError):  # another sweep took it for a leftover of a kill
                os.unlink(aside)
        return True

    def discard_unfinished(self, *, unused_since: datetime) -> int:
        with reported_as(StorageUnavailable, f"what is left over in {self._folder}/tmp cannot be deleted"):
            left = [item for item in Path(self._folder, "tmp").glob("*") if _is_older(str(item), unused_since)]
            for item in left:
                if len(item.name) == _DIGEST_CHARS and not os.path.exists(self._path(bytes.fromhex(item.name))):
                    self._rename(str(item), self._path(bytes.fromhex(item.name)))
                else:
                    item.unlink(missing_ok=True)
        return len(left)

    def _aside(self, digest: bytes) -> str:
        return f"{self._folder}/tmp/{digest.hex()}"

    def _path(self, digest: bytes) -> str:
        name = digest.hex()
        return f"{self._folder}/{name[:2]}/{name[2:]}"


def _is_older(path: str, at: datetime) -> bool:
    try:
        return os.stat(path).st_mtime < at.timestamp()
    except FileNotFoundError:
        return False


def _create(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _copied(chunks: Iterable[bytes], fd: int, known: StoredObject | None) -> StoredObject:
    """Write all chunks; return their digest and size, computed on the way unless they are known."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        if known is None:
            digest.update(chunk)
            size += len(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(fd, rest) :]
    return known or StoredObject(digest.digest(), size)


def _flush(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
