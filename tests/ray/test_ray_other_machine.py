"""A worker on another machine: a node of Ray with its own host name, processes and folder of objects."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.shell import Shell, environment

LETTERS = """
import wtb

flow = wtb.Workflow("letters")


@flow.node(start=True)
def write(state, ctx):
    (ctx.workspace / "letter.txt").write_text(f"dear {state['to']}" + 2_000_000 * ".")
    return {"written": True}


cases = [{"id": "ann", "input": {"to": "ann"}}]
batch = wtb.BatchTest(flow, cases=cases, evaluators=["steps"], runner="ray", workers=1,
                      resources={"custom": {"elsewhere": 1}})
"""
ROOT = () if os.getuid() == 0 else ("--user", "--map-root-user")
ELSEWHERE = ("unshare", *ROOT, "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
MOVE = 'hostname elsewhere && mount -t tmpfs tmpfs "$0" && exec "$@"'
JOIN = """
import sys
import time

from ray._private.node import Node
from ray._private.parameter import RayParams

room = {"num_cpus": 1, "resources": {"elsewhere": 1}, "object_store_memory": 80 * 1024**2}
ports = {"min_worker_port": 0, "max_worker_port": 0, "node_manager_port": 0, "dashboard_agent_listen_port": None}
params = RayParams(gcs_address=sys.argv[1], node_ip_address="127.0.0.1", include_log_monitor=False, **room, **ports)
Node(params, head=False, shutdown_at_exit=False)  # `ray start` joins no cluster that listens on 127.0.0.1
while True:
    time.sleep(60)
"""


@pytest.fixture
def shell(empty_folder: Path, postgres_url: str) -> Shell:
    (empty_folder / ".wtb").mkdir(mode=0o700)
    (empty_folder / ".wtb" / "objects").mkdir(mode=0o700)
    return Shell(empty_folder, letters=LETTERS)


@pytest.fixture
def address(shell: Shell, ray_cluster: str) -> Iterator[str]:
    """The cluster, with a node that runs elsewhere: there, the folder of the objects is another one."""
    objects = str(shell.folder / ".wtb" / "objects")
    command = [*ELSEWHERE, "sh", "-c", MOVE, objects, sys.executable, "-c", JOIN, ray_cluster]
    with started(command):
        wait_until(lambda: "elsewhere" in resources(), "the node does not join")
        yield ray_cluster


@contextmanager
def started(command: list[str]) -> Iterator[None]:
    variables = {**environment(), "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, start_new_session=True) as node:
        try:
            yield
        finally:
            os.killpg(node.pid, signal.SIGKILL)


def resources() -> dict[str, Any]:
    ray: Any = importlib.import_module("ray")
    found: dict[str, Any] = ray.cluster_resources()
    return found


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def test_a_worker_elsewhere_is_refused_with_sqlite_or_a_folder_of_its_own_and_works_with_a_shared_place(
    shell: Shell, address: str, postgres_url: str
) -> None:
    command = ("batch", "run", "letters.py", "--ray-address", address)
    said = shell.wtb(*command, code=2).stderr
    assert "a worker on elsewhere cannot use the SQLite database of this batch" in said
    (shell.folder / "wtb.toml").write_text(f'url = "{postgres_url}"\n')
    shell.wtb("db", "upgrade")
    said = shell.wtb(*command, code=2).stderr
    assert "a worker on elsewhere cannot read the files of this batch" in said
    assert 'set `objects` to "database"' in said
    assert shell.json("ls") == [], "no job has begun"
    (shell.folder / "wtb.toml").write_text(f'url = "{postgres_url}"\nobjects = "database"\n')
    shell.wtb(*command)
    with wtb.Bench() as bench:
        [job] = bench.get_batch("letters").results
        assert (job.host, dict(job.state)["written"]) == ("elsewhere", True)
