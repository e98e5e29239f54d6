"""Limits in runs and batches: no more calls at a time than allowed, over threads and processes, whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import wtb
from tests.shell import environment
from wtb.application.runs import run_limits
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.limit_slots import LimitSlot
from wtb.domain.limits import BreakerState, CallEnd, Limit
from wtb.domain.workflow import RetryPolicy
from wtb.testing.fakes import FakeClock


class Gauge:
    """Counts how many calls are inside at a time; two calls have to meet before either leaves."""

    def __init__(self, meeting: int = 1) -> None:
        self.most = 0
        self._inside = 0
        self._lock = threading.Lock()
        self._meeting = threading.Barrier(meeting)

    @contextmanager
    def inside(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        self._meeting.wait(30)
        yield
        with self._lock:
            self._inside -= 1


def slots(bench: Bench, scope: str, name: str = "api") -> list[LimitSlot]:
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        return [slot for slot in uow.limits.list_slots(scope, name) if not slot.waiting]


def all_slots(bench: Bench) -> tuple[LimitSlot, ...]:
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        return uow.limits.list_slots("", "api")


def flow_of(node: Any, **facts: Any) -> wtb.Workflow:
    flow = wtb.Workflow("limited")
    flow.add_node("work", node, start=True, **facts)
    return flow


def cases(count: int) -> list[dict[str, Any]]:
    return [{"id": str(number), "input": {"n": number}} for number in range(count)]


def run_batch(bench: Bench, node: Any, count: int = 6, facts: Any = None, **options: Any) -> Any:
    given: dict[str, Any] = {"cases": cases(count), "evaluators": ["steps"], "workers": 6, **options}
    return bench.batch(flow_of(node, **(facts or {})), **given)


def test_calls_of_a_tool_hold_the_slots_of_its_limit(bench: Bench) -> None:
    gauge = Gauge(meeting=2)

    @wtb.tool(name="limited-search", effects="none", limit="api")
    def search(n: int) -> int:
        with gauge.inside():
            return n

    result = run_batch(bench, lambda state, ctx: {"found": ctx.tool(search, state["n"])}, limits={"api": 2})
    assert result.status == "completed"
    assert gauge.most == 2
    (limit,) = result.limits
    assert (limit.name, limit.width, limit.held, limit.breaker) == ("api", 2, 0, BreakerState.CLOSED)


def test_blocks_in_nodes_hold_slots_too(bench: Bench) -> None:
    gauge = Gauge(meeting=2)

    def work(state: Any, ctx: Any) -> None:
        with ctx.limit("api"), gauge.inside():
            pass

    assert run_batch(bench, work, limits={"api": 2}).status == "completed"
    assert gauge.most == 2


def test_async_nodes_and_tools_hold_slots_without_blocking_their_loop(bench: Bench) -> None:
    inside, most = 0, 0

    async def meet() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1

    tool = wtb.tool(name="limited-async", effects="none", limit="api")(meet)

    async def work(state: Any, ctx: Any) -> None:
        async with ctx.limit("api"):
            await meet()
        await asyncio.gather(ctx.atool(tool), ctx.atool(tool), ctx.atool(tool))

    result = run_batch(bench, work, 3, limits={"api": 2})
    assert [job.error for job in result.results] == [None] * 3
    assert 1 <= most <= 2
    assert slots(bench, result.id) == []


def test_a_name_without_a_limit_has_no_effect() -> None:
    gauge = Gauge(meeting=3)

    def work(state: Any, ctx: Any) -> None:
        with ctx.limit("api"), gauge.inside():
            pass

    with Bench("memory://") as bench:
        assert run_batch(bench, work, 3, limits={"other": 1}).status == "completed"
    assert gauge.most == 3


def test_a_call_inside_a_block_of_the_same_limit_needs_no_second_slot() -> None:
    inner = wtb.tool(name="limited-inner", effects="none", limit="api")(lambda: 1)

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        with ctx.limit("api"):
            return {"found": ctx.tool(inner)}

    with Bench("memory://") as bench:
        assert run_batch(bench, work, 1, limits={"api": 1}).status == "completed"


def test_a_block_in_use_is_not_entered_again() -> None:
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        block = ctx.limit("api")
        with block:
            pass
        with block, pytest.raises(InvalidInput, match=r"is in use; call ctx\.limit anew"):
            block.__enter__()
        return {"found": 1}

    with Bench("memory://") as bench:
        assert run_batch(bench, work, 1, limits={"api": 1}).status == "completed"


def test_limits_of_the_settings_count_for_all_runs() -> None:
    held: list[int] = []

    def work(state: Any, ctx: Any) -> None:
        with ctx.limit("api"):
            held.append(len(slots(bench, "")))

    with Bench("memory://", limits={"api": 3}) as bench:
        assert bench.run(flow_of(work), {}).status == "completed"
        assert run_batch(bench, work, 1).status == "completed"
        assert run_batch(bench, work, 1, name="own", limits={"api": 3}, share=False).status == "completed"
        assert held == [1, 1, 0], "a batch that sets the limit itself has slots of its own"
        assert slots(bench, "") == []


def test_mocks_and_recorded_answers_hold_no_slot() -> None:
    held: list[int] = []

    def look() -> int:
        (batch,) = bench.list_batches()
        held.append(len(slots(bench, batch.id)))
        return 1

    search = wtb.tool(name="limited-mocked", limit="api")(look)
    with Bench("memory://") as bench:
        work = flow_of(lambda state, ctx: {"found": ctx.tool(search)})
        given: dict[str, Any] = {"cases": cases(1), "evaluators": ["steps"], "limits": {"api": 1}, "fresh": True}
        bench.batch(work, tools={"limited-mocked": look}, **given)
        bench.batch(work, **given)
    assert held == [0, 1]


def test_a_failed_call_gives_its_slot_back() -> None:
    @wtb.tool(name="limited-broken", effects="none", limit="api")
    def broken() -> None:
        raise ValueError("no")

    with Bench("memory://") as bench:
        result = run_batch(bench, lambda state, ctx: ctx.tool(broken), 4, limits={"api": 1})
        assert {job.error["type"] for job in result.results} == {"ValueError"}
        assert slots(bench, result.id) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_whose_time_is_over_stops_waiting_and_leaves_no_slot_behind(is_async: bool) -> None:
    def wait(state: Any, ctx: Any) -> None:
        with ctx.limit("api"):
            raise AssertionError("there was no slot")

    async def await_(state: Any, ctx: Any) -> None:
        async with ctx.limit("api"):
            raise AssertionError("there was no slot")

    with Bench("memory://", limits={"api": 1}) as bench:
        limits = bench.services.limits
        held = limits.take("", "api", Limit(1), lambda: None)
        run = bench.run(flow_of(await_ if is_async else wait, timeout_s=0.05), {})
        assert run.error is not None
        assert run.error.type == "NodeTimeout"
        limits.end(held, CallEnd.SUCCEEDED)
        again = limits.take("", "api", Limit(1), lambda: None)  # it would wait for ever if the node held the slot
        assert [slot.id for slot in slots(bench, "")] == [again.slot.id]


def test_a_limit_whose_stored_state_is_damaged_starts_again(sqlite_folder: Path) -> None:
    with Bench(folder=sqlite_folder) as bench:
        limits, limit = bench.services.limits, Limit(8, adaptive=True, start=4)
        limits.end(limits.take("", "api", limit, lambda: None), CallEnd.OVERLOADED, TimeoutError())
        with bench.services.storage.unit_of_work() as uow:
            assert [state.width for state in uow.limits.list_limits("")] == [2]
            uow._sql.run("UPDATE wtb_limits SET breaker = 'broken'")  # type: ignore[union-attr]
            uow.commit()
        limits.end(limits.take("", "api", limit, lambda: None), CallEnd.SUCCEEDED)
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            assert [state.width for state in uow.limits.list_limits("")] == [4]


def test_a_deleted_batch_takes_its_limits_along() -> None:
    with Bench("memory://") as bench:
        result = run_batch(bench, lambda state: {}, 1, limits={"api": 1})
        bench.delete_batch(result.id)
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            assert uow.limits.list_limits(result.id) == ()


def test_the_time_of_a_call_does_not_include_its_wait_for_a_slot(clock: FakeClock) -> None:
    call = wtb.tool(name="limited-timed", effects="none", limit="api")(lambda: 1)
    with Bench("memory://", limits={"api": 1}) as bench:
        limits = bench.services.limits
        held = limits.take("", "api", Limit(1), lambda: None)

        def let_go() -> None:
            while not any(slot.waiting for slot in all_slots(bench)):
                time.sleep(0.001)
            clock.advance(timedelta(seconds=1))
            limits.end(held, CallEnd.SUCCEEDED)

        thread = threading.Thread(target=let_go)
        thread.start()
        run = bench.run(flow_of(lambda state, ctx: {"found": ctx.tool(call)}), {})
        thread.join()
        (made,) = run.calls
        assert made.ms < 1_000


# Services that are overloaded or away


class Service:
    """A server on this machine that answers 429 as long as it is told to."""

    def __init__(self) -> None:
        self.is_overloaded = True
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(429 if service.is_overloaded else 200)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def call(self) -> int:
        with urlopen(f"http://127.0.0.1:{self._server.server_port}/", timeout=30) as answer:
            return int(answer.status)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def test_an_adaptive_limit_comes_down_on_429_and_recovers(service: Service) -> None:
    ask = wtb.tool(name="limited-service", effects="none", limit="api")(service.call)
    with Bench("memory://") as bench:

        def run(**options: Any) -> Any:
            limit = Limit(8, adaptive=True, start=8)
            return run_batch(bench, lambda state, ctx: {"got": ctx.tool(ask)}, 12, limits={"api": limit}, **options)

        result = run(workers=1)
        assert {job.error["type"] for job in result.results} == {"HTTPError"}
        (limit,) = result.limits
        assert limit.width == 1
        service.is_overloaded = False
        result = run(workers=4)
        assert result.status == "completed"
        (limit,) = result.limits
        assert limit.width > 1
        widths = [event.data["width"] for event in bench.events(types="limit.changed")]
        assert widths[:4] == [4, 2, 1, 2]


def test_a_breaker_fails_calls_at_once_and_the_batch_can_be_run_again(service: Service) -> None:
    made: list[int] = []

    @wtb.tool(name="limited-breaker", effects="none", limit="api")
    def ask() -> int:
        made.append(1)
        return service.call()

    with Bench("memory://") as bench:

        def run() -> Any:
            limit = Limit(4, break_after=3, cool_down_s=3600)
            return run_batch(bench, lambda state, ctx: {"got": ctx.tool(ask)}, 8, limits={"api": limit}, workers=1)

        result = run()
        errors = [job.error["type"] for job in result.results]
        assert (len(made), errors.count("HTTPError"), errors.count("CircuitOpen")) == (3, 3, 5)
        (limit,) = bench.batch_status(result.id).limits
        assert limit.breaker is BreakerState.OPEN
        assert limit.until is not None
        service.is_overloaded = False
        assert run().status == "completed"
        assert len(made) == 3 + 8


def test_a_recorded_tool_whose_breaker_is_open_is_tried_again_without_waiting_for_itself() -> None:
    @wtb.tool(name="limited-recorded", limit="api")
    def ask() -> None:
        raise ConnectionError("away")

    with Bench("memory://") as bench:
        result = run_batch(
            bench,
            lambda state, ctx: ctx.tool(ask),
            2,
            {"retry": RetryPolicy(times=2, wait_s=0)},
            tools={"limited-recorded": "record"},
            limits={"api": Limit(1, break_after=1, cool_down_s=3600)},
            workers=1,
        )
    assert {job.error["type"] for job in result.results} == {"CircuitOpen"}


# Several processes

PROJECT = """
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import wtb

