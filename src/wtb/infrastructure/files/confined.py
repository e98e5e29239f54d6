"""ConfinedFolder: reads and changes inside one folder that can never reach outside it.

Each component of a path is opened from its open parent, and never through a link (O_NOFOLLOW). Whatever the folder
contains, and even if a folder is swapped for a link meanwhile, an access happens inside or fails. The root stays open,
so swapping the root does not help either. No walk recurses: folders may be nested as deeply as the disk allows.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from wtb.domain.files import parent_of
from wtb.infrastructure.files.mounts import check_no_mounts

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Never follow a link, and never wait for the other end of a pipe."""
_MAX_OPEN = 32
"""The most folders that stay open, the latest ones; a move uses two at once."""
_KEPT_OF_WAY = 8
"""The most folders on one path that stay open: few, so that the previously opened folder stays open, too."""


class ConfinedFolder:
    """An open folder; paths are relative to it, as in a tree. Raises OSError, and nothing else."""

    def __init__(self, root: Path | int) -> None:
        """Open a folder that a person named, or take over an open one. Refuse a folder with a mount inside."""
        outside = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._root: int = root if isinstance(root, int) else os.open(root, outside)
        self._open: OrderedDict[str, int] = OrderedDict()
        try:
            self.device = os.fstat(self._root).st_dev
            check_no_mounts(self._root)
        except BaseException:
            os.close(self._root)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.forget()
        os.close(self._root)

    def identity(self) -> tuple[int, int]:
        """Return the device and the inode of the folder itself."""
        return identity_of(self._root)

    def changed_ns(self) -> int:
        """Return the time when an entry was last added to the folder itself or removed from it."""
        return os.fstat(self._root).st_mtime_ns

    def forget(self) -> None:
        """Close the folders that stayed open: after a move they would have other paths."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _folder(self, path: str) -> int:
        """Return an open folder, which stays open for a while: the next path is often in the same folder."""
        if not path:
            return self._root
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        return self._walk(path)

    def _walk(self, path: str) -> int:
        """Open a folder, starting from its nearest open ancestor, and keep the last folders of the path open."""
        above = parent_of(path)
        while above and above not in self._open:
            above = parent_of(above)
        names = path[len(above) :].strip("/").split("/")
        fd, place = os.dup(self._open[above] if above else self._root), above
        try:
            for number, name in enumerate(names, 1):
                place = f"{place}/{name}" if place else name
                parent, fd = fd, os.open(name, OPEN_FOLDER, dir_fd=fd)
                os.close(parent)
                if len(names) - number < _KEPT_OF_WAY:
                    self._keep(place, os.dup(fd))
        except OSError as error:
            error.filename = place
            raise
        finally:
            os.close(fd)
        return self._open[path]

    def _keep(self, path: str, fd: int) -> None:
        if len(self._open) >= _MAX_OPEN:
            os.close(self._open.popitem(last=False)[1])
        self._open[path] = fd

    def _place(self, path: str) -> tuple[int, str]:
        return self._folder(parent_of(path)), path.rpartition("/")[2]

    def mode_at(self, path: str) -> int | None:
        """Return the mode and type of a path; None if it does not exist or cannot be reached."""
        try:
            fd, name = self._place(path)
            return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link where a folder should be
                return None
            raise

    def list_items(self, path: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """List a folder; query the items before you open another folder."""
        return os.scandir(self._folder(path))

    def open_file(self, path: str) -> io.FileIO:
        """Open a file for reading."""
        fd, name = self._place(path)
        try:
            return io.FileIO(os.open(name, _FILE, dir_fd=fd))
        except OSError as error:
            error.filename = path  # the whole path, for the message
            raise

    def read_link(self, path: str) -> str:
        """Return where a symbolic link points."""
        fd, name = self._place(path)
        return os.readlink(name, dir_fd=fd)

    def move(self, source: str, target: str) -> None:
        """Rename; a file at the target is replaced."""
        from_fd, from_name = self._place(source)
        to_fd, to_name = self._place(target)
        os.rename(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)

    def make_folder(self, path: str) -> None:
        """Make a folder that only this user may read."""
        fd, name = self._place(path)
        os.mkdir(name, 0o700, dir_fd=fd)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        self.forget()
        fd, name = self._place(path)
        os.rmdir(name, dir_fd=fd)

    def remove_if_empty(self, path: str) -> None:
        """Remove a folder if it is empty."""
        with suppress(OSError):
            self.remove_folder(path)

    def set_folder_mode(self, path: str, mode: int) -> None:
        """Set the permission bits of a folder."""
        os.fchmod(self._folder(path), mode)

    def create_file(self, path: str) -> int:
        """Return a new file, open for writing and reading."""
        fd, name = self._place(path)
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)

    def create_link(self, path: str, target: str) -> None:
        """Make a symbolic link, wherever it points."""
        fd, name = self._place(path)
        os.symlink(target, name, dir_fd=fd)

    def remove_all(self, path: str) -> None:
        """Remove a folder with everything in it; do nothing if it does not exist."""
        self.forget()
        mode = self.mode_at(path)
        if mode is None:
            return
        if not stat.S_ISDIR(mode):
            fd, name = self._place(path)
            os.unlink(name, dir_fd=fd)
            return
        fd, name = self._place(path)
        remove_folder(name, fd)


def identity_of(fd: int) -> tuple[int, int]:
    """Return the identity of an open folder, which is unique as long as it exists."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def remove_folder(name: str, parent: int) -> None:
    """Remove a folder in an open parent, with everything in it.

    Every folder below is moved to the top before it is emptied. So depth does not matter: there is no recursion, and no
    path gets too long.
    """
    top = _opened_up(name, parent)
    try:
        device = os.fstat(top).st_dev
        waiting = _emptied(top, top, device)
        while waiting:
            below = waiting.pop()
            fd = _opened_up(below, top)
            try:
                waiting += _emptied(fd, top, device)
            finally:
                os.close(fd)
            os.rmdir(below, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _emptied(fd: int, top: int, device: int) -> list[str]:
    """Remove the files of a folder and move its folders to the top; return their names there."""
    with os.scandir(fd) as items:
        found = [(item.name, item.stat(follow_symlinks=False)) for item in items]
    moved = []
    for name, facts in found:
        if not stat.S_ISDIR(facts.st_mode):
            os.unlink(name, dir_fd=fd)
            continue
        if facts.st_dev != device:
            raise OSError(errno.EXDEV, "another file system is mounted there", name)
        os.close(_opened_up(name, fd))  # a read-only folder cannot be moved
        moved.append(f".wtb-{secrets.token_hex(8)}")
        os.rename(name, moved[-1], src_dir_fd=fd, dst_dir_fd=top)
    return moved


def _opened_up(name: str, parent: int) -> int:
    """Open a folder and make it writable for this user. Set the mode through the handle: the name may become a link."""
    try:
        fd = os.open(name, OPEN_FOLDER, dir_fd=parent)
    except PermissionError:
        path_only = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{path_only}", 0o700)
        finally:
            os.close(path_only)
        fd = os.open(name, OPEN_FOLDER, dir_fd=parent)
    os.fchmod(fd, 0o700)
    return fd
