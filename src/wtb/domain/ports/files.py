"""Workspaces: their trees, the contents of their files, and their folders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from wtb.domain.files import FileCommitId, FileTree, TreeDelta


class FileCommitRepository(Protocol):
    """File commits: trees of workspaces, stored as changes, and the contents of small files.

    A commit is identified by its tree, so saving the same tree again, from any base, gives the same id and stores
    nothing twice. It never changes. Everything read is verified; DamagedData names the commit. The contents of a
    tree are stored here or in the object store *before* the tree is saved: a crash leaves garbage, never a missing
    content.
    """

    def save(
        self, base_id: FileCommitId | None, delta: TreeDelta, contents: Mapping[bytes, bytes] | None = None
    ) -> FileCommitId:
        """Store the tree after applying the delta to the base (or to the empty tree), and contents by digest.

        Raise FileCommitNotFound if the base does not exist, UnsafePath if the result is not a tree.
        """
        ...

    def get(self, commit_id: FileCommitId) -> FileTree:
        """Return its tree, or raise FileCommitNotFound."""
        ...

    def get_contents(self, digests: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return the contents that are stored here, verified; the others are in the object store."""
        ...


class StoredObject(NamedTuple):
    """A content that an object store holds."""

    digest: bytes
    size: int


class ObjectStore(Protocol):
    """Contents of files by their SHA-256, outside the database.

    Putting the same content again only marks it as used now. A sweep leaves alone recently used objects, so an object
    is safe from `put` until the row that refers to it is committed. No reader ever sees half an object. An object
    survives the death of the process that put it; after `sync` it is as durable as the store promises.
    StorageUnavailable if the place is full, read-only or gone.
    """

    def put(self, stream: BinaryIO) -> StoredObject:
        """Store everything up to the end of the stream, in bounded memory."""
        ...

    def put_as(self, digest: bytes, content: bytes) -> None:
        """Store a content under a digest that the caller vouches for; reuse an existing object of the same size."""
        ...

    def sync(self) -> None:
        """Make the objects that this process put durable; called before the row that refers to them is committed."""
        ...

    def open(self, digest: bytes) -> BinaryIO:
        """Return the content for reading, unverified; raise ObjectNotFound if it does not exist."""
        ...

    def list_objects(self, *, unused_since: datetime) -> Iterator[StoredObject]:
        """Yield, in no particular order, the objects that were not put since then."""
        ...

    def delete(self, digest: bytes, *, unused_since: datetime | None = None) -> bool:
        """Remove an object, unless it was put again since then; False if nothing was removed."""
        ...

    def discard_unfinished(self, *, unused_since: datetime) -> int:
        """Remove unfinished objects that a crash left before that time; return how many."""
        ...


class ScannedFolder(NamedTuple):
    """The tree of a folder, its difference from the base, and contents of small files that are not stored yet."""

    tree: FileTree
    delta: TreeDelta
    contents: Mapping[bytes, bytes]


class Folders(Protocol):
    """Folders on this machine as trees. Only one caller at a time may use a folder.

    Links are kept as links and never followed. Sockets, pipes, devices and paths that `.wtbignore` names (patterns as
    in .gitignore, one file at the root) do not belong to a tree: they are not stored, and a restore leaves them
    alone, unless it removes the folder around them. Nothing outside the folder is ever written, whatever the tree or
    the folder holds. WorkspaceError names the path that caused it.
    """

    def scan(self, folder: Path, base: FileTree) -> ScannedFolder:
        """Return the tree of the folder; contents that are not in the base are stored as objects, or returned.

        Refused while a restore of the folder is unfinished: restore it again first.
        """
        ...

    def restore(
        self, folder: Path, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]]
    ) -> TreeDelta:
        """Make the folder hold exactly this tree, and return the changes.

        `read` returns small contents. All new files are staged and verified before anything changes, and a failure
        undoes the changes. After a kill in the middle, calling it again completes it.
        """
        ...

    def staged(
        self, folder: Path, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]]
    ) -> AbstractContextManager[Callable[[], TreeDelta]]:
        """Do the first half of `restore`; the block gets the second half as a function that it may call."""
        ...


class FolderStore(Protocol):
    """The folder of all workspaces. Nothing here follows a link below the root.

    The process recognises a folder that it opened before, and refuses another folder in its place.
    """

    @property
    def root(self) -> Path:
        """The folder that holds all workspaces."""
        ...

    def holds(self, folder: Path) -> bool:
        """Whether a path lies below the root."""
        ...

    def make(self, folder: Path) -> None:
        """Create a folder with its parents, unless it exists."""
        ...

    def is_ours(self, folder: Path) -> bool:
        """Whether a folder is absent or is the one that was created; False for a link or another folder."""
        ...

    def rename(self, folder: Path, name: str) -> None:
        """Rename a folder in the same place; refused if it is not the one that was created."""
        ...

    def remove(self, folder: Path) -> None:
        """Remove a folder with everything in it; if a link has replaced it, only the link is removed."""
        ...

    def read_note(self, path: Path) -> str | None:
        """Return the text of a small file beside a workspace, if there is one."""
        ...

    def note_time_ns(self, path: Path) -> int | None:
        """Return the time such a file was written, in nanoseconds of the file system's clock; None if there is none."""
        ...

    def write_note(self, path: Path, text: str | None) -> None:
        """Write a small file in one piece; None removes it."""
        ...
