"""Database: connections, transactions and errors of SQLite and Postgres, so that everything above is the same.

SQLAlchemy's engine owns the pool, the dialect and the migrations. Statements are written by hand and go to the
driver directly: on the path of every step its statement layer alone costs more than the insert (see docs/adr).
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
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
_FRESH_S = 10
"""How long a connection to Postgres may lie idle before it is asked whether it still works.

When the server goes, it says so at once; what lies between may drop an idle connection without a word."""
_USED_AT = "wtb_used_at"
_PREPARE_AFTER = 5
"""How often a connection to Postgres executes a statement before the server keeps its plan."""


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
            transaction = self.transaction(self.connect())
        except Exception as error:
            raise self.translated(error) from error
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

    def transaction(self, connection: sa.PoolProxiedConnection) -> Transaction:
        """Return a transaction that is yet to begin."""
        return Transaction(self, connection)

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

    def was_sent(self, error: Exception) -> bool:
        """Whether an error is the database's answer, after which a transaction can only be rolled back."""
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

    __slots__ = ("_driver", "_failed", "_open", "connection", "database", "turn")

    def __init__(self, database: Database, connection: sa.PoolProxiedConnection) -> None:
        self.database = database
        self.connection = connection
        self._driver: Any = connection.driver_connection
        self._open = True
        self._failed = False
        self.turn: threading.Lock | None = None
        """What this writer holds, and gives back in the end, so that others of the process wait in line for it."""

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Execute one change whose rows nobody counts; that it failed may be said only by what comes after it."""
        self._check_open()
        try:
            self._send(self.database.text(statement), parameters)
        except Exception as error:
            raise self._failure(error) from error

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Execute one change and return the number of rows that it met."""
        return self._changed(statement, parameters).rowcount

    def _changed(self, statement: str, parameters: Sequence[Any]) -> Cursor:
        self._check_open()
        try:
            return self._execute(self.database.text(statement), parameters)
        except Exception as error:
            raise self._failure(error) from error

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Execute one query and return all its rows: fetching can fail as well as executing."""
        self._check_open()
        try:
            return self._fetch(self.database.text(statement), parameters)
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
        cursor: Any = self._changed(statement, parameters)  # here RETURNING takes three times as long as the insert
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
        self._failed = not isinstance(ours, InvalidInput) or self.database.was_sent(error)
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
            met += self.change(statement.replace("??", marks), (*before, *batch))
        return met

    def lock(self, name: str) -> None:
        """Serialise with every other transaction that locks this name."""
        self.database.lock(self, name)

    def commit(self) -> None:
        """Keep everything."""
        self._check_open()
        try:
            self._keep()
        except Exception as error:
            raise self._failure(error) from error

    def _send(self, statement: str, parameters: Sequence[Any]) -> None:
        self._driver.execute(statement, parameters)

    def _execute(self, statement: str, parameters: Sequence[Any]) -> Cursor:
        cursor: Cursor = self._driver.execute(statement, parameters)
        return cursor

    def _fetch(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        return self.database.fetch(self._driver, statement, parameters)

    def _keep(self) -> None:
        self._driver.commit()

    def _undo(self) -> None:
        self._driver.rollback()

    def close(self) -> None:
        """Roll back what was not committed, and give the connection back."""
        if not self._open:
            return
        self._open = False
        try:
            self._undo()
        except Exception:  # noqa: BLE001  whatever it was, the connection's state is unknown: never use it again
            self.connection.invalidate()
            self.connection.close()
            return
        finally:
            if self.turn is not None:
                self.turn.release()
        self.database.give_back(self.connection)


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


class PipelinedTransaction(Transaction):
    """Sends what nobody asks about without waiting for the server; whatever is asked next waits for all of it.

    A change that fails unasked fails what is asked next, the commit at the latest, which then keeps nothing.
    """

    __slots__ = ("_pipeline",)

    def __init__(self, database: Database, connection: sa.PoolProxiedConnection) -> None:
        super().__init__(database, connection)
        self._pipeline: ExitStack | None = None
        """Open while answers are to come, never while the transaction ends: as it closes one, psycopg asks the server
        to flush, for which PgBouncer would take a server that nobody gives back."""

    def _send(self, statement: str, parameters: Sequence[Any]) -> None:
        if self._pipeline is None:
            self._pipeline = ExitStack()
            self._pipeline.enter_context(self._driver.pipeline())
        self._driver.execute(statement, parameters)

    def _execute(self, statement: str, parameters: Sequence[Any]) -> Any:
        cursor = self._driver.execute(statement, parameters)
        self._hear()
        return cursor

    def _fetch(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        rows: list[Any] = self._execute(statement, parameters).fetchall()
        return rows

    def _hear(self) -> None:
        """Wait for the answers to all that was sent."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()

    def _keep(self) -> None:
        self._hear()
        super()._keep()

    def _undo(self) -> None:
        self._hear()
        if self._driver.info.transaction_status:  # psycopg's rollback() would forget all prepared statements
            self._driver.execute("ROLLBACK")


def _prepare_where_it_lasts(connection: Any, record: object) -> None:
    """Let psycopg prepare statements on the server, unless it is a different one with every transaction.

    A pooler such as PgBouncer tells its clients a process id that is not the server's.
    """
    connection.autocommit = True
    (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.autocommit = False
    if pid == connection.info.backend_pid:
        connection.prepare_threshold = _PREPARE_AFTER


class PostgresDatabase(Database):
    """Postgres through psycopg 3; behind PgBouncer nothing on a connection outlives a transaction."""

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
        sa.event.listen(engine, "connect", _prepare_where_it_lasts)
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
        connection.info[_USED_AT] = time.monotonic()
        super().give_back(connection)

    def transaction(self, connection: sa.PoolProxiedConnection) -> Transaction:
        return PipelinedTransaction(self, connection)

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

    def was_sent(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) is not None

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        try:  # a reader has one view for all its statements
            transaction.run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if readonly else "BEGIN")
            if time.monotonic() - transaction.connection.info.get(_USED_AT, math.inf) > _FRESH_S:
                transaction.rows("SELECT 1")
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
