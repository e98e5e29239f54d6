"""LocalFolderStore: the folder of all workspaces, and the only way into them.

A node may replace its workspace, or a folder above it, with a link to somewhere else. So each path component below the
root is opened separately, and links are never followed; and a workspace that this process has opened before must still
be the same folder, by device and inode.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from wtb.domain.errors import InvalidInput, WorkspaceError
from wtb.infrastructure.files.confined import OPEN_FOLDER, identity_of, remove_folder
from wtb.infrastructure.files.mounts import check_no_mounts, check_not_mounted
from wtb.infrastructure.files.os_errors import reported_as

_REMEMBERED = 10_000
_NOTE_BYTES = 4096


class LocalFolderStore:
    """Folders below one root, which only this user may read."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._known: OrderedDict[Path, tuple[int, int]] = OrderedDict()
        self._lock = Lock()

    def holds(self, folder: Path) -> bool:
        """Whether a path lies below the root; links are not resolved."""
        return self.root in folder.absolute().parents and ".." not in folder.parts

    def make(self, folder: Path) -> None:
        """Create a folder with its parents, unless it exists."""
        with reported_as(WorkspaceError, f"the workspace {folder} cannot be created"):
            if not self.root.exists():
                self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._forget(self.root)
            with self._parent(folder, make=True) as parent:
                if _made(folder.name, parent):
                    self._forget(folder)
                os.close(self._opened(folder, parent, check_mounts=False))  # its user opens it again

    def is_ours(self, folder: Path) -> bool:
        """Whether a folder is absent or is the one that was created; False for a link or another folder."""
        try:
            with self._parent(folder) as parent:  # a fault above concerns every folder there, so it is raised
                return self._is_ours(folder, parent)
        except FileNotFoundError:
            return True

    def _is_ours(self, folder: Path, parent: int) -> bool:
        try:
            os.close(self._opened(folder, parent))
        except FileNotFoundError:
            return True
        except (OSError, WorkspaceError):
            return False
        return True

    def open(self, folder: Path) -> int:
        """Open a folder and return its handle; raise WorkspaceError if a link or another folder has replaced it."""
        with self._parent(folder) as parent:
            return self._opened(folder, parent)

    def remove(self, folder: Path) -> None:
        """Remove a folder with everything in it. If a link has replaced it, remove only the link."""
        if not self.holds(folder):
            raise InvalidInput(f"{folder} is not a workspace of this store; remove it by hand")
        with reported_as(WorkspaceError, f"{folder} cannot be removed"), suppress(FileNotFoundError):
            with self._parent(folder) as parent:
                if not stat.S_ISDIR(os.stat(folder.name, dir_fd=parent, follow_symlinks=False).st_mode):
                    os.unlink(folder.name, dir_fd=parent)
                else:
                    self._check_mounts(folder, parent)
                    remove_folder(folder.name, parent)
            self._forget(folder)

    def rename(self, folder: Path, name: str) -> None:
        """Rename a folder in the same place; a non-empty folder with the new name is not replaced."""
        with reported_as(WorkspaceError, f"{folder} cannot be renamed"), self._parent(folder) as parent:
            os.close(self._opened(folder, parent))
            os.rename(folder.name, name, src_dir_fd=parent, dst_dir_fd=parent)
            self._forget(folder)
            self._forget(folder.with_name(name))

    def read_note(self, path: Path) -> str | None:
        """Return the text of one of WTB's small files; None if there is none, or if it is something else."""
        try:
            with self._parent(path) as parent:
                fd = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            with open(fd, "rb") as stream:
                return stream.read(_NOTE_BYTES).decode("utf-8", "replace")
        except (OSError, WorkspaceError):
            return None

    def note_time_ns(self, path: Path) -> int | None:
        """Return the time when one of WTB's small files was written."""
        try:
            with self._parent(path) as parent:
                return os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mtime_ns
        except (OSError, WorkspaceError):
            return None

    def write_note(self, path: Path, text: str | None) -> None:
        """Write a small file in one piece, or remove it. It replaces a link in its place."""
        with reported_as(WorkspaceError, f"{path} cannot be written"), self._parent(path) as parent:
            if text is None:
                with suppress(FileNotFoundError):
                    os.unlink(path.name, dir_fd=parent)
                return
            temporary = f".{path.name}.{secrets.token_hex(4)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600, dir_fd=parent), "wb") as stream:
                stream.write(text.encode())
            os.rename(temporary, path.name, src_dir_fd=parent, dst_dir_fd=parent)

    @contextmanager
    def _parent(self, folder: Path, *, make: bool = False) -> Iterator[int]:
        """Open the parent of a path, component by component from the root."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._check_known(self.root, fd)
            for name in self._names(folder)[:-1]:
                above = fd
                if make:
                    _made(name, above)
                fd = _opened_here(name, above, folder)
                os.close(above)
            yield fd
        finally:
            os.close(fd)

    def _names(self, folder: Path) -> list[str]:
        """Return the names that lead from the root to a folder."""
        return os.fspath(folder.absolute())[len(os.fspath(self.root)) + 1 :].split("/")

    def _opened(self, folder: Path, parent: int, *, check_mounts: bool = True) -> int:
        fd = _opened_here(folder.name, parent, folder)
        try:
            self._check_known(folder.absolute(), fd)
            if check_mounts:
                check_not_mounted(fd, len(self._names(folder)))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check_mounts(self, folder: Path, parent: int) -> None:
        fd = os.open(folder.name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            check_not_mounted(fd, len(self._names(folder)))
            check_no_mounts(fd)
        finally:
            os.close(fd)

    def _check_known(self, folder: Path, fd: int) -> None:
        """Remember a folder when it is first opened; refuse another one in its place afterwards."""
        found = identity_of(fd)
        with self._lock:
            known = self._known.setdefault(folder, found)
            self._known.move_to_end(folder)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        if known != found:
            raise replaced(folder)

    def _forget(self, folder: Path) -> None:
        with self._lock:
            self._known.pop(folder.absolute(), None)


def replaced(folder: Path) -> WorkspaceError:
    """Return the error for a folder that is not the one that wtb created."""
    return WorkspaceError(
        f"{folder} is not the folder that wtb created: another folder or a link has replaced it. Nothing was read or "
        "changed there. Let the node change the files in its workspace, not the workspace itself, and try again"
    )


def _cut_off(folder: Path, name: str) -> WorkspaceError:
    return WorkspaceError(
        f"{folder} cannot be reached: {name!r} above it is a link, not the folder that wtb created. Nothing was "
        "read or changed where it leads. Remove the link and try again"
    )


def _made(name: str, parent: int) -> bool:
    """Make a folder; return whether it was absent."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _opened_here(name: str, parent: int, folder: Path) -> int:
    """Open one component of the way to a folder."""
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=parent)
    except OSError:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise (replaced(folder) if name == folder.name else _cut_off(folder, name)) from None
        raise
