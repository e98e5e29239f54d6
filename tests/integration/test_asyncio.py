"""Runs that are awaited: async nodes on the caller's loop, everything else on threads, and pauses that lose nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypedDict

import httpx
import pytest
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import StateGraph

import wtb
import wtb.langgraph
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.ports import UnitOfWork
from wtb.flow import Workflow

Node = Callable[..., Any]


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of an async function."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        asyncio.run(main())

    return run


def chain(*nodes: Node, name: str = "chain", **options: Any) -> Workflow:
    flow = Workflow(name)
    for number, node in enumerate(nodes):
        flow.add_node(node.__name__, node, start=not number, **options)
        if number:
            flow.edge(nodes[number - 1].__name__, node.__name__)
    return flow


class PayDesk:
    """A service that counts its calls; the first one waits until it is let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.entered = asyncio.Event()
        self.let_go = asyncio.Event()

    async def pay(self) -> int:
        self.calls += 1
        self.entered.set()
        await self.let_go.wait()
        return self.calls


def paying(desk: PayDesk) -> Workflow:
    """A workflow whose first node makes an external call, and whose second says that it ran."""

    async def pay(state: Any, ctx: Any) -> dict[str, Any]:
        return {"paid": await ctx.atool(tool)}

    def ship(state: Any) -> dict[str, Any]:
        return {"shipped": True}

    tool = wtb.tool(name="pay")(desk.pay)
    return chain(pay, ship)


@in_a_loop
async def test_async_nodes_run_on_the_callers_loop_and_sync_nodes_do_not(bench: Bench) -> None:
    here = asyncio.get_running_loop()
    seen: list[Any] = []

    async def one(state: Any) -> None:
        seen.append(asyncio.get_running_loop())

    def two(state: Any) -> None:
        seen.append(threading.current_thread())

    run = await bench.arun(chain(one, two), {})
    assert run.status == "completed"
    assert seen[0] is here
    assert seen[1] is not threading.current_thread()


@in_a_loop
async def test_a_lock_and_a_queue_of_the_callers_loop_work_in_nodes(bench: Bench) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock = asyncio.Lock()

    async def take(state: Any) -> dict[str, Any]:
        async with lock:
            return {"n": await queue.get()}

    async with lock:  # a loop claims a lock that somebody waits for, and refuses all others
        running = asyncio.create_task(bench.arun(chain(take), {}))
        await asyncio.sleep(0)
        await queue.put(7)
    assert (await running).state == {"n": 7}


