"""PostgresDatabase: a server, directly or behind PgBouncer; WTB waits for it only when it needs an answer."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from wtb.domain.errors import Conflict, InvalidInput, MissingLibrary, StorageError, StorageUnavailable
from wtb.domain.ports import NO_TELEMETRY, Measure, Telemetry
from wtb.domain.secrets import Masker
from wtb.infrastructure.sql.connection_count import ConnectionCount
from wtb.infrastructure.sql.database import Database, Transaction
from wtb.infrastructure.sql.outage import Outage
from wtb.infrastructure.sql.pipelined import NOW, PipelinedTransaction

_PREPARE_AFTER = 5
"""How often a connection to Postgres executes a statement before the server keeps its plan."""
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Gives up a server whose machine is gone after a minute; by default Linux waits two hours before it checks."""
_BORN_AT = "wtb_born_at"
_GONE = ("57P01", "57P02", "57P03", "53300")
"""The server is being stopped, has crashed, is being started, or has no connection left."""
_FOR_NOW = (
    "the database system is",
    "too many",
    "connection slots",
    "no more connections",
    "server login",
    "server conn",
    "cannot connect to server",
    "query_wait_timeout",
)
"""What Postgres and PgBouncer say when they refuse a connection only for now; libpq tells no code."""
_BUSY = "the server takes no connections now"
_REFUSED = "the server answers but refuses: check the user, the password, the database and its connection limit"


def _prepare_where_it_lasts(connection: Any, record: object) -> None:
    """Let psycopg prepare statements on the server, unless each transaction may get a different server.

    A pooler such as PgBouncer gives its clients a process id that is not the server's.
    """
    try:
        connection.autocommit = True
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.autocommit = False
    except BaseException:
        connection.close()  # the pool would leave it to the garbage collector
        raise
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

    def __init__(
        self,
        url: str,
        *,
        pool_size: int,
        outage_timeout_s: float = 0.0,
        is_expected: bool = False,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingLibrary("Postgres needs psycopg: pip install 'workflow-test-bench[postgres]'") from error
        self._errors = psycopg.errors
        self.driver_error = psycopg.Error
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
        self.outage_timeout_s = outage_timeout_s
        self._outage = Outage(self.where, outage_timeout_s)
        self._is_expected = is_expected
        """Whether the database should be there: it was, or another process uses it. If not, its address may be wrong,
        and waiting for it would only keep somebody from reading so."""
        self._telemetry = telemetry
        self._lost_at = -math.inf
        self._texts: dict[str, str] = {}
        alive = {name: value for name, value in _PATIENCE.items() if name not in address.query}
        self._engine = sa.create_engine(
            address.set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_reset_on_return=None,
            connect_args={"prepare_threshold": None, **alive},
        )
        sa.event.listen(self._engine, "connect", _prepare_where_it_lasts)
        sa.event.listen(self._engine, "connect", self._note_birth)
        sa.event.listen(self._engine, "reset", _drop_unless_idle)
        if telemetry.is_on:
            ConnectionCount(self._engine, telemetry)

    @property
    def engine(self) -> sa.Engine:
        return self._engine

    def close(self) -> None:
        if not self._was_forked:
            self._engine.dispose()

    def connect(self) -> sa.PoolProxiedConnection:
        """Take a connection; if the database is away, wait for it."""
        while True:
            self._outage.wait(self._ask)
            try:
                return self._connected()
            except Exception as error:
                if not self._is_expected or not self.is_lost(error):
                    raise
                self._outage.report(self.translated(error))
                self._count("connect")

    def _connected(self) -> sa.PoolProxiedConnection:
        connection = self._engine.raw_connection()
        while connection.info[_BORN_AT] <= self._lost_at:  # it was idle; the server was probably stopped for all
            self.discard(connection)
            connection = self._engine.raw_connection()
        self._is_expected = True
        driver: Any = connection.driver_connection
        driver.autocommit = True  # we send BEGIN ourselves, once and with its options
        return connection

    def _ask(self) -> Exception | None:
        """Ask whether the database is there; return the error if it is away."""
        try:
            self.give_back(self._connected())
        except Exception as error:  # noqa: BLE001  whoever wanted a connection gets the other errors
            return self.translated(error) if self.is_lost(error) else None
        return None

    def is_lost(self, error: Exception, driver: Any = None) -> bool:
        """Whether an error says that the database has gone away; `driver` is the connection on which it happened."""
        if isinstance(error, sa.exc.DBAPIError) and isinstance(error.orig, Exception):
            error = error.orig
        if not isinstance(error, self.driver_error):
            return False
        if error.sqlstate is not None:
            return error.sqlstate in _GONE or error.sqlstate.startswith("08")
        if driver is not None:
            return bool(driver.closed)
        refusal = str(error).partition("FATAL:")[2]
        is_refused = refusal and not any(reason in refusal for reason in _FOR_NOW)
        return isinstance(error, self._errors.OperationalError) and not is_refused

    def replace(self, connection: sa.PoolProxiedConnection | None, what: str) -> None:
        """Discard a lost connection, and in time those that are idle now."""
        self._count(what)
        self._lost_at = time.monotonic()
        self.discard(connection)

    def _note_birth(self, connection: object, record: Any) -> None:
        record.info[_BORN_AT] = time.monotonic()

    def _count(self, what: str) -> None:
        if self._telemetry.is_on:
            self._telemetry.count(Measure.RETRY, what)

    def give_back(self, connection: sa.PoolProxiedConnection) -> None:
        driver: Any = connection.driver_connection
        driver.autocommit = False
        connection.close()

    def discard(self, connection: sa.PoolProxiedConnection | None) -> None:
        if connection is not None:
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
        found: datetime = transaction.rows(NOW)[0][0]
        return found.astimezone(UTC)

    def has_table(self, transaction: Transaction, name: str) -> bool:
        return transaction.row("SELECT 1 WHERE to_regclass(?) IS NOT NULL", (name,)) is not None

    def lock(self, transaction: Transaction, name: str) -> None:
        transaction.run("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (name,))

    def was_sent(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) is not None

    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        # A reader has one view for all its statements.
        transaction.run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if readonly else "BEGIN")
        if not readonly and isinstance(transaction, PipelinedTransaction):
            transaction.note_number()

    def translated(self, error: Exception) -> Exception:
        if isinstance(error, sa.exc.DBAPIError) and isinstance(error.orig, Exception):
            error = error.orig
        reason = str(error).partition("\n")[0]  # libpq and the server add their own advice
        if isinstance(error, self._errors.DataError | UnicodeEncodeError):
            return InvalidInput(f"{self.where} cannot hold a value: {reason}")
        if isinstance(error, self._errors.SerializationFailure | self._errors.DeadlockDetected):
            return Conflict(f"another transaction got in the way: {reason}; try again")
        if reason.startswith("connection failed") and "FATAL:" in reason:
            return StorageUnavailable(f"{self.where}: {reason}; {_BUSY if self.is_lost(error) else _REFUSED}")
        for kind, advice in self._advice:
            if isinstance(error, kind):
                return StorageUnavailable(f"{self.where}: {reason}; {advice}")
        if isinstance(error, self._errors.Error):
            return StorageError(f"{self.where}: {reason}")
        return error
