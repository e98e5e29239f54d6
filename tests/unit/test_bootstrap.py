"""Bootstrap: what the settings name is opened, privately, and what cannot be opened is a clear error."""

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.run_writer import RunWriter
from wtb.bootstrap import Services, bootstrap
from wtb.domain.errors import InvalidInput, SchemaOutdated, StorageError, StorageUnavailable
from wtb.domain.events import Event, EventType, RecordedEvent
from wtb.domain.state import Append, StateDelta
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database
from wtb.testing.fakes import FakeClock, SequentialIds

pytestmark = pytest.mark.usefixtures("empty_folder")

WORKFLOW = {"name": "flow", "version": "1"}


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Take nothing away from the modes of new files, as careless shells do."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def use(services: Services) -> None:
    """Write something, so that every file is there."""
    recorder = RunWriter(services.storage, services.clock, services.ids)
    at = recorder.start(WORKFLOW, {"messages": []})
    recorder.complete(at, recorder.node_run(at, "a", 1), StateDelta.of(messages=Append(("x" * 10_000,))))


def test_the_testing_preset_keeps_everything_in_memory(empty_folder: Path) -> None:
    with bootstrap(Settings(preset="testing")) as services:
        use(services)
        assert isinstance(services.storage, MemoryStorage)
    assert list(empty_folder.iterdir()) == []


def test_sqlalchemy_is_loaded_for_migrations_and_postgres_alone(tmp_path: Path) -> None:
    """It takes as long to load as all else that a command needs."""
    with bootstrap(Settings(folder=tmp_path)):  # migrated
        pass
    code = "import sys, wtb.cli; wtb.Bench(folder=sys.argv[1]).close(); sys.exit('sqlalchemy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_the_default_is_a_folder_here_that_migrates_itself(empty_folder: Path) -> None:
    with bootstrap() as services:
        use(services)
        assert isinstance(services.storage, SqlStorage)
    assert [path.name for path in empty_folder.iterdir()] == [".wtb"]


def test_what_was_written_is_there_when_it_is_opened_again() -> None:
    with bootstrap() as services:
        use(services)
    with bootstrap() as services, services.storage.unit_of_work(readonly=True) as uow:
        (execution,) = uow.executions.list_executions()
        assert execution.workflow_name == "flow"


@pytest.mark.usefixtures("open_umask")
def test_the_folder_and_its_files_are_private_whatever_the_umask() -> None:
    with bootstrap() as services:
        use(services)
        files = {path.name: mode(path) for path in Path(".wtb").iterdir()}
    assert mode(Path(".wtb")) == "0o700"
    names = ("wtb.db", "wtb.db-wal", "wtb.db-shm", "wtb.db-anchor")
    assert files == dict.fromkeys(names, "0o600")


@pytest.mark.usefixtures("open_umask")
def test_a_database_that_is_named_by_its_path_is_private_too() -> None:
    open_database(Settings(url="sqlite:///own.db")).close()
    assert mode(Path("own.db")) == "0o600"


def test_a_folder_of_ours_that_was_opened_to_others_is_closed_again() -> None:
    with bootstrap():
        pass
    Path(".wtb").chmod(0o755)
    with bootstrap():
        assert mode(Path(".wtb")) == "0o700"


def test_a_folder_that_served_a_postgres_before_is_used_and_made_private() -> None:
    for name in ("objects", "workspaces", "indexes", "environments", "outside"):
        Path("data", name).mkdir(parents=True)
    Path("data").chmod(0o755)
    with bootstrap(Settings(folder=Path("data"))):
        assert mode(Path("data")) == "0o700"


def test_an_empty_folder_that_exists_is_made_private() -> None:
    Path("data").mkdir(mode=0o755)
    with bootstrap(Settings(folder=Path("data"))):
        assert mode(Path("data")) == "0o700"


@pytest.mark.parametrize("folder", ["", "."])
def test_a_folder_that_holds_other_things_is_refused_and_left_as_it_is(empty_folder: Path, folder: str) -> None:
    Path("thesis.tex").touch()
    before = mode(empty_folder)
    with pytest.raises(InvalidInput, match="holds other files and is open to others"):
        bootstrap(Settings(folder=Path(folder)))
    assert mode(empty_folder) == before
    assert [path.name for path in empty_folder.iterdir()] == ["thesis.tex"]


