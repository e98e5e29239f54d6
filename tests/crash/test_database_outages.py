"""Postgres is restarted under a batch, again and again, and its connections are cut: nobody notices in the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.cutting_proxy import COMMIT, CuttingProxy
from tests.services import PostgresServer
from tests.shell import environment, run_wtb
from wtb.batches import load_batch
from wtb.domain.errors import DatabaseAway
from wtb.infrastructure.codecs.types import REGISTERED
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase

SOAK = bool(os.environ.get("WTB_SOAK"))
CASES, VISITS = (60, 25) if SOAK else (6, 6)
RESTARTS = 60 if SOAK else 3
EVERYTHING = Counter(f"c{case}-{visit + 1}" for case in range(CASES) for visit in range(VISITS))
FLOW = f"""
import os
import time
from pathlib import Path

import wtb

flow = wtb.Workflow("orders")


@wtb.tool(effects="external", idempotent=True)
def order(log, what, idempotency_key):
    with open(log, "a") as out:
        out.write(f"{{what}} {{idempotency_key}}\\n")
    time.sleep(0.01)
    return what.upper()


@flow.node(start=True)
def buy(state, ctx):
    number = state["number"] + 1
    bought = ctx.tool(order, log=state["log"], what=f"{{state['case']}}-{{number}}")
    ctx.workspace.joinpath("bill").write_text(bought)
    return {{"number": number, "bought": [*state["bought"], bought]}}


flow.edge("buy", "buy", when="number < {VISITS}")
flow.edge("buy", wtb.END, otherwise=True)


@wtb.evaluator(worst=0, best={VISITS})
def count(context):
    return len(context.state["bought"])


