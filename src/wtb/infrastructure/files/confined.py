"""ConfinedFolder: changes inside one folder that can never reach outside it.

Every step of a path is opened by itself, from an open parent, and never through a link (O_NOFOLLOW): whatever lies in
the folder, and whoever swaps a folder for a link meanwhile, a change happens inside or fails.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from wtb.domain.files import parent_of

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_OPEN = 32
"""The latest are kept: a move uses two at once."""


class ConfinedFolder:
    """An open folder; paths are relative to it, as in a tree. Raises OSError, and nothing else."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.forget()
        os.close(self._root)

    def forget(self) -> None:
        """Close the folders that were kept open: after a folder was moved they would not be where they were."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _folder(self, path: str) -> int:
        """Return an open folder, which stays open for a while: neighbours follow each other."""
        if not path:
            return self._root
        if path in self._open:
            self._open.move_to_end(path)
        else:
            if len(self._open) >= _MAX_OPEN:
                os.close(self._open.popitem(last=False)[1])
            self._open[path] = self._walk(path)
        return self._open[path]

    def _walk(self, path: str) -> int:
        fd = os.dup(self._root)
        for name in path.split("/"):
            parent = fd
            try:
                fd = os.open(name, _FOLDER, dir_fd=parent)
            finally:
                os.close(parent)
        return fd

    def _place(self, path: str) -> tuple[int, str]:
        return self._folder(parent_of(path)), path.rpartition("/")[2]

    def mode_at(self, path: str) -> int | None:
        """Return mode and type of what lies there; None when there is nothing, or no way that leads there."""
        try:
            fd, name = self._place(path)
            return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link where a folder should be
                return None
            raise

    def move(self, source: str, target: str) -> None:
        """Rename; a file at the target is replaced."""
        from_fd, from_name = self._place(source)
        to_fd, to_name = self._place(target)
        os.rename(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)

    def make_folder(self, path: str) -> None:
        """Make a folder that only this user may look into."""
        fd, name = self._place(path)
        os.mkdir(name, 0o700, dir_fd=fd)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        self.forget()
        fd, name = self._place(path)
        os.rmdir(name, dir_fd=fd)

    def remove_if_empty(self, path: str) -> None:
        """Remove a folder if nothing lies in it."""
        with suppress(OSError):
            self.remove_folder(path)

    def set_folder_mode(self, path: str, mode: int) -> None:
        """Set the permission bits of a folder."""
        os.fchmod(self._folder(path), mode)

    def create_file(self, path: str) -> int:
        """Return a new file, open for writing."""
        fd, name = self._place(path)
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)

    def create_link(self, path: str, target: str) -> None:
        """Make a symbolic link, wherever it points."""
        fd, name = self._place(path)
        os.symlink(target, name, dir_fd=fd)

    def remove_all(self, path: str) -> None:
        """Remove a folder with everything in it; nothing happens when there is none."""
        self.forget()
        mode = self.mode_at(path)
        if mode is None:
            return
        if not stat.S_ISDIR(mode):
            fd, name = self._place(path)
            os.unlink(name, dir_fd=fd)
            return
        self._open_up(path)
        self.forget()
        fd, name = self._place(path)
        shutil.rmtree(name, dir_fd=fd)

    def _open_up(self, path: str) -> None:
        """Let this user change every folder below, so that all of it can be removed."""
        fd, name = self._place(path)
        os.chmod(name, 0o700, dir_fd=fd)
        with os.scandir(self._folder(path)) as items:
            below = [f"{path}/{item.name}" for item in items if item.is_dir(follow_symlinks=False)]
        for folder in below:
            self._open_up(folder)
