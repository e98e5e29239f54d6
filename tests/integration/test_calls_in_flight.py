"""A call that an attempt which was given up is still in is not made a second time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

import wtb
import wtb.langgraph
from wtb.application.runs import node_runner
from wtb.application.runs.calls_in_flight import list_in_flight, wait_for
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput, WTBError
from wtb.domain.events import EventType, Severity
from wtb.domain.execution import ExecutionStatus
from wtb.domain.tools import CallStatus
from wtb.flow import Workflow


class Paid(TypedDict, total=False):
    paid: int


TRIES = wtb.RetryPolicy(times=50, wait_s=0)


class Shop:
    """A slow service: the first payment ends when it is let go, any further one at once."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.confirmed: list[str] = []
        self.refunded: list[str] = []
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def pay(self, item: str) -> int:
        self.paid.append(item)
        number = len(self.paid)
        if number == 1:
            self.entered.set()
            assert self.let_go.wait(60)
        return number

    def confirm(self, call: Any) -> None:
        self.confirmed.append(call.identity)

    def refund(self, call: Any) -> None:
        self.refunded.append(call.identity)


@pytest.fixture
def shop(bench: Bench) -> Iterator[Shop]:
    """A shop whose payments have all ended before the bench is closed."""
    made = Shop()
    yield made
    made.let_go.set()
    for run in bench.list_runs():
        for node_run in run.history.node_runs:
            assert wait_for(list_in_flight(run.id, node_run.id), 60) == ()


RULES: dict[str, Callable[[Shop], dict[str, Any]]] = {
    "nothing known": lambda shop: {},
    "idempotent": lambda shop: {"idempotent": True},
    "confirm": lambda shop: {"confirm": shop.confirm},
    "reverse in doubt": lambda shop: {"reverse": shop.refund, "reverse_in_doubt": True},
}


def on_waiting(bench: Bench, then: Callable[[], None]) -> None:
    """Do something as soon as an attempt waits for a call of an earlier one."""
    bench.subscribe((EventType.TOOL_AWAITED,), lambda event: then())


@pytest.mark.parametrize(
    ("kind", "rules"), [*(("sync", rules) for rules in RULES), ("async", "idempotent"), ("threaded", "idempotent")]
)
def test_a_new_attempt_waits_for_the_call_and_takes_its_result(bench: Bench, shop: Shop, kind: str, rules: str) -> None:
    async def apay(item: str) -> int:
        try:
            return await asyncio.to_thread(shop.pay, item)
        except asyncio.CancelledError:
            return await asyncio.to_thread(lambda: shop.let_go.wait(60) and 1)  # it is not broken off

    name = "pay_slowly" if kind == "async" else "pay"
    pay = wtb.tool(name=name, **RULES[rules](shop))(apay if kind == "async" else shop.pay)

    def buy(state: Any, ctx: Any) -> dict[str, Any]:
        return {"paid": ctx.tool(pay, "pen")}

    async def abuy(state: Any, ctx: Any) -> dict[str, Any]:
        return {"paid": await ctx.atool(pay, "pen")}

    flow = Workflow("shop")
    flow.add_node("buy", buy if kind == "sync" else abuy, start=True, timeout_s=0.1, retry=TRIES)
    on_waiting(bench, shop.let_go.set)
    run = bench.run(flow, {})
    assert (run.status, run.state, shop.paid) == (ExecutionStatus.COMPLETED, {"paid": 1}, ["pen"])
    assert (shop.confirmed, shop.refunded) == ([], [])
    (told, *_) = run.events(types=[EventType.TOOL_AWAITED])
    assert (told.data["node"], told.data["tool"], told.severity) == ("buy", name, Severity.WARNING)
    assert [call.status for call in run.calls] == [CallStatus.SUCCEEDED]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_tool_of_a_graph_is_waited_for_too(bench: Bench, shop: Shop, is_async: bool) -> None:
    @langchain_tool
    def pay(item: str) -> int:
        """Pay for something."""
        return shop.pay(item)

    pay_in_graph = wtb.langgraph.recorded(pay, idempotent=True)

    def buy(state: Paid) -> Any:
        return {"paid": pay_in_graph.invoke({"item": "pen"})}

    async def abuy(state: Paid) -> Any:
        return {"paid": await pay_in_graph.ainvoke({"item": "pen"})}

    graph: Any = StateGraph(Paid)
    policy = RetryPolicy(max_attempts=50, initial_interval=0.0, retry_on=TimeoutError)
    graph.add_node("buy", abuy if is_async else buy, timeout=0.2, retry_policy=policy)
    graph.add_edge(START, "buy")
    on_waiting(bench, shop.let_go.set)
    run = bench.run(wtb.langgraph.workflow(graph, is_async=is_async), {})
    assert (run.status, run.state, shop.paid) == (ExecutionStatus.COMPLETED, {"paid": 1}, ["pen"])


def test_a_call_that_fails_late_is_made_again_once_it_has_ended(bench: Bench, shop: Shop) -> None:
    def pay(item: str) -> int:
        number = shop.pay(item)
        if number == 1:
            raise ConnectionError("declined")
        return number

    tool = wtb.tool(name="pay_or_fail")(pay)
    flow = Workflow("shop")
    node = flow.add_node
    node("buy", lambda state, ctx: {"paid": ctx.tool(tool, "pen")}, start=True, timeout_s=0.1, retry=TRIES)
    on_waiting(bench, shop.let_go.set)
    run = bench.run(flow, {})
    assert (run.status, run.state, shop.paid) == (ExecutionStatus.COMPLETED, {"paid": 2}, ["pen", "pen"])


