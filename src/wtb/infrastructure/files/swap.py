"""Swap: moves staged files into place by renames, and undoes everything if one fails."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from wtb.domain.files import FileTree, TreeDelta, is_folder, parent_of
from wtb.infrastructure.files.confined import ConfinedFolder
from wtb.infrastructure.files.staging import HALF_DONE, STAGING

_OLD = f"{STAGING}/old"
"""The place of files that were moved aside."""


class Swap:
    """Changes one folder to a tree. Files to remove are first moved aside, so that everything can be undone."""

    def __init__(self, folder: ConfinedFolder, tree: FileTree, delta: TreeDelta, staged: dict[str, str]) -> None:
        self._folder = folder
        self._tree = tree
        self._delta = delta
        self._staged = staged
        self._undo: list[Callable[[], None]] = []
        self._opened: set[str] = set()

    def run(self) -> None:
        """Change the folder; after an error it is as it was, or marked as half done if even undoing failed."""
        self._folder.make_folder(_OLD)
        resumed = self._folder.mode_at(HALF_DONE) is not None
        if not resumed:
            self._folder.make_folder(HALF_DONE)
        try:
            self._change()
        except BaseException:
            if self._taken_back() and not resumed:
                self._folder.remove_folder(HALF_DONE)
            raise

    def _change(self) -> None:
        paths = sorted({*self._delta.removed, *self._delta.put}, key=_parts)
        self._open_folders(paths)
        self._move_aside(paths)
        self._folder.forget()
        self._make_folders([path for path in paths if self._is_folder(path)])
        for path in paths:
            if path in self._delta.put and not self._is_folder(path):
                self._move(f"{STAGING}/{self._staged[path]}", path)
        self._set_modes({path for path in paths if self._is_folder(path)} | self._opened)

    def _is_folder(self, path: str) -> bool:
        return is_folder(self._delta.put.get(path))

    def _open_folders(self, paths: Iterable[str]) -> None:
        """Make every folder that changes or moves writable for this user, because its mode may forbid changes."""
        folders = {folder for path in paths for folder in (parent_of(path), path) if folder}
        for path in sorted(folders, key=_parts):
            mode = self._folder.mode_at(path)
            if mode is not None and stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                self._set_mode(path, mode, stat.S_IMODE(mode) | 0o700)
                self._opened.add(path)

    def _move_aside(self, paths: Iterable[str]) -> None:
        """Move away the paths to remove or replace; a folder moves with everything in it."""
        moved = ""
        for number, path in enumerate(paths):
            if moved and path.startswith(f"{moved}/"):
                continue
            mode = self._folder.mode_at(path)
            if mode is not None and not (stat.S_ISDIR(mode) and self._is_folder(path)):
                self._move(path, f"{_OLD}/{number}")
                moved = path

    def _make_folders(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self._folder.mode_at(path) is None:
                self._undo.append(partial(self._folder.remove_folder, path))
                self._folder.make_folder(path)

    def _set_modes(self, paths: Iterable[str]) -> None:
        """Give folders their final modes, the deepest first, so that the path to each stays open."""
        for path in sorted(paths, key=_parts, reverse=True):
            mode, entry = self._folder.mode_at(path), self._tree.get(path)
            if mode is not None and is_folder(entry) and mode & 0o777 != entry.mode:
                self._set_mode(path, mode, stat.S_IMODE(mode) & ~0o777 | entry.mode)

    # The undo of a step is recorded before the step, so that an interrupt cannot come between.
    def _move(self, source: str, target: str) -> None:
        self._undo.append(partial(self._folder.move, target, source))
        self._folder.move(source, target)

    def _set_mode(self, path: str, old: int, new: int) -> None:
        self._undo.append(partial(self._folder.set_folder_mode, path, stat.S_IMODE(old)))
        self._folder.set_folder_mode(path, new)

    def _taken_back(self) -> bool:
        """Undo everything; return whether that worked."""
        try:
            while self._undo:
                self._folder.forget()
                with suppress(FileNotFoundError):  # the step that failed
                    self._undo.pop()()
        except OSError:
            return False
        return True


def _parts(path: str) -> list[str]:
    """Return the sort key that puts each parent directly before its contents."""
    return path.split("/")