class HelloServer:
    """Says hello on each connection until its client hangs up."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                await writer.drain()
        writer.close()
        await writer.wait_closed()
        self.ended.set()


@in_a_loop
async def test_a_client_with_open_connections_on_the_callers_loop_works_in_nodes(bench: Bench) -> None:
    server = HelloServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(url)  # the client now has a connection that belongs to this loop

        async def ask(state: Any, ctx: Any) -> dict[str, Any]:
            return {"said": (await ctx.astep("get", get)), "again": await get()}

        async def get() -> str:
            return (await client.get(url)).text

        run = await bench.arun(chain(ask), {})
    await server.ended.wait()
    listening.close()
    assert run.state == {"said": "hello", "again": "hello"}


@in_a_loop
async def test_every_write_of_an_awaited_run_is_on_another_thread(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = type(bench.services.storage)
    opened, threads = kind.unit_of_work, set()

    def watched(self: Any, **how: Any) -> UnitOfWork:
        threads.add(threading.current_thread())
        return opened(self, **how)  # type: ignore[no-any-return]

    tool = wtb.tool(name="call")(asyncio.sleep)

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.emit("working")
        ctx.log("a line")
        ctx.usage(model="m", input_tokens=1)
        await asyncio.gather(ctx.atool(tool, 0), ctx.astep("sync", lambda: 1), ctx.atool(len, "abc"))
        await ctx.acheckpoint("here")
        return {"said": ctx.ask("Well?")}

    monkeypatch.setattr(kind, "unit_of_work", watched)
    run = await bench.arun(chain(work), {}, fine_grained=True)
    run = await bench.aresume(run.id, chain(work), answer="yes")
    assert len(threads) > 1
    assert threading.current_thread() not in threads
    assert (run.status, run.state) == ("completed", {"said": "yes"})


@in_a_loop
async def test_parallel_nodes_and_the_context_of_the_caller_reach_the_loop(bench: Bench) -> None:
    here, name = asyncio.get_running_loop(), ContextVar("name", default="nobody")
    seen = []

    async def look(state: Any) -> None:
        seen.append((asyncio.get_running_loop() is here, name.get()))

    flow = Workflow("parallel")
    flow.add_node("start", lambda state: {}, start=True)
    for each in ("left", "right"):
        flow.add_node(each, look)
        flow.edge("start", each)
    name.set("ann")
    assert (await bench.arun(flow, {})).status == "completed"
    assert seen == [(True, "ann")] * 2


@in_a_loop
async def test_more_runs_than_the_loop_has_threads_do_not_wait_for_each_other(bench: Bench) -> None:
    count = 20
    meeting = asyncio.Barrier(count)

    async def meet(state: Any, ctx: Any) -> dict[str, Any]:
        await meeting.wait()
        return {"n": await ctx.astep("count", lambda: 1)}

    runs = await asyncio.gather(*(bench.arun(chain(meet), {}) for _ in range(count)))
    assert {run.state["n"] for run in runs} == {1}


@in_a_loop
async def test_cancelling_waits_for_the_boundary_and_a_resumed_run_repeats_no_call(bench: Bench) -> None:
    desk = PayDesk()
    flow = paying(desk)
    task = asyncio.create_task(bench.arun(flow, {}, run_id="first"))
    await desk.entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    desk.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = bench.get("first")
    assert (run.status, run.state) == ("paused", {"paid": 1})
    run = await bench.aresume("first", flow)
    assert (run.status, run.state, desk.calls) == ("completed", {"paid": 1, "shipped": True}, 1)


@in_a_loop
async def test_a_run_that_is_cancelled_before_it_begins_pauses_before_its_first_node(bench: Bench) -> None:
    ran = []

    def work(state: Any) -> None:
        ran.append(1)

    task = asyncio.create_task(bench.arun(chain(work), {}, run_id="first"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran == []


@in_a_loop
async def test_cancelling_twice_breaks_off_the_node_and_its_call_is_in_doubt(bench: Bench) -> None:
    desk = PayDesk()
    flow = paying(desk)
    task = asyncio.create_task(bench.arun(flow, {}, run_id="first"))
    await desk.entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiting = bench.get("first").waiting
    assert waiting is not None
    assert waiting.reason == "the coroutine of 'pay' was cancelled"
    run = await bench.aresume("first", flow)
    assert run.waiting is not None
    assert run.waiting.reason == "in doubt"
    desk.let_go.set()
    run = await bench.aresume("first", flow, answer={"done": 1})
    assert (run.status, desk.calls) == ("completed", 1)


def test_a_loop_that_ends_pauses_the_run_and_loses_no_call(bench: Bench) -> None:
    kept: list[PayDesk] = []

    async def main() -> None:
        desk = PayDesk()
        kept.append(desk)
        background = asyncio.create_task(bench.arun(paying(desk), {}, run_id="first"))
        await desk.entered.wait()
        assert not background.done()

    asyncio.run(main())  # which cancels what is left, and closes the loop
    run = bench.get("first")
    assert run.status == "paused"
    assert [call.status for call in run.calls] == ["intended"]
    assert kept[0].calls == 1


def test_a_loop_that_is_closed_at_once_pauses_the_run(bench: Bench) -> None:
    paused = threading.Event()
    bench.subscribe("execution.paused", lambda event: paused.set())
    loop = asyncio.new_event_loop()
    desk = PayDesk()
    task = loop.create_task(bench.arun(paying(desk), {}, run_id="first"))
    loop.run_until_complete(desk.entered.wait())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    for other in asyncio.all_tasks(loop):
        other._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert paused.wait(60)
    waiting = bench.get("first").waiting
    assert waiting is not None
    assert waiting.reason == "the event loop was closed before 'pay' had ended"


@in_a_loop
async def test_a_node_has_its_time_on_the_callers_loop_too(bench: Bench) -> None:
    async def slow(state: Any) -> None:
        await asyncio.Event().wait()

    run = await bench.arun(chain(slow, timeout_s=0.05), {})
    assert run.error is not None
    assert run.error.type == "NodeTimeout"


@in_a_loop
async def test_an_async_node_may_run_and_await_other_runs(bench: Bench) -> None:
    async def inner(state: Any) -> dict[str, Any]:
        return {"n": 1}

    async def outer(state: Any) -> dict[str, Any]:
        awaited, called = await bench.arun(chain(inner), {}), bench.run(chain(inner), {})
        said = called.error.message if called.error else str(called.status)
        return {"awaited": str(awaited.status), "called": said}

    assert (await bench.arun(chain(outer), {})).state == {"awaited": "completed", "called": "completed"}
    state = bench.run(chain(outer), {}).state  # its loop is ours, and the node blocks it
    assert state["awaited"] == "completed"
    assert "write `await bench.arun(…)` in that node" in state["called"]


@in_a_loop
async def test_a_workflow_that_cannot_run_is_refused_where_it_is_awaited(bench: Bench) -> None:
    with pytest.raises(wtb.InvalidWorkflow):
        await bench.arun(Workflow("empty"), {})
    with pytest.raises(wtb.InvalidWorkflow):
        await anext(aiter(bench.astream(Workflow("empty"), {})))
    with pytest.raises(wtb.InvalidWorkflow):
        list(bench.stream(Workflow("empty"), {}))


@in_a_loop
async def test_a_batch_and_its_evaluators_run_on_the_callers_loop(bench: Bench) -> None:
    here, seen = asyncio.get_running_loop(), set()

    async def work(state: Any) -> dict[str, Any]:
        seen.add(asyncio.get_running_loop() is here)
        return {"n": 1}

    @wtb.evaluator
    async def fine(context: Any) -> bool:
        seen.add(asyncio.get_running_loop() is here)
        return True

    @wtb.evaluator
    async def later(context: Any) -> bool:
        seen.add(asyncio.get_running_loop() is here)
        return True

    cases = [{"id": each, "input": {}} for each in "abc"]
    result = await bench.abatch(chain(work), name="awaited", cases=cases, evaluators=[fine], workers=2)
    assert result.status == "completed"
    await bench.aevaluate(result, [later], workers=2)
    assert await bench.aevaluate(result.results[0].run, [later]) == {"later": 1.0}
    assert seen == {True}


@in_a_loop
async def test_an_evaluator_that_cancels_itself_is_recorded_as_failed(bench: Bench) -> None:
    def work(state: Any) -> None:
        pass

    @wtb.evaluator
    async def gone(context: Any) -> bool:
        raise asyncio.CancelledError

    scores = await bench.aevaluate(bench.run(chain(work), {}), [gone])
    assert "the coroutine of 'gone' was cancelled" in scores["gone"]["error"]


@in_a_loop
async def test_a_cancelled_batch_starts_no_more_jobs_and_goes_on_later(bench: Bench) -> None:
    entered, let_go, ran = asyncio.Event(), asyncio.Event(), []

    async def work(state: Any) -> None:
        ran.append(state["n"])
        entered.set()
        await let_go.wait()

    def batch() -> Awaitable[wtb.BatchResult]:
        cases = [{"id": str(n), "input": {"n": n}} for n in range(5)]
        return bench.abatch(chain(work), name="b", cases=cases, evaluators=[wtb.Steps()], workers=1)

    task = asyncio.ensure_future(batch())
    await entered.wait()
    task.cancel()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(ran) < 5
    assert (await batch()).status == "completed"
    assert sorted(ran) == [0, 1, 2, 3, 4]


@in_a_loop
async def test_an_async_stream_gives_all_events_in_order_while_they_happen(bench: Bench) -> None:
    go_on = asyncio.Event()

    async def work(state: Any, ctx: Any) -> None:
        ctx.emit("working")
        await go_on.wait()

    stream = bench.astream(chain(work), {})
    events = []
    async for event in stream:
        events.append(event)
        if event.type == "node.emitted":
            go_on.set()
    assert tuple(events) == stream.run.events()
    assert [event.type.value for event in events][-3:] == ["node.emitted", "node.completed", "execution.completed"]
    with pytest.raises(InvalidInput, match="has been read"):
        await anext(aiter(stream))


@in_a_loop
async def test_leaving_an_async_stream_pauses_the_run(bench: Bench) -> None:
    desk = PayDesk()
    async with bench.astream(paying(desk), {}) as stream:
        async for event in stream:
            if event.type == "tool.started":
                with pytest.raises(InvalidInput, match="has not ended or paused yet"):
                    _ = stream.run
                desk.let_go.set()
                break
    assert (stream.run.status, stream.run.state) == ("paused", {"paid": 1})


@in_a_loop
async def test_cancelling_whoever_reads_a_stream_pauses_the_run(bench: Bench) -> None:
    desk = PayDesk()
    stream = bench.astream(paying(desk), {})

    async def read() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await desk.entered.wait()
    task.cancel()
    desk.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stream.run.status, stream.run.state) == ("paused", {"paid": 1})


def test_a_stream_gives_the_events_of_a_run_and_then_the_run(bench: Bench) -> None:
    def count(state: Any) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    flow = Workflow("long")
    flow.add_node("count", count, start=True)
    flow.edge("count", "count", when="n < 150")
    flow.edge("count", wtb.END, otherwise=True)
    stream = bench.stream(flow, {"n": 0})
    events = list(stream)
    assert stream.run.state == {"n": 150}
    assert events == stream.run.all_events()
    assert events[-1].type == "execution.completed"


def test_leaving_a_stream_pauses_the_run_and_waits(bench: Bench) -> None:
    def one(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.emit("one")
        left.wait(60)
        return {"one": True}

    def two(state: Any) -> dict[str, Any]:
        return {"two": True}

    left = threading.Event()
    stream = bench.stream(chain(one, two), {})
    for event in stream:
        if event.type == "node.emitted":
            left.set()
            break
    assert stream.run.status in ("paused", "completed")  # the pause comes at the end of `one`, or just after `two`
    assert stream.run.state["one"]


class LoopCount(TypedDict):
    n: int


@in_a_loop
async def test_async_nodes_of_a_graph_run_on_the_callers_loop(bench: Bench) -> None:
    here = asyncio.get_running_loop()
    seen: list[Any] = []

    async def left(state: LoopCount) -> LoopCount:
        seen.append(asyncio.get_running_loop() is here)
        wtb.langgraph.context().emit("left")
        return {"n": state["n"] + 1}

    async def route(state: LoopCount) -> str:
        seen.append(asyncio.get_running_loop() is here)
        return "left" if state["n"] < 3 else "__end__"

    graph: Any = StateGraph(LoopCount)
    graph.add_node("left", left)
    graph.set_entry_point("left")
    graph.add_conditional_edges("left", route)
    run = await bench.arun(graph.compile(), {"n": 0})
    assert (run.status, run.state, set(seen)) == ("completed", {"n": 3}, {True})


@in_a_loop
async def test_a_cancelled_graph_repeats_no_tool_of_its_async_nodes(bench: Bench) -> None:
    desk = PayDesk()

    @langchain_tool
    async def pay() -> int:
        """Pay."""
        return await desk.pay()

    recorded = wtb.langgraph.recorded(pay)

    async def left(state: LoopCount) -> LoopCount:
        return {"n": await recorded.ainvoke({})}

    async def right(state: LoopCount) -> LoopCount:
        return {"n": state["n"] + 10}

    graph: Any = StateGraph(LoopCount)
    graph.add_node("left", left)
    graph.add_node("right", right)
    graph.set_entry_point("left")
    graph.add_edge("left", "right")
    app = graph.compile()
    stream = bench.astream(app, {"n": 0})

    async def read() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await desk.entered.wait()
    task.cancel()
    desk.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stream.run.status, stream.run.state) == ("paused", {"n": 1})
    run = await bench.aresume(stream.id, app)
    assert (run.status, run.state, desk.calls) == ("completed", {"n": 11}, 1)


@in_a_loop
async def test_a_bench_may_be_opened_in_async_code() -> None:
    def work(state: Any) -> None:
        pass

    async with Bench("memory://") as bench:
        assert (await bench.arun(chain(work), {})).status == "completed"
