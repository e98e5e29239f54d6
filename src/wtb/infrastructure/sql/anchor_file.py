"""AnchorFile: lines beside a database that several processes append to, each line with a checksum of its own."""

from __future__ import annotations

import errno
import fcntl
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from wtb.domain.errors import StorageError, StorageUnavailable

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_PAUSE_S = 0.001


class Content(NamedTuple):
    """The lines that are whole, and how many are not. A last line that was never finished is not counted."""

    lines: tuple[str, ...]
    damaged: int


class AnchorFile:
    """Appends are whole and in order. Whoever cuts the file does so under the lock that appending takes as well."""

    def __init__(self, path: Path, *, is_flushed: bool, timeout_s: float) -> None:
        self.path = path
        self._is_flushed = is_flushed
        self._timeout_s = timeout_s

    def create(self, mode: int) -> None:
        """Make an empty file that the same users may read and write as the database."""
        with self._locked() as descriptor, self._translated():
            os.fchmod(descriptor, mode)
            if self._is_flushed:
                _flush_folder(self.path)

    def size(self) -> int | None:
        """Return how large the file is; None when there is none."""
        with self._translated():
            try:
                return self.path.stat().st_size
            except FileNotFoundError:
                return None

    def append(self, text: str) -> None:
        """Add a line, whole or not at all."""
        data = text.encode()
        line = b"%08x %b\n" % (zlib.crc32(data), data)
        with self._locked() as descriptor, self._translated():
            end = os.lseek(descriptor, 0, os.SEEK_END)
            if end and os.pread(descriptor, 1, end - 1) != b"\n":
                line = b"\n" + line  # a power cut left half a line there, which must not spoil this one
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._is_flushed:
                os.fsync(descriptor)

    def read(self) -> Content:
        """Return what the file holds; nothing when there is none."""
        with self._translated():
            try:
                return _content(self.path.read_bytes())
            except FileNotFoundError:
                return Content((), 0)

    @contextmanager
    def kept_from_growing(self) -> Iterator[Content]:
        """Give what the file holds, and let nobody append to it inside the block."""
        with self._locked():
            yield self.read()

    def replace(self, lines: Sequence[str]) -> None:
        """Leave only these lines. Call it inside `kept_from_growing`: those who wait then find the new file."""
        new = self.path.with_name(f"{self.path.name}.new")
        with self._translated():
            mode = self.path.stat().st_mode & 0o777
            new.unlink(missing_ok=True)
            with new.open("xb") as file:
                os.fchmod(file.fileno(), mode)
                for data in (line.encode() for line in lines):
                    file.write(b"%08x %b\n" % (zlib.crc32(data), data))
                file.flush()
                if self._is_flushed:
                    os.fsync(file.fileno())
            new.replace(self.path)
            if self._is_flushed:
                _flush_folder(self.path)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file and lock it; one that was replaced while this waited for the lock is left alone."""
        end = time.monotonic() + self._timeout_s
        while True:
            with self._translated():
                descriptor = os.open(self.path, _FLAGS, 0o600)
            try:
                if self._has_lock(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)
            if time.monotonic() > end:
                raise StorageUnavailable(f"{self.path}: another process kept it locked for too long; try again")
            time.sleep(_PAUSE_S)

    def _has_lock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = self.path.stat()
        except (BlockingIOError, FileNotFoundError):
            return False
        except OSError as error:
            raise self._error(error) from error
        return os.path.samestat(os.fstat(descriptor), found)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> StorageError:
        return StorageUnavailable(
            f"{self.path} cannot be used: {error.strerror or error}; calls of external tools are noted there first, "
            "and are not made without: free some space, or make the file and its folder writable"
        )


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
