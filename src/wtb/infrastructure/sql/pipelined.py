"""PipelinedTransaction: a transaction of Postgres that waits rarely, and that outlives its connection.

If the connection is lost, all statements sent so far are sent again on another one. The unit of work goes on if they
get the same answers: then it would have decided the same. After a lost commit, the server is asked first whether it has
committed the transaction. The code of the unit of work does not run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from wtb.domain.errors import ConnectionLost
from wtb.infrastructure.sql.database import Transaction

if TYPE_CHECKING:
    from wtb.infrastructure.sql.postgres import PostgresDatabase

Answer = TypeVar("Answer")

NOW = "SELECT clock_timestamp()"
_XID = "SELECT pg_current_xact_id()::text, pg_postmaster_start_time()"
_STATUS = """
SELECT CASE WHEN %s::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(%s::xid8) ELSE 'aborted' END,
    pg_postmaster_start_time()
"""
"""After a crash, the server may not know the number of a lost transaction yet, and would refuse to say anything."""
_VOLATILE = (NOW, _XID)
"""These get another answer each time."""
_MOST = 20_000
"""A transaction that has sent more statements, or read more rows, is not repeated: it would have to remember them."""
_PAUSE_S = 0.05


class _Sent:
    """A statement, and the answer to it."""

    __slots__ = ("answer", "parameters", "statement", "then")

    def __init__(
        self, statement: str, parameters: Sequence[Any], then: Callable[[list[Any]], None] | None = None
    ) -> None:
        self.statement = statement
        self.parameters = parameters
        self.then = then
        self.answer: list[Any] | int | None = None
        """Its rows, or the number of rows that it changed; None if nobody has asked yet."""

    def is_same(self, cursor: Any) -> bool:
        """Whether the same statement got the same answer again."""
        if self.answer is None or self.statement in _VOLATILE:
            return True
        if isinstance(self.answer, int):
            return bool(cursor.rowcount == self.answer)
        if self.then is not None:  # `then` gets the new rows; the number of an event differs each time
            return bool(cursor.rowcount == len(self.answer))
        return bool(cursor.fetchall() == self.answer)


class _Differs(Exception):
    """The repeated statements got other answers."""


class PipelinedTransaction(Transaction):
    """Sends changes without waiting for the server; the next query waits for all of them.

    If a change fails, the next query fails, or at the latest the commit, which then stores nothing.
    """

    __slots__ = ("_asked", "_is_committing", "_is_kept", "_pipeline", "_proof", "_read", "_sent", "_unsure", "_xid")

    database: PostgresDatabase

    def __init__(self, database: PostgresDatabase, connection: Any) -> None:
        super().__init__(database, connection, connection.driver_connection)
        self._pipeline: ExitStack | None = None
        """Open while answers are pending, but never while the transaction ends: on closing it, psycopg asks the server
        to flush, and PgBouncer would take a server for this that is never given back."""
        self._asked: list[tuple[_Sent, Any]] = []
        """What somebody wants to hear, and the cursors that will have it."""
        self._sent: list[_Sent] | None = []
        """Everything so far, to be sent again on another connection; None if that is too much."""
        self._read = 0
        self._xid: tuple[Any, ...] | None = None
        """The number of this transaction, and when its server was started."""
        self._unsure: list[tuple[Any, ...]] = []
        """The numbers under which a commit was sent and not answered."""
        self._proof: tuple[str, Sequence[Any]] | None = None
        """A query that finds rows exactly if this transaction was committed."""
        self._is_committing = self._is_kept = False

    def note_proof(self, statement: str, parameters: Sequence[Any]) -> None:
        self._proof = statement, parameters

    def note_number(self) -> None:
        """Ask for the number of this transaction, with the next answer: it tells whether a commit arrived."""
        self.ask(_XID, (), self._note)

    def _note(self, rows: list[Any]) -> None:
        self._xid = rows[0]

    def ask(self, statement: str, parameters: Sequence[Any], then: Callable[[list[Any]], None]) -> None:
        self._attempt(self._ask, self.database.text(statement), parameters, then)

    def settle(self) -> None:
        if self._asked:
            self._attempt(self._hear)

    # Sending and hearing

    def _attempt(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        self._check_open()
        length = 0 if self._sent is None else len(self._sent)
        while True:
            try:
                return call(*arguments)
            except Exception as error:
                if not self.database.is_lost(error, self._driver):
                    raise self._failure(error) from error
                self._repeat(length, error)
            except BaseException:  # interrupted: it is unknown how much was sent
                self._failed = True
                raise

    def _ask(self, statement: str, parameters: Sequence[Any], then: Callable[[list[Any]], None]) -> None:
        sent = _Sent(statement, parameters, then)
        self._asked.append((sent, self._begun(sent)))

    def _send(self, statement: str, parameters: Sequence[Any]) -> None:
        self._begun(_Sent(statement, parameters))

    def _begun(self, sent: _Sent) -> Any:
        self._open_pipeline()
        cursor = self._driver.execute(sent.statement, sent.parameters)
        self._remember(sent)
        return cursor

    def _execute(self, statement: str, parameters: Sequence[Any]) -> Any:
        sent = _Sent(statement, parameters)
        cursor = self._heard(sent)
        sent.answer = cursor.rowcount
        self._tell()
        return cursor

    def _fetch(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        sent = _Sent(statement, parameters)
        rows: list[Any] = self._heard(sent).fetchall()
        sent.answer = rows
        self._remember_rows(len(rows))
        self._tell()
        return rows

    def _heard(self, sent: _Sent) -> Any:
        """Send a statement and wait for the answers to it and to everything before it."""
        cursor = self._driver.execute(sent.statement, sent.parameters)
        self._remember(sent)
        self._close_pipeline()
        return cursor

    def _hear(self) -> None:
        """Wait for the answers to everything that was sent."""
        self._close_pipeline()
        self._tell()

    def _open_pipeline(self) -> None:
        if self._pipeline is None:
            self._pipeline = ExitStack()
            self._pipeline.enter_context(self._driver.pipeline())

    def _close_pipeline(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            try:
                pipeline.close()
            except self.database.driver_error as error:
                raise self._first(error) from None

    def _first(self, error: Exception) -> Exception:
        """Return why a pipeline failed.

        If the server says that it stops, psycopg may fail again and again on leaving the pipeline: "cannot exit
        pipeline mode while busy". Such errors have no code, and the connection may still be open, so nobody could tell
        the reason from them.
        """
        while getattr(error, "sqlstate", None) is None and isinstance(error.__context__, self.database.driver_error):
            error = error.__context__
        return error

    def _tell(self) -> None:
        """Pass on the answers that somebody wants to hear; who hears one may send more."""
        asked, self._asked = self._asked, []
        answers = [(sent, cursor.fetchall()) for sent, cursor in asked]
        for sent, rows in answers:
            sent.answer = rows
        for sent, _ in answers:
            assert sent.then is not None
            assert isinstance(sent.answer, list)
            sent.then(sent.answer)  # a new one, if the connection was lost meanwhile

    def _remember(self, sent: _Sent) -> None:
        if self._sent is not None:
            self._sent.append(sent)
            self._remember_rows(1)

    def _remember_rows(self, count: int) -> None:
        self._read += count
        if self._read > _MOST:
            self._sent = None

    # The end

    def _keep(self) -> None:
        if not self._is_kept:
            self._hear()
            self._is_committing = True
            super()._keep()

    def _undo(self) -> bool:
        # A new connection costs little. On this one, a prepared statement might fail for ever because a table was
        # changed, or an interrupt might have left unread answers. The server rolls back when the connection closes.
        if self._failed:
            self._leave()
            return False
        self._close_pipeline()
        if self._driver.info.transaction_status:  # psycopg's rollback() would forget all prepared statements
            self._driver.execute("ROLLBACK")
        return True

    def _leave(self) -> None:
        """Close the connection, with whatever is under way on it."""
        self._driver.close()
        self._asked.clear()
        with suppress(Exception):  # psycopg would warn if it were left to the garbage collector
            self._close_pipeline()

    # Another connection

    def _repeat(self, length: int, lost: Exception) -> None:
        """Take another connection, and send the first `length` statements again.

        Raise DatabaseAway if there is none for too long, and ConnectionLost if the answers differ.
        """
        self._failed = True  # until everything is as before
        if self._sent is None:
            raise self._given_up("it had done too much to do it again") from lost
        del self._sent[length:]
        if self._is_committing and self._xid is not None:
            self._unsure.append(self._xid)
        self._is_committing = False
        end, pause_s = time.monotonic() + self.database.outage_timeout_s, _PAUSE_S
        while True:
            self._reconnect()
            try:
                self._send_again()
            except _Differs:
                raise self._given_up("others have changed what it had read") from lost
            except Exception as error:
                if not self.database.is_lost(error, self._driver) or time.monotonic() > end:
                    raise self.database.translated(error) from error
                time.sleep(pause_s)
                pause_s *= 2
            else:
                self._failed = False
                return

    def _reconnect(self) -> None:
        self._leave()
        connection, self.connection = self.connection, None
        self.database.replace(connection, "commit" if self._unsure else "unit")
        self.connection = self.database.connect()
        self._driver = self.connection.driver_connection

    def _send_again(self) -> None:
        if self._has_number_committed(same_server=True):
            self._is_kept = True
            return
        try:
            self._replay()
        except Exception as error:
            if isinstance(error, self.database.driver_error) and self.database.is_lost(error, self._driver):
                raise
            if isinstance(error, _Differs | self.database.driver_error):
                self._check_committed(error)
                return
            raise

    def _check_committed(self, error: Exception) -> None:
        """Accept other answers than before if the reason is that the transaction was committed."""
        if self._driver.info.transaction_status:
            self._driver.execute("ROLLBACK")
        if not self._was_committed():
            raise _Differs from error
        self._is_kept = True

    def _was_committed(self) -> bool:
        """Whether a commit without an answer arrived, perhaps before a crash of the server.

        What the transaction itself has stored is certain. Its number is not: the server may have lost it in a crash,
        and given it to another transaction.
        """
        if not self._unsure or self._proof is None:
            return self._has_number_committed(same_server=False)
        statement, parameters = self._proof
        return bool(self._driver.execute(self.database.text(statement), parameters).fetchall())

    def _has_number_committed(self, *, same_server: bool) -> bool:
        """Whether the server has committed one of the numbers; `same_server`: and was not started again since."""
        return any(self._status(number, started, same_server=same_server) for number, started in self._unsure)

    def _status(self, number: str, started: Any, *, same_server: bool) -> bool:
        end = time.monotonic() + self.database.outage_timeout_s
        while True:
            status, started_now = self._driver.execute(_STATUS, (number, number)).fetchone()
            if status != "in progress":
                return bool(status == "committed" and (started == started_now or not same_server))
            if time.monotonic() > end:  # the server does not know yet that its client is gone
                raise self._given_up("its commit is still under way; look at what is stored")
            time.sleep(_PAUSE_S)

    def _replay(self) -> None:
        assert self._sent is not None
        self._open_pipeline()
        cursors = [self._driver.execute(sent.statement, sent.parameters) for sent in self._sent]
        self._close_pipeline()
        if not all(sent.is_same(cursor) for sent, cursor in zip(self._sent, cursors, strict=True)):
            raise _Differs
        asked = [(sent, cursor) for sent, cursor in zip(self._sent, cursors, strict=True) if sent.then is not None]
        self._failed = False
        for sent, cursor in asked:
            rows: list[Any] = cursor.fetchall()
            is_first, sent.answer = sent.answer is None, rows
            if is_first or rows:  # an answer without rows has led to further statements, which are repeated too
                assert sent.then is not None
                sent.then(rows)

    def _given_up(self, why: str) -> ConnectionLost:
        return ConnectionLost(
            f"{self.database.where}: the connection was lost in the middle of a unit of work, and {why}; nothing of "
            "it is stored, try again"
        )
