"""What a node is tried again for must not cost: files of tools, usage of finished members, the run itself."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.application.runs.reversals import ReversalFailed
from wtb.application.tool_registry import TOOLS
from wtb.domain.errors import AlreadyExists, Conflict, InvalidInput
from wtb.domain.execution import ExecutionStatus
from wtb.domain.tools import Tool, ToolSpec

FAILED, COMPLETED = ExecutionStatus.FAILED, ExecutionStatus.COMPLETED


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
        assert written.wait(60)
        (ctx.workspace / "a").write_text("a")
        restored.set()

    def other(state: Any, ctx: Any) -> None:
        (ctx.workspace / "other").write_text("b")
        written.set()
        assert restored.wait(60)

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


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_exits_has_failed_and_may_be_resumed(bench: wtb.Bench, is_async: bool) -> None:
    exits = [True]

    def node(state: Any) -> dict[str, Any]:
        if exits[0]:
            sys.exit(0)
        return {"left": False}

    async def async_node(state: Any) -> dict[str, Any]:
        return node(state)

    flow = wtb.Workflow("exits")
    flow.add_node("node", async_node if is_async else node, start=True)
    run = bench.run(flow, {})
    assert run.status is FAILED
    assert run.error
    assert (run.error.type, run.error.message) == ("SystemExit", "0")
    exits[0] = False
    assert run.resume().state == {"left": False}


def test_an_async_node_that_is_interrupted_ends_the_call_and_not_the_loop(bench: wtb.Bench) -> None:
    exits = [True]

    async def leave() -> None:
        if exits[0]:
            raise KeyboardInterrupt

    async def node(state: Any) -> dict[str, Any]:
        await asyncio.gather(leave())
        return {"left": False}

    flow = wtb.Workflow("exits")
    flow.add_node("node", node, start=True)
    with pytest.raises(KeyboardInterrupt):
        bench.run(flow, {}, run_id="exits")
    exits[0] = False
    assert bench.resume("exits", flow).state == {"left": False}


def test_a_run_that_another_thread_runs_is_not_run_a_second_time(bench: wtb.Bench) -> None:
    calls: list[int] = []
    begun, finish = threading.Event(), threading.Event()

    def slow(number: int) -> None:
        calls.append(number)
        begun.set()
        assert finish.wait(60)

    flow = wtb.Workflow("slow")
    flow.add_node("node", lambda state, ctx: {"called": ctx.tool(slow, 1)}, start=True)
    bench.create(flow, {}, run_id="slow")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(bench.resume, "slow", flow)
        assert begun.wait(60)
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


def test_a_reversal_that_fails_while_a_node_is_begun_afresh_leaves_the_run_failed(bench: wtb.Bench) -> None:
    def fails(call: Any) -> None:
        raise OSError("cannot be undone now")

    book = Tool(spec=ToolSpec(name="book", reversible=True), function=lambda: None, reverse=fails)
    TOOLS.add(book)

    def node(state: Any, ctx: Any) -> None:
        ctx.tool(book)
        raise ValueError("after the booking")

    flow = wtb.Workflow("w")
    flow.add_node("node", node, start=True)
    run = bench.run(flow, {})
    with pytest.raises(ReversalFailed, match=r"book .* could not be undone: OSError: cannot be undone now"):
        run.resume(rerun_node=True)
    assert (run.status, run.execution.lease) == (ExecutionStatus.FAILED, None)


@pytest.mark.parametrize("in_doubt", [True, False])
def test_a_call_in_doubt_is_reversed_by_beginning_its_node_afresh_only_if_its_tool_allows_that(
    bench: wtb.Bench, in_doubt: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []

    @wtb.tool(name=f"pay-{in_doubt}", reverse=lambda call: log.append("back"), reverse_in_doubt=in_doubt)
    def pay() -> None:
        log.append("paid")
        if len(log) == 1:
            raise KeyboardInterrupt

    flow = wtb.Workflow("shop")
    flow.add_node("shop", lambda state, ctx: ctx.tool(pay), start=True)
    run = bench.create(flow, {})
    with pytest.raises(KeyboardInterrupt):
        run.resume()
    run.resume(rerun_node=True)
    assert log == (["paid", "back", "paid"] if in_doubt else ["paid", "paid"])
    assert ("the node may do it again" in caplog.text) is not in_doubt


def test_beginning_a_node_afresh_leaves_its_finished_siblings_alone(bench: wtb.Bench) -> None:
    sent: list[str] = []
    send = Tool(spec=ToolSpec(name="send"), function=sent.append)
    fixed: list[bool] = []

    def done(state: Any, ctx: Any) -> None:
        ctx.tool(send, "from the finished one")

    def fails(state: Any, ctx: Any) -> None:
        if not fixed:
            raise ValueError("not yet")

    flow = wtb.Workflow("w")
    flow.add_node("start", lambda state: None, start=True)
    for function in (done, fails):
        flow.add_node(function.__name__, function)
        flow.edge("start", function.__name__)
    run = bench.run(flow, {})
    with pytest.raises(InvalidInput, match="node 'done' has called send and would do so again"):
        run.resume(update={"x": 1}, rerun_node=True)
    fixed.append(True)
    assert run.resume(rerun_node=True).status is ExecutionStatus.COMPLETED
    assert sent == ["from the finished one"]


def test_an_answer_is_taken_after_the_process_that_took_it_first_has_died(bench: wtb.Bench) -> None:
    flow = wtb.Workflow("w")
    flow.add_node("ask", lambda state, ctx: {"answer": ctx.ask("Go?")}, start=True)
    run = bench.run(flow, {})
    recorder = bench.services.travel._recorder  # the process dies after it took the lease, before the answer
    recorder.begin(recorder.load(run.id), bench.services.owners.me())
    assert run.resume(answer="yes").state == {"answer": "yes"}


def test_two_benches_of_one_process_do_not_run_one_run_at_once(tmp_path: Path) -> None:
    begun, finish = threading.Event(), threading.Event()
    calls: list[int] = []

    def node(state: Any) -> None:
        calls.append(1)
        begun.set()
        assert finish.wait(60)

    flow = wtb.Workflow("w")
    flow.add_node("node", node, start=True)
    with wtb.Bench(folder=tmp_path / "wtb") as one, wtb.Bench(folder=tmp_path / "wtb") as other:
        one.create(flow, {}, run_id="run")
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(one.resume, "run", flow)
            assert begun.wait(60)
            with pytest.raises(Conflict, match="in another thread of this process"):
                other.resume("run", flow)
            finish.set()
            first.result()
    assert calls == [1]
