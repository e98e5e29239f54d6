"""Ledger: all references, in a temporary database beside the storage, so that memory stays bounded."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from wtb.domain.errors import StorageUnavailable

_BATCH = 500

_TABLES = """
CREATE TABLE value (address BLOB, execution_id TEXT, PRIMARY KEY (address, execution_id)) WITHOUT ROWID;
CREATE TABLE entry (commit_id TEXT, path BLOB, digest BLOB, size INTEGER, PRIMARY KEY (commit_id, path)) WITHOUT ROWID;
CREATE TABLE node_run (id TEXT, execution_id TEXT, checkpoint_id TEXT, PRIMARY KEY (id, checkpoint_id)) WITHOUT ROWID;
CREATE TABLE execution (id TEXT PRIMARY KEY, branch_id TEXT, status TEXT, is_thread, is_sealed) WITHOUT ROWID;
CREATE TABLE branch (id TEXT PRIMARY KEY, execution_id TEXT, head_id TEXT, forked_from_id TEXT) WITHOUT ROWID;
CREATE TABLE rollback (branch_id TEXT, target_id TEXT, PRIMARY KEY (branch_id, target_id)) WITHOUT ROWID;
CREATE TABLE completed (execution_id TEXT, checkpoint_id TEXT, PRIMARY KEY (execution_id, checkpoint_id)) WITHOUT ROWID;
CREATE TABLE told (stream TEXT, checkpoint_id TEXT, PRIMARY KEY (stream, checkpoint_id)) WITHOUT ROWID;
CREATE TABLE stream_end (stream TEXT PRIMARY KEY, sequence INTEGER, turn TEXT, is_whole INTEGER) WITHOUT ROWID;
CREATE TABLE needed (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE file_commit (id TEXT PRIMARY KEY, base_id TEXT) WITHOUT ROWID;
CREATE TABLE root (commit_id TEXT, execution_id TEXT, PRIMARY KEY (commit_id, execution_id)) WITHOUT ROWID;
CREATE TABLE living (commit_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE checkpoint (
    id TEXT PRIMARY KEY, execution_id TEXT, parent_id TEXT, parent_hash BLOB, hash BLOB, state_hash BLOB,
    deleted INTEGER, file_commit TEXT, inside INTEGER, branch_id TEXT, is_system INTEGER
) WITHOUT ROWID;
CREATE TABLE keyframe (checkpoint_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE block (digest BLOB, file_digest BLOB, size INTEGER, PRIMARY KEY (digest, file_digest)) WITHOUT ROWID;
CREATE TABLE garbage (address BLOB PRIMARY KEY, size INTEGER) WITHOUT ROWID;
CREATE TABLE kept (digest BLOB, place TEXT, whole INTEGER, size INTEGER, PRIMARY KEY (digest, place)) WITHOUT ROWID;
"""

_INDEXES = (
    "CREATE INDEX checkpoint_parent ON checkpoint (parent_id)",
    "CREATE INDEX checkpoint_execution ON checkpoint (execution_id)",
    "CREATE INDEX file_commit_base ON file_commit (base_id)",
    "CREATE INDEX entry_digest ON entry (digest)",
)

_STARTS = """
INSERT OR IGNORE INTO root
WITH RECURSIVE line (line_id) AS (
    SELECT id FROM checkpoint WHERE inside AND NOT deleted
    UNION
    SELECT parent_id FROM line JOIN checkpoint ON id = line_id WHERE inside AND parent_id IS NOT NULL
)
SELECT file_commit, execution_id FROM line JOIN checkpoint ON id = line_id WHERE NOT inside AND file_commit IS NOT NULL
"""
"""A run that continues from the middle of a node begins with the files of the node's start, which may be deleted."""

_LIVING = """
INSERT INTO living
WITH RECURSIVE line (id) AS (
    SELECT commit_id FROM root UNION SELECT base_id FROM line JOIN file_commit USING (id) WHERE base_id IS NOT NULL
)
SELECT id FROM line
"""

_TOPS = """
SELECT commit_id FROM living JOIN file_commit ON id = commit_id
WHERE base_id IS NULL OR NOT EXISTS (SELECT 1 FROM file_commit AS base WHERE base.id = file_commit.base_id)
"""

_FAMILY = """
WITH RECURSIVE family (id, base_id, depth) AS (
    SELECT ?, NULL, 0
    UNION ALL
    SELECT file_commit.id, file_commit.base_id, depth + 1
    FROM family JOIN file_commit ON file_commit.base_id = family.id JOIN living ON commit_id = file_commit.id
)
SELECT id, base_id, EXISTS (SELECT 1 FROM root WHERE commit_id = id) FROM family ORDER BY depth DESC
"""

_RUNS_OF_COMMIT = """
WITH RECURSIVE above (id) AS (
    SELECT ? UNION SELECT file_commit.id FROM above JOIN file_commit ON base_id = above.id
)
SELECT DISTINCT execution_id FROM above JOIN root ON commit_id = id
"""

_COMMITS_OF_CONTENT = """
SELECT commit_id FROM entry WHERE digest = ? OR digest IN (SELECT file_digest FROM block WHERE block.digest = ?)
"""

_WITH_FORKS = """
WITH RECURSIVE affected (id) AS (
    SELECT value FROM json_each(?)
    UNION
    SELECT child.execution_id FROM affected
    JOIN checkpoint AS parent ON parent.execution_id = affected.id
    JOIN checkpoint AS child ON child.parent_id = parent.id AND child.execution_id <> parent.execution_id
)
SELECT id FROM affected ORDER BY id
"""


class Ledger:
    """Tables that are gone when it is closed; SQLite moves them to a file when they outgrow its cache."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
        self._waiting: dict[str, list[Sequence[Any]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._database.close()

    def add(self, table: str, *rows: Sequence[Any]) -> None:
        """Note rows; a row that is already known is not added again."""
        waiting = self._waiting.setdefault(table, [])
        waiting += rows
        if len(waiting) >= _BATCH:
            self._write(table)

    def _write(self, table: str) -> None:
        rows = self._waiting.pop(table, [])
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            with _errors_reported():
                self._database.execute("BEGIN")
                self._database.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)
                self._database.execute("COMMIT")

    def rows(self, statement: str, *values: Any) -> Iterator[Any]:
        """Yield the rows of a query, a few at a time."""
        for table in list(self._waiting):
            self._write(table)
        with _errors_reported():
            for row in self._database.execute(statement, values):  # noqa: UP028  `yield from` closes it too late
                yield row

    def index(self) -> None:
        """Prepare for queries: find everything that the roots need, and index lines in both directions."""
        for table in list(self._waiting):
            self._write(table)
        with _errors_reported():
            for statement in (*_INDEXES, _STARTS, _LIVING):
                self._database.execute(statement)
        for (top,) in list(self.rows(_TOPS)):
            self._note_needed(top)

    def _note_needed(self, top: str) -> None:
        """Note the contents that living trees need, for all trees that build on one whole tree.

        A commit that stays only because others build on it does not need a content that all of them replace.
        """
        replaced: dict[str, set[bytes]] = {}
        for commit_id, base_id, is_root in list(self.rows(_FAMILY, top)):
            later = replaced.pop(commit_id, set())
            lost = set[bytes]() if is_root else later
            entries = dict(self.rows("SELECT path, digest FROM entry WHERE commit_id = ?", commit_id))
            self.add("needed", *((digest,) for path, digest in entries.items() if digest and path not in lost))
            if base_id is not None:
                mine = lost | entries.keys()
                replaced[base_id] = replaced[base_id] & mine if base_id in replaced else mine

    def large_files(self, above_bytes: int) -> list[bytes]:
        """Return the contents of files above this size in living trees."""
        large = "SELECT DISTINCT digest FROM entry WHERE size > ? AND digest IN needed"
        return [digest for (digest,) in self.rows(large, above_bytes)]

    def note_blocks(self, file_digest: bytes, blocks: Iterable[tuple[bytes, int]]) -> None:
        """Note that a needed file consists of these blocks."""
        for digest, size in blocks:
            self.add("block", (digest, file_digest, size))
            self.add("needed", (digest,))

    def unused(self, digests: Collection[bytes]) -> list[bytes]:
        """Return those of the contents that no value and no checkpoint's tree refers to."""
        found: set[bytes] = set()
        for batch in batches(digests):
            marks = ", ".join("?" * len(batch))
            used = (
                f"SELECT address FROM value WHERE address IN ({marks}) UNION "
                f"SELECT digest FROM needed WHERE digest IN ({marks})"
            )
            found |= {digest for (digest,) in self.rows(used, *batch, *batch)}
        return [digest for digest in digests if digest not in found]

    def dead_commits(self) -> list[str]:
        """Return the file commits that nothing living needs or builds on."""
        return [id for (id,) in self.rows("SELECT id FROM file_commit WHERE id NOT IN living")]

    def note_garbage(self, blobs: Iterable[tuple[bytes, int]]) -> None:
        """Note blobs to remove, so that finding and removing need not be one transaction."""
        for blob in blobs:
            self.add("garbage", blob)

    def garbage(self) -> Iterator[dict[bytes, int]]:
        """Yield the noted blobs with their sizes, a few at a time."""
        for batch in batches(self.rows("SELECT address, size FROM garbage")):
            yield dict(batch)

    def runs_of_value(self, address: bytes) -> tuple[str, ...]:
        """Return the runs that need a blob or an object, directly or as a block of a file."""
        found = [run for (run,) in self.rows("SELECT execution_id FROM value WHERE address = ?", address)]
        for (commit_id,) in list(self.rows(_COMMITS_OF_CONTENT, address, address)):
            found += [run for (run,) in self.rows(_RUNS_OF_COMMIT, commit_id)]
        return self.with_forks(found)

    def runs_of_commit(self, commit_id: str) -> tuple[str, ...]:
        """Return the runs that need a file commit, directly or because another commit builds on it."""
        return self.with_forks([run for (run,) in self.rows(_RUNS_OF_COMMIT, commit_id)])

    def runs_of_checkpoint(self, checkpoint_id: str) -> tuple[str, ...]:
        """Return the run of a checkpoint, and those that were forked from it."""
        rows = self.rows("SELECT execution_id FROM checkpoint WHERE id = ?", checkpoint_id)
        return self.with_forks([run for (run,) in rows])

    def with_forks(self, runs: Iterable[str]) -> tuple[str, ...]:
        """Return these runs and all that were forked from them."""
        return tuple(run for (run,) in self.rows(_WITH_FORKS, json.dumps(sorted(set(runs)))))


@contextmanager
def _errors_reported() -> Iterator[None]:
    """Raise our own error if there is no room for the temporary tables."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageUnavailable(
            f"the temporary tables of a sweep or a check cannot be written: {error}; free some space in "
            f"{tempfile.gettempdir()}, or set SQLITE_TMPDIR to another folder"
        ) from error


def batches(values: Iterable[Any], size: int = _BATCH) -> Iterator[list[Any]]:
    """Yield the values in lists of at most this length."""
    batch: list[Any] = []
    for value in values:
        batch.append(value)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
