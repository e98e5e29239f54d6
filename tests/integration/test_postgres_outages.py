"""Postgres goes away under a run: its server is killed, its disk is full, the pooler before it is restarted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psycopg

import wtb
from tests.integration.full_disks import Told, fill
from tests.services import PgBouncer, PostgresServer
from wtb.bootstrap import bootstrap
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.settings import Settings

ROOT = Path(__file__).parents[2]
VISITS = 60
OUTAGES = (7, 8, 25, 40)
"""At which visits of the node the database goes away."""
DISK = "40m"
"""What a new database takes, and some steps."""


def upgrade(url: str) -> None:
    database = PostgresDatabase(url, pool_size=1)
    schema.upgrade(database)
    database.close()


def mailing(sent: list[int], outage: Callable[[], None]) -> wtb.Workflow:
    """Send a mail at each visit, and let the database go away in the middle of some, before the mail or after it."""
    flow = wtb.Workflow("mailing")
    remaining = list(OUTAGES)

    @wtb.tool
    def outage_mail(number: int) -> int:
        sent.append(number)
        return number

    @flow.node(start=True)
    def send(state: Mapping[str, int], ctx: wtb.Context) -> dict[str, int]:
        number = state["number"]
        is_out = number in remaining
        if is_out:
            remaining.remove(number)
        if is_out and number % 2:
            outage()
        ctx.tool(outage_mail, number)
        if is_out and number % 2 == 0:
            outage()
        return {"number": number + 1}

    flow.edge("send", "send", when=f"number < {VISITS}")
    flow.edge("send", wtb.END, otherwise=True)
    return flow


def mails_of(url: str, folder: Path, outage: Callable[[], None]) -> list[int]:
    """Run to the end, going on after each failure as a person would, and return the mails."""
    sent: list[int] = []
    flow = mailing(sent, outage)
    end = time.monotonic() + 100
    with wtb.Bench(url, folder=folder) as bench:
        run = bench.create(flow, {"number": 0})
        while run.status != "completed":
            try:
                run = bench.resume(run.id, flow)
            except wtb.WTBError:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert run.state["number"] == VISITS
        assert [visit for _, visit in run.history.path()] == list(range(1, VISITS + 1))
    return sent


def test_a_run_survives_that_the_pooler_is_restarted(
    postgres: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    upgrade(postgres.url(postgres_database))
    with PgBouncer(postgres) as bouncer:
        assert mails_of(bouncer.url(postgres_database), tmp_path, bouncer.restart) == list(range(VISITS))


def test_a_run_survives_that_the_server_is_killed(tmp_path: Path) -> None:
    with PostgresServer(fsync=False) as server:

        def outage() -> None:
            server.kill()
            server.start()

        upgrade(server.url())
        assert mails_of(server.url(), tmp_path, outage) == list(range(VISITS))


def test_a_full_disk_of_the_server_stops_writers_with_a_clear_error_and_costs_nothing(
    namespace: Sequence[str], tmp_path: Path
) -> None:
    # Who is made root to mount the disk is somebody else again afterwards: Postgres refuses root.
    somebody = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-user=1000"]
    mounted = ["sh", "-c", f'mount -t tmpfs -o size={DISK},mode=1777 tmpfs /mnt && exec "$@"', "sh"]
    done = subprocess.run(
        [*namespace, *mounted, *somebody, sys.executable, "-W", "error", __file__, "/mnt", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def fill_the_disk_of_the_server(disk: Path, folder: Path) -> None:
    """Take steps until the disk is full, make room, and go on. The log is elsewhere: without it the server ends."""
    (disk / "ballast").write_bytes(bytes(5_000_000))
    (disk / "tables").mkdir()
    with PostgresServer(fsync=False) as server:
        shutil.chown(disk / "tables", server.folder.owner())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk / 'tables'}'".encode())
            connection.execute("CREATE DATABASE small TABLESPACE small")
        upgrade(server.url("small"))
        with bootstrap(Settings(url=server.url("small"), folder=folder)) as services:
            told = Told(services)
            for _ in range(2):
                error = fill(told, 600_000)
                assert "the disk of the server is full; everything committed before is intact" in str(error)
                assert "\n" not in str(error)
            assert len(told.line) > 10
            told.check(services.storage)
            (disk / "ballast").unlink()
            told.step(5_000)
            told.check(services.storage)


if __name__ == "__main__":
    fill_the_disk_of_the_server(Path(sys.argv[1]), Path(sys.argv[2]))
