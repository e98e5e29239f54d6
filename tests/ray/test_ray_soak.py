"""Soak: a batch on a Ray cluster of three nodes that go and come, on a Postgres that is restarted and cut off.

`make soak-ray` runs it. WTB_SOAK_JOBS is the number of jobs (300), WTB_SOAK_EVERY_S the seconds between two
disturbances (5).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.cutting_proxy import COMMIT, CuttingProxy
from tests.services import PostgresServer
from tests.shell import Shell, environment
from wtb.domain.parity import parity_differences
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.parity import job_facts

pytestmark = pytest.mark.skipif("WTB_SOAK" not in os.environ, reason="it takes minutes; `make soak-ray` runs it")

JOBS = int(os.environ.get("WTB_SOAK_JOBS", "300"))
EVERY_S = float(os.environ.get("WTB_SOAK_EVERY_S", "5"))
AT_LEAST = 5
"""How many calls there are before another node is lost: a worker that never begins cannot be lost."""
BANK = """
import os
import time
from pathlib import Path

import wtb

flow = wtb.Workflow("bank")


@wtb.tool(effects="external", idempotent=True)
def transfer(name):
    with open(Path(LEDGER, "calls"), "a") as calls:
        calls.write(f"{name}\\n")
    try:  # the bank moves the money once, and answers later calls with the same receipt
        os.close(os.open(Path(LEDGER, f"moved-{name}"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    return f"receipt of {name}"


@flow.node(start=True)
def prepare(state, ctx):
    time.sleep(0.05)
    (ctx.workspace / "letter.txt").write_text(f"dear {state['name']}")
    return {"text": state["name"].upper()}


@flow.node()
def pay(state, ctx):
    receipt = ctx.tool(transfer, name=state["name"])
    time.sleep(0.1)
    return {"receipt": receipt}


@flow.node()
def close(state, ctx):
    time.sleep(0.05)
    with open(ctx.workspace / "letter.txt", "a") as letter:
        letter.write(f" {state['receipt']}")
    return {"closed": True}


flow.edge("prepare", "pay")
flow.edge("pay", "close")
flow.edge("close", wtb.END)


@wtb.evaluator(worst=0, best=1)
def is_paid(context):
    return context.state["receipt"].endswith(context.case.input["name"])


cases = [{"id": f"case{number}", "input": {"name": f"n{number}"}} for number in range(JOBS)]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[is_paid, "steps"], workers=3, resources={"memory_gb": 1})
"""

# It connects by itself: the nodes of this cluster share one folder, and one that goes would take the copies of the
# project with it that the others use.
DRIVE = """
import sys

import wtb
from wtb.batches import load_batch

name, placed_within_s, addresses = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
if addresses:
    import ray

    import wtb.infrastructure.runners.ray

    wtb.infrastructure.runners.ray._PLACED_WITHIN_S = placed_within_s
    ray.init(address=addresses[0], namespace="wtb", logging_level="ERROR", log_to_driver=False)
with wtb.Bench() as bench:
    batch = load_batch("bank.py")
    sys.exit(bench.batch(batch, name=name, runner="ray" if addresses else "threads", fresh=True).status != "completed")
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def shell(empty_folder: Path, server: PostgresServer, proxy: CuttingProxy) -> Iterator[Shell]:
    url = server.create_database("soak")
    database = PostgresDatabase(url, pool_size=1)
    schema.upgrade(database)
    database.close()
    ledger = empty_folder / "ledger"
    (empty_folder / "wtb.toml").write_text(f'url = "{proxy.url(url)}"\n')
    (empty_folder / "drive.py").write_text(DRIVE)
    yield Shell(empty_folder, bank=f"LEDGER, JOBS = {str(ledger)!r}, {JOBS}\n{BANK}")
    sys.modules.pop("bank", None)


@contextmanager
def cluster_of_three() -> Iterator[Any]:
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"})
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args=_node(num_cpus=0))
    try:
        for _ in range(2):
            cluster.add_node(**_node())
        yield cluster
    finally:
        cluster.shutdown()


def _node(num_cpus: int = 2) -> dict[str, Any]:
    return {"num_cpus": num_cpus, "object_store_memory": 80 * 1024**2, "include_dashboard": False}


class Storm:
    """What disturbs a batch, in turns: twice the database is restarted and cut off, then a node is replaced.

    It is called in the main thread, because a node of Ray starts only there.
    """

    def __init__(self, cluster: Any, server: PostgresServer, proxy: CuttingProxy, ledger: Path) -> None:
        self._cluster, self._server, self._proxy, self._ledger = cluster, server, proxy, ledger
        self._chosen = random.Random(1)
        self._calls = 0
        self.happened = Counter[str]()
        self._kinds = cycle((self._restart, self._cut, self._restart, self._cut, self._replace_node))

    def blow(self) -> None:
        """Disturb the batch once."""
        self.happened[next(self._kinds)()] += 1

    def _restart(self) -> str:
        """End Postgres in order or like a crash, and start it again a moment later."""
        (self._server.stop if self._chosen.random() < 0.5 else self._server.kill)()
        time.sleep(self._chosen.uniform(0, 2))
        self._server.start()
        return "restart of Postgres"

    def _cut(self) -> str:
        """Cut all connections, or the next one that commits, before Postgres hears of it or before its answer."""
        kind = self._chosen.randrange(3)
        if kind == 0:
            self._proxy.cut_all()
            return "cut of all connections"
        (self._proxy.cut_before if kind == 1 else self._proxy.cut_after)(COMMIT)
        return "cut of a commit"

    def _replace_node(self) -> str:
        """Kill one of the two nodes without the head, and let another one join."""
        if len(_calls(self._ledger)) - self._calls < AT_LEAST:
            return "node left alone"
        gone = self._chosen.choice(sorted(self._cluster.worker_nodes, key=lambda node: node.unique_id))
        self._cluster.remove_node(gone, allow_graceful=False)
        self._cluster.add_node(**_node())
        self._calls = len(_calls(self._ledger))
        return "node"


def bank_of(shell: Shell) -> tuple[Counter[str], int]:
    """Return the calls of the bank by name, and how often it moved money."""
    ledger = shell.folder / "ledger"
    return Counter(_calls(ledger)), len(list(ledger.glob("moved-*")))


def start(shell: Shell, name: str, *address: str, placed_within_s: float = 600) -> subprocess.Popen[str]:
    """Start the batch. On a busy machine, processes start slowly, and Ray has long to find a place for them."""
    command = [sys.executable, "drive.py", name, str(placed_within_s), *address]
    return subprocess.Popen(command, cwd=shell.folder, env=environment(), stderr=subprocess.PIPE, text=True)


def run(shell: Shell, name: str, *address: str, disturb: Callable[[], None] = lambda: None) -> None:
    """Run the batch with an empty ledger, and disturb it every few seconds."""
    ledger = shell.folder / "ledger"
    if ledger.exists():
        ledger.rename(shell.folder / f"ledger before {name}")
    ledger.mkdir()
    driver = start(shell, name, *address)
    while True:
        try:
            _, said = driver.communicate(timeout=EVERY_S)
        except subprocess.TimeoutExpired:
            disturb()
        else:
            assert driver.returncode == 0, said
            return


def _calls(ledger: Path) -> list[str]:
    file = ledger / "calls"
    return file.read_text().split() if file.exists() else []


def test_lost_nodes_and_a_database_that_comes_and_goes_change_no_result_and_repeat_no_effect(
    shell: Shell, server: PostgresServer, proxy: CuttingProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    run(shell, "calm")
    names = {f"n{number}" for number in range(JOBS)}
    assert bank_of(shell) == (Counter(dict.fromkeys(names, 1)), JOBS)
    with cluster_of_three() as cluster:
        storm = Storm(cluster, server, proxy, shell.folder / "ledger")
        run(shell, "stormy", cluster.address, disturb=storm.blow)
    calls, moved = bank_of(shell)
    with wtb.Bench() as bench:
        calm, stormy = bench.get_batch("calm"), bench.get_batch("stormy")
        differences = parity_differences({"calm": job_facts(calm), "stormy": job_facts(stormy)})
        ends = Counter(attempt.end.value for job in stormy.results for attempt in job.attempts)
        executed = stormy.sharing["executed"]
        told = bench.services.queries.event_page(stream=stormy.id, limit=1_000).events
        events = Counter(each.type.value for each in told)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{JOBS} jobs: {calm.spent.s:.0f} s on threads, {stormy.spent.s:.0f} s on Ray; "
            f"disturbances {dict(storm.happened)}; attempts {dict(ends)}; events {dict(events)}; {executed} node runs; "
            f"{calls.total()} calls of the bank, {moved} transfers\n"
        )
    assert differences == ()
    assert {"node", "restart of Postgres"} <= set(storm.happened)
    assert (calm.status, stormy.status) == ("completed", "completed")
    assert ends["completed"] == JOBS, "no job is lost, and none ends twice"
    assert moved == JOBS, "no transfer is lost or repeated"
    assert set(calls) == names
    assert executed == 3 * JOBS, "no node run is counted twice"
    assert events["worker.lost"] > 0


def test_a_batch_that_loses_all_machines_stops_and_the_same_command_continues(shell: Shell) -> None:
    (shell.folder / "ledger").mkdir()
    with cluster_of_three() as cluster:
        driver = start(shell, "lost", cluster.address, placed_within_s=30)
        while len(_calls(shell.folder / "ledger")) < AT_LEAST:
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.1)
        for node in list(cluster.worker_nodes):
            cluster.remove_node(node, allow_graceful=False)
        _, said = driver.communicate(timeout=300)
        assert driver.returncode != 0
        assert "lost all its workers" in said
        assert "run the same command again" in said
        cluster.add_node(**_node())
        driver = start(shell, "lost", cluster.address)
        _, said = driver.communicate()
        assert driver.returncode == 0, said
    _, moved = bank_of(shell)
    assert moved == JOBS, "no transfer is lost or repeated"
