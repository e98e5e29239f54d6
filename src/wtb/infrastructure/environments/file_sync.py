"""FileSync: keeps the folder of a node the same on both sides of a link; contents travel by hash, and only if needed.

A message that the other side may act on carries the paths that changed since both sides were last the same. The other
side asks for the contents that it lacks, and passes the message on once it has them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from wtb.domain.errors import UnsafePath

_CHUNK = 1024 * 1024
_QUIET = frozenset({"emit", "log", "usage"})
"""Requests that do not look at files."""

Entry = tuple[str, ...]
"""`("folder",)`, `("link", target)` or `("file", hash, mode)`."""
Message = Mapping[str, Any]


class FileSync:
    """One side of a link. `send` passes a message to the other side."""

    def __init__(self, send: Callable[[Message], object], scratch: Path) -> None:
        self._send = send
        self._scratch = scratch
        self._known: dict[str, Entry] = {}
        self._hashes: dict[tuple[int, ...], str] = {}
        self._held: dict[int, Message] = {}
        self._last = 0
        self.folder: Path | None = None

    def begin(self) -> None:
        """Forget the folder of the last node."""
        self.folder = None
        self._known = {}
        self._held.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def outgoing(self, message: Message) -> Message:
        """Return a message with what has changed in the folder."""
        if self.folder is None or message.get("what") in _QUIET:
            return message
        now = self._scanned(self.folder)
        changes: dict[str, Entry | None] = {
            path: entry for path, entry in now.items() if self._known.get(path) != entry
        }
        changes |= dict.fromkeys(path for path in self._known if path not in now)
        self._known = now
        return {**message, "files": changes} if changes else message

    def incoming(self, message: Message, folder: Callable[[], Path]) -> Message | None:
        """Take a message; return it when its files are here, or None if it was about files only, or must wait.

        `folder` returns where the files belong, when it is needed.
        """
        if "need" in message:
            self._give(message["need"], message["number"])
        elif "blob" in message:
            self._keep(message["blob"], b64decode(message["data"]))
        elif "given" in message:
            return self._applied(self._held.pop(message["given"]), folder())
        elif "files" in message:
            return self._applied_or_held(message, folder())
        else:
            return message
        return None

    def _applied_or_held(self, message: Message, folder: Path) -> Message | None:
        here = {entry[1]: path for path, entry in self._known.items() if entry[0] == "file"}
        wanted = {entry[1] for entry in message["files"].values() if entry is not None and entry[0] == "file"}
        for digest in wanted & here.keys():  # a copy or a renamed file: its content is here already
            self._keep_copy(digest, folder, here[digest])
        missing = sorted(digest for digest in wanted if not self._blob(digest).exists())
        if not missing:
            return self._applied(message, folder)
        self._last += 1
        self._held[self._last] = message
        self._send({"need": missing, "number": self._last})
        return None

    def _applied(self, message: Message, folder: Path) -> Message:
        changes: Mapping[str, Any] = message["files"]
        for path in sorted((path for path, entry in changes.items() if entry is None), reverse=True):
            _remove(_inside(folder, path))
            self._known.pop(path, None)
        for path in sorted(path for path, entry in changes.items() if entry is not None):
            self._known[path] = self._put(_inside(folder, path), tuple(changes[path]))
            if changes[path][0] != "folder":
                for below in [each for each in self._known if each.startswith(f"{path}/")]:
                    del self._known[below]
        if not self._held:
            shutil.rmtree(self._scratch, ignore_errors=True)
        return {key: value for key, value in message.items() if key != "files"}

    def _put(self, path: Path, entry: Entry) -> Entry:
        """Put an entry in its place; return it as it is, because the other side may have changed it meanwhile."""
        if entry[0] == "folder":
            if not path.is_dir() or path.is_symlink():
                _remove(path)
                path.mkdir()
            return entry
        _remove(path)
        if entry[0] == "link":
            path.symlink_to(entry[1])
            return entry
        shutil.copyfile(self._blob(entry[1]), path)
        path.chmod(int(entry[2]) & 0o777)
        return "file", self._hash(path, path.lstat()), entry[2]

    def _scanned(self, folder: Path) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for place, folders, files in os.walk(folder):
            for name in (*folders, *files):
                path = Path(place, name)
                entry = self._entry(path)
                if entry is not None:
                    found[path.relative_to(folder).as_posix()] = entry
        return found

    def _entry(self, path: Path) -> Entry | None:
        try:
            facts = path.lstat()
            if stat.S_ISLNK(facts.st_mode):
                return "link", str(path.readlink())
            if stat.S_ISDIR(facts.st_mode):
                return ("folder",)
            if not stat.S_ISREG(facts.st_mode):
                return None
            return "file", self._hash(path, facts), str(stat.S_IMODE(facts.st_mode))
        except FileNotFoundError:  # the node has just removed it
            return None

    def _hash(self, path: Path, facts: os.stat_result) -> str:
        key = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if key not in self._hashes:
            with path.open("rb") as file:
                self._hashes[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._hashes[key]

    def _give(self, digests: Iterable[str], number: int) -> None:
        """Send contents in pieces, so that a large file does not have to fit into a message."""
        paths = {entry[1]: path for path, entry in self._known.items() if entry[0] == "file"}
        assert self.folder is not None
        for digest in digests:
            if digest in paths:
                with _opened(self.folder, paths[digest]) as file:
                    self._send({"blob": digest, "data": ""})
                    while piece := file.read(_CHUNK):
                        self._send({"blob": digest, "data": b64encode(piece).decode()})
        self._send({"given": number})

    def _blob(self, digest: str) -> Path:
        if not (len(digest) == 64 and digest.isalnum()):
            raise UnsafePath(digest, "it is not a hash")
        return self._scratch / digest

    def _keep(self, digest: str, piece: bytes) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        with self._blob(digest).open("ab" if piece else "wb") as file:  # an empty piece is the beginning
            file.write(piece)

    def _keep_copy(self, digest: str, folder: Path, path: str) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        with _opened(folder, path) as source, self._blob(digest).open("wb") as copy:
            shutil.copyfileobj(source, copy)


def _inside(folder: Path, path: str) -> Path:
    """Return the place of a path; raise UnsafePath if it leads out of the folder, by its name or through a link."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise UnsafePath(path, "it leads out of the workspace")
    place = folder
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink() or not place.is_dir():
            raise UnsafePath(path, "it leads through a link or a file")
    return place / parts[-1]


def _opened(folder: Path, path: str) -> BinaryIO:
    """Open a file of the folder; raise UnsafePath or OSError if a link has come in its way."""
    return os.fdopen(os.open(_inside(folder, path), os.O_RDONLY | os.O_NOFOLLOW), "rb")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
