"""Files: a workspace as a tree of entries, the difference of two trees, and the merge of parallel nodes.

A path is relative, with `/` between its parts; names that are not UTF-8 are kept with surrogate escapes. Every folder
except the root has its own entry, empty or not, so that its mode is restored, too. A tree cannot contain a path that
leads out of it, nor an entry whose parent is not a folder.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, NewType, TypeGuard

from wtb.domain.errors import MergeConflict, UnsafePath

FileCommitId = NewType("FileCommitId", str)
"""The hash of a commit's tree in hexadecimal digits: equal trees are one commit, whatever their history."""

RESERVED = ".wtb"
"""The name at the root of a workspace that never belongs to the tree: a restore works there."""

_ENTRY_BYTES = 64
"""The rough size of an entry in a stored tree, without its names."""


class EntryKind(StrEnum):
    """The kind of a path."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


class FileEntry(NamedTuple):
    """One path of a tree. It is a tuple, because trees of 100,000 entries are compared and hashed at every step.

    `mode` holds the permission bits, without setuid, setgid and sticky. A link has no mode.
    """

    path: str
    kind: EntryKind
    mode: int
    size: int = 0
    digest: bytes = b""
    target: str = ""


def file_entry(path: str, mode: int, size: int, digest: bytes) -> FileEntry:
    """Return the entry of a file, whose content has this SHA-256."""
    return FileEntry(path, EntryKind.FILE, mode, size, digest)


def folder_entry(path: str, mode: int) -> FileEntry:
    """Return the entry of a folder."""
    return FileEntry(path, EntryKind.FOLDER, mode)


def link_entry(path: str, target: str) -> FileEntry:
    """Return the entry of a symbolic link."""
    return FileEntry(path, EntryKind.LINK, 0o777, target=target)


@dataclass(frozen=True, slots=True)
class TreeDelta:
    """The change from one tree to another: entries that are added or replaced, and paths that are removed."""

    put: Mapping[str, FileEntry] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)


class FileTree(Mapping[str, FileEntry]):
    """Entries by path; immutable.

    Paths are spread over 256 buckets by checksum, like the keys of a state. A change copies and hashes only the buckets
    that it touches, and trees that share buckets are compared without looking into those.
    """

    __slots__ = ("_buckets", "_id", "_size", "weight")

    def __init__(self, buckets: Mapping[int, _EntryBucket] | None = None, size: int = 0, weight: int = 0) -> None:
        self._buckets = buckets or {}
        self._size = size
        self._id = FileCommitId("")
        self.weight = weight
        """The approximate size of the whole tree when stored."""

    def __getitem__(self, path: str) -> FileEntry:
        found: FileEntry | None = self.get(path)
        if found is None:
            raise KeyError(path)
        return found

    def get(self, path: str, default: Any = None) -> Any:
        bucket = self._buckets.get(_bucket_of(path))
        return default if bucket is None else bucket.entries.get(path, default)

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets.values():
            yield from bucket.entries

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, FileTree) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> FileCommitId:
        """The hash of everything in the tree."""
        if not self._id:
            digest = hashlib.sha256(b"files")
            for index in sorted(self._buckets):
                digest.update(bytes((index,)) + self._buckets[index].digest())
            self._id = FileCommitId(digest.hexdigest())
        return self._id

    def apply(self, delta: TreeDelta) -> FileTree:
        """Return the tree after a change; raise UnsafePath if the result is not a tree, or a path leads out of it."""
        tree = self._changed(delta)
        for entry in delta.put.values():
            _check(entry)
            parent = parent_of(entry.path)
            if parent and not is_folder(tree.get(parent)):
                raise UnsafePath(entry.path, f"its parent {parent!r} is not a folder")
        gone = {
            path
            for paths in (delta.removed, delta.put)
            for path in paths
            if is_folder(self.get(path)) and not is_folder(tree.get(path))
        }
        orphan = next((path for path in tree if parent_of(path) in gone), None) if gone else None
        if orphan is not None:
            raise UnsafePath(orphan, f"its parent {parent_of(orphan)!r} is removed")
        return tree

    def _changed(self, delta: TreeDelta) -> FileTree:
        buckets = dict(self._buckets)
        fresh: dict[int, dict[str, FileEntry]] = {}
        size, weight = self._size, self.weight

        def entries(path: str) -> dict[str, FileEntry]:
            index = _bucket_of(path)
            if index not in fresh:
                fresh[index] = dict(buckets[index].entries) if index in buckets else {}
            return fresh[index]

        for path in delta.removed:
            if (old := entries(path).pop(path, None)) is not None:
                size, weight = size - 1, weight - _weight(old)
        for path, entry in delta.put.items():
            bucket = entries(path)
            old = bucket.get(path)
            bucket[path] = entry
            weight += _weight(entry) - (0 if old is None else _weight(old))
            size += old is None
        for index, changed in fresh.items():
            if changed:
                buckets[index] = _EntryBucket(changed)
            else:
                buckets.pop(index, None)
        return FileTree(buckets, size, weight)

    def differing(self, other: FileTree) -> Iterator[tuple[dict[str, FileEntry], dict[str, FileEntry]]]:
        """Yield the entries of both trees in each bucket that may differ."""
        for index in self._buckets.keys() | other._buckets.keys():
            mine, theirs = self._buckets.get(index, _NOTHING), other._buckets.get(index, _NOTHING)
            if not mine.is_like(theirs):
                yield mine.entries, theirs.entries


class _EntryBucket:
    """The entries whose paths share a checksum byte, with their common hash, computed when first needed."""

    __slots__ = ("_digest", "entries")

    def __init__(self, entries: dict[str, FileEntry]) -> None:
        self.entries = entries
        self._digest = b""

    def digest(self) -> bytes:
        if not self._digest:
            self._digest = hashlib.sha256(b"".join(sorted(map(_encoded, self.entries.values())))).digest()
        return self._digest

    def is_like(self, other: _EntryBucket) -> bool:
        """Whether both are known to hold the same entries; False if a hash would have to be computed."""
        return self is other or (self._digest != b"" and self._digest == other._digest)


_NOTHING = _EntryBucket({})
EMPTY_TREE = FileTree()


def tree_of(entries: Iterable[FileEntry]) -> FileTree:
    """Return the tree that holds exactly these entries."""
    return EMPTY_TREE.apply(TreeDelta({entry.path: entry for entry in entries}))


def diff(old: FileTree, new: FileTree) -> TreeDelta:
    """Return the change from the old tree to the new one."""
    put: dict[str, FileEntry] = {}
    removed: set[str] = set()
    for before, after in old.differing(new):
        put.update({path: entry for path, entry in after.items() if before.get(path) != entry})
        removed.update(before.keys() - after.keys())
    return TreeDelta(put, frozenset(removed))


def merge(base: FileTree, sides: Mapping[str, FileTree]) -> FileTree:
    """Return the base with the changes that each named side made in its own copy.

    Equal changes of a path count as one. Raise MergeConflict, which names the path and both sides, if two sides changed
    it differently, or if one put something into a folder that the other removed or replaced.
    """
    owners: dict[str, str] = {}
    changes: dict[str, FileEntry | None] = {}
    for side, tree in sides.items():
        delta = diff(base, tree)
        for path, entry in (*delta.put.items(), *((path, None) for path in delta.removed)):
            if path in changes and changes[path] != entry:
                raise MergeConflict(path, owners[path], side)
            changes[path] = entry
            owners.setdefault(path, side)
    for path in [path for path, entry in changes.items() if entry is not None]:
        parent = parent_of(path)
        while parent:
            if not is_folder(changes.get(parent, base.get(parent))):
                raise MergeConflict(path, owners[parent], owners[path])
            parent = parent_of(parent)
    put = {path: entry for path, entry in changes.items() if entry is not None}
    return base.apply(TreeDelta(put, frozenset(changes.keys() - put.keys())))


def parent_of(path: str) -> str:
    """Return the parent folder of a path; empty for the root."""
    return path.rpartition("/")[0]


def is_folder(entry: FileEntry | None) -> TypeGuard[FileEntry]:
    """Whether there is an entry and it is a folder."""
    return entry is not None and entry.kind is EntryKind.FOLDER


def path_bytes(path: str) -> bytes:
    """Return a path, or the target of a link, as the file system knows it."""
    return path.encode("utf-8", "surrogateescape")


def _bucket_of(path: str) -> int:
    try:
        return zlib.crc32(path_bytes(path)) & 0xFF
    except UnicodeEncodeError as error:
        raise UnsafePath(path, "it is not a text that a file system can hold") from error


def _weight(entry: FileEntry) -> int:
    return _ENTRY_BYTES + len(entry.path) + len(entry.target)


_FACTS = struct.Struct(">IIHQc")
_CODES = {EntryKind.FILE: b"f", EntryKind.FOLDER: b"d", EntryKind.LINK: b"l"}


def _encoded(entry: FileEntry) -> bytes:
    """Return the bytes to hash; they begin with lengths, so that no two entries have the same bytes."""
    path, target = path_bytes(entry.path), path_bytes(entry.target)
    facts = _FACTS.pack(len(path), len(target), entry.mode, entry.size, _CODES[entry.kind])
    return facts + path + target + entry.digest


def _check(entry: FileEntry) -> None:
    """Raise UnsafePath for a path that must never reach a disk; no scan writes such a path."""
    path = entry.path
    around = f"/{path}/"
    if "//" in around or "/./" in around or "/../" in around or "\0" in path:
        raise UnsafePath(path, "it is not inside the workspace")
    if around.startswith(f"/{RESERVED}/"):
        raise UnsafePath(path, f"{RESERVED!r} at the root of a workspace belongs to wtb")
    if not path.isascii() and path_bytes(path).decode("utf-8", "surrogateescape") != path:
        raise UnsafePath(path, "another spelling of it means the same file")
    if not 0 <= entry.mode <= 0o777 or len(entry.digest) != (32 if entry.kind is EntryKind.FILE else 0):
        raise UnsafePath(path, "its mode or digest is invalid")
    if (entry.kind is EntryKind.LINK) != bool(entry.target) or "\0" in entry.target:
        raise UnsafePath(path, "the target of a link must be text, and only links have one")