batch = wtb.BatchTest(flow, evaluators=[count, "steps"], variants=[{{}}], workers=3)
"""


@pytest.fixture(autouse=True)
def _no_classes_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes that other test modules have registered here are not registered in the workers."""
    monkeypatch.setattr(REGISTERED, "_by_name", {})
    monkeypatch.setattr(REGISTERED, "_names", {})


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def url(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    name = f"outages_{abs(hash(request.node.name))}"
    url = server.create_database(name)
    database = PostgresDatabase(url, pool_size=1)
    schema.upgrade(database)
    database.close()
    return url


class Orders:
    """A batch that orders things, each of them once."""

    def __init__(self, folder: Path) -> None:
        (folder / "orders.py").write_text(FLOW)
        self.batch = load_batch(f"{folder / 'orders.py'}:batch")
        self.log = folder / "log"
        self.log.touch()

    def run(self, bench: wtb.Bench, **options: Any) -> Any:
        return bench.batch(self.batch, cases=self.cases(), **options)

    def cases(self) -> list[dict[str, Any]]:
        return [
            {"id": f"c{number}", "input": {"case": f"c{number}", "log": str(self.log), "number": 0, "bought": []}}
            for number in range(CASES)
        ]

    def write_cases(self) -> None:
        """Write the cases into a file beside the batch, for a command."""
        lines = [json.dumps(case) for case in self.cases()]
        self.log.with_name("cases.jsonl").write_text("\n".join(lines))

    def calls(self) -> Counter[str]:
        """Return how often each thing was ordered."""
        return Counter(line.partition(" ")[0] for line in self.log.read_text().splitlines())

    def delivered(self) -> Counter[str]:
        """Return how often each thing is delivered: once for each key, however often it was ordered with that key."""
        return Counter(line.partition(" ")[0] for line in set(self.log.read_text().splitlines()))

    def check(self, result: Any) -> None:
        """Check that each thing is delivered once, and each job ended as without any outage."""
        assert result.status == "completed", [job.error for job in result.results if job.error]
        assert self.delivered() == EVERYTHING
        for job in result.results:
            assert job.scores == {"count": VISITS, "steps": VISITS}
            assert [attempt.end for attempt in job.attempts] == ["completed"], "no worker was lost"
            run = job.run
            assert run.state["bought"] == [f"{job.case_id.upper()}-{visit + 1}" for visit in range(VISITS)]
            assert [visit for _, visit in run.history.path()] == list(range(1, VISITS + 1))


@pytest.fixture
def orders(empty_folder: Path) -> Iterator[Orders]:
    yield Orders(empty_folder)
    sys.modules.pop("orders", None)


def disturbed(orders: Orders, disturb: Callable[[int], None], run: Callable[[], Any]) -> Any:
    """Run something in a thread and disturb it again and again, each time when more of the orders have been made.

    The disturbing happens in this thread: a server that was started by a thread ends with that thread.
    """
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        for number in range(RESTARTS):
            threshold = (number + 0.5) * CASES * VISITS / RESTARTS
            while not running.done() and orders.calls().total() < threshold:
                time.sleep(0.005)
            disturb(number)
        return running.result()


def restart(server: PostgresServer, number: int) -> None:
    (server.stop if number % 2 else server.kill)()
    if SOAK:
        time.sleep(number % 4)
    server.start()


@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_batch_goes_through_restarts_of_postgres(
    server: PostgresServer, url: str, orders: Orders, runner: str, tmp_path: Path
) -> None:
    with wtb.Bench(url, folder=tmp_path / "wtb", outage_timeout_s=60) as bench:
        result = disturbed(orders, lambda number: restart(server, number), lambda: orders.run(bench, runner=runner))
        orders.check(result)
        assert orders.calls() == EVERYTHING, "nothing was ordered again"


@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_batch_goes_through_cut_connections_and_lost_commits(
    server: PostgresServer, url: str, orders: Orders, runner: str, tmp_path: Path
) -> None:
    with (
        CuttingProxy(server.port) as proxy,
        wtb.Bench(proxy.url(url), folder=tmp_path / "wtb", outage_timeout_s=60) as bench,
    ):
        ways: list[Callable[[], None]] = [
            lambda: proxy.cut_after(COMMIT),
            lambda: proxy.cut_before(COMMIT),
            proxy.cut_all,
        ]
        result = disturbed(orders, lambda number: ways[number % 3](), lambda: orders.run(bench, runner=runner))
        assert proxy.cuts >= 2
        orders.check(result)
        assert orders.calls() == EVERYTHING, "nothing was ordered again"


@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_batch_whose_database_is_away_for_too_long_stops_and_the_same_call_continues_it(
    server: PostgresServer, url: str, orders: Orders, runner: str, tmp_path: Path
) -> None:
    with (
        CuttingProxy(server.port) as proxy,
        wtb.Bench(proxy.url(url), folder=tmp_path / "wtb", outage_timeout_s=0.3) as bench,
    ):

        def disturb(number: int) -> None:
            if number == 0:
                proxy.refuse()

        with pytest.raises(DatabaseAway, match=r"has not answered for 0\.3 s"):
            disturbed(orders, disturb, lambda: orders.run(bench, runner=runner))
        assert 0 < orders.delivered().total() < EVERYTHING.total()
        proxy.allow()
        found = bench.batch_status("orders")
        assert (found.batch.status, found.running) == ("paused", ())
        assert found.to_data()["lost_driver"]["reason"] == "no longer runs it"
        assert (bench.get_batch("orders").status, bench.list_batches()[0].status) == ("paused", "paused")
        result = orders.run(bench, runner=runner)
        assert not [job for job in result.results if job.is_dead]
        orders.check(result)


class Commands:
    """`wtb` in the folder of the orders, on a database that may go away."""

    def __init__(self, orders: Orders, folder: Path, url: str, outage_timeout_s: float) -> None:
        self._orders = orders
        orders.write_cases()
        self._variables = {"WTB_URL": url, "WTB_FOLDER": str(folder), "WTB_OUTAGE_TIMEOUT_S": str(outage_timeout_s)}

    def wtb(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        variables = {**environment(), **self._variables}
        return run_wtb(*arguments, folder=self._orders.log.parent, variables=variables)


@pytest.mark.skipif(SOAK, reason="the tests above are longer in a soak; this one is the same, and `make test` runs it")
@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_command_whose_database_is_away_for_too_long_says_how_to_continue(
    server: PostgresServer, url: str, orders: Orders, runner: str, tmp_path: Path
) -> None:
    run = ("batch", "run", "orders.py", "--cases", "cases.jsonl", "--runner", runner)
    with CuttingProxy(server.port) as proxy:
        commands = Commands(orders, tmp_path / "wtb", proxy.url(url), 0.3)

        def disturb(number: int) -> None:
            if number == 0:
                proxy.refuse()

        stopped = disturbed(orders, disturb, lambda: commands.wtb(*run, "--json"))
        assert stopped.returncode == 1, stopped.stderr
        last = stopped.stderr.splitlines()[-1]
        assert "has not answered for 0.3 s" in stopped.stderr
        assert last.startswith("orders is paused: ")
        assert "Traceback" not in stopped.stderr
        assert last.endswith("When the database is back, run the same command again to continue.")
        assert json.loads(stopped.stdout)["status"] == "paused"
        proxy.allow()
        shown = json.loads(commands.wtb("batch", "status", "orders", "--json").stdout)
        assert (shown["status"], shown["running"], shown["lost_driver"]["reason"]) == ("paused", [], "is gone")
        assert "Nobody runs it: its process" in commands.wtb("batch", "status", "orders").stdout
        assert " paused " in commands.wtb("batch", "ls").stdout
        done = commands.wtb(*run)
        assert done.returncode == 0, done.stderr
        with wtb.Bench(url, folder=tmp_path / "wtb") as bench:
            orders.check(bench.get_batch("orders"))
