"""A unit of work outlives its connection: it is repeated as a whole, never stored twice, and never in parts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from tests.cutting_proxy import COMMIT, CuttingProxy
from tests.run_writer import RunWriter
from tests.services import PgBouncer, PostgresServer
from wtb.domain.errors import ConnectionLost, DatabaseAway, StorageUnavailable
from wtb.domain.events import RecordedEvent
from wtb.domain.ports import EventBus, Measure
from wtb.domain.state import StateDelta
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.telemetry import MemoryTelemetry
from wtb.testing.fakes import FakeClock, SequentialIds

INSERT = "INSERT INTO wtb_workflows (id, name, version, definition) VALUES (?, 'a', '1', '{}')"
RENAME = "UPDATE wtb_workflows SET name = 'b' WHERE id = ?"
NAMES = "SELECT id, name FROM wtb_workflows ORDER BY id"
FLOW = {"name": "flow", "version": "1", "nodes": []}


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.fixture
def database(
    proxy: CuttingProxy, postgres: PostgresServer, migrated_database: str, telemetry: MemoryTelemetry
) -> Iterator[PostgresDatabase]:
    url = proxy.url(postgres.url(migrated_database))
    with closing(PostgresDatabase(url, pool_size=2, outage_timeout_s=20, telemetry=telemetry)) as database:
        yield database


def names(database: PostgresDatabase) -> list[Any]:
    with closing(database.begin(readonly=True)) as transaction:
        return transaction.rows(NAMES)


def write(transaction: Transaction) -> None:
    transaction.run(INSERT, ("1",))
    assert transaction.change(RENAME, ("1",)) == 1


def test_an_idle_connection_that_was_cut_is_replaced(database: PostgresDatabase, proxy: CuttingProxy) -> None:
    assert names(database) == []
    proxy.cut_all()
    assert names(database) == []


def test_the_open_connections_are_known_whatever_closed_them(
    proxy: CuttingProxy, postgres: PostgresServer, migrated_database: str, telemetry: MemoryTelemetry
) -> None:
    def opened() -> list[int]:
        return list(telemetry.levels(Measure.CONNECTIONS).values())

    url = proxy.url(postgres.url(migrated_database))
    with closing(PostgresDatabase(url, pool_size=2, outage_timeout_s=20, telemetry=telemetry)) as database:
        with closing(database.begin()) as first, closing(database.begin(readonly=True)) as second:
            assert (first.rows(NAMES), second.rows(NAMES), opened()) == ([], [], [2])
        assert opened() == [2], "idle ones are open too"
        proxy.cut_all()
        assert names(database) == []
        assert opened() in ([1], [2])
    assert opened() == [0]


def test_a_writer_whose_connection_is_cut_goes_on_with_another(
    database: PostgresDatabase, proxy: CuttingProxy, telemetry: MemoryTelemetry
) -> None:
    with closing(database.begin()) as transaction:
        write(transaction)
        proxy.cut_all()
        transaction.run(INSERT, ("2",))
        proxy.cut_all()
        assert transaction.rows(NAMES) == [("1", "b"), ("2", "a")]
        transaction.commit()
    assert names(database) == [("1", "b"), ("2", "a")]
    assert telemetry.by_name(Measure.RETRY)["unit"].count == 2


def test_a_writer_goes_on_when_psycopg_fails_more_than_once_because_the_server_stops(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, failures = psycopg.Connection.pipeline, iter(range(1))

    @contextmanager
    def pipeline_of_a_server_that_stops(connection: psycopg.Connection[Any]) -> Iterator[None]:
        with pipeline(connection):
            yield
        for _ in failures:
            try:
                try:
                    raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
                finally:
                    raise psycopg.errors.PipelineAborted("pipeline aborted")
            finally:
                raise psycopg.OperationalError("cannot exit pipeline mode while busy")

    monkeypatch.setattr(psycopg.Connection, "pipeline", pipeline_of_a_server_that_stops)
    with closing(database.begin()) as transaction:
        write(transaction)
        transaction.commit()
    assert names(database) == [("1", "b")]


def test_a_connection_is_taken_while_other_threads_lose_theirs(database: PostgresDatabase) -> None:
    assert names(database) == []
    losses = iter(range(3))

    def lose_another(connection: object, record: object) -> None:
        for _ in losses:
            database.replace(None, "unit")
            break

    sa.event.listen(database.engine, "connect", lose_another)
    database.replace(None, "unit")
    assert names(database) == []
    assert next(losses, None) is None


def test_a_reader_whose_connection_is_cut_goes_on_with_another(database: PostgresDatabase, proxy: CuttingProxy) -> None:
    with closing(database.begin(readonly=True)) as transaction:
        assert transaction.rows(NAMES) == []
        proxy.cut_all()
        assert transaction.rows(NAMES) == []


def test_a_reader_hears_of_changes_since_its_connection_was_cut_instead_of_mixing_two_views(
    database: PostgresDatabase, proxy: CuttingProxy
) -> None:
    with closing(database.begin(readonly=True)) as transaction:
        assert transaction.rows(NAMES) == []
        with closing(database.begin()) as other:
            write(other)
            other.commit()
        proxy.cut_all()
        with pytest.raises(ConnectionLost, match="others have changed what it had read"):
            transaction.rows(NAMES)


def test_a_writer_that_others_have_overtaken_stores_nothing(database: PostgresDatabase, proxy: CuttingProxy) -> None:
    with closing(database.begin()) as transaction:
        assert transaction.change(RENAME, ("1",)) == 0
        with closing(database.begin()) as other:
            write(other)
            other.commit()
        transaction.run(INSERT, ("2",))
        proxy.cut_all()
        with pytest.raises(ConnectionLost, match="nothing of it is stored"):
            transaction.commit()
    assert names(database) == [("1", "b")]


def test_a_commit_that_did_not_arrive_is_made_again(database: PostgresDatabase, proxy: CuttingProxy) -> None:
    with closing(database.begin()) as transaction:
        write(transaction)
        proxy.cut_before(COMMIT)
        transaction.commit()
    assert proxy.cuts == 1
    assert names(database) == [("1", "b")]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    database: PostgresDatabase, proxy: CuttingProxy, telemetry: MemoryTelemetry
) -> None:
    with closing(database.begin()) as transaction:
        write(transaction)
        proxy.cut_after(COMMIT)
        transaction.commit()
    assert proxy.cuts == 1
    assert names(database) == [("1", "b")]
    assert telemetry.by_name(Measure.RETRY)["commit"].count == 1


@pytest.fixture
def recorder(database: PostgresDatabase, bus: EventBus) -> RunWriter:
    clock = FakeClock()
    return RunWriter(SqlStorage(database, codec=MsgpackCodec(), clock=clock, bus=bus), clock, SequentialIds())


def sent_to(bus: EventBus) -> list[RecordedEvent]:
    got: list[RecordedEvent] = []
    bus.subscribe(got.append)
    return got


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
@pytest.mark.parametrize("sent", [b"INSERT INTO wtb_checkpoints", b"UPDATE wtb_branches", COMMIT])
def test_a_step_is_stored_once_wherever_its_connection_is_cut(
    recorder: RunWriter, database: PostgresDatabase, proxy: CuttingProxy, bus: Any, cut: str, sent: bytes
) -> None:
    got = sent_to(bus)
    at = recorder.start(FLOW, {"n": 0})
    for number in range(1, 4):
        getattr(proxy, cut)(sent)
        at = recorder.complete(at, recorder.node_run(at, "node", number), StateDelta.setting({"n": number}))
    assert proxy.cuts == 3
    assert recorder.load(at.execution.id) == at
    with closing(database.begin(readonly=True)) as transaction:
        steps = transaction.rows("SELECT step FROM wtb_checkpoints ORDER BY step")
        events = transaction.rows("SELECT position, sequence FROM wtb_events ORDER BY sequence")
    assert steps == [(0,), (1,), (2,), (3,)]
    assert bus.flush(10)
    assert [(event.position, event.sequence) for event in got] == events


def test_a_step_behind_pgbouncer_is_stored_once_when_its_commit_is_lost(
    postgres: PostgresServer, migrated_database: str, bus: EventBus
) -> None:
    with (
        PgBouncer(postgres) as bouncer,
        CuttingProxy(bouncer.port) as proxy,
        closing(
            PostgresDatabase(proxy.url(bouncer.url(migrated_database)), pool_size=1, outage_timeout_s=20)
        ) as database,
    ):
        clock = FakeClock()
        storage = SqlStorage(database, codec=MsgpackCodec(), clock=clock, bus=bus)
        recorder = RunWriter(storage, clock, SequentialIds())
        at = recorder.start(FLOW, {"n": 0})
        for number, cut in enumerate((proxy.cut_before, proxy.cut_after, proxy.cut_before), start=1):
            cut(COMMIT)
            at = recorder.complete(at, recorder.node_run(at, "node", number), StateDelta.setting({"n": number}))
        assert proxy.cuts == 3
        assert recorder.load(at.execution.id) == at
        assert at.head.step == 3


def test_a_database_that_is_away_for_a_while_is_waited_for(
    database: PostgresDatabase, proxy: CuttingProxy, telemetry: MemoryTelemetry
) -> None:
    assert names(database) == []
    proxy.refuse()
    threading.Timer(0.3, proxy.allow).start()
    with closing(database.begin()) as transaction:
        write(transaction)
        transaction.commit()
    assert names(database) == [("1", "b")]
    assert telemetry.by_name(Measure.RETRY)["connect"].count >= 1


def test_a_database_that_is_away_for_too_long_is_an_error_and_nothing_is_stored(
    proxy: CuttingProxy, postgres: PostgresServer, migrated_database: str
) -> None:
    url = proxy.url(postgres.url(migrated_database))
    with closing(PostgresDatabase(url, pool_size=2, outage_timeout_s=0.2)) as database:
        with closing(database.begin()) as transaction:
            write(transaction)
            proxy.refuse()
            with pytest.raises(DatabaseAway, match=r"has not answered for 0\.2 s.*when the database is back"):
                transaction.commit()
        with pytest.raises(DatabaseAway):
            database.begin()
        proxy.allow()
    with closing(PostgresDatabase(url, pool_size=2)) as database:
        assert names(database) == []


def test_a_database_that_was_never_there_is_an_error_at_once(proxy: CuttingProxy, postgres: PostgresServer) -> None:
    proxy.refuse()
    with (
        closing(PostgresDatabase(proxy.url(postgres.url()), pool_size=1, outage_timeout_s=3600)) as database,
        pytest.raises(StorageUnavailable, match="is the server running and reachable"),
    ):
        database.begin()


def test_while_a_database_is_away_one_thread_asks_for_it_and_the_others_wait(
    database: PostgresDatabase, proxy: CuttingProxy
) -> None:
    assert names(database) == []
    proxy.refuse()
    before = proxy.accepted
    done: list[list[Any]] = []
    threads = [threading.Thread(target=lambda: done.append(names(database))) for _ in range(40)]
    for thread in threads:
        thread.start()
    threading.Timer(1.0, proxy.allow).start()
    for thread in threads:
        thread.join(30)
    assert done == [[]] * 40
    assert proxy.accepted - before < 40 + 30  # each may notice it once; after that one asks, less and less often


NUMBER = "SELECT pg_current_xact_id()::text::bigint"
OVERTAKE = "UPDATE wtb_executions SET version = version + 1 WHERE id = %s"


@pytest.mark.parametrize("overtaken", [True, False])
def test_a_commit_that_a_crash_has_lost_is_not_mistaken_for_a_later_one_with_its_number(
    bus: EventBus, *, overtaken: bool
) -> None:
    """A server that answers before the disk has the data loses the last commits, and gives their numbers again."""
    with PostgresServer(settings={"synchronous_commit": "off"}) as server, CuttingProxy(server.port) as proxy:
        url = server.create_database("crashed")
        with closing(PostgresDatabase(url, pool_size=1)) as database:
            schema.upgrade(database)
        with closing(PostgresDatabase(proxy.url(url), pool_size=1, outage_timeout_s=60)) as database:
            storage = SqlStorage(database, codec=MsgpackCodec(), clock=(clock := FakeClock()), bus=bus)
            recorder = RunWriter(storage, clock, SequentialIds())
            at = recorder.start(FLOW, {"n": 0})
            lost = number_of(url, "CHECKPOINT")
            keep_from_disk(url)
            proxy.cut_after(COMMIT, refuse=True)
            with ThreadPoolExecutor(1) as pool:
                step = pool.submit(
                    recorder.complete, at, recorder.node_run(at, "node", 1), StateDelta.setting({"n": 1})
                )
                while not proxy.cuts:
                    time.sleep(0.01)
                server.kill()
                server.start()
                assert number_of(url, OVERTAKE if overtaken else "SELECT %s::text", at.execution.id) <= lost + 2
                while number_of(url, "SELECT 1") < lost + 5:  # these get the number of the lost one
                    pass
                proxy.allow()
                if overtaken:
                    with pytest.raises(ConnectionLost, match="nothing of it is stored"):
                        step.result(60)
                else:
                    after = step.result(60)
                    assert recorder.load(at.execution.id) == after


def keep_from_disk(url: str) -> None:
    """Halt the process that writes commits to the disk after they were answered."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").fetchone()
    assert found is not None
    os.kill(found[0], signal.SIGSTOP)


def number_of(url: str, statement: str, *parameters: str) -> int:
    """Execute a statement, commit it, and return the number of a transaction after it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement, parameters or None)
        (number,) = connection.execute(NUMBER).fetchone() or (0,)
        return int(number)
