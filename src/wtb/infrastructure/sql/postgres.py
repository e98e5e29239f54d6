"""PostgresDatabase: a server, directly or behind PgBouncer; WTB waits for it only when it needs an answer."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from wtb.domain.errors import Conflict, InvalidInput, MissingLibrary, StorageError, StorageUnavailable
from wtb.domain.secrets import Masker
from wtb.infrastructure.sql.database import Database, Transaction

_FRESH_S = 10
"""How long a connection to Postgres may be idle before it is tested.

A server that stops reports this at once; the network in between may drop an idle connection silently."""
_USED_AT = "wtb_used_at"
_PREPARE_AFTER = 5
"""How often a connection to Postgres executes a statement before the server keeps its plan."""
_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""Gives up a server whose machine is gone after a minute; by default Linux waits two hours before it checks."""
_REFUSED = "the server answers but refuses: check the user, the password, the database and its connection limit"


class _ServerGone(StorageUnavailable):
    """A connection that was idle is dead."""


class PipelinedTransaction(Transaction):
    """Sends changes without waiting for the server; the next query waits for all of them.

    If a change fails, the next query fails, or at the latest the commit, which then stores nothing.
    """

    __slots__ = ("_pipeline",)

    def __init__(self, database: Database, connection: sa.PoolProxiedConnection) -> None:
        super().__init__(database, connection, connection.driver_connection)
        self._pipeline: ExitStack | None = None
        """Open while answers are pending, but never while the transaction ends: on closing it, psycopg asks the server
        to flush, and PgBouncer would take a server for this that is never given back."""

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
        """Wait for the answers to everything that was sent."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()

    def _keep(self) -> None:
        self._hear()
        super()._keep()

    def _undo(self) -> bool:
        # A new connection costs little. On this one, a prepared statement might fail for ever because a table was
        # changed, or an interrupt might have left unread answers. The server rolls back when the connection closes.
        if self._failed:
            self._driver.close()
            with suppress(Exception):  # psycopg would warn if it were left to the garbage collector
                self._hear()
            return False
        self._hear()
        if self._driver.info.transaction_status:  # psycopg's rollback() would forget all prepared statements
            self._driver.execute("ROLLBACK")
        return True


def _prepare_where_it_lasts(connection: Any, record: object) -> None:
    """Let psycopg prepare statements on the server, unless each transaction may get a different server.

    A pooler such as PgBouncer gives its clients a process id that is not the server's.
    """
    connection.autocommit = True
    (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.autocommit = False
    if pid == connection.info.backend_pid:
        connection.prepare_threshold = _PREPARE_AFTER


def _drop_unless_idle(connection: Any, record: Any, state: object) -> None:
    """Close a connection that was never given back, for example because an interrupt came before a `with` began."""
    if connection.pgconn.transaction_status or connection.pgconn.pipeline_status:
        record.invalidate()


class PostgresDatabase(Database):
    """Postgres through psycopg 3; behind PgBouncer nothing on a connection outlives a transaction."""

    dialect = "postgresql"
    lock_suffix = " FOR SHARE"

    def __init__(self, url: str, *, pool_size: int) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingLibrary("Postgres needs psycopg: pip install 'workflow-test-bench[postgres]'") from error
        self._errors = psycopg.errors
        self._advice = (
            (sa.exc.TimeoutError, "all connections are in use: raise pool_size, or end units of work sooner"),
            (psycopg.errors.DiskFull, "the disk of the server is full; everything committed before is intact"),
            (psycopg.errors.QueryCanceled, "try again, or raise the statement_timeout of this user"),
            (psycopg.errors.LockNotAvailable, "try again, or raise the lock_timeout of this user"),
            (psycopg.errors.ReadOnlySqlTransaction, "is this a replica, or a user that may only read?"),
            (psycopg.errors.InsufficientPrivilege, "grant it to this user, or use the one that owns the tables"),
            (psycopg.errors.OperationalError, "is the server running and reachable?"),
        )
        address = make_url(url)
        super().__init__(Masker().text(address.render_as_string(hide_password=True)))  # ?password= too
        self._texts: dict[str, str] = {}
        alive = {name: value for name, value in _ALIVE.items() if name not in address.query}
        self._engine = sa.create_engine(
            address.set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_reset_on_return=None,
            connect_args={"prepare_threshold": None, **alive},
        )
        sa.event.listen(self._engine, "connect", _prepare_where_it_lasts)
        sa.event.listen(self._engine, "reset", _drop_unless_idle)

    @property
    def engine(self) -> sa.Engine:
        return self._engine

    def begin(self, *, readonly: bool = False) -> Transaction:
        """Begin a transaction; use another connection if the server was restarted since this one was last used."""
        try:
            return super().begin(readonly=readonly)
        except _ServerGone:
            self._engine.dispose()
            return super().begin(readonly=readonly)

    def close(self) -> None:
        if not self._was_forked:
            self._engine.dispose()

    def connect(self) -> sa.PoolProxiedConnection:
        connection = self._engine.raw_connection()
        driver: Any = connection.driver_connection
        driver.autocommit = True  # we send BEGIN ourselves, once and with its options
        return connection

    def give_back(self, connection: sa.PoolProxiedConnection) -> None:
        driver: Any = connection.driver_connection
        driver.autocommit = False
        connection.info[_USED_AT] = time.monotonic()
        connection.close()

    def discard(self, connection: sa.PoolProxiedConnection) -> None:
        connection.invalidate()
        connection.close()

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

    def has_table(self, transaction: Transaction, name: str) -> bool:
        return transaction.row("SELECT 1 WHERE to_regclass(?) IS NOT NULL", (name,)) is not None

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
        reason = str(error).partition("\n")[0]  # libpq and the server add their own advice
        if isinstance(error, self._errors.DataError | UnicodeEncodeError):
            return InvalidInput(f"{self.where} cannot hold a value: {reason}")
        if isinstance(error, self._errors.SerializationFailure | self._errors.DeadlockDetected):
            return Conflict(f"another transaction got in the way: {reason}; try again")
        if reason.startswith("connection failed") and "FATAL:" in reason:
            return StorageUnavailable(f"{self.where}: {reason}; {_REFUSED}")
        for kind, advice in self._advice:
            if isinstance(error, kind):
                return StorageUnavailable(f"{self.where}: {reason}; {advice}")
        if isinstance(error, self._errors.Error):
            return StorageError(f"{self.where}: {reason}")
        return error
