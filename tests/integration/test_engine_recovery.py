"""What a node is tried again for must not cost: files of tools, usage of finished members, the run itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.domain.errors import AlreadyExists, Conflict, InvalidInput
from wtb.domain.execution import ExecutionStatus

FAILED, COMPLETED = ExecutionStatus.FAILED, ExecutionStatus.COMPLETED


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[wtb.Bench]:
    url = {"memory": "memory://", "sqlite": None}.get(request.param)
    if request.param == "postgres":
        name = request.getfixturevalue("migrated_database")
        url = request.getfixturevalue("postgres").url(name)
    with wtb.Bench(url, folder=tmp_path / "wtb") as opened:
        yield opened


def fan(**members: Callable[..., Any]) -> wtb.Workflow:
    """Put members beside each other, then a node that lists the files which they left."""
    flow = wtb.Workflow("fan")
    flow.add_node("begin", lambda state: None, start=True)
    for name, function in members.items():
        flow.add_node(name, function, retry=wtb.RetryPolicy(times=2, wait_s=0))
        flow.edge("begin", name)
    flow.add_node(
        "end", lambda state, ctx: {"files": {path.name: path.read_text() for path in ctx.workspace.iterdir()}}
    )
    flow.edge(list(members), "end")
    return flow


def test_a_tool_that_writes_to_the_workspace_runs_again_when_its_files_were_put_back(bench: wtb.Bench) -> None:
    @wtb.tool(name="note", effects="workspace")
    def note(folder: str, text: str) -> str:
        (Path(folder) / "note").write_text(text)
        return text

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        noted = ctx.tool(note, str(ctx.workspace), f"{ctx.run.attempt}", key="note")
        if ctx.run.attempt == 1:
            raise OSError("half done")
        return {"noted": noted, "found": (ctx.workspace / "note").read_text()}

    flow = wtb.Workflow("noting")
    flow.add_node("work", work, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0))
    assert bench.run(flow, {}).state == {"noted": "2", "found": "2"}


def test_members_that_change_one_path_fail_the_run_which_names_both(bench: wtb.Bench) -> None:
    def write(state: Any, ctx: Any) -> None:
        (ctx.workspace / "same").write_text(ctx.run.node)

    run = bench.run(fan(left=write, right=write), {})
    assert run.error is not None
    assert (run.status, run.error.type, run.execution.lease) == (FAILED, "MergeConflict", None)
    assert all(word in run.error.message for word in ("'left'", "'right'", "'same'"))
    run = run.resume()
    assert (run.status, run.error and run.error.type) == (FAILED, "MergeConflict")


def test_a_retried_member_does_not_share_its_folder_with_another_whose_name_looks_like_it(bench: wtb.Bench) -> None:
    written, restored = threading.Event(), threading.Event()

    def retried(state: Any, ctx: Any) -> None:
        if ctx.run.attempt == 1:
            raise OSError("not yet")
        assert written.wait(10)
        (ctx.workspace / "a").write_text("a")
        restored.set()

    def other(state: Any, ctx: Any) -> None:
        (ctx.workspace / "other").write_text("b")
        written.set()
        assert restored.wait(10)

    flow = fan(**{"a": retried, "a.2": other})
    assert bench.run(flow, {}).state["files"] == {"a": "a", "other": "b"}


def test_usage_of_a_finished_member_is_counted_when_its_sibling_is_tried_again(bench: wtb.Bench) -> None:
    broken = [True]

    def costly(state: Any, ctx: Any) -> None:
        ctx.usage(model="m", input_tokens=10, cost_usd=0.5)

    def fails(state: Any, ctx: Any) -> None:
        ctx.usage(model="m", input_tokens=1, cost_usd=0.25)
        if broken[0]:
            raise OSError("not yet")

    run = bench.run(fan(costly=costly, fails=fails), {})
    assert run.status is FAILED
    broken[0] = False
    run = run.resume()
    assert (run.status, run.usage["input_tokens"], run.usage["cost_usd"]) == (COMPLETED, 11, 0.75)


def test_an_error_of_wtb_that_a_node_raises_is_the_failure_of_that_node(bench: wtb.Bench) -> None:
    def nested(state: Any) -> None:
        raise AlreadyExists("run 'x' exists already")

    flow = wtb.Workflow("nested")
    flow.add_node("nested", nested, start=True)
    run = bench.run(flow, {})
    assert (run.status, run.error and run.error.type) == (FAILED, "AlreadyExists")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_async_node_that_exits_ends_the_call_and_not_the_loop(bench: wtb.Bench, error: type[BaseException]) -> None:
    exits = [True]

    async def leave() -> None:
        if exits[0]:
            raise error

    async def node(state: Any) -> dict[str, Any]:
        await asyncio.gather(leave())
        return {"left": False}

    flow = wtb.Workflow("exits")
    flow.add_node("node", node, start=True)
    with pytest.raises(error):
        bench.run(flow, {}, run_id="exits")
    exits[0] = False
    assert bench.resume("exits", flow).state == {"left": False}


def test_a_run_that_another_thread_runs_is_not_run_a_second_time(bench: wtb.Bench) -> None:
    calls: list[int] = []
    begun, finish = threading.Event(), threading.Event()

    def slow(number: int) -> None:
        calls.append(number)
        begun.set()
        assert finish.wait(10)

    flow = wtb.Workflow("slow")
    flow.add_node("node", lambda state, ctx: {"called": ctx.tool(slow, 1)}, start=True)
    bench.create(flow, {}, run_id="slow")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(bench.resume, "slow", flow)
        assert begun.wait(10)
        try:
            with pytest.raises(Conflict, match="another thread"):
                bench.resume("slow", flow)
        finally:
            finish.set()
        assert (first.result().status, calls) == (COMPLETED, [1])


def test_the_state_is_not_changed_under_a_node_that_called_a_tool(bench: wtb.Bench) -> None:
    calls: list[str] = []

    @wtb.tool(name="pay", reverse=lambda call: calls.append("back"))
    def pay() -> None:
        calls.append("paid")

    def shop(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(pay)
        return {"address": state["address"]}

    flow = wtb.Workflow("shop")
    flow.add_node("shop", shop, start=True)
    run = bench.run(flow, {})
    with pytest.raises(InvalidInput, match="'shop' has called pay"):
        run.resume(update={"address": "here"})
    assert (run.status, calls) == (FAILED, ["paid"])
    run = run.resume(update={"address": "here"}, rerun_node=True)
    assert (run.status, calls) == (COMPLETED, ["paid", "back", "paid"])
