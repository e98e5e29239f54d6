"""FileContents: the files of a checkpoint, read piece by piece and verified."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from wtb.application.queries.lookup import find_checkpoint, find_run, head_of
from wtb.domain.errors import DamagedData, FileNotFound, InvalidInput, ObjectNotFound
from wtb.domain.files import EMPTY_TREE, EntryKind, FileCommitId, FileEntry, FileTree
from wtb.domain.ports import ObjectStore, Storage, UnitOfWork

_PIECE = 256 * 1024


@dataclass(frozen=True, slots=True)
class FileContents:
    """Reads files. A large one is never in memory as a whole."""

    storage: Storage
    objects: ObjectStore

    def tree(self, run: str, target: str | int | None) -> FileTree:
        """Return the files at a checkpoint; by default at the head."""
        with self.storage.unit_of_work(readonly=True) as uow:
            return _tree(uow, run, target)

    def open(self, run: str, target: str | int | None, path: str) -> tuple[FileEntry, Iterator[bytes]]:
        """Return a file and its content in pieces. If the content turns out to be damaged, the last piece never comes.

        Only a path that the checkpoint has is opened; it is looked up, never joined to a folder.
        """
        with self.storage.unit_of_work(readonly=True) as uow:
            entry = _tree(uow, run, target).get(path)
            if entry is None:
                raise FileNotFound(path[:200], f"run {run}")
            if entry.kind is not EntryKind.FILE:
                raise InvalidInput(f"{path!r} is a {entry.kind.value}; only files have a content")
            small = uow.files.get_contents([entry.digest]).get(entry.digest)
        return entry, iter([small]) if small is not None else self._pieces(entry)

    def _pieces(self, entry: FileEntry) -> Iterator[bytes]:
        try:
            stream = self.objects.open(entry.digest)
        except ObjectNotFound as error:
            raise DamagedData(f"{entry.path!r} cannot be read: {error}; `wtb doctor` shows more") from error
        return _verified(stream, entry)


def _tree(uow: UnitOfWork, run: str, target: str | int | None) -> FileTree:
    execution = find_run(uow, run)
    if target is None and head_of(uow, execution) is None:
        return EMPTY_TREE
    commit = find_checkpoint(uow, execution, target).file_commit
    return EMPTY_TREE if commit is None else uow.files.get(FileCommitId(commit))


def _verified(stream: BinaryIO, entry: FileEntry) -> Iterator[bytes]:
    digest, before = hashlib.sha256(), b""
    with stream:
        while piece := stream.read(_PIECE):
            if before:
                yield before
            digest.update(piece)
            before = piece
    if digest.digest() != entry.digest:
        raise DamagedData(f"{entry.path!r} cannot be read: its content is damaged; `wtb doctor` shows more")
    yield before
