"""Many processes and threads share few connections to the server through PgBouncer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.services import PgBouncer, PostgresServer

PROCESSES, THREADS, RUNS = 4, 25, 1
SERVERS = 20


@contextmanager
def client(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.integration.pooled_client", url, str(folder), str(THREADS), str(RUNS)]
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


def test_a_hundred_clients_of_four_processes_share_twenty_connections(
    postgres: PostgresServer, migrated_database: str, tmp_path: Path
) -> None:
    with PgBouncer(postgres, pool_size=SERVERS) as bouncer, ExitStack() as stack:
        url = bouncer.url(migrated_database)
        clients = [stack.enter_context(client(url, tmp_path / str(number))) for number in range(PROCESSES)]
        for process in clients:
            go_on(process)
        completed = [int(process.stdout.readline()) for process in clients if process.stdout is not None]
        assert completed == [THREADS * RUNS] * PROCESSES
        connected, used = bouncer.connections(migrated_database)
        assert used <= SERVERS
        assert connected > 2 * SERVERS, "they shared connections"
        for process in clients:
            go_on(process)
            assert process.wait(60) == 0
