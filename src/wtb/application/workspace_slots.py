"""WorkspaceSlots: notes which folder a branch, or a member of a parallel superstep, uses now."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wtb.domain.ids import BranchId, ExecutionId
from wtb.domain.ports import FolderStore

BUSY = "busy"
FREE = "free"

_ASIDE, _REMOVED = ".aside", ".removed"
_OLD_NOTE = "holds"
_OF_BRANCH = re.compile(r"files(~[0-9]+)?")
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,99}")


class Slot(NamedTuple):
    """The current folder of a branch or a member, and what is known about it.

    If an attempt was given up or a process died in a folder, that folder is never used again: something may still write
    to its path. So the next folder has another path: `files`, then `files~2`, `files~3`.
    """

    first: Path
    number: int
    state: str
    """`busy` while an attempt works in the folder, the id of the commit that the folder holds, or `free`."""

    @property
    def folder(self) -> Path:
        return self.first if self.number == 1 else self.first.with_name(f"{self.first.name}~{self.number}")

    @property
    def note(self) -> Path:
        """The small file that stores this slot."""
        return self.first.with_name(f".{self.first.name}.slot")

    @property
    def commit_id(self) -> str | None:
        """The commit that the folder held when a step last ended in it, if known."""
        return None if self.state in (BUSY, FREE) else self.state

    def after_given_up(self) -> Slot:
        """Return the slot with the next folder."""
        return Slot(self.first, self.number + 1, FREE)


class WorkspaceSlots:
    """Reads and writes the notes of all slots of a store."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store

    def first(self, execution_id: ExecutionId, branch_id: BranchId, member: str = "") -> Path:
        """Return the first folder of a branch, or of a member of a parallel superstep of it."""
        place = self._store.root / folder_name(execution_id) / folder_name(branch_id)
        return place / "members" / folder_name(member) if member else place / "files"

    def read(self, first: Path) -> Slot:
        """Return the slot that begins with this folder."""
        slot = Slot(first, 1, BUSY)
        text = self._store.read_note(slot.note)
        if text is None:  # an earlier version may have written the note, with one folder for each
            return Slot(first, 1, self._store.read_note(first.with_name(_OLD_NOTE)) or FREE)
        number, _, state = text.partition(" ")
        return Slot(first, int(number), state) if number.isdecimal() else slot

    def noted_ns(self, slot: Slot) -> int | None:
        """Return when the note of a slot was last written, by the clock of its file system; None without a note."""
        found = self._store.note_time_ns(slot.note)
        return self._store.note_time_ns(slot.first.with_name(_OLD_NOTE)) if found is None else found

    def write(self, slot: Slot) -> None:
        """Store a slot."""
        self._store.write_note(slot.note, f"{slot.number} {slot.state}")

    def of(self, folder: Path) -> Slot:
        """Return the slot of a folder, even if the folder was set aside to be removed."""
        name = folder.name
        if is_aside(folder):
            name = folder.stem.rpartition(".")[0][1:]
        # A hashed name also begins with `~`, the sign before the number.
        return self.read(folder.with_name(name[:1] + name[1:].partition("~")[0]))

    def set_state(self, folder: Path, state: str) -> None:
        """Note the state of a folder, unless another folder has replaced it meanwhile."""
        if self._store.holds(folder):
            slot = self.of(folder)
            if slot.folder == folder:
                self.write(slot._replace(state=state))

    def list_folders(self, execution_name: str = "*") -> Iterator[Path]:
        """Yield the folders of all runs, or of one, by name: those in use, those given up, those set aside."""
        for folder in sorted(self._store.root.glob(f"{execution_name}/*/*")):
            if _OF_BRANCH.fullmatch(folder.name) or is_aside(folder):
                yield folder
        for folder in sorted(self._store.root.glob(f"{execution_name}/*/members/*")):
            if not folder.name.startswith(".") or is_aside(folder):
                yield folder


def aside_of(folder: Path, token: str) -> Path:
    """Return the name of a folder that is set aside for a last check; no run uses it as a workspace."""
    return folder.with_name(f".{folder.name}.{token}{_ASIDE}")


def removed_of(aside: Path) -> Path:
    """Return the name of a set-aside folder during its removal."""
    return aside.with_suffix(_REMOVED)


def is_aside(folder: Path) -> bool:
    """Whether a folder was set aside."""
    return folder.name.startswith(".") and folder.suffix in (_ASIDE, _REMOVED)


def is_removed(folder: Path) -> bool:
    """Whether a folder is being removed; part of it may already be gone."""
    return folder.name.startswith(".") and folder.suffix == _REMOVED


def folder_name(id: str) -> str:
    """Return the folder name for an id; an id that is too long or unsafe as a name is hashed."""
    return id if _PLAIN.fullmatch(id) else f"~{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
