"""SqlObjectStore: objects whose rows are in the database; their bytes lie there too, or in S3 and the like.

The rows decide. An object exists if it has a row, and a sweep removes the row with one statement that also checks when
the object was last used. A content in S3 gets a new name each time it is written. So a sweep that is slow to delete
the old one cannot hit a new one, although S3 has no transactions.
"""

from __future__ import annotations

import hashlib
import io
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any, BinaryIO

from wtb.domain.errors import Conflict, ObjectNotFound, StorageUnavailable
from wtb.domain.ports import Clock, StoredObject
from wtb.infrastructure.files.remote_contents import RemoteContents
from wtb.infrastructure.sql.database import Answer, Database, Transaction
from wtb.infrastructure.timestamps import to_us

BUFFER_BYTES = 4 << 20
"""Contents are collected up to this size, then written together: a transaction for each small file takes far longer."""
MOST_BYTES = 64 << 20
"""The most bytes in one object. Larger files come here as blocks."""
_CHUNK_BYTES = 1 << 20
_PAGE = 500
_TRIES = 5

_USE = "UPDATE wtb_objects SET touched_at_us = ? WHERE {where}digest IN (??) RETURNING digest, size"
_INSERT = """
INSERT INTO wtb_objects (digest, size, place, touched_at_us) VALUES (?, ?, ?, ?)
ON CONFLICT (digest) DO UPDATE
SET size = excluded.size, place = excluded.place, touched_at_us = excluded.touched_at_us
"""
_INSERT_CONTENT = """
INSERT INTO wtb_object_contents (digest, data) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET data = excluded.data
"""
_FIND = """
SELECT o.place, c.data FROM wtb_objects o
LEFT JOIN wtb_object_contents c ON c.digest = o.digest AND o.place IS NULL WHERE o.digest = ?
"""
_LIST = """
SELECT digest, size FROM wtb_objects WHERE digest > ? AND touched_at_us < ? ORDER BY digest LIMIT ?
"""
_DELETE = "DELETE FROM wtb_objects WHERE digest = ? AND touched_at_us < ? RETURNING place"
_DELETE_CONTENT = "DELETE FROM wtb_object_contents WHERE digest = ?"
_EVER_US = 1 << 62


