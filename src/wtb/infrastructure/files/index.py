"""StatIndex: the state of a folder at its last scan, so that unchanged files need not be read.

It is stored outside the folder, with a checksum. A missing, damaged or outdated index costs time but is never wrong: a
file is taken from it only if its size, both times, inode and mode are those that were recorded.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ormsgpack

from wtb.domain.files import EMPTY_TREE, EntryKind, FileEntry, FileTree, TreeDelta, parent_of, path_bytes

_FORMAT = "wtb index 1"

Signature = tuple[int, int, int, int, int]
"""Mode with type, size, mtime, ctime, inode."""
Record = tuple[Signature | None, FileEntry]
"""An entry with the signature that vouches for it; None if the file must be read again in any case."""
Records = Mapping[str, Mapping[str, Record]]
"""By folder and name: this avoids joining paths, the most expensive part of a scan."""

FINE_NS = 20_000_000
"""Two ticks of the slowest kernel clock: a file with a younger ctime may change again without showing it."""
COARSE_NS = 2_000_000_000
"""The same for a file system that keeps only whole seconds."""
FILE_BYTES = 25_000
"""The cost of opening a file, as a number of bytes read."""
_RECORD_BYTES = 4_000
"""The cost of writing a record, as a number of bytes of files read again."""


def signature_of(stat: os.stat_result) -> Signature:
    """Return the facts that must be the same for a file to count as unchanged."""
    return (stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def is_racy(signature: Signature, at_ns: int) -> bool:
    """Whether a file that was read at this time could have changed since and still look the same.

    The ctime decides: every change sets it, and no program can set it back.
    """
    ctime_ns = signature[3]
    return ctime_ns > at_ns - (FINE_NS if ctime_ns % 1_000_000_000 else COARSE_NS)


class StatIndex:
    """The records of one folder, the tree that they form, and the ignore rules that they passed; immutable.

    `read_bytes` is the cost of its scans since it was last written to a file.
    """

    def __init__(
        self, records: Records | None = None, tree: FileTree = EMPTY_TREE, rules: bytes = b"", read_bytes: int = 0
    ) -> None:
        self.records = records or {}
        self.tree = tree
        self.rules = rules
        self.read_bytes = read_bytes

    def without(self, paths: Collection[str]) -> StatIndex:
        """Return an index that does not vouch for these paths."""
        if not paths:
            return self
        records = dict(self.records)
        for path in paths:
            folder, name = parent_of(path), path.rpartition("/")[2]
            if name in records.get(folder, ()):
                records[folder] = {**records[folder], name: (None, records[folder][name][1])}
        return StatIndex(records, self.tree, self.rules, self.read_bytes)

    def changed_ns(self) -> int:
        """Return the latest ctime of the files that it vouches for."""
        signatures = (record[0] for names in self.records.values() for record in names.values())
        return max((signature[3] for signature in signatures if signature is not None), default=0)


def is_worth_saving(index: StatIndex) -> bool:
    """Whether writing the index now costs less than scanning without it would."""
    return index.read_bytes > _RECORD_BYTES * len(index.tree)


def save_index(index: StatIndex, path: Path) -> None:
    """Write an index; a failure is silent, because it only costs time at the next scan."""
    rows = [
        (path_bytes(folder), [(path_bytes(name), *_row(record)) for name, record in records.items()])
        for folder, records in index.records.items()
    ]
    body = ormsgpack.packb([_FORMAT, index.rules, rows])
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.touch(mode=0o600)
        temporary.write_bytes(hashlib.sha256(body).digest() + body)
        temporary.rename(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def is_usable(path: Path) -> bool:
    """Whether an index file is intact; a partly written one is not."""
    return _content(path) is not None


def _content(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data[32:]).digest() == data[:32] else None


def load_index(path: Path) -> StatIndex:
    """Read an index; return an empty one if it cannot be used for any reason."""
    data = _content(path)
    if data is None:
        return StatIndex()
    form, rules, rows = ormsgpack.unpackb(data[32:])
    if form != _FORMAT:
        return StatIndex()
    records = {
        os.fsdecode(folder): dict([_record(os.fsdecode(folder), *row) for row in names]) for folder, names in rows
    }
    entries = {entry.path: entry for names in records.values() for _, entry in names.values()}
    return StatIndex(records, EMPTY_TREE.apply(TreeDelta(entries)), rules)


_KINDS = list(EntryKind)


def _row(record: Record) -> tuple[Any, ...]:
    signature, entry = record
    return (
        signature,
        _KINDS.index(entry.kind),
        entry.mode,
        entry.size,
        entry.digest,
        path_bytes(entry.target),
    )


def _record(folder: str, name: bytes, signature: Any, kind: int, *facts: Any) -> tuple[str, Record]:
    text = os.fsdecode(name)
    mode, size, digest, target = facts
    entry = FileEntry(f"{folder}/{text}" if folder else text, _KINDS[kind], mode, size, digest, os.fsdecode(target))
    return text, (None if signature is None else tuple(signature), entry)
