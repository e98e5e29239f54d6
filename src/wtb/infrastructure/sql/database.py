"""Database: connections, transactions and errors of SQLite and Postgres, so that everything above is the same.

SQLAlchemy's engine owns the pool, the dialect and the migrations. Statements are written by hand and go to the
driver directly: on the path of every step its statement layer alone costs more than the insert (see docs/adr).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from wtb.domain.errors import Conflict, DamagedData, InvalidInput, StorageError, StorageUnavailable

_BATCH = 500
"""Values in one IN list; SQLite's limit is far above, but plans are made anew for every length."""


_LONGEST_TURN_S = 0.1
"""How long a writer waits for another of its process before it asks SQLite, which knows how long to wait at most."""
_MOST_IDLE = 8
"""Connections to SQLite that are kept open; each has a cache of its own."""


class Cursor(Protocol):
    """What is used of a driver's cursor."""

    rowcount: int


class Database(ABC):
    """One database and its pool of connections. Statements use ? for parameters, whatever the driver."""

    dialect: str
    lock_suffix = ""
    """Appended to a SELECT whose rows must not change before the transaction ends."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    def begin(self, *, readonly: bool = False) -> Transaction:
        """Begin a transaction on a connection of its own."""
        try:
            connection = self.connect()
        except Exception as error:
            raise self.translated(error) from error
        transaction = Transaction(self, connection)
        try:
            self._begin(transaction, readonly=readonly)
        except BaseException:
            transaction.close()
            raise
        return transaction

    def close(self) -> None:
        """Close all connections that are not in use."""
        self.engine.dispose()

    def connect(self) -> sa.PoolProxiedConnection:
        """Take a connection."""
        return self.engine.raw_connection()

    def give_back(self, connection: sa.PoolProxiedConnection) -> None:
        """Take back a connection on which no transaction is open."""
        connection.close()

    def text(self, statement: str) -> str:
        """Return a statement as the driver wants it."""
        return statement

    def fetch(self, driver: Any, statement: str, parameters: Sequence[Any]) -> list[Any]:
        """Execute a query on a driver's connection and return its rows."""
        rows: list[Any] = driver.execute(statement, parameters).fetchall()
        return rows

    def now(self, transaction: Transaction) -> datetime | None:
        """Return the database's own time; None when it is that of this machine."""
        return None

    def is_aborted(self, driver: Any) -> bool:
        """Whether the transaction on a driver's connection can only be rolled back."""
        return False

    @abstractmethod
    def translated(self, error: Exception) -> Exception:
        """Return the error of ours that a driver's error means; others are returned as they are."""

    @abstractmethod
    def lock(self, transaction: Transaction, name: str) -> None:
        """Wait until no other transaction holds this name, and hold it until the end."""

    @abstractmethod
    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        """Send what begins a transaction."""