flow = wtb.Workflow("crowded")


def note(log, word):
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{word} {os.getpid()}\\n".encode())
    os.close(file)


@wtb.tool(effects="none", limit="api")
def call(log, takes_s):
    note(log, "enter")
    time.sleep(takes_s)
    note(log, "leave")


@flow.node(start=True)
def work(state, ctx):
    ctx.tool(call, state["log"], state["takes_s"])
    return {}


def is_busy(error):
    return "busy" in str(error)


def batch_of(count, log, takes_s=0.005, limit=3):
    cases = [{"id": str(n), "input": {"log": log, "takes_s": takes_s}} for n in range(count)]
    limits = {"api": wtb.Limit(limit, break_after=5, overloaded=is_busy)}
    return wtb.BatchTest(flow, cases=cases, evaluators=["steps"], limits=limits, workers=4)


def run_many(bench, log):
    note(log, "ready")
    while open(log).read().count("ready") < 2:
        time.sleep(0.005)
    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(lambda n: bench.run(flow, {"log": log, "takes_s": 0.005}), range(12)))
    assert {run.status for run in runs} == {"completed"}


if __name__ == "__main__":
    what, url, folder, log = sys.argv[1:5]
    with wtb.Bench(url or None, folder=folder, limits={"api": 3}) as bench:
        if what == "runs":
            run_many(bench, log)
        else:
            bench.batch(batch_of(4, log, 600, limit=2))
