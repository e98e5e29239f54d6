"""Database: connections, transactions and errors of SQLite and Postgres, so that the code above is the same for both.

Statements are written by hand and go directly to the driver: in every step, SQLAlchemy's statement layer alone would
cost more than the insert (see docs/adr). Its engine runs migrations, and pools connections to Postgres.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wtb.domain.errors import InvalidInput, StorageError

if TYPE_CHECKING:
    import sqlalchemy as sa

Answer = TypeVar("Answer")

_BATCH = 500
"""The most values in one IN list; SQLite's limit is far higher, but every length needs its own plan."""


class Cursor(Protocol):
    """The part of a driver's cursor that we use."""

    rowcount: int


class Turn(Protocol):
    """The right to write next."""

    def release(self) -> None:
        """Let the next writer have its turn."""


class Database(ABC):
    """One database and its pool of connections. Statements use ? for parameters, whatever the driver."""

    dialect: str
    lock_suffix = ""
    """Appended to a SELECT whose rows must not change before the transaction ends."""

    def __init__(self, where: str) -> None:
        self.where = where
        """Its address, without a password."""
        self.is_retired = False
        """Whether its storage was closed: a thread that comes later must leave no connection open."""
        self._process = os.getpid()

    @property
    @abstractmethod
    def engine(self) -> sa.Engine:
        """Return a SQLAlchemy engine, for migrations."""

    @property
    def _was_forked(self) -> bool:
        """Whether this process was forked from the one that opened the connections, so that both would use them."""
        return os.getpid() != self._process

    def begin(self, *, readonly: bool = False) -> Transaction:
        """Begin a transaction on its own connection."""
        if self._was_forked:
            raise InvalidInput("this process was forked from the one that opened the bench; open another bench here")
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

    def retire(self) -> None:
        """Close all connections; those in use, or opened later, are closed when they are given back."""
        self.is_retired = True
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close all connections that are not in use."""

    @abstractmethod
    def connect(self) -> Any:
        """Take a connection."""

    @abstractmethod
    def give_back(self, connection: Any) -> None:
        """Take back a connection without an open transaction."""

    @abstractmethod
    def discard(self, connection: Any) -> None:
        """Close a connection whose state is unknown."""

    def transaction(self, connection: Any) -> Transaction:
        """Return a transaction that has not begun."""
        return Transaction(self, connection, connection)

    def text(self, statement: str) -> str:
        """Return a statement in the driver's syntax."""
        return statement

    def fetch(self, driver: Any, statement: str, parameters: Sequence[Any]) -> list[Any]:
        """Execute a query on a driver's connection and return its rows."""
        rows: list[Any] = driver.execute(statement, parameters).fetchall()
        return rows

    def now(self, transaction: Transaction) -> datetime | None:
        """Return the database's own time; None if it runs on this machine's clock."""
        return None

    def was_sent(self, error: Exception) -> bool:
        """Whether an error came from the database, so that the transaction can only be rolled back."""
        return False

    @abstractmethod
    def translated(self, error: Exception) -> Exception:
        """Return WTB's error for a driver's error; other errors are returned unchanged."""

    @abstractmethod
    def has_table(self, transaction: Transaction, name: str) -> bool:
        """Whether there is a table with this name."""

    @abstractmethod
    def lock(self, transaction: Transaction, name: str) -> None:
        """Wait until no other transaction holds this name, and hold it until the end."""

    @abstractmethod
    def _begin(self, transaction: Transaction, *, readonly: bool) -> None:
        """Send the statements that begin a transaction."""


