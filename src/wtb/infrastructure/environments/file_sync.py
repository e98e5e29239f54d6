"""FileSync: keeps the folder of a node the same on both sides of a link; contents travel by hash, and only if needed.

A message that the other side may act on carries the paths that changed since both sides were last the same. The sender
keeps copies of the changed files, so it can give their contents even if the files change again. The receiver asks for
the contents that it lacks, and passes the message on once it has them. Later messages wait behind it, so that no older
change is made after a newer one.
"""

from __future__ import annotations

import shutil
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from wtb.domain.errors import UnsafePath
from wtb.infrastructure.environments.folder_files import (
    Entry,
    FolderScanner,
    checked_hash,
    copied,
    folders_above,
    is_link_or_file,
    put,
    remove,
)
from wtb.infrastructure.environments.received_contents import ReceivedContents

PIECE_BYTES = 1024 * 1024
"""How much of a file travels in one message."""

_QUIET = frozenset({"emit", "log", "usage"})
"""Requests that do not look at files."""

Message = Mapping[str, Any]
Changes = Mapping[str, Entry | None]
"""Entries by path; None for a path that is gone."""


class FileSync:
    """One side of a link. The caller holds a lock around each call.

    `send` passes messages on. It may be given a generator, which reads a file while its pieces are sent. If both sides
    change a path at the same time, the change of the side that `keeps_own` stays.
    """

    def __init__(self, send: Callable[[Iterable[Message]], object], scratch: Path, *, keeps_own: bool) -> None:
        self._send = send
        self._scratch = scratch
        self._keeps_own = keeps_own
        self._scanner = FolderScanner()
        self._contents = ReceivedContents(scratch / "received")
        self._known: dict[str, Entry] = {}
        self._sent = 0
        """The number of the last message with files. It goes on from node to node, so a late request matches none."""
        self._applied = 0
        """The number of the other side's last message with files whose changes are made here."""
        self._unseen: dict[int, Changes] = {}
        """The changes of sent messages that the other side may not have seen yet, by number."""
        self._with_copies: set[int] = set()
        """The numbers of sent messages whose contents the other side has not asked for yet."""
        self._waiting: deque[Message] = deque()
        self._asked: int | None = None
        """The number of the message at the head of those that wait, if its contents are on their way."""
        self.folder: Path | None = None

    def begin(self) -> None:
        """Forget the folder of the last node. Files that are just being sent remove themselves."""
        for number in self._with_copies:
            shutil.rmtree(self._copies(number), ignore_errors=True)
        self._with_copies.clear()
        self.folder = None
        self._known = {}
        self._unseen.clear()
        self._waiting.clear()
        self._asked = None
        self._scanner.forget()
        self._contents.clear()

    # Messages to the other side

    def outgoing(self, message: Message) -> Message:
        """Return a message with what has changed in the folder."""
        if self.folder is None or message.get("what") in _QUIET:
            return message
        now = self._scanner.entries(self.folder)
        changed = {path: entry for path, entry in now.items() if self._known.get(path) != entry}
        gone = [path for path in self._known if path not in now]
        if not changed and not gone:
            return message
        self._sent += 1
        changes: dict[str, Entry | None] = {path: self._kept(self.folder, path, changed[path]) for path in changed}
        changes |= dict.fromkeys(gone)
        self._known = now | {path: entry for path, entry in changes.items() if entry is not None}
        for path in [path for path, entry in changes.items() if entry is None]:
            self._known.pop(path, None)
        self._unseen[self._sent] = changes
        self._with_copies.add(self._sent)
        return {**message, "files": changes, "number": self._sent, "seen": self._applied}

    def _kept(self, folder: Path, path: str, entry: Entry) -> Entry | None:
        """Copy a changed file; return its entry with the hash of the copy, or None if it is gone by now."""
        if entry[0] != "file":
            return entry
        try:
            return "file", copied(folder, path, self._copies(self._sent)), entry[2]
        except (FileNotFoundError, NotADirectoryError, UnsafePath):
            return None

    def _copies(self, number: int) -> Path:
        return self._scratch / f"sent-{number}"

    def _give(self, digests: Iterable[str], number: int) -> None:
        if number not in self._with_copies:
            return  # a request for files of the last node
        self._with_copies.remove(number)
        if digests:
            self._send(_pieces(self._copies(number), digests, number))
        else:
            shutil.rmtree(self._copies(number), ignore_errors=True)

    # Messages from the other side

    def incoming(self, message: Message, folder: Callable[[], Path]) -> list[Message]:
        """Take a message; return those whose files are here now, in the order in which they were sent.

        `folder` returns where the files belong, when it is needed.
        """
        if "need" in message:
            self._give(message["need"], message["number"])
        elif "blob" in message:
            self._contents.add(message["blob"], b64decode(message["data"]))
        elif "given" in message:
            if message["given"] == self._asked:
                self._contents.check(_wanted(self._waiting[0]["files"]))
                self._asked = None
        else:
            self._waiting.append(message)
        return list(self._ready(folder))

    def _ready(self, folder: Callable[[], Path]) -> Iterator[Message]:
        while self._waiting and self._asked is None:
            message = self._waiting[0]
            if "files" in message:
                if not self._has_contents(message, folder()):
                    return
                message = self._made(message, folder())
            self._waiting.popleft()
            yield message

    def _has_contents(self, message: Message, folder: Path) -> bool:
        """Whether the contents of all changed files are here; ask for those that are not."""
        wanted = _wanted(message["files"])
        missing = wanted - self._contents.digests()
        for path, entry in self._known.items():
            if entry[0] == "file" and entry[1] in missing:  # a copy or a renamed file
                with suppress(OSError, UnsafePath):
                    missing.discard(self._contents.copy(folder, path))
        if missing:
            self._asked = message["number"]
        if missing or (wanted and not self._contents.were_asked_for):
            self._send([{"need": sorted(missing), "number": message["number"]}])
        return not missing

    def _made(self, message: Message, folder: Path) -> Message:
        """Make the changes of a message, and return the message without them."""
        own = self._own_changes_since(message["seen"])
        changes = {path: entry for path, entry in message["files"].items() if not own.prevent(path)}
        for path in sorted((path for path, entry in changes.items() if entry is None), reverse=True):
            remove(folder, path)
            self._known.pop(path, None)
        for path in sorted(path for path, entry in changes.items() if entry is not None):
            entry = self._known[path] = tuple(changes[path])
            if not self._has_way(folder, path):
                continue  # the next message says that it is gone
            put(folder, path, entry, self._contents.folder)
            if entry[0] != "folder":
                for below in [each for each in self._known if each.startswith(f"{path}/")]:
                    del self._known[below]
        self._applied = message["number"]
        self._contents.clear()
        return {key: value for key, value in message.items() if key not in ("files", "number", "seen")}

    def _has_way(self, folder: Path, path: str) -> bool:
        """Whether a path leads through folders only. A link or a file in its way stays if own changes stay."""
        obstacles = [place for place in folders_above(folder, path) if is_link_or_file(place)]
        if self._keeps_own:
            return not obstacles
        for place in obstacles:
            place.unlink(missing_ok=True)
        return True

    def _own_changes_since(self, seen: int) -> _OwnChanges:
        """Return what this side has changed without the other side's knowledge, if its changes stay."""
        for number in [number for number in self._unseen if number <= seen]:
            del self._unseen[number]
        return _OwnChanges(self._unseen.values() if self._keeps_own else ())


