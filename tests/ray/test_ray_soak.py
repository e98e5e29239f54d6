"""Soak: a batch on a Ray cluster of three nodes that go and come while it runs, on Postgres.

`make soak-ray` runs it. WTB_SOAK_JOBS is the number of jobs (300), WTB_SOAK_EVERY_S the seconds between losses (20).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.services import PostgresServer
from tests.shell import Shell, environment
from wtb.domain.parity import parity_differences
from wtb.parity import job_facts

pytestmark = pytest.mark.skipif("WTB_SOAK" not in os.environ, reason="it takes minutes; `make soak-ray` runs it")

JOBS = int(os.environ.get("WTB_SOAK_JOBS", "300"))
EVERY_S = float(os.environ.get("WTB_SOAK_EVERY_S", "20"))
AT_LEAST = 5
"""How many calls there are between two disturbances: a worker that never begins cannot be lost."""
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

name, addresses = sys.argv[1], sys.argv[2:]
if addresses:
    import ray

    import wtb.infrastructure.runners.ray

    wtb.infrastructure.runners.ray._PLACED_WITHIN_S = 600  # on a busy machine, processes start slowly
    ray.init(address=addresses[0], namespace="wtb", logging_level="ERROR", log_to_driver=False)
with wtb.Bench() as bench:
    batch = load_batch("bank.py")
    sys.exit(bench.batch(batch, name=name, runner="ray" if addresses else "threads", fresh=True).status != "completed")
"""


@pytest.fixture
def shell(empty_folder: Path, postgres: PostgresServer, migrated_database: str) -> Iterator[Shell]:
    ledger = empty_folder / "ledger"
    (empty_folder / "wtb.toml").write_text(f'url = "{postgres.url(migrated_database)}"\n')
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


def nodes_go_and_come(cluster: Any) -> Callable[[], str]:
    """Return a disturbance: one of the two nodes without the head is killed, and another one joins."""
    chosen = random.Random(1)

    def happen() -> str:
        gone = chosen.choice(sorted(cluster.worker_nodes, key=lambda node: node.unique_id))
        cluster.remove_node(gone, allow_graceful=False)
        cluster.add_node(**_node())
        return "node"

    return happen


def bank_of(shell: Shell) -> tuple[Counter[str], int]:
    """Return the calls of the bank by name, and how often it moved money."""
    ledger = shell.folder / "ledger"
    return Counter(_calls(ledger)), len(list(ledger.glob("moved-*")))


def run(shell: Shell, name: str, *address: str, disturbances: Sequence[Callable[[], str]] = ()) -> Counter[str]:
    """Run the batch with an empty ledger, while the disturbances happen in turns; return how often each happened.

    Restarts of Postgres and a proxy that cuts connections belong here, too: functions that do it once and name it. They
    are called in the main thread, because a node of Ray starts only there.
    """
    ledger = shell.folder / "ledger"
    if ledger.exists():
        ledger.rename(shell.folder / f"ledger before {name}")
    ledger.mkdir()
    driver = subprocess.Popen([sys.executable, "drive.py", name, *address], cwd=shell.folder, env=environment())
    happened, seen = Counter[str](), 0
    for disturb in cycle(disturbances or [lambda: "none"]):
        try:
            assert driver.wait(timeout=EVERY_S) == 0
            return happened
        except subprocess.TimeoutExpired:
            if len(_calls(ledger)) - seen >= AT_LEAST:
                happened[disturb()] += 1
                seen = len(_calls(ledger))
    raise AssertionError


def _calls(ledger: Path) -> list[str]:
    file = ledger / "calls"
    return file.read_text().split() if file.exists() else []


def test_nodes_that_go_and_come_change_no_result_and_repeat_no_effect(shell: Shell) -> None:
    run(shell, "calm")
    names = {f"n{number}" for number in range(JOBS)}
    assert bank_of(shell) == (Counter(dict.fromkeys(names, 1)), JOBS)
    with cluster_of_three() as cluster:
        happened = run(shell, "stormy", cluster.address, disturbances=[nodes_go_and_come(cluster)])
    calls, moved = bank_of(shell)
    with wtb.Bench() as bench:
        calm, stormy = bench.get_batch("calm"), bench.get_batch("stormy")
        differences = parity_differences({"calm": job_facts(calm), "stormy": job_facts(stormy)})
        ends = Counter(attempt.end.value for job in stormy.results for attempt in job.attempts)
        executed = stormy.sharing["executed"]
        told = bench.services.queries.event_page(stream=stormy.id, limit=1_000).events
        events = Counter(each.type.value for each in told)
    sys.stdout.write(
        f"\n{JOBS} jobs: {calm.spent.s:.0f} s on threads, {stormy.spent.s:.0f} s on Ray; "
        f"disturbances {dict(happened)}; attempts {dict(ends)}; events {dict(events)}; {executed} node runs; "
        f"{calls.total()} calls of the bank, {moved} transfers\n"
    )
    assert differences == ()
    assert sum(happened.values()) > 0
    assert (calm.status, stormy.status) == ("completed", "completed")
    assert ends["completed"] == JOBS, "no job is lost, and none ends twice"
    assert moved == JOBS, "no transfer is lost or repeated"
    assert set(calls) == names
    assert executed == 3 * JOBS, "no node run is counted twice"
    assert events["worker.lost"] > 0
