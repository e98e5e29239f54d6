"""The files of a node's folder: finds what is there, copies contents by hash, and puts entries in their place."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from wtb.domain.errors import UnsafePath
from wtb.infrastructure.files.index import Signature, is_racy, signature_of

Entry = tuple[str, ...]
"""`("folder",)`, `("link", target)` or `("file", hash, mode)`."""

_COPY_BYTES = 1024 * 1024


class FolderScanner:
    """Returns the entries of a folder. It remembers the hash of a file for as long as the file cannot have changed."""

    def __init__(self) -> None:
        self._hashes: dict[str, tuple[Signature, str]] = {}

    def forget(self) -> None:
        """Forget the hashes: another folder comes."""
        self._hashes.clear()

    def entries(self, folder: Path) -> dict[str, Entry]:
        """Return what is in the folder, by path."""
        found: dict[str, Entry] = {}
        for path in _walked(folder):
            entry = self._entry(folder, path)
            if entry is not None:
                found[path] = entry
        return found

    def _entry(self, folder: Path, path: str) -> Entry | None:
        place = folder / path
        try:
            facts = place.lstat()
            if stat.S_ISLNK(facts.st_mode):
                return "link", str(place.readlink())
            if stat.S_ISDIR(facts.st_mode):
                return ("folder",)
            if not stat.S_ISREG(facts.st_mode):
                return None
            return "file", self._hash(place, path, signature_of(facts)), str(stat.S_IMODE(facts.st_mode))
        except FileNotFoundError:  # the node has just removed it
            return None

    def _hash(self, place: Path, path: str, signature: Signature) -> str:
        known = self._hashes.get(path)
        if known is not None and known[0] == signature:
            return known[1]
        began_ns = time.time_ns()
        with place.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if is_racy(signature, began_ns):  # it may change again and look the same
            self._hashes.pop(path, None)
        else:
            self._hashes[path] = signature, digest
        return digest


def _walked(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        within = Path(place).relative_to(folder)
        for name in (*folders, *files):
            yield (within / name).as_posix()


def copied(folder: Path, path: str, copies: Path) -> str:
    """Copy a file of the folder into `copies`, under the hash of what was copied; return the hash.

    Raise OSError or UnsafePath if the file is gone or a link has come in its way.
    """
    copies.mkdir(parents=True, exist_ok=True)
    part, digest = copies / "part", hashlib.sha256()
    with opened(folder, path) as source, part.open("wb") as copy:
        while piece := source.read(_COPY_BYTES):
            digest.update(piece)
            copy.write(piece)
    part.rename(copies / digest.hexdigest())
    return digest.hexdigest()


def put(folder: Path, path: str, entry: Entry, contents: Path) -> None:
    """Put an entry in its place. The content of a file comes from the folder `contents`."""
    place = inside(folder, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry[0] == "folder":
        if not place.is_dir() or place.is_symlink():
            _clear(place)
            place.mkdir()
        return
    _clear(place)
    if entry[0] == "link":
        place.symlink_to(entry[1])
    else:
        shutil.copyfile(contents / checked_hash(entry[1]), place)
        place.chmod(int(entry[2]) & 0o777)


def remove(folder: Path, path: str) -> None:
    """Remove an entry, if it is there. A folder with something new in it stays."""
    try:
        place = inside(folder, path)
    except UnsafePath:
        return  # a link or a file has taken the place of its folder, so the entry is gone
    if place.is_dir() and not place.is_symlink():
        with suppress(OSError):
            place.rmdir()
    else:
        place.unlink(missing_ok=True)


def inside(folder: Path, path: str) -> Path:
    """Return the place of a path; raise UnsafePath if it leads out of the folder, by its name or through a link."""
    above = folders_above(folder, path)
    if any(place.is_symlink() or (place.exists() and not place.is_dir()) for place in above):
        raise UnsafePath(path, "it leads through a link or a file")
    return folder / path


def folders_above(folder: Path, path: str) -> list[Path]:
    """Return the places of the folders above a path; raise UnsafePath if its name leads out of the folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise UnsafePath(path, "it leads out of the workspace")
    return [folder.joinpath(*parts[:depth]) for depth in range(1, len(parts))]


def is_link_or_file(place: Path) -> bool:
    """Whether something is here that can be removed to make room for a folder."""
    return place.is_symlink() or place.is_file()


def opened(folder: Path, path: str) -> BinaryIO:
    """Open a file of the folder; raise UnsafePath or OSError if a link has come in its way."""
    return os.fdopen(os.open(inside(folder, path), os.O_RDONLY | os.O_NOFOLLOW), "rb")


def checked_hash(digest: str) -> str:
    """Return a hash that another machine has named; raise UnsafePath if it is none, because it names a file here."""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise UnsafePath(digest, "it is not a hash")
    return digest


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
