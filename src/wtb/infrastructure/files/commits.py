"""DeltaFileCommits: stores every file commit as a delta from its base, or as a whole tree if that is smaller."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

import ormsgpack

from wtb.domain.errors import DamagedData, FileCommitNotFound, UnknownFormat, UnsafePath
from wtb.domain.files import EMPTY_TREE, EntryKind, FileCommitId, FileEntry, FileTree, TreeDelta, diff, path_bytes
from wtb.domain.ports import Clock, Codec
from wtb.infrastructure.files.blocks import SIZES
from wtb.infrastructure.timestamps import to_us

FORMAT = 1
"""The version of rows and payloads; a reader refuses unknown versions."""
WITH_BLOCKS = 2
"""The version of rows with files stored in blocks: a WTB that does not know blocks would sweep them."""
WHOLE_TREE_BYTES = 32 * 1024
"""Deltas since the last whole tree may grow to this size, or to the size of a whole tree if that is larger."""
_ROW_BYTES = 512
"""The cost of reading one more row, in bytes; it limits the number of small deltas between whole trees."""


class FileCommitRow(NamedTuple):
    """One row. Without a base the payload is the whole tree; `pending` is the cost of the deltas since then.

    `created_at_us` is the time when the tree was last saved: a sweep leaves alone recently used rows.
    """

    id: str
    base_id: str | None
    format: int
    created_at_us: int
    pending: int
    payload: bytes


class FileCommitRows(Protocol):
    """The rows of file commits, inside one transaction."""

    def insert(self, row: FileCommitRow) -> None:
        """Add a row; an existing row, which has the same tree, stays and is marked as used now."""
        ...

    def hold(self, commit_id: str) -> bool:
        """Prevent the removal of a commit until the end of the transaction; False if it does not exist."""
        ...

    def chain(self, commit_id: str) -> list[FileCommitRow]:
        """Return the rows from the nearest whole tree to this commit, in that order."""
        ...


class BlobRows(Protocol):
    """Small contents, stored with the values of checkpoints."""

    def put_blobs(self, blobs: Mapping[bytes, bytes], now_us: int) -> None: ...
    def get_blobs(self, addresses: Collection[bytes]) -> dict[bytes, bytes]: ...


_FRESH = 64
"""The most trees that one unit of work remembers."""


class StoredTree(NamedTuple):
    """The tree of a row, with the cost of the deltas since the last whole tree."""

    tree: FileTree
    pending: int


class TreeCache:
    """Trees of recently used commits, shared by all units of work of a storage; an entry cannot become wrong."""

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._trees: OrderedDict[str, StoredTree] = OrderedDict()
        self._lock = Lock()

    def find(self, commit_id: str) -> StoredTree | None:
        with self._lock:
            found = self._trees.get(commit_id)
            if found is not None:
                self._trees.move_to_end(commit_id)
            return found

    def put(self, commit_id: str, stored: StoredTree) -> None:
        with self._lock:
            self._trees[commit_id] = stored
            if len(self._trees) > self._size:
                self._trees.popitem(last=False)


class DeltaFileCommits:
    """The FileCommitRepository of every backend; only the rows differ."""

    def __init__(self, rows: FileCommitRows, blobs: BlobRows, *, cache: TreeCache, codec: Codec, clock: Clock) -> None:
        self._rows = rows
        self._blobs = blobs
        self._cache = cache
        self._codec = codec
        self._clock = clock
        self._fresh: dict[str, StoredTree] = {}

    def keep_learned(self) -> None:
        """Share what this transaction cached; called after its commit, because nothing is certain before."""
        for commit_id, stored in self._fresh.items():
            self._cache.put(commit_id, stored)

    def save(
        self, base_id: FileCommitId | None, delta: TreeDelta, contents: Mapping[bytes, bytes] | None = None
    ) -> FileCommitId:
        base = StoredTree(EMPTY_TREE, 0) if base_id is None else self._stored(base_id)
        tree = base.tree.apply(delta)
        now_us = to_us(self._clock.now())
        if contents:
            self._blobs.put_blobs(contents, now_us)
        # Write the row even if it is known: a sweep by another process may have collected it.
        row = self._row(base_id, base, delta, tree, now_us)
        self._rows.insert(row)
        self._fresh[tree.id] = StoredTree(tree, row.pending)
        return tree.id

    def _row(
        self, base_id: FileCommitId | None, base: StoredTree, delta: TreeDelta, tree: FileTree, now_us: int
    ) -> FileCommitRow:
        body = _packed(delta)
        pending = base.pending + _ROW_BYTES + len(body)
        if base_id is None or pending > max(tree.weight, WHOLE_TREE_BYTES) or not self._rows.hold(base_id):
            delta = diff(EMPTY_TREE, tree)
            body, base_id, pending = _packed(delta), None, 0
        payload = _checksum(self._codec, tree.id, base_id, body) + body
        has_blocks = any(entry.size > SIZES.above_bytes for entry in delta.put.values())
        return FileCommitRow(tree.id, base_id, WITH_BLOCKS if has_blocks else FORMAT, now_us, pending, payload)

    def get(self, commit_id: FileCommitId) -> FileTree:
        return self._stored(commit_id).tree

    def _find(self, commit_id: str) -> StoredTree | None:
        return self._fresh.get(commit_id) or self._cache.find(commit_id)

    def _stored(self, commit_id: str) -> StoredTree:
        found = self._find(commit_id)
        if found is None:
            found = self._fresh[commit_id] = self._read(commit_id)
            if len(self._fresh) > _FRESH:  # a reader of a long history meets thousands of trees
                del self._fresh[next(iter(self._fresh))]
        return found

    def _read(self, commit_id: str) -> StoredTree:
        """Read a tree and verify it: a tree built on a damaged one would look intact."""
        rows = self._rows.chain(commit_id)
        if not rows:
            raise FileCommitNotFound(commit_id)
        if rows[0].base_id is not None:
            raise _damaged(commit_id, f"its base, commit {rows[0].base_id!r}, is missing")
        tree = EMPTY_TREE
        for row in rows:
            tree = self._applied(tree, row)
        if tree.id != commit_id:
            raise _damaged(commit_id, "its tree does not match its hash")
        return StoredTree(tree, rows[-1].pending)

    def _applied(self, tree: FileTree, row: FileCommitRow) -> FileTree:
        try:
            return tree.apply(file_commit_delta(self._codec, row))
        except UnsafePath as error:
            raise _damaged(row.id, str(error)) from error

    def get_contents(self, digests: Collection[bytes]) -> Mapping[bytes, bytes]:
        found = self._blobs.get_blobs(digests) if digests else {}
        for digest, content in found.items():
            if self._codec.digest(content) != digest:
                raise DamagedData(f"the content {digest.hex()[:16]} of a file is damaged; `wtb doctor` shows more")
        return found


def file_commit_delta(codec: Codec, row: FileCommitRow) -> TreeDelta:
    """Return the verified delta of a row: from its base, or from the empty tree."""
    if row.format not in (FORMAT, WITH_BLOCKS):
        raise UnknownFormat(f"file commit {row.id!r} has format {row.format}; this version of wtb reads {WITH_BLOCKS}")
    body = row.payload[16:]
    if row.payload[:16] != _checksum(codec, row.id, row.base_id, body):
        raise _damaged(row.id, "its stored bytes do not match their checksum")
    put, removed = ormsgpack.unpackb(body)
    entries = [_entry(each) for each in put]
    return TreeDelta({entry.path: entry for entry in entries}, frozenset(map(_path, removed)))


def _checksum(codec: Codec, commit_id: str, base_id: str | None, body: bytes) -> bytes:
    """Return the checksum that precedes a payload; it also covers the ids of the commit and its base."""
    return codec.digest(f"{commit_id}\n{base_id or ''}\n".encode(), body)[:16]


def _damaged(commit_id: str, problem: str) -> DamagedData:
    return DamagedData(f"file commit {commit_id!r} is damaged: {problem}; `wtb doctor` shows more")


_CODES = {EntryKind.FILE: "f", EntryKind.FOLDER: "d", EntryKind.LINK: "l"}
_KINDS = {code: kind for kind, code in _CODES.items()}


def _packed(delta: TreeDelta) -> bytes:
    rows = [_entry_row(entry) for _, entry in sorted(delta.put.items())]
    return ormsgpack.packb([rows, [path_bytes(path) for path in sorted(delta.removed)]])


def _entry_row(entry: FileEntry) -> tuple[Any, ...]:
    """Return an entry in the form of a payload: names are bytes, because they need not be valid text."""
    return (path_bytes(entry.path), _CODES[entry.kind], entry.mode, entry.size, entry.digest, path_bytes(entry.target))


def _entry(row: Sequence[Any]) -> FileEntry:
    path, code, mode, size, digest, target = row
    if code not in _KINDS:
        raise UnknownFormat(f"{_path(path)!r} has the unknown kind {code!r}; a newer wtb may have written it")
    return FileEntry(_path(path), _KINDS[code], mode, size, digest, _path(target))


def _path(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
