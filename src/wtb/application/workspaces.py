"""Workspaces: the folders that runs work in, and their commits. Contents are stored before their commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from wtb.application.workspace_slots import BUSY, FREE, WorkspaceSlots, folder_name
from wtb.domain.errors import InvalidInput, WorkspaceError
from wtb.domain.files import EMPTY_TREE, FileCommitId, FileTree, TreeDelta, diff, merge
from wtb.domain.ids import BranchId, ExecutionId
from wtb.domain.ports import Folders, FolderStore, Storage, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """A commit whose large contents are already stored; saving it writes a row and the small contents.

    `id` is known in advance, since it is the hash of the tree; others see it once the transaction is committed.
    """

    id: FileCommitId
    base_id: FileCommitId | None
    delta: TreeDelta
    contents: Mapping[bytes, bytes]

    def save(self, uow: UnitOfWork) -> FileCommitId:
        """Save the commit in the unit of work of the checkpoint that names it; the caller commits."""
        if self.base_id is not None and not self.delta:
            return self.base_id
        return uow.files.save(self.base_id, self.delta, self.contents)


class WorkspaceFolder(NamedTuple):
    """The folder of a branch, or the private folder of a superstep member, with the names of its run and branch."""

    folder: Path
    execution_name: str
    branch_name: str
    is_member: bool

    def is_of(self, execution_id: ExecutionId) -> bool:
        """Whether it belongs to this run."""
        return self.execution_name == folder_name(execution_id)

    def is_on(self, branch_id: BranchId) -> bool:
        """Whether it belongs to this branch of its run."""
        return self.branch_name == folder_name(branch_id)


class Workspaces:
    """Takes snapshots of folders and restores them.

    A folder has one user at a time. A rollback of the database undoes nothing here: a sweep deletes contents without a
    commit, and restoring a folder again repairs it.
    """

    def __init__(self, storage: Storage, folders: Folders, store: FolderStore) -> None:
        self._storage = storage
        self._folders = folders
        self._store = store
        self._slots = WorkspaceSlots(store)
        self._read = partial(read_small_contents, storage)

    def path(self, execution_id: ExecutionId, branch_id: BranchId, member: str = "") -> Path:
        """Return the folder of a branch, or the private folder of a superstep member; create it if absent.

        It is a new folder if an attempt was given up in the old one, or if the old one was replaced.
        """
        known = slot = self._slots.read(self._slots.first(execution_id, branch_id, member))
        while slot.state == BUSY or not self._store.is_ours(slot.folder):
            slot = slot.after_given_up()
        self._store.make(slot.folder)
        if slot != known:
            self._slots.write(slot)
        return slot.folder

    def claim(self, execution_id: ExecutionId, branch_id: BranchId, member: str = "") -> Path:
        """Return that folder for an attempt of a node. Unless it is released, it is never used again."""
        folder = self.path(execution_id, branch_id, member)
        self._slots.set_state(folder, BUSY)
        return folder

    def release(self, folder: Path, commit_id: FileCommitId | None = None) -> None:
        """Give back the folder of an ended attempt, and say which commit it holds, if any."""
        self._slots.set_state(folder, commit_id or FREE)

    def prepare(self, folder: Path, base_id: FileCommitId | None) -> PreparedCommit:
        """Scan a folder against the commit it started from, and store large contents; opens no write transaction."""
        scanned = self._folders.scan(folder, self.tree(base_id))
        return PreparedCommit(id=scanned.tree.id, base_id=base_id, delta=scanned.delta, contents=scanned.contents)

    def snapshot(self, folder: Path, base_id: FileCommitId | None = None) -> FileCommitId:
        """Prepare a commit and save it in a transaction of its own."""
        prepared = self.prepare(folder, base_id)
        with self._storage.unit_of_work() as uow:
            commit_id = prepared.save(uow)
            uow.commit()
        return commit_id

    def tree(self, commit_id: FileCommitId | None) -> FileTree:
        """Return the tree of a commit; without a commit, the empty tree."""
        if commit_id is None:
            return EMPTY_TREE
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.files.get(commit_id)

    def restore(self, folder: Path, commit_id: FileCommitId | None) -> TreeDelta:
        """Make a folder hold exactly the tree of a commit, and return the changes; idempotent."""
        return self._folders.restore(folder, self.tree(commit_id), self._read)

    def staged(self, folder: Path, commit_id: FileCommitId | None) -> AbstractContextManager[Callable[[], TreeDelta]]:
        """Prepare and verify a restore, and give the function that carries it out."""
        return self._folders.staged(folder, self.tree(commit_id), self._read)

    def materialise(self, folder: Path, commit_id: FileCommitId | None) -> Path:
        """Create a folder with the tree of a commit, and its parents; restore it if it exists."""
        if self._store.holds(folder):
            self._store.make(folder)
        else:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.restore(folder, commit_id)
        self.note(folder, commit_id)
        return folder

    def note(self, folder: Path, commit_id: FileCommitId | None) -> None:
        """Note which commit the folder of a branch holds, so that later changes count as a person's.

        None forgets the commit: the contents of the folder are not needed.
        """
        self._slots.set_state(folder, commit_id or FREE)

    def is_noted(self, folder: Path, commit_id: FileCommitId) -> bool:
        """Whether the folder held this commit when it was last restored or saved."""
        slot = self._slots.of(folder)
        return slot.folder == folder and slot.commit_id == commit_id

    def export(self, commit_id: FileCommitId, target: Path) -> None:
        """Write the tree of a commit into a folder that is absent or empty."""
        tree = self.tree(commit_id)
        _check_export(target)
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkspaceError(f"{target} cannot be created: {error.strerror}; choose another folder") from error
        self._folders.restore(target, tree, self._read)

    def merge(self, uow: UnitOfWork, base_id: FileCommitId | None, sides: Mapping[str, FileCommitId]) -> FileCommitId:
        """Merge and save the files of a superstep's members, which all began with the same base; the caller commits.

        MergeConflict names the path and both members. The branch's own folder must be restored to the result.
        """
        base = EMPTY_TREE if base_id is None else uow.files.get(base_id)
        merged = merge(base, {member: uow.files.get(commit_id) for member, commit_id in sides.items()})
        return uow.files.save(base_id, diff(base, merged))

    def discard_all(self, execution_id: ExecutionId) -> None:
        """Remove all folders of a deleted run."""
        self.discard(self._store.root / folder_name(execution_id))

    def list_folders(self) -> Iterator[WorkspaceFolder]:
        """Yield the folders in use, of branches and of members, by name."""
        for folder in self._slots.list_folders():
            if self._slots.of(folder).folder == folder:
                is_member = folder.parent.name == "members"
                place = folder.parent.parent if is_member else folder.parent
                yield WorkspaceFolder(folder, place.parent.name, place.name, is_member=is_member)

    def discard(self, folder: Path) -> None:
        """Remove a folder that `path` returned, whatever is in it. If it cannot be removed, it stays."""
        with suppress(WorkspaceError):
            self._store.remove(folder)


def read_small_contents(storage: Storage, digests: Collection[bytes]) -> Mapping[bytes, bytes]:
    """Return the contents that lie in the database, by digest; the others are in the object store."""
    if not digests:
        return {}
    with storage.unit_of_work(readonly=True) as uow:
        return uow.files.get_contents(digests)


def _check_export(target: Path) -> None:
    try:
        taken = target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir())))
    except OSError as error:
        raise WorkspaceError(f"{target} cannot be read: {error.strerror}; choose another folder") from error
    if taken:
        raise InvalidInput(f"{target} is not empty; name a folder that is empty or does not exist yet")
