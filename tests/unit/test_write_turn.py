"""Writers of a SQLite database take turns, in one process and between processes."""

import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

from wtb.infrastructure.sql.sqlite import SqliteDatabase
from wtb.infrastructure.sql.write_turn import WriteTurn

LONG_S = 60.0
HOLD = """
import sys, time
from wtb.infrastructure.sql.write_turn import WriteTurn
assert WriteTurn(sys.argv[1]).take()
print("taken", flush=True)
time.sleep(600)
"""


def turn(folder: Path, longest_s: float = 0.0) -> WriteTurn:
    """Another process has its own WriteTurn; the lock of a folder does not care whether it is one."""
    return WriteTurn(str(folder), longest_s=longest_s)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_only_one_writer_has_the_turn_until_it_is_released(tmp_path: Path) -> None:
    one, other = turn(tmp_path), turn(tmp_path)
    assert one.take()
    assert not other.take()
    one.release()
    assert other.take()
    other.release()
    one.close()
    other.close()


def test_threads_of_one_process_take_turns_too(tmp_path: Path) -> None:
    one = turn(tmp_path)
    assert one.take()
    assert not one.take()
    one.release()
    assert one.take()
    one.release()
    one.close()


def test_a_writer_that_waits_gets_the_turn_when_the_other_one_is_done(tmp_path: Path) -> None:
    one, other = turn(tmp_path), turn(tmp_path, LONG_S)
    assert one.take()
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(other.take()))
    waiting.start()
    one.release()
    waiting.join()
    assert found == [True]
    other.release()


def test_a_killed_process_leaves_its_turn(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        other = turn(tmp_path)
        assert not other.take()
        holder.send_signal(signal.SIGKILL)
    assert other.take()
    other.release()


def test_a_folder_that_cannot_be_locked_gives_no_turn(tmp_path: Path) -> None:
    assert not turn(tmp_path / "missing", LONG_S).take()


def test_a_turn_can_be_taken_again_after_it_was_closed(tmp_path: Path) -> None:
    one = turn(tmp_path)
    assert one.take()
    one.release()
    open_before = open_files()
    one.close()
    assert open_files() == open_before - 1
    assert one.take()
    one.release()
    one.close()


def test_a_transaction_that_writes_has_the_turn_and_one_that_reads_does_not(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "wtb.db", synchronous="NORMAL", busy_timeout_s=30)
    other = turn(tmp_path)
    with closing(database.begin(readonly=True)):
        assert other.take()
        other.release()
    with closing(database.begin()) as transaction:
        transaction.run("CREATE TABLE some (number)")
        assert not other.take()
    assert other.take()
    other.release()
    database.close()


def test_a_writer_takes_its_turn_at_its_first_statement(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "wtb.db", synchronous="NORMAL", busy_timeout_s=30)
    other = turn(tmp_path)
    with closing(database.begin()) as transaction:
        assert other.take()
        other.release()
        transaction.rows("SELECT 1")
        assert not other.take()
    database.close()


def test_a_lock_and_the_time_of_a_writer_come_with_its_turn(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "wtb.db", synchronous="NORMAL", busy_timeout_s=30)
    other = turn(tmp_path)
    for wait in (lambda found: found.lock("name"), database.now):
        with closing(database.begin()) as transaction:
            wait(transaction)
            assert not other.take()
    database.close()


def test_a_writer_that_writes_nothing_takes_no_turn(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "wtb.db", synchronous="NORMAL", busy_timeout_s=30)
    other = turn(tmp_path)
    assert other.take()
    with closing(database.begin()) as transaction:
        transaction.commit()
        assert transaction.turn is None
    other.release()
    database.close()


def test_a_writer_without_a_turn_writes_all_the_same(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "wtb.db", synchronous="NORMAL", busy_timeout_s=30)
    other = turn(tmp_path)
    assert other.take()
    with closing(database.begin()) as transaction:
        transaction.run("CREATE TABLE kept (number)")
        transaction.commit()
    other.release()
    with closing(database.begin(readonly=True)) as transaction:
        assert database.has_table(transaction, "kept")
    database.close()
