"""Database: connections, transactions and errors of SQLite and Postgres, so that everything above is the same.

SQLAlchemy's engine owns the pool, the dialect and the migrations. Statements are written by hand and go to the
driver directly: on the path of every step its statement layer alone costs more than the insert (see docs/adr).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from wtb.domain.errors import Conflict, InvalidInput, StorageError, StorageUnavailable

_BATCH = 500
"""Values in one IN list; SQLite's limit is far above, but plans are made anew for every length."""


class Cursor(Protocol):
    """What is used of a driver's cursor."""

    rowcount: int

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Database:
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

    def translated(self, error: Exception) -> Exception:
        """Return the error of ours that a driver's error means; others are returned as they are."""
        raise NotImplementedError

    def lock(self, transaction: Transaction, name: str) -> None:
        """Wait until no other transaction holds this name, and hold it until the end."""

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        raise NotImplementedError


class Transaction:
    """One transaction; rolled back unless committed."""

    __slots__ = ("_connection", "_driver", "_open", "database")

    def __init__(self, database: Database, connection: sa.PoolProxiedConnection) -> None:
        self.database = database
        self._connection = connection
        self._driver: Any = connection.driver_connection
        self._open = True

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Execute one statement."""
        if not self._open:  # the connection may be somebody else's by now
            raise InvalidInput("this unit of work has ended; ask the storage for another")
        try:
            cursor: Cursor = self._driver.execute(self.database.text(statement), parameters)
        except Exception as error:
            raise self.database.translated(error) from error
        return cursor

    def run_in(self, statement: str, values: Iterable[Any], *before: Any) -> Iterator[Any]:
        """Execute a SELECT with `IN (??)` for these values, in batches, and yield its rows."""
        remaining = list(values)
        while remaining:
            batch, remaining = remaining[:_BATCH], remaining[_BATCH:]
            marks = ", ".join("?" * len(batch))
            yield from self.run(statement.replace("??", marks), (*before, *batch)).fetchall()

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
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA cache_size = -16384")

        sa.event.listen(engine, "connect", configure)
        super().__init__(engine)
        self._idle: deque[sa.PoolProxiedConnection] = deque()

    def connect(self) -> sa.PoolProxiedConnection:
        # The engine's pool takes 25 µs to lend a connection and take it back, a third of what a step may cost here.
        try:
            return self._idle.pop()
        except IndexError:
            return super().connect()

    def give_back(self, connection: sa.PoolProxiedConnection) -> None:
        self._idle.append(connection)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        super().close()

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        transaction.run("BEGIN" if readonly else "BEGIN IMMEDIATE")

    def translated(self, error: Exception) -> Exception:
        if isinstance(error, sa.exc.DBAPIError) and isinstance(error.orig, Exception):
            error = error.orig
        if not isinstance(error, sqlite3.Error):
            return error
        name = getattr(error, "sqlite_errorname", "") or ""
        for prefix, advice in _SQLITE_ADVICE:
            if name.startswith(prefix):
                return StorageUnavailable(f"{self.path}: {error}; {advice}")
        return StorageError(f"{self.path}: {error}")


_SQLITE_ADVICE = (
    ("SQLITE_FULL", "the disk is full: free some space; everything committed before is intact"),
    ("SQLITE_READONLY", "the file or its folder is read-only: make both writable for this user"),
    ("SQLITE_CANTOPEN", "the folder must exist and be writable for this user"),
    ("SQLITE_BUSY", "another process kept it locked for too long: try again, or raise busy_timeout_s"),
    ("SQLITE_IOERR", "the disk failed or is full; everything committed before is intact"),
    ("SQLITE_NOTADB", "this is not a wtb database, or it is damaged: restore a backup"),
    ("SQLITE_CORRUPT", "the file is damaged: restore a backup, or save what is left with `sqlite3 FILE .recover`"),
)


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

    def text(self, statement: str) -> str:
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = statement.replace("?", "%s")
        return text

    def lock(self, transaction: Transaction, name: str) -> None:
        transaction.run("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (name,))

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        """Nothing to do: psycopg begins with the first statement."""

    def translated(self, error: Exception) -> Exception:
        if isinstance(error, sa.exc.DBAPIError) and isinstance(error.orig, Exception):
            error = error.orig
        if isinstance(error, self._errors.SerializationFailure | self._errors.DeadlockDetected):
            return Conflict(f"another transaction was in the way: {error}; try again")
        if isinstance(error, self._errors.DiskFull):
            return StorageUnavailable(f"{self._where}: the disk of the server is full: {error}")
        if isinstance(error, self._errors.OperationalError):
            return StorageUnavailable(f"{self._where}: {error}; is the server running and reachable?")
        if isinstance(error, self._errors.Error):
            return StorageError(f"{self._where}: {error}")
        return error
