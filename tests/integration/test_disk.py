"""The disk under SQLite: full, read-only, or holding a file that is none of ours.

A real full disk is a small one: a tmpfs in a mount namespace of a process of its own, which takes it along when it
ends. Root ignores the modes of files, so what is read-only is tried in a process without that privilege. Both kinds
of processes run this file as a program, with the name of a function as argument.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.full_disks import WORKFLOW, Told, fill
from wtb.bootstrap import bootstrap
from wtb.domain.errors import DamagedData, StorageError, StorageUnavailable, WTBError
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Storage
from wtb.settings import Settings

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
DISK_BYTES = 12 * 1024 * 1024
"""More than SQLite's log holds before it is written back: what is in it takes room twice for a while."""


def run_alone(before: Sequence[str], scenario: str, folder: Path) -> None:
    """Run a function of this file in a process of its own, started by the command `before`."""
    done = subprocess.run(
        [*before, sys.executable, "-W", "error", __file__, scenario, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{scenario}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "scenario",
    [
        "fill_the_disk_step_by_step",
        "fill_the_disk_at_once",
        "open_on_a_full_disk",
        "go_on_in_a_unit_that_failed",
        "fill_the_disk_with_two_processes",
    ],
)
def test_a_full_disk_stops_writers_with_a_clear_error_and_costs_nothing(
    scenario: str, namespace: Sequence[str], tmp_path: Path
) -> None:
    run_alone(namespace, scenario, tmp_path)


@pytest.mark.parametrize(
    "scenario",
    [
        "have_a_folder_that_cannot_be_made",
        "have_a_folder_that_cannot_be_written",
        "have_a_file_that_cannot_be_written",
        "have_neither",
    ],
)
def test_what_is_read_only_is_said_to_be(scenario: str, tmp_path: Path) -> None:
    run_alone(without_privileges(), scenario, tmp_path)


def test_what_belongs_to_another_user_is_said_to_be_out_of_reach(tmp_path: Path) -> None:
    if os.geteuid() != 0:  # only root can give files away, but there is always something that belongs to root
        with pytest.raises(StorageUnavailable, match="/wtb cannot be used"):
            bootstrap(Settings(folder=Path("/wtb")))
        return
    make(tmp_path / "wtb")
    for path, mode in ((tmp_path / "wtb" / "wtb.db", 0o644), (tmp_path / "wtb", 0o755)):
        path.chmod(mode)
        os.chown(path, NOBODY, NOBODY)
    run_alone(without_privileges(), "have_what_belongs_to_another", tmp_path)


def without_privileges() -> Sequence[str]:
    """The command that takes from root what it has beyond others: then modes hold for it too."""
    privileges = "-dac_override,-dac_read_search,-fowner,-chown"
    return ["setpriv", "--bounding-set", privileges, "--inh-caps", privileges] if os.geteuid() == 0 else []


# What runs on the small disk.


@contextmanager
def small_disk(folder: Path, ballast: int) -> Iterator[Path]:
    """Mount a small tmpfs, and put a file on it that can be removed to make room."""
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    (folder / "ballast").write_bytes(bytes(ballast))
    yield folder
    # Nobody else sees the mount: it goes with this process.


def check_sentence(error: WTBError, path: Path) -> None:
    assert str(path) in str(error)
    assert "full" in str(error)
    assert "\n" not in str(error)


def fill_the_disk_step_by_step(folder: Path) -> None:
    with small_disk(folder, ballast=3_000_000), bootstrap(Settings(folder=folder / "wtb")) as services:
        told = Told(services)
        for size in (20_000, 3_000, 10):  # the smaller ones still find room
            check_sentence(fill(told, size), folder / "wtb" / "wtb.db")
            check_sentence(fill(told, size), folder / "wtb" / "wtb.db")
            told.check(services.storage)
        assert len(told.line) > 20
        (folder / "ballast").unlink()
        for _ in range(10):
            told.step(5_000)
        told.check(services.storage)
        services.close()
        with bootstrap(Settings(folder=folder / "wtb")) as again:
            told.check(again.storage)
        check_file(folder / "wtb" / "wtb.db")


def fill_the_disk_at_once(folder: Path) -> None:
    """One step that is larger than the disk does not take the room from the small ones that follow."""
    with small_disk(folder, ballast=0), bootstrap(Settings(folder=folder / "wtb")) as services:
        told = Told(services)
        for size in (10, DISK_BYTES, 10, 3 * DISK_BYTES, 10):
            if size >= DISK_BYTES:
                check_sentence(fill(told, size), folder / "wtb" / "wtb.db")
            else:
                told.step(size)
        told.check(services.storage)
        assert len(told.line) == 4
        services.close()
        check_file(folder / "wtb" / "wtb.db")


def open_on_a_full_disk(folder: Path) -> None:
    with small_disk(folder, ballast=0):
        for room in (0, 4_096, 40_000, 100_000):
            (folder / "ballast").write_bytes(bytes(DISK_BYTES // 4_096 * 4_096 - 4_096 - room))
            with pytest.raises(StorageUnavailable, match=r"full|No space") as raised:
                open_and_fill(folder / "wtb")
            assert str(folder / "wtb") in str(raised.value)
        (folder / "ballast").unlink()
        with bootstrap(Settings(folder=folder / "wtb")) as services:
            told = Told(services)
            told.step(1_000)
            told.check(services.storage)
        check_file(folder / "wtb" / "wtb.db")


def open_and_fill(folder: Path) -> None:
    with bootstrap(Settings(folder=folder)) as services:
        raise fill(Told(services), 30_000)


def go_on_in_a_unit_that_failed(folder: Path) -> None:
    """SQLite rolls back by itself when the disk is full: what follows in the same unit must not be kept alone."""
    with small_disk(folder, ballast=0), bootstrap(Settings(folder=folder / "wtb")) as services:
        told = Told(services)
        at = told.at
        with services.storage.unit_of_work() as uow:
            for number in range(80):  # more than the disk and the cache of SQLite hold
                with suppress(StorageError):
                    uow.workflows.save({**WORKFLOW, "name": f"{number}", "text": "x" * 500_000})
            with pytest.raises(StorageError):
                uow.commit()
        with services.storage.unit_of_work(readonly=True) as uow:
            assert uow.executions.get(at.execution.id) == at.execution
        connection = sqlite3.connect(folder / "wtb" / "wtb.db")
        assert connection.execute("SELECT count(*) FROM wtb_workflows").fetchone() == (1,)
        connection.close()
        told.step(10)
        told.check(services.storage)


def fill_the_disk_with_two_processes(folder: Path) -> None:
    """Another process meets the full disk as well; both go on when there is room."""
    with small_disk(folder, ballast=1_000_000), bootstrap(Settings(folder=folder / "wtb")) as services:
        told = Told(services)
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with bootstrap(Settings(folder=folder / "wtb")) as other:
                    mine = Told(other)
                    os.write(writable, b"begun")
                    check_sentence(fill(mine, 50_000), folder / "wtb" / "wtb.db")
                    mine.check(other.storage)
                    status = 0
            finally:
                os._exit(status)
        os.close(writable)
        assert os.read(readable, 5) == b"begun"  # its run must be begun before the disk is full
        os.close(readable)
        check_sentence(fill(told, 50_000), folder / "wtb" / "wtb.db")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        (folder / "ballast").unlink()
        told.step(50_000)
        told.check(services.storage)


def check_file(path: Path) -> None:
    """Ask SQLite itself whether the file is whole."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


# What runs without the privilege to write everywhere.


def make(folder: Path) -> None:
    with bootstrap(Settings(folder=folder)) as services:
        Told(services, "run").step(3_000)


def use(folder: Path) -> None:
    """Read what `make` wrote, then write."""
    with bootstrap(Settings(folder=folder)) as services:
        with services.storage.unit_of_work(readonly=True) as uow:
            assert len(uow.checkpoints.list_infos(ExecutionId("run"))) == 2
        Told(services).step(3_000)


def check_refused(folder: Path) -> None:
    """Opening or writing raises a clear error; everything that was read until then was right."""
    with pytest.raises(StorageUnavailable) as raised:
        use(folder)
    assert str(folder) in str(raised.value)
    assert "writable" in str(raised.value) or "cannot be written" in str(raised.value)


def have_a_folder_that_cannot_be_made(folder: Path) -> None:
    folder.chmod(0o555)
    with pytest.raises(StorageUnavailable, match=str(folder / "wtb")):
        bootstrap(Settings(folder=folder / "wtb"))
    with pytest.raises(StorageUnavailable, match=str(folder / "wtb.db")):
        bootstrap(Settings(url=f"sqlite:///{folder / 'wtb.db'}"))
    folder.chmod(0o755)
    make(folder / "wtb")
    use(folder / "wtb")


def have_a_folder_that_cannot_be_written(folder: Path) -> None:
    make(folder / "wtb")
    (folder / "wtb").chmod(0o500)
    check_refused(folder / "wtb")
    (folder / "wtb").chmod(0o700)
    use(folder / "wtb")


def have_a_file_that_cannot_be_written(folder: Path) -> None:
    make(folder / "wtb")
    (folder / "wtb" / "wtb.db").chmod(0o400)
    check_refused(folder / "wtb")
    for path in (folder / "wtb").iterdir():  # SQLite gives its other files the mode of the first
        path.chmod(0o600)
    use(folder / "wtb")


def have_neither(folder: Path) -> None:
    make(folder / "wtb")
    (folder / "wtb" / "wtb.db").chmod(0o400)
    (folder / "wtb").chmod(0o500)
    check_refused(folder / "wtb")
    (folder / "wtb").chmod(0o700)
    (folder / "wtb" / "wtb.db").chmod(0o000)
    check_refused(folder / "wtb")
    (folder / "wtb" / "wtb.db").chmod(0o600)
    use(folder / "wtb")


def have_what_belongs_to_another(folder: Path) -> None:
    check_refused(folder / "wtb")


# Files that are none of ours.


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any]:
    """A database file, and the run that it holds."""
    folder = tmp_path_factory.mktemp("whole") / "wtb"
    with bootstrap(Settings(folder=folder)) as services:
        told = Told(services)
        for size in (10, 3_000, 3_000, 9_000, 3_000, 3_000, 3_000, 100_000, 10):
            told.step(size)
    return (folder / "wtb.db").read_bytes(), told


def place(folder: Path, content: bytes) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    (folder / "wtb.db").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"This is a letter to my aunt.\n" * 500, id="a text"),
        pytest.param(random.Random(1).randbytes(50_000), id="noise"),
        pytest.param(b"SQLite format 3\0" + bytes(5_000), id="a header alone"),
    ],
)
def test_a_file_that_is_no_database_is_said_to_be_none(content: bytes, tmp_path: Path) -> None:
    folder = place(tmp_path / "wtb", content)
    with pytest.raises(DamagedData, match=str(folder / "wtb.db")) as raised:
        bootstrap(Settings(folder=folder))
    assert "restore a backup" in str(raised.value)
    assert (folder / "wtb.db").read_bytes() == content


def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    with bootstrap(Settings(folder=place(tmp_path / "wtb", b""))) as services:
        Told(services).step(10)


def test_a_folder_in_the_place_of_the_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "wtb" / "wtb.db").mkdir(parents=True)
    with pytest.raises(StorageUnavailable, match=r"wtb\.db"):
        bootstrap(Settings(folder=tmp_path / "wtb"))


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = place(tmp_path / "wtb", b"")
    connection = sqlite3.connect(folder / "wtb.db")
    connection.executescript("CREATE TABLE aunts (name TEXT); INSERT INTO aunts VALUES ('Agatha')")
    connection.close()
    with bootstrap(Settings(folder=folder)) as services:  # a table more does no harm
        Told(services).step(10)
    connection = sqlite3.connect(folder / "wtb.db")
    assert connection.execute("SELECT name FROM aunts").fetchall() == [("Agatha",)]
    connection.close()


def damaged(whole: bytes, number: int) -> bytes:
    """The file with a bit flipped, a piece zeroed or the end cut off, each time elsewhere."""
    chance = random.Random(number)
    data = bytearray(whole)
    at = chance.randrange(len(data))
    match number % 4:
        case 0:
            return bytes(data[:at])
        case 1:
            size = chance.choice([16, 512, 4_096])
            data[at : at + size] = bytes(len(data[at : at + size]))
        case _:
            data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def test_whatever_is_damaged_in_the_file_no_wrong_state_is_read(whole: tuple[bytes, Told], tmp_path: Path) -> None:
    content, told = whole
    found = {"whole": 0, "damaged": 0}
    for number in range(300):
        folder = place(tmp_path / "wtb", damaged(content, number))
        try:
            services = bootstrap(Settings(folder=folder))
        except StorageError:
            found["damaged"] += 1
            continue
        with services:
            check_what_is_left(services.storage, told, found)
    assert min(found.values()) > 50


def check_what_is_left(storage: Storage, told: Told, found: dict[str, int]) -> None:
    """Read everything: what was written comes, or an error of ours."""
    run = ExecutionId(told.at.execution.id)
    for checkpoint, state in zip(told.line, told.states, strict=True):
        with storage.unit_of_work(readonly=True) as uow:
            try:
                snapshot = uow.checkpoints.load(checkpoint.id)
            except WTBError:
                found["damaged"] += 1
            else:
                assert dict(snapshot.state) == dict(state)
                assert (snapshot.checkpoint.hash, snapshot.checkpoint.node) == (checkpoint.hash, checkpoint.node)
                found["whole"] += 1
    for read in ("list_infos", "load_history"):
        with storage.unit_of_work(readonly=True) as uow:
            try:
                getattr(uow.checkpoints, read)(run)
            except WTBError:
                found["damaged"] += 1
    with storage.unit_of_work(readonly=True) as uow:
        try:
            events = uow.events.list_events(stream=run)
            uow.node_runs.list_boundaries(run)
            uow.executions.list_executions()
        except WTBError:
            found["damaged"] += 1
        else:
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