class SqlObjectStore:
    """Objects in transactions of their own, never in that of a step.

    Each thread collects what it puts and writes it in `sync`, or when it is much. If that fails, what was collected is
    dropped: the caller gets the error before anything can refer to it.
    """

    def __init__(self, database: Database, clock: Clock, remote: RemoteContents | None = None) -> None:
        self._database = database
        self._clock = clock
        self._remote = remote
        self._thread = threading.local()

    @property
    def _collected(self) -> dict[bytes, bytes]:
        """What this thread has put and not written yet."""
        found: dict[bytes, bytes] = self._thread.__dict__.setdefault("collected", {})
        return found

    @property
    def _where(self) -> str:
        return self._database.where if self._remote is None else self._remote.url

    def put(self, stream: BinaryIO) -> StoredObject:
        content = _whole(stream)
        digest = hashlib.sha256(content).digest()
        self.put_as(digest, content)
        return StoredObject(digest, len(content))

    def put_as(self, digest: bytes, content: bytes) -> None:
        collected = self._collected
        collected[digest] = content
        if sum(map(len, collected.values())) >= BUFFER_BYTES:
            self.sync()

    def sync(self) -> None:
        contents = dict(sorted(self._collected.items()))  # in one order, so that no two writers wait for each other
        self._collected.clear()
        if contents:
            self._write(contents)

    def _write(self, contents: Mapping[bytes, bytes]) -> None:
        if self._remote is None:
            self._retried(self._write_rows, contents)
            return
        held = self._retried(self._use, contents)
        missing = {digest: content for digest, content in contents.items() if held.get(digest) != len(content)}
        if missing:
            places = {digest: _new_place(digest) for digest in missing}
            self._remote.write({places[digest]: content for digest, content in missing.items()})
            self._retried(self._note_places, missing, places)

    def _retried(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        """Do some work in a transaction; begin again if another one got in the way."""
        for left in reversed(range(_TRIES)):
            try:
                with closing(self._database.begin()) as transaction:
                    result = work(transaction, *arguments)
                    transaction.commit()
                    return result
            except Conflict:
                if not left:
                    raise
        raise AssertionError

    def _use(self, transaction: Transaction, contents: Mapping[bytes, bytes]) -> dict[bytes, int]:
        """Mark the objects that exist as used now, and return their sizes."""
        statement = _USE.format(where="place IS NULL AND " if self._remote is None else "")
        return dict(transaction.run_in(statement, contents, self._now_us()))

    def _write_rows(self, transaction: Transaction, contents: Mapping[bytes, bytes]) -> None:
        held = self._use(transaction, contents)
        for digest, content in contents.items():
            if held.get(digest) != len(content):
                transaction.run(_INSERT, (digest, len(content), None, self._now_us()))
                transaction.run(_INSERT_CONTENT, (digest, content))

    def _note_places(
        self, transaction: Transaction, contents: Mapping[bytes, bytes], places: Mapping[bytes, str]
    ) -> None:
        for digest, content in contents.items():
            transaction.run(_INSERT, (digest, len(content), places[digest], self._now_us()))
            transaction.run(_DELETE_CONTENT, (digest,))

    def _now_us(self) -> int:
        return to_us(self._clock.now())

    def open(self, digest: bytes) -> BinaryIO:
        content = self._collected.get(digest)
        return io.BytesIO(self._read(digest) if content is None else content)

    def _read(self, digest: bytes) -> bytes:
        with closing(self._database.begin(readonly=True)) as transaction:
            found = transaction.row(_FIND, (digest,))
        place, data = found or (None, None)
        if place is not None and self._remote is not None:
            data = self._remote.find(place)
        if data is None:
            raise ObjectNotFound(digest.hex(), self._where)
        return bytes(data)

    def list_objects(self, *, unused_since: datetime) -> Iterator[StoredObject]:
        self.sync()
        last = b""
        while True:
            with closing(self._database.begin(readonly=True)) as transaction:
                rows = transaction.rows(_LIST, (last, to_us(unused_since), _PAGE))
            yield from (StoredObject(bytes(digest), size) for digest, size in rows)
            if len(rows) < _PAGE:
                return
            last = rows[-1][0]

    def delete(self, digest: bytes, *, unused_since: datetime | None = None) -> bool:
        self.sync()
        before_us = _EVER_US if unused_since is None else to_us(unused_since)
        found = self._retried(self._delete_row, digest, before_us)
        if found is None:
            return False
        if found[0] is not None and self._remote is not None:
            self._remote.remove(found[0])
        return True

    def _delete_row(self, transaction: Transaction, digest: bytes, before_us: int) -> Any | None:
        found = transaction.row(_DELETE, (digest, before_us))
        if found is not None:
            transaction.run(_DELETE_CONTENT, (digest,))
        return found

    def discard_unfinished(self, *, unused_since: datetime) -> int:
        """Remove what lies in S3 and has no row: its process was killed between the two, or two wrote the same."""
        if self._remote is None:
            return 0
        count = 0
        for places in self._remote.list_places():
            for place in places - self._known_places(places):
                count += self._remote.remove_older(place, unused_since)
        return count

    def _known_places(self, places: set[str]) -> set[str]:
        digests = {_digest_in(place): place for place in places}
        with closing(self._database.begin(readonly=True)) as transaction:
            rows = transaction.run_in("SELECT place FROM wtb_objects WHERE digest IN (??)", digests)
            return {place for (place,) in rows}


def _whole(stream: BinaryIO) -> bytes:
    """Return everything up to the end of a stream."""
    parts, size = [], 0
    while part := stream.read(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise StorageUnavailable(
                f"a file of more than {MOST_BYTES >> 20} MB cannot be stored in one piece, because its size was not "
                "known or it grew meanwhile; try again when nobody writes to it"
            )
    return b"".join(parts)


def _new_place(digest: bytes) -> str:
    """Return a name that nobody has used for this content."""
    name = digest.hex()
    return f"{name[:2]}/{name[2:]}-{secrets.token_hex(8)}"


def _digest_in(place: str) -> bytes:
    """Return the digest of the content at a place."""
    folder, _, name = place.partition("/")
    return bytes.fromhex(folder + name.partition("-")[0])