else:
    batch = batch_of(4, "log", limit=1)
"""


class Crowd:
    """Processes that share a store, and the log of their calls."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.log = folder / "log"
        self.store = folder / "wtb"
        self.url = url
        self._script = folder / "crowded.py"
        self._script.write_text(PROJECT)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, what: str) -> subprocess.Popen[bytes]:
        given = (self._script, what, self.url, self.store, self.log)
        command = [sys.executable, *map(str, given)]
        process = subprocess.Popen(command, env=environment(), cwd=self._script.parent)
        self._started.append(process)
        return process

    def words(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def entered(self) -> list[str]:
        return [pid for word, pid in self.words() if word == "enter"]

    def most_at_a_time(self) -> int:
        inside = most = 0
        for word, _ in self.words():
            inside += {"enter": 1, "leave": -1}.get(word, 0)
            most = max(most, inside)
        return most

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture(params=["sqlite", "postgres"])
def crowd(request: pytest.FixtureRequest, empty_folder: Path) -> Iterator[Crowd]:
    url = ""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))
    crowd = Crowd(empty_folder, url)
    yield crowd
    crowd.close()


def test_two_processes_with_four_threads_each_never_make_more_calls_than_allowed(crowd: Crowd) -> None:
    for process in [crowd.start("runs"), crowd.start("runs")]:
        assert process.wait(120) == 0
    assert sorted(Counter(crowd.entered()).values()) == [12, 12]
    assert crowd.most_at_a_time() <= 3


