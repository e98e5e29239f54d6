"""SqliteDatabase: one file, with one writer at a time and readers beside it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.domain.errors import DamagedData, InvalidInput, StorageError, StorageReplaced, StorageUnavailable
from wtb.infrastructure.sql.database import Database, Transaction
from wtb.infrastructure.sql.write_turn import WriteTurn

if TYPE_CHECKING:
    import sqlalchemy as sa

_SHORT_WAIT_S = 0.1
_MOST_IDLE = 8
"""The most idle connections to SQLite that stay open; each has its own cache."""


class SqliteDatabase(Database):
    """SQLite in WAL mode: one writer at a time, readers beside it, many threads and processes."""

    dialect = "sqlite"

    def __init__(self, path: Path, *, synchronous: str, busy_timeout_s: float) -> None:
        if sqlite3.sqlite_version_info < (3, 35):
            raise StorageError(f"wtb needs SQLite 3.35 or newer; this Python comes with {sqlite3.sqlite_version}")
        super().__init__(f"sqlite:///{path}")
        self.path = path
        self.synchronous = synchronous
        self.busy_timeout_s = busy_timeout_s
        self._file = str(path.absolute())  # a program may change its working folder
        self._log = f"{os.path.realpath(path)}-wal"
        self._has_log = False
        self._opened: tuple[int, int] | None = None
        """The device and inode of the file that this process uses."""
        self._turn = WriteTurn(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120  as for the log
        self._idle: deque[sqlite3.Connection] = deque()

    @cached_property
    def engine(self) -> sa.Engine:
        import sqlalchemy as sa

        return sa.create_engine("sqlite://", creator=self._open, poolclass=sa.NullPool)

    def _open(self) -> sqlite3.Connection:
        if self._opened is not None:
            self.check_in_place()  # SQLite would make a new file
        timeout_s = self.busy_timeout_s
        connection = sqlite3.connect(self._file, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        try:
            self._has_log = _enter_wal(connection, timeout_s)
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            connection.execute("PRAGMA cache_size = -16384")
            if self._opened is None:
                found = self._look_at(self._file)
                self._opened = (found.st_dev, found.st_ino)
        except BaseException:
            connection.close()
            raise
        return connection

    def transaction(self, connection: Any) -> Transaction:
        return _SqliteTransaction(self, connection, connection)

    def check_in_place(self) -> None:
        """Raise StorageReplaced if the open file is no longer the one that others find under its name.

        SQLite continues with a deleted file, and everything that it writes is lost when the process ends.
        """
        found = self._look_at(self._file)
        if self._opened not in (None, (found.st_dev, found.st_ino)):
            raise StorageReplaced(f"{self._file} was replaced by another file {_WHILE_IN_USE}")

    def check_log(self) -> None:
        """Raise StorageReplaced if the log of this process was deleted: its contents would be lost with the process."""
        if self._has_log:
            self._look_at(self._log)

    def _look_at(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)  # noqa: PTH116  every step pays for it, and a Path takes longer
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StorageReplaced(f"{path} was deleted {_WHILE_IN_USE}") from error
        except OSError as error:
            raise StorageUnavailable(f"{path} cannot be read: {error.strerror}") from error

    def connect(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def give_back(self, connection: sqlite3.Connection) -> None:
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def discard(self, connection: sqlite3.Connection) -> None:
        connection.close()

    def close(self) -> None:
        while self._idle and not self._was_forked:
            self._idle.pop().close()
        if not self._was_forked:
            self._turn.close()

    def write_log_back(self) -> bool:
        """Move everything from the log into the database file; False if others are using the log right now."""
        try:
            with closing(sqlite3.connect(self._file, timeout=_SHORT_WAIT_S, isolation_level=None)) as connection:
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise self.translated(error) from error
        return not busy

    def has_table(self, transaction: Transaction, name: str) -> bool:
        return transaction.row("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)) is not None

    def lock(self, transaction: Transaction, name: str) -> None:
        """Take the turn to write: a writer has the whole database to itself."""
        transaction.begin_writing()

    def now(self, transaction: Transaction) -> datetime | None:
        """Return None for this machine's clock, but wait for the turn first: a lease must not lose that time."""
        transaction.begin_writing()
        return None

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        if readonly:
            if self._opened is not None:
                self.check_in_place()  # a writer checks this after its commit
            transaction.run("BEGIN")
            return
        # At its first statement, not now: half of the time of a step goes into encoding and hashing what it stores, and
        # other processes can write meanwhile.
        transaction.take_turn = partial(self._take_turn, transaction)

    def _take_turn(self, transaction: Transaction) -> None:
        if not self.is_retired and self._turn.take():  # whoever comes after the end leaves no folder open
            transaction.turn = self._turn
        transaction.run("BEGIN IMMEDIATE")  # after a turn that did not come, SQLite applies the full timeout

    def fetch(self, driver: Any, statement: str, parameters: Sequence[Any]) -> list[Any]:
        try:
            return super().fetch(driver, statement, parameters)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
        # A damaged byte made a text invalid: read it with escapes, so that the row's hash shows which row is damaged.
        driver.text_factory = _escaped
        try:
            return super().fetch(driver, statement, parameters)
        finally:
            driver.text_factory = str

    def translated(self, error: Exception) -> Exception:
        error = getattr(error, "orig", None) or error  # migrations raise SQLAlchemy's errors
        if isinstance(error, OverflowError | UnicodeEncodeError):
            return InvalidInput(f"{self.path} cannot hold a value: {error}")
        if not isinstance(error, sqlite3.Error):
            return error
        name = getattr(error, "sqlite_errorname", "") or ""
        for prefix, advice in _SQLITE_ADVICE:
            if name.startswith(prefix):
                kind = DamagedData if prefix in _DAMAGED else StorageUnavailable
                return kind(f"{self.path}: {error}; {advice}")
        return StorageError(f"{self.path}: {error}")


class _SqliteTransaction(Transaction):
    """A transaction whose commit succeeds only if the database file is still in place.

    A writer waits for its turn at its first statement.
    """

    __slots__ = ()

    def commit(self) -> None:
        self.take_turn = None  # nothing was written, or the turn is taken
        super().commit()
        assert isinstance(self.database, SqliteDatabase)
        self.database.check_in_place()


_WHILE_IN_USE = (
    "while this process used it. The process has stopped, and what it has written since may be lost. Restore the file "
    "from a backup, and resume the run"
)


def _enter_wal(connection: sqlite3.Connection, timeout_s: float) -> bool:
    """Switch to WAL; wait for processes that do the same to a new file, because SQLite itself does not wait here.

    Return whether it worked: some file systems do not support it.
    """
    end = time.monotonic() + timeout_s
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
            time.sleep(0.005)
        else:
            return bool(mode == ("wal",))


def _escaped(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


_SQLITE_ADVICE = (
    ("SQLITE_FULL", "the disk is full: free some space; everything committed before is intact"),
    ("SQLITE_READONLY", "the file, its -wal or -shm or their folder is read-only: make all writable for this user"),
    ("SQLITE_CANTOPEN", "the folder must exist and be writable for this user"),
    ("SQLITE_BUSY", "another process has kept it locked for too long: try again, or raise busy_timeout_s"),
    ("SQLITE_IOERR", "the disk failed or is full; everything committed before is intact"),
    ("SQLITE_NOTADB", "this is not a wtb database, or it is damaged: restore a backup"),
    ("SQLITE_CORRUPT", "the file is damaged: restore a backup, or save what is left with `sqlite3 FILE .recover`"),
)
_DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
