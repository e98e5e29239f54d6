"""What every test may ask for: storages, databases on a real Postgres, and how hard hypothesis tries."""

import gc
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from psycopg import sql

from tests.s3_server import S3Server
from tests.services import PgBouncer, PostgresServer
from wtb.application.tool_registry import TOOLS
from wtb.domain.ports import Storage
from wtb.infrastructure import observation
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.codecs.types import REGISTERED
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.database import Database
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.infrastructure.sql.sqlite import SqliteDatabase
from wtb.infrastructure.sql.tables import metadata
from wtb.infrastructure.sql.unit_of_work import SqlStorage

# Before any of them is imported: a failing assertion in a shipped suite or in a helper of ours then shows its values.
pytest.register_assert_rewrite(
    "wtb.testing",
    "tests.api",
    "tests.crash",
    "tests.integration",
    "tests.property",
    "tests.shell",
    "tests.unit",
    "tests.upkeep",
)

# Failing examples are kept in the repository's folder, whatever the current one is; git ignores them.
_EXAMPLES = DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis" / "examples")
# No deadline: the first example pays for starting a database, and a busy machine is not a failure.
settings.register_profile(
    "ci",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
    print_blob=True,
    database=_EXAMPLES,
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=5_000, stateful_step_count=200)
settings.load_profile("soak" if os.environ.get("WTB_SOAK") else "ci")

# Tests make and remove hundreds of thousands of small files, which takes a fifth of their time on a disk.
_MEMORY, _ENOUGH_BYTES = Path("/dev/shm"), 4 << 30
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

_numbers = itertools.count(1)

# Ray takes long to start: its tests are a process of their own, `make test-ray`.
RUNNERS = os.environ.get("WTB_TEST_RUNNERS", "threads processes").split()
collect_ignore = [] if "ray" in RUNNERS else ["ray"]


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node with room for two workers; its address."""
    from wtb.infrastructure.runners.ray_cluster import RayCluster

    cluster = RayCluster(2, None, tmp_path_factory.getbasetemp())
    yield cluster.ray.get_runtime_context().gcs_address
    cluster.close()


def pytest_collection_finish() -> None:
    """Keep no compiled code from now on: only that of our tests, which takes ten seconds to make, was kept until here.

    If a test writes a module twice within a second, in the same size, Python would run what it compiled first.
    """
    sys.dont_write_bytecode = True
    gc.freeze()  # thousands of modules and tests stay until the end: do not look for garbage among them again and again
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(autouse=True)
def _own_tools(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test registers is gone when it ends: another one may give its tool the same name.

    So are the files that registered them: a file that stays loaded does not register its tools for the next test.
    """
    known = dict(TOOLS._tools)
    monkeypatch.setattr(TOOLS, "_tools", dict(known))
    yield
    written = str(tmp_path_factory.getbasetemp())
    for name, tool in TOOLS._tools.items():
        module = getattr(tool.function, "__module__", None) if name not in known else None
        if module is not None and (getattr(sys.modules.get(module), "__file__", None) or "").startswith(written):
            del sys.modules[module]


@pytest.fixture(autouse=True)
def _own_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what earlier tests read: every batch digests and stores all that its process has read before.

    After some thousand tests that takes a second a batch.
    """
    monkeypatch.setattr(observation, "_NOTES", observation._Notes())


@pytest.fixture
def no_registered_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the classes that other test modules have registered here: worker processes do not know them."""
    monkeypatch.setattr(REGISTERED, "_by_name", {})
    monkeypatch.setattr(REGISTERED, "_names", {})


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without any WTB_* variable of the machine that the tests run on."""
    for name in [name for name in os.environ if name.startswith("WTB_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for the session (with xdist: for each worker).

    Without fsync, which only matters when the machine loses power: no test does that, and it is several times
    quicker. A test that kills a server starts its own PostgresServer.
    """
    with PostgresServer(fsync=False, parent=Path(tempfile.gettempdir())) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode before the session's server."""
    with PgBouncer(postgres) as bouncer:
        yield bouncer


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 for the session. A test that stops it starts its own."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_url(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a place in a fresh bucket; the variables of this process lead to it."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.create_bucket()}/wtb"


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[str]:
    """The name of a fresh, empty database of the session's server."""
    name = f"test_{next(_numbers)}"
    postgres.create_database(name)
    yield name
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_database: str) -> str:
    """The url of a fresh, empty database."""
    return postgres.url(postgres_database)


@pytest.fixture
def pgbouncer_url(pgbouncer: PgBouncer, postgres_database: str) -> str:
    """The url of a fresh, empty database, reached through PgBouncer: the same one as `postgres_url`."""
    return pgbouncer.url(postgres_database)


@pytest.fixture(scope="session")
def _migrated_database(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    """A connection to a database with wtb's tables, made once a session: a new one takes longer than most tests."""
    url = postgres.create_database("migrated")
    database = PostgresDatabase(url, pool_size=1)
    schema.upgrade(database)
    database.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '10s'")  # a test that left a transaction open must not hang the next
        yield connection


@pytest.fixture
def migrated_database(_migrated_database: psycopg.Connection) -> str:
    """The name of a database of the session's server that has wtb's tables, all empty."""
    empty = "; ".join(f"DELETE FROM {table}" for table in metadata.tables)
    _migrated_database.execute(sql.SQL(empty))
    return "migrated"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file that has wtb's tables, to be copied."""
    path = tmp_path_factory.mktemp("template") / "wtb.db"
    database = SqliteDatabase(path, synchronous="NORMAL", busy_timeout_s=30)
    schema.upgrade(database)
    database.close()
    return path


@pytest.fixture
def sqlite_folder(sqlite_template: Path, tmp_path: Path) -> Path:
    """A folder for a bench, with a database that has wtb's tables: to make them takes longer than most tests."""
    folder = tmp_path / "wtb"
    folder.mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, folder / "wtb.db")
    return folder


@pytest.fixture
def bus() -> Iterator[QueueEventBus]:
    """The bus that `storage` hands its events to."""
    bus = QueueEventBus()
    yield bus
    bus.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, bus: QueueEventBus) -> Iterator[Storage]:
    """An empty storage of each kind in turn; `pgbouncer` is there for tests that ask for it by name."""
    from wtb.testing.fakes import FakeClock

    parts: dict[str, Any] = {"codec": MsgpackCodec(), "clock": FakeClock(), "bus": bus}
    storage = MemoryStorage(**parts) if request.param == "memory" else SqlStorage(_database(request), **parts)
    yield storage
    storage.close()


def _database(request: pytest.FixtureRequest) -> Database:
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "wtb.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        return SqliteDatabase(path, synchronous="NORMAL", busy_timeout_s=30)
    server: PostgresServer | PgBouncer = request.getfixturevalue(request.param)
    return PostgresDatabase(server.url(request.getfixturevalue("migrated_database")), pool_size=5)
