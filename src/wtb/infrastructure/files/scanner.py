"""Scanner: turns a folder into a tree, reading only files that may have changed since the last scan."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from wtb.domain.errors import WorkspaceError
from wtb.domain.files import RESERVED, EntryKind, FileEntry, TreeDelta, file_entry, folder_entry, link_entry
from wtb.domain.ports import ObjectStore, StoredObject
from wtb.infrastructure.files.confined import ConfinedFolder
from wtb.infrastructure.files.ignore import IGNORE_FILE, MAX_BYTES, IgnoreRules, NoRules, rules_of
from wtb.infrastructure.files.index import FILE_BYTES, Record, Signature, StatIndex, is_racy, signature_of
from wtb.infrastructure.files.mapped import mapped_inodes
from wtb.infrastructure.files.os_errors import reported_as

SMALL_BYTES = 4096
"""Contents up to this size are stored in the database with the commit, which saves a file and a flush for each."""
SMALL_TOTAL_BYTES = 32 << 20
"""The most bytes of small contents that one scan holds in memory; the rest goes to the object store."""
MAX_PATH = 4_000
"""The most characters in a path below the workspace. No program can open a file by a longer path."""
TRIES = 4
"""How often a file that changes while it is read is read again."""


class Sink(Protocol):
    """Receives the contents that a scan reads."""

    def put(self, stream: BinaryIO, size: int) -> StoredObject:
        """Take a content of about this size."""
        ...


class StoringSink:
    """Stores large contents, and holds small ones for the commit."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._held = 0
        self.contents: dict[bytes, bytes] = {}

    def put(self, stream: BinaryIO, size: int) -> StoredObject:
        if size > SMALL_BYTES or self._held > SMALL_TOTAL_BYTES:
            return self._objects.put(stream)
        content = stream.read(SMALL_BYTES + 1)  # if it is longer, the file is growing and will be read again
        digest = hashlib.sha256(content).digest()
        self.contents[digest] = content
        self._held += len(content)
        return StoredObject(digest, len(content))


class HashingSink:
    """Stores nothing: only returns the digest and size of a content."""

    def put(self, stream: BinaryIO, size: int) -> StoredObject:
        digest, read = hashlib.sha256(), 0
        while chunk := stream.read(min(size + 1, 1 << 20)):
            digest.update(chunk)
            read += len(chunk)
        return StoredObject(digest.digest(), read)


