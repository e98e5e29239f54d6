"""Workspaces: their trees, the contents of their files, and their folders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from wtb.domain.files import FileCommitId, FileTree, TreeDelta


class FileCommitRepository(Protocol):
    """File commits: trees of workspaces by their changes, and the contents of small files.

    A commit is known by its tree, so saving the same tree again, from whatever base, gives the same id and keeps
    nothing twice. It never changes. What is read is verified; DamagedData names the commit. The contents that a
    tree refers to are here or in the object store *before* the tree is saved: a crash leaves garbage, never a
    reference to nothing.
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

    Putting the same content again changes nothing but marks it as used now; a sweep leaves alone what was used
    lately, so an object is safe from `put` until the row that refers to it is committed. Nobody ever sees half an
    object. What is put survives the death of the process; after `sync` it is as durable as the store promises.
    StorageUnavailable when the place is full, read-only or gone.
    """

    def put(self, stream: BinaryIO) -> StoredObject:
        """Store everything up to the end of the stream, in bounded memory."""
        ...

    def put_as(self, digest: bytes, content: bytes) -> None:
        """Store a content under a digest that the caller vouches for; an existing one of this size is reused."""
        ...

    def sync(self) -> None:
        """Make durable what this process has put; called before the row that refers to it is committed."""
        ...

    def open(self, digest: bytes) -> BinaryIO:
        """Return the content for reading, unverified; ObjectNotFound when it is not there."""
        ...

    def list_objects(self, *, unused_since: datetime) -> Iterator[StoredObject]:
        """Yield, in no particular order, the objects that nobody has put since then."""
        ...

    def delete(self, digest: bytes, *, unused_since: datetime | None = None) -> bool:
        """Remove an object, unless somebody has put it since then; False when nothing was removed."""
        ...

    def discard_unfinished(self, *, unused_since: datetime) -> int:
        """Remove unfinished objects that a crash left before that time; return how many."""
        ...


class ScannedFolder(NamedTuple):
    """What a folder holds, how that differs from the base, and contents of small files that are not stored yet."""

    tree: FileTree
    delta: TreeDelta
    contents: Mapping[bytes, bytes]


class Folders(Protocol):
    """Folders on this machine as trees. One caller at a time for each folder.

    Links are kept as links and never followed. Sockets, pipes, devices and what `.wtbignore` names (patterns as
    in .gitignore, one file at the root) are no part of a tree: they are not stored, and a restore leaves them
    where they are, unless the folder that they lie in goes. Nothing outside the folder is ever written,
    whatever a tree says and whatever lies in the folder. WorkspaceError names the path that makes trouble.
    """

    def scan(self, folder: Path, base: FileTree) -> ScannedFolder:
        """Return what the folder holds; contents that are not in the base are stored as objects, or returned.

        Refused while a restore of the folder is unfinished: restore it again first.
        """
        ...

    def restore(
        self, folder: Path, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]]
    ) -> TreeDelta:
        """Make the folder hold exactly this tree, and return the changes.

        `read` gives small contents. Everything new is staged and verified before anything is changed, and a
        failure undoes what was done. After a kill in the middle, calling it again completes it.
        """
        ...

    def staged(
        self, folder: Path, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]]
    ) -> AbstractContextManager[Callable[[], TreeDelta]]:
        """Do the first half of `restore`, and give the second half as a function, which the block may call."""
        ...


class FolderStore(Protocol):
    """The folder of all workspaces. Nothing here follows a link below the root.

    A folder that was opened before is known again for the life of the process: another one in its place is refused.
    """

    @property
    def root(self) -> Path:
        """The folder that holds all workspaces."""
        ...

    def holds(self, folder: Path) -> bool:
        """Whether a path leads below the root."""
        ...

    def make(self, folder: Path) -> None:
        """Create a folder with its parents, unless it exists."""
        ...

    def is_ours(self, folder: Path) -> bool:
        """Whether a folder is absent, or the one that was made; False for a link and for another folder."""
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
        """Return when such a file was written, in nanoseconds by the file system's clock; None without one."""
        ...

    def write_note(self, path: Path, text: str | None) -> None:
        """Write a small file as a whole; None removes it."""
        ...