class Transaction:
    """One transaction; rolled back unless committed."""

    __slots__ = ("_connection", "_driver", "_failed", "_open", "database", "turn")

    def __init__(self, database: Database, connection: sa.PoolProxiedConnection) -> None:
        self.database = database
        self._connection = connection
        self._driver: Any = connection.driver_connection
        self._open = True
        self._failed = False
        self.turn: threading.Lock | None = None
        """What this writer holds, and gives back in the end, so that others of the process wait in line for it."""

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Execute one change."""
        self._check_open()
        try:
            cursor: Cursor = self._driver.execute(self.database.text(statement), parameters)
        except Exception as error:
            raise self._failure(error) from error
        return cursor

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Execute one query and return all its rows: fetching can fail as well as executing."""
        self._check_open()
        try:
            return self.database.fetch(self._driver, self.database.text(statement), parameters)
        except Exception as error:
            raise self._failure(error) from error

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Any | None:
        """Execute one query and return its first row."""
        rows = self.rows(statement, parameters)
        return rows[0] if rows else None

    def insert_numbered(self, statement: str, parameters: Sequence[Any], column: str) -> int | None:
        """Execute an INSERT … ON CONFLICT DO NOTHING and return the number that its row got; None on a conflict."""
        if self.database.dialect != "sqlite":
            found = self.row(f"{statement} RETURNING {column}", parameters)
            return None if found is None else int(found[0])
        cursor: Any = self.run(statement, parameters)  # here RETURNING takes three times as long as the insert
        return cursor.lastrowid if cursor.rowcount else None

    def _check_open(self) -> None:
        if not self._open:  # the connection may be somebody else's by now
            raise InvalidInput("this unit of work has ended; ask the storage for another")
        if self._failed:
            raise StorageError("a statement of this unit of work failed, so nothing of it is kept; begin another")

    def _failure(self, error: Exception) -> Exception:
        """Return the error of ours, and let nothing more happen in this transaction unless the driver was at fault.

        SQLite may have rolled back by itself, and would keep each further statement alone; Postgres would answer
        COMMIT with a rollback that nobody hears of. What the driver refused has not reached them.
        """
        ours = self.database.translated(error)
        self._failed = not isinstance(ours, InvalidInput) or self.database.is_aborted(self._driver)
        return ours

    def run_in(self, statement: str, values: Iterable[Any], *before: Any) -> Iterator[Any]:
        """Execute a SELECT with `IN (??)` for these values, in batches, and yield its rows."""
        remaining = list(values)
        while remaining:
            batch, remaining = remaining[:_BATCH], remaining[_BATCH:]
            marks = ", ".join("?" * len(batch))
            yield from self.rows(statement.replace("??", marks), (*before, *batch))

    def change_in(self, statement: str, values: Iterable[Any], *before: Any) -> int:
        """Execute a change with `IN (??)` in batches and return the number of rows that it met."""
        remaining, met = list(values), 0
        while remaining:
            batch, remaining = remaining[:_BATCH], remaining[_BATCH:]
            marks = ", ".join("?" * len(batch))
            met += self.run(statement.replace("??", marks), (*before, *batch)).rowcount
        return met

    def lock(self, name: str) -> None:
        """Serialise with every other transaction that locks this name."""
        self.database.lock(self, name)

    def commit(self) -> None:
        """Keep everything."""
        self._check_open()
        try:
            self._driver.commit()
        except Exception as error:
            raise self.database.translated(error) from error

    def close(self) -> None:
        """Roll back what was not committed, and give the connection back."""
        if not self._open:
            return
        self._open = False
        try:
            self._driver.rollback()
        except Exception:  # noqa: BLE001  whatever it was, the connection's state is unknown: never use it again
            self._connection.invalidate()
            self._connection.close()
            return
        finally:
            if self.turn is not None:
                self.turn.release()
        self.database.give_back(self._connection)


class SqliteDatabase(Database):
    """SQLite in WAL mode: one writer at a time, readers beside it, many threads and processes."""

    dialect = "sqlite"

    def __init__(self, path: Path, *, synchronous: str, busy_timeout_s: float) -> None:
        if sqlite3.sqlite_version_info < (3, 35):
            raise StorageError(f"wtb needs SQLite 3.35 or newer; this Python comes with {sqlite3.sqlite_version}")
        self.path = path
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            poolclass=QueuePool,
            pool_size=8,
            max_overflow=-1,
            pool_reset_on_return=None,
            connect_args={"check_same_thread": False, "timeout": busy_timeout_s, "isolation_level": None},
        )

        def configure(connection: sqlite3.Connection, record: object) -> None:
            _enter_wal(connection, busy_timeout_s)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA cache_size = -16384")

        sa.event.listen(engine, "connect", configure)
        super().__init__(engine)
        self._writing = threading.Lock()
        self._idle: deque[sa.PoolProxiedConnection] = deque()

    def connect(self) -> sa.PoolProxiedConnection:
        # The engine's pool takes 25 µs to lend a connection and take it back, a third of what a step may cost here.
        try:
            return self._idle.pop()
        except IndexError:
            return super().connect()

    def give_back(self, connection: sa.PoolProxiedConnection) -> None:
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        super().close()

    def lock(self, transaction: Transaction, name: str) -> None:
        """Nothing to do: a writer has the whole database to itself."""

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        if readonly:
            transaction.run("BEGIN")
            return
        # SQLite lets a second writer sleep for a millisecond and more; in one process they can wait for each other.
        if self._writing.acquire(timeout=_LONGEST_TURN_S):
            transaction.turn = self._writing
        transaction.run("BEGIN IMMEDIATE")

    def fetch(self, driver: Any, statement: str, parameters: Sequence[Any]) -> list[Any]:
        try:
            return super().fetch(driver, statement, parameters)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
        # A damaged byte made a text invalid: read it with escapes, so that the hash of its row can tell which.
        driver.text_factory = _escaped
        try:
            return super().fetch(driver, statement, parameters)
        finally:
            driver.text_factory = str

    def translated(self, error: Exception) -> Exception:
        if isinstance(error, sa.exc.DBAPIError) and isinstance(error.orig, Exception):
            error = error.orig
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


