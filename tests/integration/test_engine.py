"""The engine over every storage: routing, supersteps, breakpoints, questions, retries, tools and files."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import wtb
from wtb.application.runs import function_caller
from wtb.bench import Bench
from wtb.domain.errors import AlreadyExists, InvalidInput, InvalidTransition
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.tools import Tool, ToolSpec
from wtb.flow import Workflow
from wtb.notebooks import KnownFlows
from wtb.runs import Run

COMPLETED, PAUSED, FAILED = ExecutionStatus.COMPLETED, ExecutionStatus.PAUSED, ExecutionStatus.FAILED


def chain(*functions: Callable[..., Any], name: str = "flow") -> Workflow:
    """Put functions one after the other."""
    flow = Workflow(name)
    for position, function in enumerate(functions):
        flow.add_node(function.__name__, function, start=position == 0)
    for source, target in itertools.pairwise(functions):
        flow.edge(source.__name__, target.__name__)
    return flow


def visits(run: Run) -> list[str]:
    return [f"{node}#{visit}" for node, visit in run.history.path()]


def one(state: Any) -> dict[str, Any]:
    return {"one": 1}


def two(state: Any) -> dict[str, Any]:
    return {"two": state["one"] + 1}


async def three(state: Any, ctx: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"three": state["two"] + 1}


def test_sync_and_async_nodes_run_one_after_the_other(bench: Bench) -> None:
    run = bench.run(chain(one, two, three), {"zero": 0})
    assert (run.status, run.state) == (COMPLETED, {"zero": 0, "one": 1, "two": 2, "three": 3})
    assert visits(run) == ["one#1", "two#1", "three#1"]
    assert [checkpoint.step for checkpoint in run.checkpoints] == [0, 1, 2, 3]
    (_, after_one, after_two, after_three) = [checkpoint.id for checkpoint in run.checkpoints]
    assert [(each.node, each.visit, each.first_id, each.last_id) for each in run.history.boundaries()] == [
        ("one", 1, after_one, after_one),
        ("two", 1, after_two, after_two),
        ("three", 1, after_three, after_three),
    ]


def test_a_loop_numbers_its_visits_and_ends_when_its_condition_fails(bench: Bench) -> None:
    flow = Workflow("loop")
    flow.add_node("tick", lambda state: {"n": state["n"] + 1}, start=True)
    flow.edge("tick", "tick", when="last.n < 5")
    flow.edge("tick", wtb.END, otherwise=True)
    run = bench.run(flow, {"n": 0})
    assert (run.state, visits(run)[-1]) == ({"n": 5}, "tick#5")


def test_the_first_condition_that_holds_wins_by_priority_then_order(bench: Bench) -> None:
    flow = Workflow("choice")
    flow.add_node("start", lambda state: None, start=True)
    for name in ("low", "high", "other"):
        flow.add_node(name, lambda state, name=name: {"took": name})
    flow.edge("start", "low", when="x > 0")
    flow.edge("start", "high", when="x > 10", priority=1)
    flow.edge("start", "other", otherwise=True)
    assert [bench.run(flow, {"x": x}).state["took"] for x in (0, 5, 50)] == ["other", "low", "high"]


def test_a_run_without_an_edge_that_holds_completes_and_says_so(bench: Bench) -> None:
    flow = Workflow("nowhere")
    flow.add_node("start", lambda state: None, start=True)
    flow.add_node("never", lambda state: {"never": True})
    flow.edge("start", "never", when="x == 1")
    run = bench.run(flow, {"x": 0})
    assert run.status is COMPLETED
    assert run.events()[-1].data["notes"] == ["no edge of 'start' held"]


def diamond() -> Workflow:
    flow = Workflow("diamond")
    flow.add_node("start", lambda state: {"log": "start"}, start=True)
    for name in ("left", "right"):
        flow.add_node(name, lambda state, name=name: {"log": name, name: len(state["log"])})
        flow.edge("start", name)
    flow.add_node("end", lambda state: {"log": "end"})
    flow.edge(["left", "right"], "end")
    flow.reducer("log", wtb.append)
    return flow


def test_members_of_a_superstep_see_its_start_and_are_applied_in_order_of_definition(bench: Bench) -> None:
    run = bench.run(diamond(), {})
    assert run.state == {"log": ["start", "left", "right", "end"], "left": 1, "right": 1}
    assert visits(run) == ["start#1", "left#1", "right#1", "end#1"]
    assert len(run.checkpoints) == 4, "the start, then one a superstep"


def test_nodes_alone_and_in_a_superstep_can_remove_keys(bench: Bench) -> None:
    flow = Workflow("removes")
    for name in ("start", "left", "right"):
        flow.add_node(name, lambda state, name=name: {name: wtb.DELETE}, start=name == "start")
    flow.edge("start", "left").edge("start", "right")
    run = bench.run(flow, {"start": 1, "left": 2, "right": 3, "rest": 4})
    assert (run.status, run.state) == (COMPLETED, {"rest": 4})


def test_a_member_of_a_superstep_whose_result_cannot_be_stored_fails_the_run(bench: Bench) -> None:
    flow = Workflow("unstorable")
    flow.add_node("start", lambda state: None, start=True)
    flow.add_node("good", lambda state: {"good": True}).add_node("bad", lambda state: {"bad": object()})
    flow.edge("start", "good").edge("start", "bad")
    run = bench.run(flow, {})
    assert run.error is not None
    assert (run.status, run.error.type, run.error.node) == (FAILED, "StateNotSerialisable", "bad")


def test_a_result_that_cannot_even_be_copied_is_named_by_its_path(bench: Bench) -> None:
    def hold(state: Any) -> dict[str, Any]:
        return {"docs": [{"lock": threading.Lock()}]}

    run = bench.run(chain(hold))
    assert run.error is not None
    assert (run.status, run.error.type) == (FAILED, "StateNotSerialisable")
    assert run.error.message.startswith("state.docs[0].lock: _thread.lock cannot be stored")


def test_two_members_that_write_one_key_without_a_reducer_are_both_named(bench: Bench) -> None:
    flow = Workflow("clash")
    flow.add_node("start", lambda state: None, start=True)
    for name in ("left", "right"):
        flow.add_node(name, lambda state, name=name: {"same": name})
        flow.edge("start", name)
    run = bench.run(flow, {})
    assert run.status is FAILED
    assert run.error is not None
    assert all(word in run.error.message for word in ("'left'", "'right'", "'same'", "flow.reducer"))


def test_a_finished_member_is_not_run_again_when_its_sibling_failed(bench: Bench) -> None:
    ran: list[str] = []
    flow = Workflow("half")
    flow.add_node("start", lambda state: None, start=True)

    def good(state: Any) -> dict[str, Any]:
        ran.append("good")
        return {"good": True}

    def bad(state: Any) -> dict[str, Any]:
        ran.append("bad")
        if ran.count("bad") == 1:
            raise ValueError("not yet")
        return {"bad": True}

    for function in (good, bad):
        flow.add_node(function.__name__, function)
        flow.edge("start", function.__name__)
    run = bench.run(flow, {})
    assert (run.status, sorted(ran)) == (FAILED, ["bad", "good"])
    run = run.resume()
    assert (run.status, sorted(ran)) == (COMPLETED, ["bad", "bad", "good"])
    assert run.state == {"good": True, "bad": True}


def test_a_breakpoint_pauses_where_the_state_can_be_changed(bench: Bench) -> None:
    run = bench.run(chain(one, two, three), {}, break_before=["two"])
    assert (run.status, run.state) == (PAUSED, {"one": 1})
    assert run.waiting is not None
    assert run.waiting.reason == "break before two"
    run = run.resume(update={"one": 10}, break_before=[], break_after=["two"])
    assert (run.status, run.state) == (PAUSED, {"one": 10, "two": 11})
    assert run.resume().state["three"] == 12


def test_a_breakpoint_at_a_node_that_does_not_exist_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="there is no node 'nope'"):
        bench.run(chain(one), {}, break_before=["nope"])


def test_a_question_waits_for_its_answer_and_the_node_goes_on_with_it(bench: Bench) -> None:
    def approve(state: Any, ctx: Any) -> dict[str, Any]:
        return {"approved": ctx.ask("Refund 20 €?", schema=["yes", "no"])}

    run = bench.run(chain(one, approve), {})
    assert run.waiting is not None
    assert run.waiting.question is not None
    assert (run.waiting.question["question"], run.waiting.question["schema"]) == ("Refund 20 €?", ["yes", "no"])
    with pytest.raises(InvalidInput, match="answer one of yes, no"):
        run.resume(answer="perhaps")
    assert run.resume(answer="yes").state == {"one": 1, "approved": "yes"}


def test_an_async_node_can_ask_too(bench: Bench) -> None:
    async def approve(state: Any, ctx: Any) -> dict[str, Any]:
        return {"approved": ctx.ask("Really?"), "again": ctx.ask("Really?")}

    run = bench.run(chain(approve), {}).resume(answer=1)
    assert (run.status, run.resume(answer=2).state) == (PAUSED, {"approved": 1, "again": 2})


def test_options_that_a_resume_changes_stay_changed(bench: Bench) -> None:
    run = bench.run(chain(one, two, three), {}, break_before=["two"])
    run = run.resume(break_before=["three"])
    assert (run.status, list(run.execution.options["break_before"])) == (PAUSED, ["three"])
    with pytest.raises(InvalidInput, match="unknown option brake_before"):
        run.resume(brake_before=["one"])


@pytest.mark.parametrize("given", [{"answer": 1}, {"update": {"x": object()}}, {"brake": 1}, {"break_after": ["nope"]}])
def test_a_resume_that_is_given_something_wrong_leaves_the_run_as_it_was(bench: Bench, given: dict[str, Any]) -> None:
    run = bench.run(chain(one, two), {}, break_before=["two"])
    with pytest.raises(InvalidInput):
        run.resume(**given)
    assert run.waiting is not None
    assert (run.status, run.waiting.reason, run.execution.lease) == (PAUSED, "break before two", None)
    assert run.resume().state == {"one": 1, "two": 2}


def test_a_failure_is_recorded_whole_and_the_run_goes_on_from_the_last_good_step(bench: Bench) -> None:
    broken = [True]

    def breaks(state: Any) -> dict[str, Any]:
        if broken[0]:
            raise LookupError("no such customer")
        return {"found": True}

    run = bench.run(chain(one, breaks), {})
    error = run.error
    assert error is not None
    assert (run.status, error.type, error.message, error.node) == (FAILED, "LookupError", "no such customer", "breaks")
    assert "raise LookupError" in error.traceback
    assert error.input_checkpoint_id == run.checkpoints[-1].id
    broken[0] = False
    assert run.resume().state == {"one": 1, "found": True}


def test_a_retry_policy_tries_again_only_after_the_errors_that_it_names(bench: Bench) -> None:
    tries: list[int] = []

    def flaky(state: Any) -> dict[str, Any]:
        tries.append(1)
        raise (TimeoutError if len(tries) < 2 else KeyError)("x")

    flow = Workflow("flaky")
    policy = wtb.RetryPolicy(times=5, wait_s=0, errors=("TimeoutError",))
    flow.add_node("flaky", flaky, start=True, retry=policy)
    run = bench.run(flow, {})
    assert (run.status, len(tries)) == (FAILED, 2)
    assert [event.data["attempt"] for event in run.events(types=[EventType.NODE_RETRIED])] == [1]


def test_a_node_that_takes_too_long_fails_and_its_late_calls_are_refused(bench: Bench) -> None:
    release, seen = threading.Event(), list[str]()

    def slow(state: Any, ctx: Any) -> None:
        release.wait(60)
        try:
            ctx.step("late", lambda: 1)
        except wtb.WTBError as error:
            seen.append(str(error))
        finally:
            finished.set()

    finished = threading.Event()
    flow = Workflow("slow")
    flow.add_node("slow", slow, start=True, timeout_s=0.05)
    run = bench.run(flow, {})
    release.set()
    assert finished.wait(60)
    assert run.error is not None
    assert (run.error.type, seen) == ("NodeTimeout", ["node 'slow' was given up; its call of 'late' is refused"])


def test_an_async_node_that_takes_too_long_lets_go_of_what_it_holds_before_the_bench_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(function_caller, "_LET_GO_S", 60)
    happened: list[str] = []

    async def slow(state: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)
            happened.append("let go")

    flow = Workflow("slow")
    flow.add_node("slow", slow, start=True, timeout_s=0.05)
    with Bench("memory://") as bench:
        assert bench.run(flow, {}).status == FAILED
    assert happened == ["let go"]


def test_a_bench_is_closed_though_an_async_node_that_took_too_long_blocks_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(function_caller, "_LET_GO_S", 0.05)
    let_go, threads = threading.Event(), []

    async def blocks(state: Any) -> None:
        threads.append(threading.current_thread())
        let_go.wait()

    flow = Workflow("blocks")
    flow.add_node("blocks", blocks, start=True, timeout_s=0.05)
    with Bench("memory://") as bench:
        assert bench.run(flow, {}).status == FAILED
    let_go.set()
    threads[0].join()


def test_a_recorded_call_answers_when_the_node_is_tried_again(bench: Bench) -> None:
    calls: list[str] = []

    def buy(item: str) -> int:
        calls.append(item)
        return len(calls)

    buy_tool = Tool(spec=ToolSpec(name="buy"), function=buy)
    tries: list[int] = []

    def shop(state: Any, ctx: Any) -> dict[str, Any]:
        bought = [ctx.tool(buy_tool, "pen"), ctx.tool(buy_tool, "pen"), ctx.step("price", lambda: 3)]
        tries.append(1)
        if len(tries) < 3:
            raise OSError("try again")
        return {"bought": bought}

    flow = Workflow("shop")
    flow.add_node("shop", shop, start=True, retry=3)
    run = bench.run(flow, {}, seed=1)
    assert (run.state, calls) == ({"bought": [1, 2, 3]}, ["pen", "pen"])
    kinds = [event.type for event in run.events() if event.type.startswith("tool.")]
    assert kinds.count(EventType.TOOL_STARTED) == kinds.count(EventType.TOOL_COMPLETED) == 3


def test_async_tools_and_steps_are_recorded_and_answer_again(bench: Bench) -> None:
    calls: list[str] = []

    async def buy(item: str, idempotency_key: str) -> int:
        calls.append(item)
        return len(calls)

    async def price(item: str) -> str:
        calls.append(f"price of {item}")
        return item.upper()

    spec = ToolSpec(name="buy", idempotent=True)
    buy_tool = Tool(spec=spec, function=buy, takes_key=True)

    async def shop(state: Any, ctx: Any) -> dict[str, Any]:
        bought = [await ctx.atool(buy_tool, "pen"), await ctx.astep("price", price, "pen")]
        bought.append(await ctx.astep("sync", len, "pen"))
        if ctx.run.attempt == 1:
            raise OSError("try again")
        return {"bought": bought}

    flow = Workflow("shop")
    flow.add_node("shop", shop, start=True, retry=2)
    run = bench.run(flow, {})
    assert (run.state, calls) == ({"bought": [1, "PEN", 3]}, ["pen", "price of pen"])


def test_a_tool_whose_parameter_is_called_key_gets_it_by_position(bench: Bench) -> None:
    kept: dict[str, int] = {}
    put = Tool(spec=ToolSpec(name="put"), function=lambda value, key: kept.update({key: value}))

    def by_name(state: Any, ctx: Any) -> None:
        ctx.tool(put, 1, key="a")

    def by_position(state: Any, ctx: Any) -> None:
        ctx.tool(put, 1, "a", key="the first")

    run = bench.run(chain(by_name))
    assert run.error is not None
    assert "give the tool's own `key` by position" in run.error.message
    assert (run.calls, kept) == ((), {})
    assert bench.run(chain(by_position)).status is COMPLETED
    assert kept == {"a": 1}


def test_an_async_tool_or_step_that_is_not_awaited_is_told_how_to_be_called(bench: Bench) -> None:
    async def fetch() -> int:
        return 1

    def by_tool(state: Any, ctx: Any) -> dict[str, Any]:
        return {"n": ctx.tool(Tool(spec=ToolSpec(name="fetch"), function=fetch))}

    def by_step(state: Any, ctx: Any) -> dict[str, Any]:
        return {"n": ctx.step("fetch", fetch)}

    for node, advice in ((by_tool, "await ctx.atool("), (by_step, "await ctx.astep(")):
        run = bench.run(chain(node))
        assert run.error is not None
        assert advice in run.error.message
        assert run.calls == ()  # nothing was begun, so nothing is in doubt


def test_calls_that_a_new_attempt_never_asks_for_pause_the_run(bench: Bench) -> None:
    send = Tool(spec=ToolSpec(name="send"), function=lambda text: text)
    tries: list[int] = []

    def write(state: Any, ctx: Any) -> dict[str, Any]:
        tries.append(1)
        ctx.tool(send, f"draft {len(tries)}")
        if len(tries) == 1:
            raise OSError("try again")
        return {}

    flow = Workflow("diverges")
    flow.add_node("write", write, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0))
    run = bench.run(flow, {})
    assert run.status is PAUSED
    assert run.waiting is not None
    assert "did not ask for send" in run.waiting.reason


@pytest.mark.parametrize(
    ("answer", "state", "times"), [("again", {"got": 2}, 2), ("done", {"got": None}, 1), ({"done": 7}, {"got": 7}, 1)]
)
def test_a_call_whose_fate_is_unknown_is_asked_about(bench: Bench, answer: Any, state: Any, times: int) -> None:
    calls: list[int] = []

    def pay(amount: int) -> int:
        calls.append(amount)
        if len(calls) == 1:
            raise KeyboardInterrupt  # what a process that dies here looks like to the record: an intent, no result
        return len(calls)

    def buy(state: Any, ctx: Any) -> dict[str, Any]:
        return {"got": ctx.tool(pay, 20)}

    flow = chain(buy)
    with pytest.raises(KeyboardInterrupt):
        bench.run(flow, {}, run_id="doubtful")
    run = bench.resume("doubtful", flow)
    assert run.waiting is not None
    assert run.waiting.question is not None
    assert (run.status, run.waiting.reason, calls) == (PAUSED, "in doubt", [20])
    assert "never reported back" in run.waiting.question["question"]
    with pytest.raises(InvalidInput, match="answer again, done"):
        run.resume(answer="perhaps")
    assert (run.resume(answer=answer).state, len(calls)) == (state, times)


def test_a_node_can_be_begun_afresh_and_its_calls_are_undone_last_first(bench: Bench) -> None:
    undone: list[str] = []

    @wtb.tool(name="reserve", reverse=lambda call: undone.append(call.arguments["seat"]))
    def reserve(seat: str) -> str:
        return seat

    tries: list[int] = []

    def book(state: Any, ctx: Any) -> dict[str, Any]:
        tries.append(1)
        for number in (1, 2):
            ctx.tool(reserve, seat=f"{len(tries)}-{number}")
        if len(tries) == 1:
            raise OSError("try again")
        return {"booked": len(tries)}

    flow = Workflow("book")
    flow.add_node("book", book, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0))
    run = bench.run(flow, {})
    assert run.status is PAUSED
    run = run.resume(rerun_node=True)
    assert (run.state, undone) == ({"booked": 3}, ["2-2", "2-1", "1-2", "1-1"])
    assert visits(run) == ["book#1"]


def test_random_numbers_are_the_same_whenever_a_visit_is_tried(bench: Bench) -> None:
    def draw(state: Any, ctx: Any) -> dict[str, Any]:
        return {"drawn": ctx.rng.random()}

    assert bench.run(chain(draw), {}).state == bench.run(chain(draw), {}).state
    assert bench.run(chain(draw), {}).state != bench.run(chain(draw), {}, seed=1).state


def test_files_are_versioned_with_the_steps_and_members_are_merged(bench: Bench) -> None:
    def draft(state: Any, ctx: Any) -> None:
        (ctx.workspace / "draft.txt").write_text("draft")

    flow = Workflow("files")
    flow.add_node("draft", draft, start=True)
    for name in ("left", "right"):

        def write(state: Any, ctx: Any, name: str = name) -> None:
            (ctx.workspace / f"{name}.txt").write_text((ctx.workspace / "draft.txt").read_text() + name)

        flow.add_node(name, write)
        flow.edge("draft", name)

    def look(state: Any, ctx: Any) -> dict[str, Any]:
        return {"files": {path.name: path.read_text() for path in ctx.workspace.iterdir()}}

    flow.add_node("look", look)
    flow.edge(["left", "right"], "look")
    run = bench.run(flow, {})
    assert run.state["files"] == {"draft.txt": "draft", "left.txt": "draftleft", "right.txt": "draftright"}
    assert len({checkpoint.file_commit for checkpoint in run.checkpoints}) == 3, "none, the draft, and the merge"


def test_half_done_files_of_a_failed_attempt_are_gone_when_it_is_tried_again(bench: Bench) -> None:
    tries: list[int] = []

    def write(state: Any, ctx: Any) -> dict[str, Any]:
        tries.append(1)
        found = sorted(path.name for path in ctx.workspace.iterdir())
        (ctx.workspace / f"try-{len(tries)}.txt").write_text("x")
        if len(tries) == 1:
            raise OSError("half done")
        return {"found": found}

    run = bench.run(chain(one, write), {})
    assert run.resume().state == {"one": 1, "found": []}


def test_the_step_limit_ends_an_endless_loop_with_a_clear_error(bench: Bench) -> None:
    flow = Workflow("endless")
    flow.add_node("spin", lambda state: None, start=True)
    flow.edge("spin", "spin")
    run = bench.run(flow, {}, max_steps=7)
    assert run.error is not None
    assert (run.error.type, run.history.visits()) == ("StepLimitReached", {"spin": 7})


def test_a_node_sees_only_what_it_declares_to_read(bench: Bench) -> None:
    flow = Workflow("reads")
    flow.add_node("greedy", lambda state: {"seen": [*state], "b": state["b"]}, start=True, reads=["a"])
    run = bench.run(flow, {"a": 1, "b": 2})
    assert run.error is not None
    assert "declares reads=[a]" in run.error.message


def test_changing_the_state_in_place_has_no_effect(bench: Bench) -> None:
    def sly(state: Any) -> dict[str, Any]:
        state["items"].append(1)
        state["other"] = 2
        return {"length": len(state["items"])}

    assert bench.run(chain(sly), {"items": []}).state == {"items": [], "length": 1}


def test_a_node_that_changes_the_state_and_returns_nothing_is_warned_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def forgetful(state: Any) -> None:
        state["other"] = 2

    def whole(state: Any) -> Any:
        state["other"] = 2
        return state

    assert bench.run(chain(whole), {"n": 1}).state == {"n": 1, "other": 2}
    assert caplog.messages == []
    assert bench.run(chain(forgetful), {"n": 1}).state == {"n": 1}
    assert caplog.messages == ["node forgetful changed other in place; only what it returns has an effect"]


def test_a_key_that_the_state_does_not_have_is_told_with_those_that_it_has(bench: Bench) -> None:
    def ask(state: Any) -> dict[str, Any]:
        assert state.get("question") is None
        return {"answer": state["question"]}

    flow = Workflow("ask")
    flow.add_node("ask", ask, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0, errors=("KeyError",)))
    run = bench.run(flow, {"qestion": "?", "k": 1})
    assert run.error is not None
    assert run.error.message == "the state has no 'question'; it has k, qestion"
    assert [event.data["attempt"] for event in run.events(types=[EventType.NODE_RETRIED])] == [1]
    assert bench.run(flow).error.message == "the state has no 'question'; it has nothing"  # type: ignore[union-attr]


def test_a_reused_run_id_is_refused(bench: Bench) -> None:
    bench.run(chain(one), {}, run_id="mine")
    with pytest.raises(AlreadyExists, match="there is already a run 'mine'"):
        bench.run(chain(one), {}, run_id="mine")


def test_a_finished_run_cannot_be_resumed(bench: Bench) -> None:
    with pytest.raises(InvalidTransition, match="is completed"):
        bench.run(chain(one), {}).resume()


def test_a_workflow_that_lost_the_next_node_is_an_error_that_names_it(bench: Bench) -> None:
    run = bench.run(chain(one, two), {}, break_before=["two"])
    renamed = Workflow("flow")
    renamed.add_node("one", one, start=True).add_node("second", two).edge("one", "second")
    with pytest.raises(InvalidInput, match="continues with two, which the workflow no longer has"):
        bench.resume(run.id, renamed, break_before=[])


def test_a_workflow_made_in_a_notebook_must_be_passed_again(bench: Bench) -> None:
    run = bench.run(chain(one, two), {}, break_before=["two"])
    bench._flows = KnownFlows()  # as in a new process
    with pytest.raises(InvalidInput, match=r"pass it: bench\.resume"):
        bench.resume(run.id)


def test_a_pause_that_another_asks_for_takes_effect_at_the_next_boundary(bench: Bench) -> None:
    def ask_to_pause(state: Any, ctx: Any) -> dict[str, Any]:
        bench.get(ctx.run.execution_id).pause()
        return {"asked": True}

    run = bench.run(chain(one, ask_to_pause, two), {})
    assert (run.status, run.state) == (PAUSED, {"one": 1, "asked": True})
    assert run.resume().status is COMPLETED


@pytest.mark.parametrize("condition", [lambda state: 1 / 0, lambda state: "yes", "missing > 1", "size(1)"])
def test_a_condition_that_cannot_be_decided_fails_the_run_and_names_its_edge(bench: Bench, condition: Any) -> None:
    flow = Workflow("undecided")
    flow.add_node("start", lambda state: None, start=True).add_node("next", lambda state: None)
    flow.edge("start", "next", when=condition)
    run = bench.run(flow, {})
    assert run.status is FAILED
    assert run.error is not None
    assert (run.error.type, run.error.node) == ("InvalidCondition", "start")
    assert "edge start -> next" in run.error.message


def test_a_reducer_that_raises_fails_the_run(bench: Bench) -> None:
    flow = chain(one)
    flow.reducer("one", lambda old, new: new / 0)
    run = bench.run(flow, {})
    assert run.error is not None
    assert (run.status, run.error.type) == (FAILED, "ZeroDivisionError")


def test_usage_that_nodes_report_adds_up(bench: Bench) -> None:
    def think(state: Any, ctx: Any) -> None:
        ctx.usage(model="m", input_tokens=10, output_tokens=2, cost_usd=0.5)

    run = bench.run(chain(one, think), {})
    assert run.usage == {"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.5}


def test_events_are_chained_and_reach_subscribers_after_the_commit(bench: Bench) -> None:
    seen: list[str] = []
    bench.subscribe(EventType.NODE_COMPLETED, lambda event: seen.append(event.data["node"]))
    bench.run(chain(one, two), {})
    assert bench.services.bus.flush(10)
    assert seen == ["one", "two"]


def test_a_workflow_as_data_runs_like_the_one_in_code(bench: Bench) -> None:
    data = chain(one, two, three).to_dict()
    assert bench.run(Workflow.from_dict(data), {}).state == {"one": 1, "two": 2, "three": 3}