def test_missing_folders_on_the_way_are_made() -> None:
    with bootstrap(Settings(folder=Path("a/b/c"))):
        assert mode(Path("a/b/c")) == "0o700"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "'' is no database address; use memory://, sqlite:///path or postgresql://user@host/database"),
        ("wtb.db", "'wtb.db' is no database address"),
        ("sqlite://", "sqlite:// cannot be used"),
        ("sqlite:///:memory:", "cannot be used"),
        ("sqlite:///x.db?mode=ro", "cannot be used"),
        ("mysql://me:secret@host/db", "mysql://me:***@host/db cannot be used"),
        ("postgresql//me:secret@host/db", "'postgresql//me:***@host/db' is no database address"),
        ("postgresql://me:secret@host:port/db", "'postgresql://me:***@host:port/db' is no database address"),
    ],
)
def test_a_bad_address_is_refused_with_good_ones_and_without_its_password(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        bootstrap(Settings(url=url))
    assert problem in str(refused.value)
    assert "use memory://, sqlite:///path or postgresql://" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_pattern_of_secrets_that_is_none_is_refused_before_anything_is_opened(empty_folder: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a regular expression"):
        bootstrap(Settings(secret_patterns=("(",)))
    assert list(empty_folder.iterdir()) == []


def test_a_named_database_without_tables_says_what_to_run() -> None:
    with pytest.raises(SchemaOutdated, match=r"sqlite:///own.db has no wtb tables yet; run `wtb db upgrade`"):
        bootstrap(Settings(url="sqlite:///own.db"))


def test_a_server_that_does_not_answer_is_one_line_that_names_it_without_its_password() -> None:
    with pytest.raises(StorageUnavailable) as refused:
        bootstrap(Settings(url="postgresql://me:secret@127.0.0.1:1/db"))
    assert str(refused.value).startswith("postgresql://me:***@127.0.0.1:1/db: ")
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def a_file(path: Path) -> None:
    path.touch()


def a_folder(path: Path) -> None:
    path.mkdir()


def junk(path: Path) -> None:
    path.write_bytes(b"this is no database, whatever its name says" * 200)


@pytest.mark.parametrize(
    ("make", "settings", "problem"),
    [
        (a_file, {"folder": "taken"}, "taken cannot be used: File exists"),
        (a_file, {"folder": "taken/deeper"}, "taken/deeper cannot be used: Not a directory"),
        (a_folder, {"url": "sqlite:///taken"}, "taken: unable to open database file"),
        (a_folder, {"url": "sqlite:///taken/no/x.db"}, "cannot be written: No such file or directory"),
        (junk, {"url": "sqlite:///taken"}, "this is not a wtb database, or it is damaged"),
    ],
)
def test_a_place_that_cannot_hold_a_database_is_named(
    make: Callable[[Path], None], settings: dict[str, str], problem: str
) -> None:
    make(Path("taken"))
    with pytest.raises(StorageError) as refused:
        bootstrap(Settings(**settings))  # type: ignore[arg-type]
    assert problem in str(refused.value)


@contextmanager
def no_privileges() -> Iterator[None]:
    """Act as a user who may not write everywhere: root may, whatever the modes say."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users can get to; pytest keeps its own to itself."""
    with TemporaryDirectory(prefix="wtb-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def use_folder(folder: Path) -> None:
    with bootstrap(Settings(folder=folder)) as services:
        use(services)


def test_a_folder_in_which_nothing_may_be_made_is_a_clear_error(reachable: Path) -> None:
    reachable.chmod(0o555)
    with no_privileges(), pytest.raises(StorageUnavailable) as refused:
        bootstrap(Settings(folder=reachable / ".wtb"))
    assert str(refused.value) == f"{reachable}/.wtb cannot be used: Permission denied; set WTB_FOLDER to another folder"


def test_a_read_only_database_is_a_clear_error_and_stays_intact(reachable: Path) -> None:
    use_folder(reachable / ".wtb")
    (reachable / ".wtb" / "wtb.db").chmod(0o444)
    (reachable / ".wtb").chmod(0o555)
    with no_privileges(), pytest.raises(StorageUnavailable, match=r"wtb\.db.*(Permission denied|read-?only)"):
        use_folder(reachable / ".wtb")
    with bootstrap(Settings(folder=reachable / ".wtb")) as services, services.storage.unit_of_work() as uow:
        assert len(uow.executions.list_executions()) == 1


def test_clock_and_ids_can_be_given() -> None:
    clock, ids = FakeClock(), SequentialIds()
    with bootstrap(Settings(preset="testing"), clock=clock, ids=ids) as services:
        at = RunWriter(services.storage, services.clock, services.ids).start(WORKFLOW, {})
        assert at.execution.id == SequentialIds().new()
        assert at.execution.created_at < clock.now()


def test_closing_delivers_what_is_queued() -> None:
    seen: list[RecordedEvent] = []
    with bootstrap(Settings(preset="testing")) as services:
        services.bus.subscribe(seen.append)
        with services.storage.unit_of_work() as uow:
            uow.events.append(Event(type=EventType.BATCH_STARTED, at=services.clock.now()))
            uow.commit()
    assert [event.type for event in seen] == [EventType.BATCH_STARTED]


@pytest.mark.parametrize(("preset", "synchronous"), [("local", 1), ("production", 2)])
def test_the_preset_decides_how_carefully_sqlite_writes(preset: str, synchronous: int) -> None:
    database = open_database(Settings(preset=preset))
    transaction = database.begin()
    assert transaction.row("PRAGMA synchronous") == (synchronous,)
    assert transaction.row("PRAGMA journal_mode") == ("wal",)
    transaction.close()
    database.close()
