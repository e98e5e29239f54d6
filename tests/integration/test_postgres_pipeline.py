"""How a transaction talks to Postgres: it waits only for answers that somebody asks for, and hears of every failure."""

import gc
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.run_writer import RunWriter
from tests.services import PgBouncer, PostgresServer
from wtb.domain.errors import Conflict, InvalidInput, StorageError, StorageUnavailable
from wtb.domain.ports import EventBus
from wtb.domain.state import StateDelta
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.testing.fakes import FakeClock, SequentialIds

INSERT = "INSERT INTO wtb_workflows (id, name, version, definition) VALUES (?, 'a', '1', '{}')"
RENAME = "UPDATE wtb_workflows SET name = 'b' WHERE id = ?"
COUNT = "SELECT count(*) FROM wtb_workflows"
PREPARED = "SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture(params=["postgres", "pgbouncer"])
def database(request: pytest.FixtureRequest, migrated_database: str) -> Iterator[PostgresDatabase]:
    """One connection to an empty database, so that every transaction has the same one."""
    server: PostgresServer | PgBouncer = request.getfixturevalue(request.param)
    database = PostgresDatabase(server.url(migrated_database), pool_size=1)
    yield database
    database.close()


directly = pytest.mark.parametrize("database", ["postgres"], indirect=True)