class _OwnChanges:
    """Changes that will also be made on the other side, over its own."""

    def __init__(self, messages: Iterable[Changes]) -> None:
        self._paths: set[str] = set()
        """What is or was changed, and the folders above it."""
        self._not_folders: set[str] = set()
        """What became a file or a link, so that the other side loses everything below."""
        for path, entry in ((path, entry) for changes in messages for path, entry in changes.items()):
            self._paths.add(path)
            if entry is not None:
                self._paths |= _folders_of(path)
                self._not_folders |= set() if entry[0] == "folder" else {path}

    def prevent(self, path: str) -> bool:
        """Whether they prevent a change of the other side to a path."""
        return path in self._paths or not self._not_folders.isdisjoint(_folders_of(path))


def _wanted(changes: Changes) -> set[str]:
    return {checked_hash(entry[1]) for entry in changes.values() if entry is not None and entry[0] == "file"}


def _folders_of(path: str) -> set[str]:
    return {above.as_posix() for above in PurePosixPath(path).parents}


def _pieces(copies: Path, digests: Iterable[str], number: int) -> Iterator[Message]:
    """Yield the contents that the other side needs, and remove the copies. After the end of the link they are gone."""
    for digest in digests:
        with suppress(FileNotFoundError), (copies / checked_hash(digest)).open("rb") as file:
            yield {"blob": digest, "data": ""}
            while piece := file.read(PIECE_BYTES):
                yield {"blob": digest, "data": b64encode(piece).decode()}
    shutil.rmtree(copies, ignore_errors=True)
    yield {"given": number}
