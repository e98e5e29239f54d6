"""Many processes and threads share few connections to the server through PgBouncer."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.services import PgBouncer, PostgresServer

PROCESSES, THREADS = 4, 25
CLIENTS, SERVERS = 100, 20


@contextmanager
def client(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.integration.pooled_client", url, str(folder), str(THREADS)]
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    process = subprocess.Popen(command, cwd=root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def has_answered(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_hundred_clients_of_four_processes_share_twenty_connections(
    postgres: PostgresServer, migrated_database: str, tmp_path: Path
) -> None:
    with PgBouncer(postgres, pool_size=SERVERS) as bouncer, ExitStack() as stack:
        url = bouncer.url(migrated_database)
        clients = [stack.enter_context(client(url, tmp_path / str(number))) for number in range(PROCESSES)]
        assert [answer(process) for process in clients] == ["running"] * PROCESSES
        seen = [bouncer.connections(migrated_database)]
        for process in clients:  # each thread is in the middle of a run, and all go on now
            go_on(process)
        while not all(has_answered(process) for process in clients):
            seen.append(bouncer.connections(migrated_database))
        assert [answer(process) for process in clients] == [str(THREADS)] * PROCESSES
        assert min(connected for connected, _ in seen) >= CLIENTS
        assert max(used for _, used in seen) <= SERVERS
        for process in clients:
            go_on(process)
            assert process.wait(60) == 0