class Scanner:
    """One scan of one folder."""

    def __init__(
        self,
        root: Path,
        folder: ConfinedFolder,
        index: StatIndex,
        rules: IgnoreRules,
        sink: Sink,
        *,
        any_depth: bool = False,
    ) -> None:
        self._root = root  # for messages only: everything is read through the open folder
        self._folder = folder
        self._index = index
        self._rules = rules
        self._same_rules = rules.text == index.rules
        self._sink = sink
        self._any_depth = any_depth  # for a restore: no tree holds what lies below such a folder, so it goes as a whole
        self._read_bytes = index.read_bytes
        self._began_ns = time.time_ns()
        self._mapped = mapped_inodes()
        self._records: dict[str, Mapping[str, Record]] = {}
        self._changed: dict[str, FileEntry] = {}
        self.left_out: list[str] = []
        """Paths that are not part of the tree, except WTB's own."""
        self.looked_at_ns = 0
        """The latest ctime of the files that the index did not vouch for."""

    def run(self) -> StatIndex:
        """Scan the folder and return its new index."""
        pending = [""]
        with reported_as(WorkspaceError, f"the workspace {self._root} cannot be read"):
            while pending:
                pending += self._visit(pending.pop())
        delta = TreeDelta(self._changed, frozenset(self._gone()))
        tree = self._index.tree.apply(delta) if delta else self._index.tree
        return StatIndex(self._records, tree, self._rules.text, self._read_bytes)

    def _visit(self, folder: str) -> list[str]:
        """Scan one folder and return the folders in it."""
        known = self._index.records.get(folder, {})
        names: dict[str, Record] = {}
        below: list[str] = []
        prefix = f"{folder}/" if folder else ""
        with self._folder.list_items(folder) as items:
            for item in items:
                name = item.name
                try:
                    found = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                record = known.get(name)
                # This is signature_of written inline: nearly every entry of nearly every scan ends here.
                signature = (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
                is_sure = self._same_rules and found.st_ino not in self._mapped
                if record is None or record[0] != signature or not is_sure:
                    record = self._look(prefix + name, found, record)
                if record is not None:
                    names[name] = record
                    if record[1].kind is EntryKind.FOLDER:
                        below.append(prefix + name)
        self._records[folder] = names
        return below if len(prefix) < MAX_PATH - 255 else self._short_enough(below)

    def _short_enough(self, folders: list[str]) -> list[str]:
        """Refuse folders that are nested too deeply, before anything in them is stored."""
        short = [path for path in folders if len(path) <= MAX_PATH]
        if len(short) < len(folders) and not self._any_depth:
            raise WorkspaceError(
                f"the workspace {self._root} holds folders nested so deeply that a path is longer than {MAX_PATH} "
                "characters; remove them, or list the outermost one in .wtbignore"
            )
        return short

    def _look(self, path: str, found: os.stat_result, known: Record | None) -> Record | None:
        """Return the record of an entry that is new, may have changed, or may be ignored now; None leaves it out."""
        self.looked_at_ns = max(self.looked_at_ns, found.st_ctime_ns)
        if self._rules.ignores(path, folder=stat.S_ISDIR(found.st_mode)):
            self._leave_out(path)
            return None
        signature = signature_of(found)
        is_mapped = found.st_ino in self._mapped
        if known is not None and known[0] == signature and not is_mapped:
            return known
        if found.st_dev != self._folder.device:
            raise OSError(errno.EXDEV, "another file system is mounted there", path)
        try:
            if stat.S_ISREG(found.st_mode):
                entry, signature = self._read(path)
            elif stat.S_ISDIR(found.st_mode):
                entry = folder_entry(path, found.st_mode & 0o777)
            elif stat.S_ISLNK(found.st_mode):
                entry = link_entry(path, self._folder.read_link(path))
            else:
                self._leave_out(path)
                return None
        except FileNotFoundError:
            return None
        if known is not None and known[1] == entry:
            entry = known[1]
        else:
            self._changed[path] = entry
        return None if is_mapped or is_racy(signature, self._began_ns) else signature, entry

    def _leave_out(self, path: str) -> None:
        if path != RESERVED:
            self.left_out.append(path)

    def _read(self, path: str) -> tuple[FileEntry, Signature]:
        """Read a file, and read it again if it changed meanwhile."""
        for _ in range(TRIES):
            with self._folder.open_file(path) as stream:
                before = os.fstat(stream.fileno())
                stored = self._sink.put(stream, before.st_size)
                signature = signature_of(os.fstat(stream.fileno()))
            self._read_bytes += FILE_BYTES + stored.size
            if signature == signature_of(before) and stored.size == before.st_size:
                return file_entry(path, before.st_mode & 0o777, stored.size, stored.digest), signature
        raise WorkspaceError(
            f"{path!r} in {self._root} changes while it is being read; stop the program that writes it, and try again"
        )

    def _gone(self) -> Iterator[str]:
        """Yield the paths that no longer exist."""
        for folder, known in self._index.records.items():
            names = self._records.get(folder, {})
            if known.keys() != names.keys():
                yield from (record[1].path for name, record in known.items() if name not in names)


def open_file(path: str) -> io.FileIO:
    """Open a file for reading; never through a link, and never waiting for the other end of a pipe."""
    return io.FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))


def rules_in(folder: ConfinedFolder) -> IgnoreRules:
    """Return the ignore rules in a folder. Raises OSError."""
    try:
        stream = folder.open_file(IGNORE_FILE)
    except (FileNotFoundError, IsADirectoryError):
        return NoRules()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link: its target does not belong to the workspace
            return NoRules()
        raise
    with stream:
        return rules_of(stream.read(MAX_BYTES) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else b"")
