"""Upkeep of a store: deleting unused data, and finding damage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from wtb.domain.files import FileTree
from wtb.domain.integrity import Fault


class Swept(NamedTuple):
    """The amount of unused data that was deleted, or could be."""

    blobs: int = 0
    commits: int = 0
    objects: int = 0
    size_bytes: int = 0


class Garbage(Protocol):
    """Data that no checkpoint refers to any more, in the database and in the object store.

    Storing or reusing a content marks it as used in the same transaction, and a sweep leaves alone data used within
    the grace period, so it may run beside everything else. If something that may refer to other data cannot be read,
    a sweep raises DamagedData and removes nothing.
    """

    def count(self, grace: timedelta) -> Swept:
        """Return how much a sweep would delete."""
        ...

    def sweep(self, grace: timedelta) -> Swept:
        """Delete unused data, and return how much it was."""
        ...


class Inspected(NamedTuple):
    """The faults that were found, how many things of each kind were checked, and the unused data."""

    faults: tuple[Fault, ...]
    looked_at: Mapping[str, int]
    garbage: Swept


class Inspection(Protocol):
    """Checks everything in the database and the object store; does not stop at the first fault."""

    def inspect(self, watch: Callable[[str], None]) -> Inspected:
        """Verify everything against its hashes and references, in bounded memory; call `watch` for each thing."""
        ...

    def repair(self, faults: Sequence[Fault]) -> None:
        """Try to repair the faults that have a remedy; inspect again to see which were repaired."""
        ...


class SurveyedFolder(NamedTuple):
    """The contents of a folder: its tree, and the paths that no tree holds."""

    tree: FileTree
    left_out: tuple[str, ...]
    """Paths that `.wtbignore` leaves out, and sockets, pipes and devices."""
    changed_ns: int
    """When something in it was last changed, by the clock of its file system."""


class FolderCare(Protocol):
    """Upkeep of folders on this machine: checking them, and removing them safely."""

    def survey(self, folder: Path, *, known_as: Path | None = None) -> SurveyedFolder:
        """Read everything in a folder, and store nothing. `known_as` is the name that it had until now."""
        ...

    def is_half_restored(self, folder: Path) -> bool:
        """Whether a restore of this folder was begun and not finished."""
        ...

    def list_damaged_indexes(self) -> tuple[Path, ...]:
        """Return the stat indexes that cannot be used."""
        ...

    def index_of(self, folder: Path) -> Path:
        """Return the path of a folder's stat index."""
        ...

    def drop_index(self, index: Path) -> None:
        """Remove a stat index; the next scan reads the files instead."""
        ...

    def check_restorable(
        self, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]], checked: set[bytes]
    ) -> None:
        """Raise DamagedData unless all contents of a tree are stored and whole; those in `checked` are known to be."""
        ...