@pytest.mark.parametrize("rules", RULES)
def test_after_the_bound_the_run_pauses_in_doubt(
    bench: Bench, shop: Shop, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_runner, "MAX_WAIT_S", 0.01)
    pay = wtb.tool(name="pay", **RULES[rules](shop))(shop.pay)
    flow = Workflow("shop")
    flow.add_node("buy", lambda state, ctx: {"paid": ctx.tool(pay, "pen")}, start=True, timeout_s=0.1, retry=TRIES)
    run = bench.run(flow, {})
    assert (run.status, shop.paid, shop.confirmed, shop.refunded) == (ExecutionStatus.PAUSED, ["pen"], [], [])
    assert run.waiting is not None
    assert run.waiting.reason == "in doubt"
    with pytest.raises(InvalidInput, match="pay is still being called by an earlier attempt"):
        run.resume(answer="again")
    run = run.resume(answer={"done": 7})
    assert (run.status, run.state, shop.paid) == (ExecutionStatus.COMPLETED, {"paid": 7}, ["pen"])


def test_a_failed_run_that_is_resumed_waits_too_and_records_the_end_itself(bench: Bench, shop: Shop) -> None:
    pay = wtb.tool(name="pay")(shop.pay)
    flow = Workflow("shop")
    flow.add_node("buy", lambda state, ctx: {"paid": ctx.tool(pay, "pen")}, start=True, timeout_s=0.5)
    run = bench.run(flow, {})
    assert (run.status, run.error and run.error.type) == (ExecutionStatus.FAILED, "NodeTimeout")
    on_waiting(bench, shop.let_go.set)
    run = run.resume()
    assert (run.status, run.state, shop.paid) == (ExecutionStatus.COMPLETED, {"paid": 1}, ["pen"])


def test_a_call_that_is_under_way_is_not_taken_back(bench: Bench, shop: Shop) -> None:
    pay = wtb.tool(name="pay", reverse=shop.refund, reverse_in_doubt=True)(shop.pay)
    flow = Workflow("shop")
    flow.add_node("begin", lambda state: {}, start=True)
    flow.add_node("buy", lambda state, ctx: {"paid": ctx.tool(pay, "pen")}, timeout_s=0.5)
    flow.edge("begin", "buy")
    run = bench.run(flow, {})
    with pytest.raises(WTBError, match="still being called by a node that was given up"):
        run.rollback("begin")
    assert shop.refunded == []


def test_a_step_without_effects_is_tried_again_at_once(bench: Bench, shop: Shop) -> None:
    flow = Workflow("model")
    node = flow.add_node
    node("ask", lambda state, ctx: {"said": ctx.step("model", shop.pay, "pen")}, start=True, timeout_s=0.1, retry=TRIES)
    run = bench.run(flow, {})
    assert run.state["said"] > 1
    assert not run.events(types=[EventType.TOOL_AWAITED])


def open_files(folder: Path) -> list[str]:
    """Return the files below a folder that this process has open."""
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if link.startswith(str(folder))]


@pytest.mark.parametrize("ending", ["returns", "fails"])
@pytest.mark.parametrize("storage", ["sqlite", "postgres"])
def test_a_call_that_ends_after_the_bench_was_closed_is_in_doubt_in_the_next_one(
    storage: str, ending: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, shop, thrown = None, Shop(), list[Any]()
    if storage == "postgres":
        url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))
    monkeypatch.setattr(threading, "excepthook", thrown.append)

    def pay(item: str) -> int:
        number = shop.pay(item)
        if ending == "fails" and number == 1:
            raise ConnectionError("declined")
        return number

    def buy(state: Any, ctx: Any) -> dict[str, Any]:
        return {"paid": ctx.tool(tool, "pen")}

    tool = wtb.tool(name="pay_very_late")(pay)
    flow = Workflow("shop")
    flow.add_node("buy", buy, start=True, timeout_s=0.1)
    threads = set(threading.enumerate())
    with Bench(url, folder=tmp_path / "wtb") as bench:
        run = bench.run(flow, {})
        assert (run.status, shop.entered.wait(60)) == (ExecutionStatus.FAILED, True)
        (node_run,) = run.history.node_runs
    flights = list_in_flight(run.id, node_run.id)
    shop.let_go.set()
    assert wait_for(flights, 60) == ()
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
    assert (thrown, open_files(tmp_path)) == ([], [])
    gc.collect()  # a connection to Postgres that is still open warns, and a warning fails the test
    with Bench(url, folder=tmp_path / "wtb") as reopened:
        assert [call.status for call in reopened.get(run.id).calls] == [CallStatus.INTENDED]
        resumed = reopened.resume(run.id, flow)
        assert (resumed.status, shop.paid) == (ExecutionStatus.PAUSED, ["pen"])
        assert resumed.resume(answer={"done": 7}).state == {"paid": 7}
        assert shop.paid == ["pen"]
