"""A writer that is killed loses nothing that it had acknowledged, and leaves nothing half done."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.processes import Witness, WriterProcess, a_moment
from tests.services import PostgresServer
from wtb.infrastructure.sql import schema
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database

SOAK = bool(os.environ.get("WTB_SOAK"))
TIMES = 10 if SOAK else 1
AT_ONCE = 4
"""Steps that a writer takes before the next one goes on from them."""


def kill_again_and_again(writer: WriterProcess, witness: Witness, kills: int) -> None:
    for _ in range(kills):
        before = witness.last
        writer.start(witness.settings, witness.run)
        # At first it opens the database and starts the run; killed before that, it leaves nothing to look at.
        wanted = random.randrange(25) if before >= 0 else 1
        witness.hear(*(writer.acknowledged() for _ in range(wanted)))
        a_moment(0.004 if wanted else 0.04)
        witness.hear(*writer.kill())
        witness.check(since=max(before, 0))


@pytest.mark.parametrize(("synchronous", "kills"), [("NORMAL", 500 if SOAK else 25), ("FULL", 200 if SOAK else 12)])
def test_killed_writers_lose_nothing_that_they_acknowledged_on_sqlite(
    synchronous: str, kills: int, tmp_path: Path
) -> None:
    witness = Witness({"folder": str(tmp_path / "wtb"), "sqlite_synchronous": synchronous}, "run")
    with WriterProcess(tmp_path / "errors") as writer:
        kill_again_and_again(writer, witness, kills)
    assert witness.check() >= kills
    check_file(tmp_path / "wtb" / "wtb.db")


def test_a_writer_can_be_killed_before_every_single_statement(tmp_path: Path) -> None:
    """Random moments fall mostly into the slow statements; here are the others.

    Each kill begins with a copy of what the steps before have left, so a late one costs no more than the first. What
    steps change repeats after 50 of them: `make soak` kills in every kind of step, `make test` in a few in a row.
    """
    witness = Witness({"folder": str(tmp_path / "begun")}, "run")
    with WriterProcess(tmp_path / "errors") as writer:
        write(writer, witness, 0 if SOAK else random.randrange(50))
        end, kills = witness.last + (80 if SOAK else 8), 0
        while witness.last < end:
            witness, more = kill_before_each_statement(writer, witness, tmp_path)
            kills += more
    assert kills > 50
    check_file(Path(witness.settings["folder"]) / "wtb.db")


def kill_before_each_statement(writer: WriterProcess, witness: Witness, home: Path) -> tuple[Witness, int]:
    """Kill a writer before each statement of its next steps; return the store of the one that survived, and the kills.

    What each of the others left is checked, and every third time written on.
    """
    kills = 0
    while True:
        copy = copied(witness, home / f"step-{witness.last}-kill-{kills}")
        write(writer, copy, AT_ONCE, dies_at=kills + 1)
        if copy.last == witness.last + AT_ONCE:
            return copy, kills
        kills += 1
        if kills % 3 == 0:  # a step has about 8 statements: sooner or later this comes to each of them
            write(writer, copy, 1)
        shutil.rmtree(copy.settings["folder"])


def copied(witness: Witness, folder: Path) -> Witness:
    """Return a copy of a store, and of what is known about it."""
    shutil.copytree(witness.settings["folder"], folder)
    return replace(witness, settings={"folder": str(folder)}, seen=dict(witness.seen))


def write(writer: WriterProcess, witness: Witness, steps: int, *, dies_at: int = 0) -> None:
    """Write some steps or die, and check what is there then."""
    before = max(witness.last, 0)
    writer.start(witness.settings, witness.run, steps=steps, dies_at=dies_at)
    witness.hear(*writer.finish())
    witness.check(since=before)


def test_a_killed_writer_does_not_disturb_another_process_on_sqlite(tmp_path: Path) -> None:
    settings = {"folder": str(tmp_path / "wtb")}
    witness, other = Witness(settings, "run"), Witness(settings, "other")
    with WriterProcess(tmp_path / "errors") as writer, WriterProcess(tmp_path / "other errors") as bystander:
        bystander.start(settings, other.run, paced=True)
        other.hear(bystander.acknowledged())
        for _ in range(10 * TIMES):
            bystander.send()
            kill_again_and_again(writer, witness, 1)
            other.hear(bystander.acknowledged())
        other.hear(*bystander.kill())
    assert witness.check() >= 10
    assert other.check() == other.last == 10 * TIMES


def test_a_process_killed_while_it_makes_the_database_leaves_one_that_opens(tmp_path: Path) -> None:
    with WriterProcess(tmp_path / "errors") as writer:
        for number in range(10 * TIMES):
            witness = Witness({"folder": str(tmp_path / str(number))}, "run")
            writer.start(witness.settings, witness.run, only_open=True)
            a_moment(0.08)
            writer.kill()
            writer.start(witness.settings, witness.run, steps=2)
            witness.hear(*writer.finish())
            assert witness.check() == 2


def test_killed_writers_lose_nothing_that_they_acknowledged_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    migrate(postgres_url)
    witness = Witness({"url": postgres_url}, "run")
    with WriterProcess(tmp_path / "errors") as writer:
        kill_again_and_again(writer, witness, 300 if SOAK else 15)
    assert witness.check() >= 15


def test_a_killed_server_loses_nothing_and_its_writer_says_so_and_goes_on(tmp_path: Path) -> None:
    with PostgresServer(fsync=True) as server, WriterProcess(tmp_path / "errors") as writer:
        url = server.create_database("crash")
        migrate(url)
        witness = Witness({"url": url, "outage_timeout_s": 1}, "run")
        for _ in range(3 * TIMES):
            checked = max(witness.last, 0)
            writer.start(witness.settings, witness.run)
            witness.hear(*(writer.acknowledged() for _ in range(random.randrange(2, 15))))
            a_moment(0.02)
            server.kill()
            message = hear_until_unavailable(writer, witness)
            assert f"@127.0.0.1:{server.port}/crash" in message
            assert "reachable" in message
            server.start()
            go_on(writer, witness)
            witness.hear(*writer.kill())
            witness.check(since=checked)
    assert witness.last > 6


def hear_until_unavailable(writer: WriterProcess, witness: Witness) -> str:
    while True:
        verb, rest = writer.read()
        if verb == "unavailable":
            return rest
        witness.hear(writer.fact(verb, rest))


def go_on(writer: WriterProcess, witness: Witness) -> None:
    """Wait until the writer has found the server again."""
    while True:
        verb, rest = writer.read()
        if verb != "unavailable":
            witness.hear(writer.fact(verb, rest))
            return


def check_file(path: Path) -> None:
    """Ask SQLite itself whether the file is whole."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def migrate(url: str) -> None:
    database = open_database(Settings(url=url))
    schema.upgrade(database)
    database.close()
