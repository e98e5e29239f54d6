"""The feed on Postgres: commits that come late or out of order, lost connections, old rows, dumps of other clusters."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import psycopg
import pytest

from tests.services import PostgresServer, find_postgres
from wtb.domain.errors import CursorGone
from wtb.domain.events import Event, EventType, RecordedEvent
from wtb.domain.feed import START, FedEvent, FeedCursor
from wtb.domain.ports import UnitOfWork
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database
from wtb.testing.fakes import FakeClock


@pytest.fixture
def url(postgres: PostgresServer, migrated_database: str) -> str:
    return postgres.url(migrated_database)


@pytest.fixture
def storage(url: str) -> Iterator[SqlStorage]:
    with storage_at(url) as storage:
        yield storage


@pytest.fixture(scope="module")
def other() -> Iterator[PostgresServer]:
    """Another cluster, which has used few transactions."""
    with PostgresServer(fsync=False, settings={"max_prepared_transactions": "2"}) as server:
        yield server


@contextmanager
def storage_at(url: str) -> Iterator[SqlStorage]:
    bus = QueueEventBus()
    database = PostgresDatabase(url, pool_size=10, outage_timeout_s=10)
    storage = SqlStorage(database, codec=MsgpackCodec(), clock=FakeClock(), bus=bus)
    yield storage
    storage.close()
    bus.close()


def new_event(stream: str, number: int = 0) -> Event:
    return Event(type=EventType.NODE_LOGGED, stream=stream, at=datetime.now(UTC), data={"n": number})


def append(uow: UnitOfWork, stream: str, number: int = 0) -> RecordedEvent:
    return uow.events.append(new_event(stream, number))[0]


def record(storage: SqlStorage, stream: str, count: int = 1) -> list[RecordedEvent]:
    with storage.unit_of_work() as uow:
        recorded = list(uow.events.append(*[new_event(stream, number) for number in range(count)]))
        uow.commit()
    return recorded


def read(storage: SqlStorage, after: FeedCursor = START, limit: int = 500) -> tuple[list[FedEvent], FeedCursor]:
    with storage.unit_of_work(readonly=True) as uow:
        page = uow.feed.read(after, limit=limit)
    assert page.damaged == ()
    return list(page.events), page.cursor


def events(fed: Sequence[FedEvent]) -> list[RecordedEvent]:
    return [each.event for each in fed]


def test_a_transaction_that_commits_late_is_waited_for_and_comes_in_the_order_of_its_stream(
    storage: SqlStorage,
) -> None:
    with storage.unit_of_work() as slow:
        early = append(slow, "a")
        quick = record(storage, "b")
        assert read(storage) == ([], START)
        shared = record(storage, "c")
        after_all = append(slow, "c")  # recorded by an older transaction after a younger one has committed
        slow.commit()
    fed, cursor = read(storage)
    assert sorted(event.position for event in events(fed)) == sorted(
        event.position for event in (early, *quick, *shared, after_all)
    )
    assert [event.sequence for event in events(fed) if event.stream == "c"] == [1, 2]
    assert read(storage, cursor) == ([], cursor)


def test_a_transaction_that_holds_the_feed_is_shown_and_never_skipped(storage: SqlStorage, url: str) -> None:
    first = record(storage, "a")
    with psycopg.connect(url, application_name="a forgotten console") as console:
        pid = console.execute("SELECT pg_backend_pid(), pg_current_xact_id()").fetchone()
        assert pid is not None
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.feed.find_hold() is None, "nothing waits for it yet"
        waiting = record(storage, "a")
        fed, cursor = read(storage)
        assert events(fed) == first
        with storage.unit_of_work(readonly=True) as uow:
            hold = uow.feed.find_hold()
        assert hold is not None
        assert (hold.pid, hold.name, hold.state) == (pid[0], "a forgotten console", "idle in transaction")
        assert hold.age.total_seconds() >= 0
        assert read(storage, cursor) == ([], cursor)
        console.rollback()
    assert events(read(storage, cursor)[0]) == waiting


def test_a_user_without_rights_sees_which_process_holds_the_feed(storage: SqlStorage, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS plain_reader")
        admin.execute("CREATE ROLE plain_reader LOGIN IN ROLE pg_read_all_data")
        with storage.unit_of_work() as holder:
            append(holder, "a")
            record(storage, "b")
            plain = f"postgresql://plain_reader@{url.rpartition('@')[2]}"
            with storage_at(plain) as reader, reader.unit_of_work(readonly=True) as uow:
                hold = uow.feed.find_hold()
                assert uow.feed.read(START).events == ()
            assert hold is not None
            assert hold.pid is not None
        admin.execute("DROP ROLE plain_reader")


def test_a_transaction_that_is_repeated_gets_the_number_of_the_one_that_committed_it(
    storage: SqlStorage, url: str
) -> None:
    with psycopg.connect(url, autocommit=True) as admin, storage.unit_of_work() as uow:
        append(uow, "a")
        kill = (
            "SELECT pg_terminate_backend(pid), pid FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert len(admin.execute(kill).fetchall()) == 1
        later = record(storage, "b")  # its number is higher than that of the lost transaction
        append(uow, "a", 1)
        uow.commit()
        numbers = "SELECT stream, xmin::text::bigint, xid FROM wtb_events ORDER BY position"
        rows = admin.execute(numbers).fetchall()
    assert [stream for stream, _, _ in rows] == ["b", "a", "a"]
    assert all(xmin <= xid for _, xmin, xid in rows)
    fed = events(read(storage)[0])
    assert [event.stream for event in fed] == ["b", "a", "a"]
    assert fed[0] == later[0]


def test_readers_at_random_moments_see_the_table_whatever_the_order_of_commits(storage: SqlStorage) -> None:
    """Transactions begin, record, commit and fail in any order; readers come and go on from their cursors."""
    choose = random.Random(20_261_118)
    cursors, seen = [START] * 3, [list[FedEvent]() for _ in range(3)]
    with ExitStack() as stack:
        units: dict[int, tuple[UnitOfWork, set[str]]] = {}

        def step(number: int) -> None:
            place = choose.randrange(5)
            if place not in units:
                units[place] = stack.enter_context(storage.unit_of_work()), set()
                units[place][0].events.append(new_event(f"begun-{number}", number))  # takes a number now
                return
            uow, locked = units[place]
            taken = set[str]().union(*(held for _, held in units.values())) - locked
            match choose.choice(("record", "record", "record", "commit", "undo")):
                case "record":
                    stream = choose.choice("abcdefg")
                    if stream not in taken:
                        locked.add(stream)
                        uow.events.append(new_event(stream, number))
                case "commit":
                    uow.commit()
                    del units[place]
                case "undo":
                    uow.__exit__(None, None, None)
                    del units[place]

        for number in range(400):
            step(number)
            reader = choose.randrange(3)
            fed, cursors[reader] = read(storage, FeedCursor.parse(str(cursors[reader])), limit=choose.randint(1, 9))
            seen[reader] += fed
    everything, _ = read(storage, limit=10_000)
    for reader in range(3):
        rest, _ = read(storage, cursors[reader], limit=10_000)
        assert [fed.cursor for fed in seen[reader] + rest] == [fed.cursor for fed in everything]
    with storage.unit_of_work(readonly=True) as uow:
        table = uow.events.list_events(limit=10_000)
    assert len(table) > 100
    assert sorted(events(everything), key=lambda event: event.position) == list(table)
    for stream in {event.stream for event in table}:
        sequences = [event.sequence for event in events(everything) if event.stream == stream]
        assert sequences == sorted(sequences)


def test_events_of_older_versions_come_first(storage: SqlStorage, url: str) -> None:
    old = record(storage, "a", 3)
    database = open_database(Settings(url=url))
    schema.downgrade(database, "0016")
    schema.upgrade(database)
    database.close()
    new = record(storage, "a", 2)
    fed, _ = read(storage)
    assert events(fed) == [*old, *new]
    assert [each.cursor.xid for each in fed[:3]] == [0, 0, 0]


def spend_transactions(server: PostgresServer, count: int) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for _ in range(count):
            connection.execute("SELECT pg_current_xact_id()")


def dump_and_restore(source: str, target: str) -> None:
    tools = find_postgres()
    dump = subprocess.run([tools / "pg_dump", "-Fc", source], check=True, capture_output=True).stdout
    subprocess.run([tools / "pg_restore", "-d", target], check=True, input=dump)


def test_a_dump_of_another_cluster_is_read_first_and_its_cursors_are_gone(
    postgres: PostgresServer, other: PostgresServer, storage: SqlStorage, url: str
) -> None:
    low = record(storage, "a", 2)
    spend_transactions(postgres, 1_500)
    high = record(storage, "a", 2)
    cursor = read(storage)[1]
    target = other.create_database("restored")
    dump_and_restore(url, target)
    with storage_at(target) as restored:
        with pytest.raises(CursorGone, match="restored"):
            read(restored, cursor)
        assert len(read(restored)[0]) < 4, "the other cluster's numbers are not reached here yet"
        before, kept = read(restored)
        with restored.unit_of_work() as uow:
            assert uow.feed.rank_restored() == 4 - len(before)
            uow.commit()
        new = record(restored, "a", 1)
        assert events(read(restored)[0]) == [*low, *high, *new]
        assert events(before) + events(read(restored, kept)[0]) == [*low, *high, *new]


def test_a_dump_of_the_same_cluster_keeps_its_cursors(postgres: PostgresServer, storage: SqlStorage, url: str) -> None:
    log = record(storage, "a", 3)
    fed, _ = read(storage)
    target = postgres.create_database("restored_here")
    try:
        dump_and_restore(url, target)
        with storage_at(target) as restored:
            assert events(read(restored, fed[0].cursor)[0]) == log[1:]
            new = record(restored, "a", 1)
            assert events(read(restored, fed[0].cursor)[0]) == [*log[1:], *new]
            with pytest.raises(CursorGone):
                read(storage, read(restored)[1])
    finally:
        postgres.drop_database("restored_here")


def test_a_prepared_transaction_holds_the_feed_and_is_named(other: PostgresServer) -> None:
    url = other.create_database("prepared")
    database = open_database(Settings(url=url))
    schema.upgrade(database)
    database.close()
    with storage_at(url) as storage:
        with psycopg.connect(url, autocommit=True) as console:
            console.execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'")
            waiting = record(storage, "a")
            with storage.unit_of_work(readonly=True) as uow:
                hold = uow.feed.find_hold()
            assert hold is not None
            assert (hold.pid, hold.name, hold.state) == (None, "forgotten", "prepared")
            console.execute("ROLLBACK PREPARED 'forgotten'")
        assert events(read(storage)[0]) == waiting