class Transaction:
    """One transaction; rolled back unless committed."""

    __slots__ = ("_driver", "_failed", "_open", "connection", "database", "take_turn", "turn")

    def __init__(self, database: Database, connection: Any, driver: Any) -> None:
        self.database = database
        self.connection = connection
        self._driver = driver
        self._open = True
        self._failed = False
        self.turn: Turn | None = None
        """The turn that this writer has until it ends, so that other writers wait in line."""
        self.take_turn: Callable[[], None] | None = None
        """What a writer has to do before its first statement; None if it has done it."""

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Execute one change without counting its rows; a failure may show only at the next statement."""
        self._attempt(self._send, self.database.text(statement), parameters)

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Execute one change and return the number of affected rows."""
        return self._changed(statement, parameters).rowcount

    def _changed(self, statement: str, parameters: Sequence[Any]) -> Cursor:
        return self._attempt(self._execute, self.database.text(statement), parameters)

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Execute one query and return all its rows, because fetching can fail like executing."""
        return self._attempt(self._fetch, self.database.text(statement), parameters)

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Any | None:
        """Execute one query and return its first row."""
        rows = self.rows(statement, parameters)
        return rows[0] if rows else None

    def ask(self, statement: str, parameters: Sequence[Any], then: Callable[[list[Any]], None]) -> None:
        """Execute a statement whose rows are needed only later.

        `then` gets them when the transaction next waits for an answer, at the latest before the commit.
        """
        then(self.rows(statement, parameters))

    def insert_numbered(
        self, statement: str, parameters: Sequence[Any], column: str, then: Callable[[int | None], None]
    ) -> None:
        """Execute an INSERT … ON CONFLICT DO NOTHING; `then` gets the number of the new row, or None, as in `ask`."""
        if self.database.dialect != "sqlite":
            found = f"{statement} RETURNING {column}"
            self.ask(found, parameters, lambda rows: then(int(rows[0][0]) if rows else None))
        else:  # here RETURNING takes three times as long as the insert
            cursor: Any = self._changed(statement, parameters)
            then(cursor.lastrowid if cursor.rowcount else None)

    def note_proof(self, statement: str, parameters: Sequence[Any]) -> None:
        """Take note of a query that finds rows exactly if this transaction was committed."""

    def settle(self) -> None:
        """Wait for the answers to everything that was asked."""

    def refuse(self) -> None:
        """Keep nothing of this transaction, whatever the caller does next."""
        self._failed = True

    def begin_writing(self) -> None:
        """Wait for the turn, unless this transaction has it or only reads."""
        take_turn, self.take_turn = self.take_turn, None
        if take_turn is not None:
            take_turn()

    def _attempt(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        if self._failed or not self._open:
            self._check_open()
        if self.take_turn is not None:
            self.begin_writing()
        try:
            return call(*arguments)
        except Exception as error:
            raise self._failure(error) from error
        except BaseException:  # interrupted: it is unknown how much was sent
            self._failed = True
            raise

    def _check_open(self) -> None:
        if not self._open:  # another transaction may use the connection by now
            raise InvalidInput("this unit of work has ended; get another one from the storage")
        if self._failed:
            raise StorageError("a statement of this unit of work failed, so none of it is kept; start another one")

    def _failure(self, error: Exception) -> Exception:
        """Return WTB's error, and block this transaction unless only the driver refused the statement.

        SQLite may have rolled back by itself, and would then commit each further statement alone; Postgres would answer
        COMMIT with a silent rollback. A statement that the driver refused has not reached the database.
        """
        ours = self.database.translated(error)
        self._failed = not isinstance(ours, InvalidInput) or self.database.was_sent(error)
        return ours

    def run_in(self, statement: str, values: Iterable[Any], *before: Any) -> Iterator[Any]:
        """Execute a SELECT with `IN (??)` for these values, in batches, and yield its rows."""
        for each, parameters in _in_batches(statement, values, before):
            yield from self.rows(each, parameters)

    def change_in(self, statement: str, values: Iterable[Any], *before: Any) -> int:
        """Execute a change with `IN (??)` in batches and return the number of affected rows."""
        return sum(self.change(each, parameters) for each, parameters in _in_batches(statement, values, before))

    def lock(self, name: str) -> None:
        """Serialise with every other transaction that locks this name."""
        self.database.lock(self, name)

    def commit(self) -> None:
        """Keep everything."""
        self._attempt(self._keep)

    def _send(self, statement: str, parameters: Sequence[Any]) -> None:
        self._driver.execute(statement, parameters)

    def _execute(self, statement: str, parameters: Sequence[Any]) -> Cursor:
        cursor: Cursor = self._driver.execute(statement, parameters)
        return cursor

    def _fetch(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        return self.database.fetch(self._driver, statement, parameters)

    def _keep(self) -> None:
        self._driver.commit()

    def _undo(self) -> bool:
        """Roll back, and return whether the connection may be used again."""
        self._driver.rollback()
        return True

    def close(self) -> None:
        """Roll back uncommitted changes, and give the connection back."""
        if not self._open:
            return
        self._open = False
        usable = False
        try:
            with suppress(Exception):  # after any error the state of the connection is unknown
                usable = self._undo()
        finally:
            if self.turn is not None:
                self.turn.release()
            keep = usable and not self.database.is_retired
            (self.database.give_back if keep else self.database.discard)(self.connection)


def _in_batches(
    statement: str, values: Iterable[Any], before: tuple[Any, ...]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield a statement for each batch of values, with its parameters."""
    listed = list(values)
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        yield statement.replace("??", ", ".join("?" * len(batch))), (*before, *batch)
