"""Keeping a store well: collecting what nothing needs, and looking for damage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from wtb.domain.files import FileTree
from wtb.domain.integrity import Fault


class Swept(NamedTuple):
    """What nothing refers to: how much of it there was, or is."""

    blobs: int = 0
    commits: int = 0
    objects: int = 0
    size_bytes: int = 0


class Garbage(Protocol):
    """What no checkpoint refers to any more, in the database and in the object store.

    Whoever stores or reuses a content marks it as used in the same transaction, and a sweep leaves alone what was
    used within the grace period: so it may run beside everything else. DamagedData, and nothing is removed, when
    something cannot be read that may refer to others.
    """

    def count(self, grace: timedelta) -> Swept:
        """Return what a sweep would collect."""
        ...

    def sweep(self, grace: timedelta) -> Swept:
        """Collect it, and return how much it was."""
        ...


class Inspected(NamedTuple):
    """What was found wrong, how many things of which kind were looked at, and what nothing refers to at the moment."""

    faults: tuple[Fault, ...]
    looked_at: Mapping[str, int]
    garbage: Swept


class Inspection(Protocol):
    """Looks at everything that the database and the object store hold, without stopping at the first fault."""

    def inspect(self, watch: Callable[[str], None]) -> Inspected:
        """Verify everything against its hashes and references, in bounded memory; `watch` hears of each thing."""
        ...

    def repair(self, faults: Sequence[Fault]) -> None:
        """Try to put right those that have a remedy; inspecting again tells which of them that did."""
        ...


class SurveyedFolder(NamedTuple):
    """What lies in a folder: what a tree holds of it, and what no tree does."""

    tree: FileTree
    left_out: tuple[str, ...]
    """Paths that `.wtbignore` leaves out, and sockets, pipes and devices."""
    changed_ns: int
    """When something in it was last changed, by the clock of its file system."""


class FolderCare(Protocol):
    """What must be known of folders on this machine to keep them well, and to remove them."""

    def survey(self, folder: Path, *, known_as: Path | None = None) -> SurveyedFolder:
        """Look at everything in a folder, and store nothing. `known_as` is the name that it had until now."""
        ...

    def is_half_restored(self, folder: Path) -> bool:
        """Whether a restore of this folder was begun and not finished."""
        ...

    def list_damaged_indexes(self) -> tuple[Path, ...]:
        """Return the stat indexes that cannot be used."""
        ...

    def index_of(self, folder: Path) -> Path:
        """Return where the stat index of a folder is kept."""
        ...

    def drop_index(self, index: Path) -> None:
        """Remove a stat index; the next scan reads the files instead."""
        ...

    def check_restorable(
        self, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]], checked: set[bytes]
    ) -> None:
        """Raise DamagedData unless all contents of a tree are stored and whole; those in `checked` are known to be."""
        ...
