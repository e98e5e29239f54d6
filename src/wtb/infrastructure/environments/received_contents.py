"""ReceivedContents: the contents of files that have arrived for a message, until they are put in their places."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wtb.domain.errors import EnvironmentFailed
from wtb.infrastructure.environments.folder_files import checked_hash, copied


class ReceivedContents:
    """A folder of contents by hash, from the other side or from files that are here already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arriving: dict[str, Any] = {}
        self._copied: set[str] = set()

    @property
    def were_asked_for(self) -> bool:
        """Whether some of them have come from the other side."""
        return bool(self._arriving)

    def digests(self) -> set[str]:
        """Return the hashes of all contents."""
        return self._copied | self._arriving.keys()

    def add(self, digest: str, piece: bytes) -> None:
        """Add a piece of a content; an empty piece is the beginning."""
        place = self.folder / checked_hash(digest)
        if not piece:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._arriving[digest] = hashlib.sha256()
        with place.open("ab" if piece else "wb") as file:
            file.write(piece)
        self._arriving[digest].update(piece)

    def check(self, wanted: Iterable[str]) -> None:
        """Raise EnvironmentFailed if a content has not arrived whole."""
        for digest in wanted:
            arrived = self._arriving.get(digest)
            if digest not in self._copied and (arrived is None or arrived.hexdigest() != digest):
                raise EnvironmentFailed("the content of a file did not arrive whole; run the node again")

    def copy(self, folder: Path, path: str) -> str:
        """Take a content from a file of the folder; return its hash."""
        digest = copied(folder, path, self.folder)
        self._copied.add(digest)
        return digest

    def clear(self) -> None:
        """Remove all."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._arriving.clear()
        self._copied.clear()