def test_the_slots_of_a_killed_process_come_back(crowd: Crowd) -> None:
    process = crowd.start("batch")
    while len(crowd.entered()) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    with Bench(crowd.url or None, folder=crowd.store) as bench:
        (limit,) = bench.batch_status("crowded").limits
        assert (limit.width, limit.held) == (2, 2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert bench.batch_status("crowded").limits[0].held == 0
        (batch,) = bench.list_batches()
        held = bench.services.limits.take(batch.id, "api", Limit(2), lambda: None)
        assert [slot.id for slot in slots(bench, batch.id)] == [held.slot.id]


def test_worker_processes_share_the_limits_of_their_batch_and_load_its_functions(empty_folder: Path) -> None:
    crowd = Crowd(empty_folder)
    try:
        command = [sys.executable, "-m", "wtb", "batch", "run", "crowded.py", "--runner", "processes", "--workers", "2"]
        done = subprocess.run(command, env=environment(), cwd=empty_folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert crowd.most_at_a_time() == 1
        assert len(crowd.entered()) == 4
    finally:
        sys.modules.pop("crowded", None)


def test_a_call_that_waits_long_for_one_limit_inside_another_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_limits, "_LONG_S", 0.1)
    both = threading.Barrier(2)

    def node(state: Any, ctx: Any) -> None:
        first, second = state["order"]
        with ctx.limit(first):
            both.wait(10)
            with ctx.limit(second):
                pass

    flow = wtb.Workflow("opposite").add_node("node", node, start=True)
    cases = [{"id": order, "input": {"order": order}} for order in ("xy", "yx")]
    with Bench("memory://") as bench:
        options: dict[str, Any] = {"limits": {"x": 1, "y": 1}, "workers": 2, "job_timeout_s": 1.0}
        result = bench.batch(flow, cases=cases, evaluators=["steps"], **options)
    assert result.status == "completed_with_errors"
    assert "holds a slot of limit x and has waited" in caplog.text
    assert "take limits in the same order everywhere" in caplog.text