@pytest.fixture
def waits(database: PostgresDatabase, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Return how often the connection waited for the server since it was last asked."""
    with (tmp_path / "trace").open("w+b") as trace, closing(database.begin()) as transaction:
        driver: Any = transaction.connection.driver_connection
        transaction.rows("SELECT 1")
        driver.pgconn.trace(trace.fileno())
        transaction.close()

        def waited() -> int:
            driver.pgconn.untrace()
            trace.seek(0)
            sent = [line.split(b"\t")[3].strip() for line in trace if line.split(b"\t")[1] == b"F"]
            trace.truncate(0)
            driver.pgconn.trace(trace.fileno())
            return sent.count(b"Sync") + sent.count(b"Query")

        waited()
        yield waited
        driver.pgconn.untrace()


def one(transaction: Transaction, statement: str) -> Any:
    return transaction.rows(statement)[0][0]


def test_changes_that_nobody_asks_about_are_waited_for_once(
    database: PostgresDatabase, waits: Callable[[], int]
) -> None:
    with closing(database.begin()) as transaction:
        for number in range(5):
            transaction.run(INSERT, (str(number),))
        assert one(transaction, COUNT) == 5
        assert waits() == 1
        transaction.commit()
    assert waits() == 1


def test_who_asks_how_many_rows_a_change_met_waits_for_it(database: PostgresDatabase, waits: Callable[[], int]) -> None:
    with closing(database.begin()) as transaction:
        transaction.run(INSERT, ("1",))
        assert transaction.change(RENAME, ("1",)) == 1
        assert waits() == 1
        assert transaction.change(RENAME, ("2",)) == 0
        assert waits() == 1
    assert waits() == 1


def test_a_step_waits_for_its_checkpoint_its_head_and_the_commit(
    database: PostgresDatabase, waits: Callable[[], int], bus: EventBus
) -> None:
    clock = FakeClock()
    recorder = RunWriter(SqlStorage(database, codec=MsgpackCodec(), clock=clock, bus=bus), clock, SequentialIds())
    at = recorder.start({"name": "flow", "version": "1", "nodes": []}, {"n": 0})
    waits()
    recorder.complete(at, recorder.node_run(at, "node", 1), StateDelta.setting({"n": 1}))
    assert waits() == 3


def test_a_failure_that_nobody_asked_about_comes_with_the_next_answer(database: PostgresDatabase) -> None:
    with closing(database.begin()) as transaction:
        transaction.run(INSERT, ("1",))
        with pytest.raises(StorageError, match='relation "nowhere" does not exist'):  # noqa: PT012  which is up to the server
            transaction.run("INSERT INTO nowhere VALUES (1)")
            transaction.run(INSERT, ("2",))
            one(transaction, COUNT)
        with pytest.raises(StorageError, match="none of it is kept"):
            transaction.commit()
    with closing(database.begin()) as transaction:
        assert one(transaction, COUNT) == 0


def test_a_failure_that_nobody_asked_about_keeps_the_commit_from_keeping_the_rest(database: PostgresDatabase) -> None:
    with closing(database.begin()) as transaction:
        transaction.run(INSERT, ("1",))
        transaction.run(INSERT, ("1",))
        with pytest.raises(StorageError, match="duplicate key"):
            transaction.commit()
        with pytest.raises(StorageError, match="none of it is kept"):
            transaction.commit()
    with closing(database.begin()) as transaction:
        assert one(transaction, COUNT) == 0


def test_a_value_that_postgres_cannot_hold_is_refused_at_once_and_the_rest_is_kept(database: PostgresDatabase) -> None:
    with closing(database.begin()) as transaction:
        transaction.run(INSERT, ("1",))
        with pytest.raises(InvalidInput, match="cannot hold a value"):
            transaction.run(INSERT, ("\0",))
        transaction.run(INSERT, ("2",))
        transaction.commit()
    with closing(database.begin()) as transaction:
        assert one(transaction, COUNT) == 2


def test_a_value_that_the_server_itself_refuses_keeps_the_commit_from_keeping_the_rest(
    database: PostgresDatabase,
) -> None:
    with closing(database.begin()) as transaction:
        transaction.run(INSERT, ("1",))
        with pytest.raises(InvalidInput, match="out of range"):
            transaction.rows("SELECT ?::int", (2**40,))
        with pytest.raises(StorageError, match="none of it is kept"):
            transaction.commit()


def test_changes_of_many_megabytes_need_not_be_asked_about(database: PostgresDatabase) -> None:
    insert = "INSERT INTO wtb_blobs (address, data, touched_at_us) VALUES (?, ?, 0)"
    with closing(database.begin()) as transaction:
        for number in range(4):
            transaction.run(insert, (bytes([number]), bytes(5_000_000)))
        transaction.commit()
    with closing(database.begin()) as transaction:
        assert one(transaction, "SELECT sum(length(data)) FROM wtb_blobs") == 20_000_000


@pytest.mark.parametrize(("database", "lasting"), [("postgres", True), ("pgbouncer", False)], indirect=["database"])
def test_statements_are_prepared_where_the_connection_leads_to_one_server(
    database: PostgresDatabase, lasting: bool
) -> None:
    for number in range(10):
        with closing(database.begin()) as transaction:
            transaction.run(INSERT, (str(number),))
            transaction.commit()
        with closing(database.begin(readonly=True)) as transaction:
            assert one(transaction, COUNT) == number + 1
    with closing(database.begin()) as transaction:
        assert (one(transaction, PREPARED) > 0) == lasting


@directly
def test_a_table_that_somebody_changed_does_not_make_a_prepared_statement_fail_for_ever(
    database: PostgresDatabase, postgres: PostgresServer
) -> None:
    with psycopg.connect(postgres.url("migrated"), autocommit=True) as other:
        other.execute("CREATE TABLE other (n int)")
        try:
            for _ in range(10):
                with closing(database.begin()) as transaction:
                    transaction.rows("SELECT n FROM other")
            other.execute("ALTER TABLE other ALTER n TYPE text")
            with (
                closing(database.begin()) as transaction,
                pytest.raises(StorageError, match="cached plan must not change"),
            ):
                transaction.rows("SELECT n FROM other")
            with closing(database.begin()) as transaction:
                assert transaction.rows("SELECT n FROM other") == []
        finally:
            other.execute("DROP TABLE other")


@contextmanager
def interrupted_during(statement: str, server: PostgresServer) -> Iterator[None]:
    """Press Ctrl-C, as it were, once the server is at a statement of the block."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    ended = threading.Event()

    def interrupt() -> None:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            while not ended.wait(0.01):
                at_work = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query = %s"
                if connection.execute(at_work, (statement,)).fetchone():
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                    return

    other = threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        ended.set()
        other.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("wait", ["rows", "run"])
def test_what_was_interrupted_leaves_nothing_behind_on_a_connection(
    database: PostgresDatabase, postgres: PostgresServer, wait: str
) -> None:
    statement = f"SELECT pg_sleep(60), '{uuid4()}'"
    with closing(database.begin()) as transaction:
        transaction.run(INSERT, ("1",))
        with interrupted_during(statement, postgres):
            getattr(transaction, wait)(statement)
            transaction.commit()  # where `run` is waited for
        with pytest.raises(StorageError, match="none of it is kept"):
            transaction.commit()
    with closing(database.begin()) as transaction:
        assert one(transaction, COUNT) == 0


@pytest.mark.parametrize(
    ("setting", "statement", "problem", "advice"),
    [
        ("statement_timeout = 50", "SELECT pg_sleep(60)", "statement timeout", "raise the statement_timeout"),
        ("lock_timeout = 50", "LOCK TABLE wtb_workflows", "lock timeout", "raise the lock_timeout"),
        ("transaction_read_only = on", "DELETE FROM wtb_workflows", "read-only transaction", "is this a replica"),
        ("ROLE pg_monitor", "DELETE FROM wtb_workflows", "permission denied", "grant it to this user"),
    ],
)
def test_what_the_server_does_not_let_happen_comes_with_what_to_do(
    database: PostgresDatabase, postgres: PostgresServer, setting: str, statement: str, problem: str, advice: str
) -> None:
    with psycopg.connect(postgres.url("migrated")) as other, closing(database.begin()) as transaction:
        other.execute("LOCK TABLE wtb_workflows IN ROW EXCLUSIVE MODE")
        transaction.run(f"SET LOCAL {setting}")
        transaction.run(statement)
        with pytest.raises(StorageUnavailable, match=f"{problem}.*; .*{advice}"):
            transaction.commit()


@directly
def test_two_writers_in_each_others_way_are_told_in_one_line(database: PostgresDatabase) -> None:
    with closing(database.begin()) as setup:
        for name in ("1", "2"):
            setup.run(INSERT, (name,))
        setup.commit()
    held, told = threading.Barrier(2), list[Exception]()

    def change(first: str, second: str) -> None:
        with closing(database.begin()) as transaction:
            transaction.change(RENAME, (first,))
            held.wait(60)
            try:
                transaction.change(RENAME, (second,))
                transaction.commit()
            except Exception as error:  # noqa: BLE001  looked at below
                told.append(error)

    writers = [threading.Thread(target=change, args=order) for order in (("1", "2"), ("2", "1"))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [(type(error), str(error)) for error in told] == [
        (Conflict, "another transaction got in the way: deadlock detected; try again")
    ]


def test_a_server_that_lets_somebody_not_in_is_not_said_to_be_out_of_reach(postgres: PostgresServer) -> None:
    with (
        closing(PostgresDatabase(postgres.url("nowhere"), pool_size=1)) as database,
        pytest.raises(StorageUnavailable, match='database "nowhere" does not exist; the server answers but refuses'),
    ):
        database.begin()


@pytest.mark.parametrize(("given", "idle_s"), [("", 30), ("?keepalives_idle=7", 7)])
def test_the_system_asks_whether_a_silent_server_is_still_there(
    postgres: PostgresServer, given: str, idle_s: int
) -> None:
    with (
        closing(PostgresDatabase(postgres.url() + given, pool_size=1)) as database,
        closing(database.begin()) as transaction,
    ):
        driver: Any = transaction.connection.driver_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == idle_s
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


class Middlebox:
    """Stands before a server, and may forget a connection as firewalls do: who goes on with it learns only then."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._known: set[socket.socket] = set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def forget(self) -> None:
        self._known.clear()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._known.add(client)
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            back = threading.Thread(target=self._pass_back, args=(server, client), daemon=True)
            back.start()
            while data := client.recv(65536):
                if client not in self._known:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)
            back.join()

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(65536):
            client.sendall(data)


def test_a_connection_that_was_forgotten_on_the_way_while_it_lay_idle_is_replaced(
    postgres: PostgresServer, migrated_database: str
) -> None:
    with closing(Middlebox(postgres.port)) as middlebox:
        url = postgres.url(migrated_database).replace(f":{postgres.port}/", f":{middlebox.port}/")
        with closing(PostgresDatabase(url, pool_size=1)) as database:
            with closing(database.begin()) as transaction:
                assert one(transaction, COUNT) == 0
            middlebox.forget()
            with closing(database.begin()) as transaction:
                assert one(transaction, COUNT) == 0


def test_the_connections_of_a_server_that_was_restarted_are_replaced() -> None:
    with PostgresServer(fsync=False) as server, closing(PostgresDatabase(server.url(), pool_size=2)) as database:
        with closing(database.begin()) as one_of_two, closing(database.begin()) as other:
            assert one(one_of_two, "SELECT 1") == one(other, "SELECT 1") == 1
        server.kill()
        server.start()
        for _ in range(3):
            with closing(database.begin()) as transaction:
                assert one(transaction, "SELECT 1") == 1


def test_a_connection_that_was_lost_is_said_to_be_once_by_the_error(caplog: pytest.LogCaptureFixture) -> None:
    with PostgresServer(fsync=False) as server, closing(PostgresDatabase(server.url(), pool_size=1)) as database:
        with closing(database.begin()) as transaction:
            transaction.run("SELECT 1")
            server.kill()
            with pytest.raises(StorageUnavailable):
                transaction.rows("SELECT 1")
        del transaction
        gc.collect()
    assert caplog.messages == []