def _enter_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to WAL, waiting for others who do so to a new file at the same moment: here SQLite itself does not."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
            time.sleep(0.005)
        else:
            return


def _escaped(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


_SQLITE_ADVICE = (
    ("SQLITE_FULL", "the disk is full: free some space; everything committed before is intact"),
    ("SQLITE_READONLY", "the file, its -wal or -shm or their folder is read-only: make all writable for this user"),
    ("SQLITE_CANTOPEN", "the folder must exist and be writable for this user"),
    ("SQLITE_BUSY", "another process kept it locked for too long: try again, or raise busy_timeout_s"),
    ("SQLITE_IOERR", "the disk failed or is full; everything committed before is intact"),
    ("SQLITE_NOTADB", "this is not a wtb database, or it is damaged: restore a backup"),
    ("SQLITE_CORRUPT", "the file is damaged: restore a backup, or save what is left with `sqlite3 FILE .recover`"),
)
_DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT")


class _ServerGone(StorageUnavailable):
    """A connection that was idle is dead."""


class PostgresDatabase(Database):
    """Postgres through psycopg 3; holds nothing on a connection that outlives a transaction (PgBouncer)."""

    dialect = "postgresql"
    lock_suffix = " FOR SHARE"

    def __init__(self, url: str, *, pool_size: int) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise InvalidInput("Postgres needs psycopg: pip install 'workflow-test-bench[postgres]'") from error
        self._errors = psycopg.errors
        self._advice = (
            (sa.exc.TimeoutError, "all connections are in use: raise pool_size, or end units of work sooner"),
            (psycopg.errors.DiskFull, "the disk of the server is full; everything committed before is intact"),
            (psycopg.errors.OperationalError, "is the server running and reachable?"),
        )
        self._where = make_url(url).render_as_string(hide_password=True)
        self._texts: dict[str, str] = {}
        engine = sa.create_engine(
            make_url(url).set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_reset_on_return=None,
            connect_args={"prepare_threshold": None},
        )
        super().__init__(engine)

    def begin(self, *, readonly: bool = False) -> Transaction:
        """Begin a transaction, on another connection when the server was restarted since this one was last used."""
        try:
            return super().begin(readonly=readonly)
        except _ServerGone:
            self.engine.dispose()
            return super().begin(readonly=readonly)

    def connect(self) -> sa.PoolProxiedConnection:
        connection = super().connect()
        driver: Any = connection.driver_connection
        driver.autocommit = True  # BEGIN is sent by us: with what else it says, and once
        return connection

    def give_back(self, connection: sa.PoolProxiedConnection) -> None:
        driver: Any = connection.driver_connection
        driver.autocommit = False
        super().give_back(connection)

    def text(self, statement: str) -> str:
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = statement.replace("?", "%s")
        return text

    def now(self, transaction: Transaction) -> datetime | None:
        found: datetime = transaction.rows("SELECT clock_timestamp()")[0][0]
        return found.astimezone(UTC)

    def lock(self, transaction: Transaction, name: str) -> None:
        transaction.run("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (name,))

    def is_aborted(self, driver: Any) -> bool:
        return bool(driver.info.transaction_status.name == "INERROR")

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        try:  # a reader has one view for all its statements
            transaction.run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if readonly else "BEGIN")
        except StorageUnavailable as error:
            raise _ServerGone(str(error)) from error.__cause__

    def translated(self, error: Exception) -> Exception:
        if isinstance(error, sa.exc.DBAPIError) and isinstance(error.orig, Exception):
            error = error.orig
        if isinstance(error, self._errors.DataError | UnicodeEncodeError):
            return InvalidInput(f"{self._where} cannot hold a value: {error}")
        if isinstance(error, self._errors.SerializationFailure | self._errors.DeadlockDetected):
            return Conflict(f"another transaction was in the way: {error}; try again")
        for kind, advice in self._advice:
            if isinstance(error, kind):
                reason = str(error).partition("\n")[0]  # libpq goes on with advice of its own
                return StorageUnavailable(f"{self._where}: {reason}; {advice}")
        if isinstance(error, self._errors.Error):
            return StorageError(f"{self._where}: {error}")
        return error
