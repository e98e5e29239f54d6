"""AnchorFile: a file beside the database to which several processes append lines, each with a checksum."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from wtb.domain.errors import StorageUnavailable

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_PAUSE_S = 0.001
_NEVER = threading.Event()
"""To wait on: `time.sleep` fails where libfaketime has set the clock back."""


class Content(NamedTuple):
    """The intact lines, and the number of damaged ones. An unfinished last line is not counted."""

    lines: tuple[str, ...]
    damaged: int


class AnchorFile:
    """A file whose appends are whole and in order. Cutting the file takes the same lock as appending."""

    def __init__(self, path: Path, *, is_flushed: bool, timeout_s: float) -> None:
        self.path = path
        self._is_flushed = is_flushed
        self._timeout_s = timeout_s
        self._turn = threading.Lock()
        """Needed because the lock of the file does not separate the threads of a process."""
        self._opened: _OpenFile | None = None

    def create(self, mode: int) -> None:
        """Create an empty file with the same permissions as the database."""
        with self._locked() as file, self._translated():
            os.fchmod(file.descriptor, mode)
            if self._is_flushed:
                _flush_folder(self.path)

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._close()

    def size(self) -> int | None:
        """Return the size of the file; None if there is none."""
        with self._translated():
            try:
                return self.path.stat().st_size
            except FileNotFoundError:
                return None

    def append(self, text: str) -> None:
        """Add a line, whole or not at all."""
        line = _with_checksum(text)
        with self._turn:  # not with the context managers below: they take as long as the writing
            try:
                file = self._lock()
                try:
                    self._write(file, line)
                finally:
                    fcntl.flock(file.descriptor, fcntl.LOCK_UN)
            except OSError as error:
                raise self._error(error) from error

    def _write(self, file: _OpenFile, line: bytes) -> None:
        end = file.size
        if end not in (0, file.end) and os.pread(file.descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line  # a power cut may have left half a line, which must not damage this one
        if os.write(file.descriptor, line) < len(line):
            os.ftruncate(file.descriptor, end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file.end = end + len(line)
        if self._is_flushed:
            os.fsync(file.descriptor)

    def read(self) -> Content:
        """Return the contents of the file; empty if there is none."""
        with self._translated():
            try:
                return _content(self.path.read_bytes())
            except FileNotFoundError:
                return Content((), 0)

    @contextmanager
    def kept_from_growing(self) -> Iterator[Content]:
        """Give the contents of the file, and block all appends during the block."""
        with self._locked():
            yield self.read()

    def replace(self, lines: Sequence[str]) -> None:
        """Keep only these lines. Call it inside `kept_from_growing`, so that waiting processes find the new file."""
        new = self.path.with_name(f"{self.path.name}.new")
        with self._translated():
            mode = self.path.stat().st_mode & 0o777
            new.unlink(missing_ok=True)
            with new.open("xb") as file:
                os.fchmod(file.fileno(), mode)
                file.writelines(map(_with_checksum, lines))
                file.flush()
                if self._is_flushed:
                    os.fsync(file.fileno())
            new.replace(self.path)
            if self._is_flushed:
                _flush_folder(self.path)

    @contextmanager
    def _locked(self) -> Iterator[_OpenFile]:
        with self._turn:
            with self._translated():
                file = self._lock()
            try:
                yield file
            finally:
                fcntl.flock(file.descriptor, fcntl.LOCK_UN)

    def _lock(self) -> _OpenFile:
        """Return the locked file; if it was replaced during the wait for the lock, open the new one."""
        end = time.monotonic() + self._timeout_s
        while True:
            if self._opened is None or self._opened.process != os.getpid():  # a forked copy would share its lock
                self._opened = _OpenFile(os.open(self.path, _FLAGS, 0o600))
            if self._opened.has_lock(self.path):
                return self._opened
            self._close()
            if time.monotonic() > end:
                raise StorageUnavailable(f"{self.path}: another process has kept it locked for too long; try again")
            _NEVER.wait(_PAUSE_S)

    def _close(self) -> None:
        if self._opened is not None:
            os.close(self._opened.descriptor)
            self._opened = None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> StorageUnavailable:
        return StorageUnavailable(
            f"{self.path} cannot be used: {error.strerror or error}; calls of external tools are noted there first, "
            "and are not made without: free some space, or make the file and its folder writable"
        )


class _OpenFile:
    """The file as this process has it open, and its size when it was last locked."""

    __slots__ = ("_inode", "descriptor", "end", "process", "size")

    def __init__(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self._inode = (found.st_dev, found.st_ino)
        self.descriptor = descriptor
        self.process = os.getpid()
        self.size = 0
        self.end = 0
        """The end of the last line that this process wrote."""

    def has_lock(self, path: Path) -> bool:
        """Take the lock; False if another process has it, or another file has replaced this one."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = path.stat()
        except (BlockingIOError, FileNotFoundError):
            return False
        self.size = found.st_size
        return self._inode == (found.st_dev, found.st_ino)


def _with_checksum(text: str) -> bytes:
    data = text.encode()
    return b"%08x %b\n" % (zlib.crc32(data), data)


def _content(data: bytes) -> Content:
    *ended, _ = data.split(b"\n")
    found = [_line(line) for line in ended if line]
    lines = tuple(line for line in found if line is not None)
    return Content(lines, len(found) - len(lines))


def _line(line: bytes) -> str | None:
    checksum, _, data = line.partition(b" ")
    try:
        is_whole = int(checksum, 16) == zlib.crc32(data)
        return data.decode() if is_whole else None
    except ValueError:
        return None


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
