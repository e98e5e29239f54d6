"""Bench and Run beside the engine: short ids, files, exports, and looking on while nodes run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import CheckpointNotFound, ExecutionNotFound, InvalidInput
from wtb.domain.events import EventType


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as opened:
        yield opened


def a_flow() -> wtb.Workflow:
    flow = wtb.Workflow("flow")

    @flow.node(start=True)
    def begin(state: Any) -> dict[str, Any]:
        return {"n": 0}

    @flow.node()
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        (ctx.workspace / f"{state['n']}.txt").write_text("x")
        return {"n": state["n"] + 1}

    flow.edge("begin", "write")
    flow.edge("write", "write", when="n < 3")
    flow.edge("write", wtb.END, otherwise=True)
    return flow


def test_a_bare_decorator_makes_a_node_as_one_with_parentheses_does(bench: Bench) -> None:
    flow = wtb.Workflow("bare")

    @flow.node("first", start=True)
    def begin(state: Any) -> dict[str, Any]:
        return {"seen": ["first"]}

    @flow.node
    def second(state: Any) -> dict[str, Any]:
        return {"seen": [*state["seen"], "second"]}

    flow.edge("first", "second")
    assert bench.run(flow).state == {"seen": ["first", "second"]}
    assert second({"seen": []}) == {"seen": ["second"]}


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_functions_that_a_node_calls_find_its_folder_by_themselves(bench: Bench, timeout_s: float | None) -> None:
    flow = wtb.Workflow("folder")

    def write(name: str) -> None:
        (wtb.workspace() / name).write_text("x")

    @flow.node(start=True, timeout_s=timeout_s)
    def first(state: Any, ctx: Any) -> dict[str, Any]:
        write("first")
        return {}

    @flow.node(timeout_s=timeout_s)
    async def second(state: Any, ctx: Any) -> dict[str, Any]:
        write("second")
        return {}

    @flow.node(timeout_s=timeout_s)
    def third(state: Any) -> dict[str, Any]:
        write("third")
        return {}

    flow.edge("first", "second")
    flow.edge("second", "third")
    run = bench.run(flow)
    assert sorted(run.files()) == ["first", "second"]
    assert run.error is not None
    assert "let a node of a wtb.Workflow take ctx" in run.error.message


def test_a_function_is_made_reversible_by_its_name(bench: Bench) -> None:
    sent: list[str] = []

    def send_by_post(text: str) -> None:
        sent.append(text)

    post = wtb.reversible(send_by_post, reverse=lambda call: sent.remove(call.arguments["text"]))
    flow = wtb.Workflow("post")

    @flow.node(start=True)
    def begin(state: Any) -> dict[str, Any]:
        return {}

    @flow.node
    def send(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(post, text="hello")
        return {}

    flow.edge("begin", "send")
    run = bench.run(flow)
    assert sent == ["hello"]
    run.rollback("begin")
    assert sent == []


def nothing(state: Any) -> None:
    """Stand for a node."""


@pytest.mark.parametrize(
    ("slip", "advice"),
    [
        (
            lambda flow: flow.edge("a", ["b", "c"]),
            "an edge leads to one node, not to ['b', 'c']; write an edge to each",
        ),
        (lambda flow: flow.edge("a", nothing), "write 'nothing', not the function"),
        (lambda flow: flow.edge(nothing, "a"), "write 'nothing', not the function"),
        (lambda flow: flow.edge("a", None), "not to None; wtb.END ends the run"),
        (lambda flow: flow.add_node("a", lambda: None), "its function takes (); a node takes (state) or (state, ctx)"),
        (lambda flow: flow.add_node("a", lambda state, ctx, more: None), "takes (state, ctx, more); a node takes"),
        (lambda flow: flow.add_node("a", {"n": 1}), "node 'a' is a dict; give a function"),
        (lambda flow: flow.add_variant("a", "b", lambda: None), "variant 'b' of node 'a': its function takes ()"),
        (
            lambda flow: flow.add_node("a", nothing, retry="3"),
            "retry is how often to try, or a wtb.RetryPolicy, not '3'",
        ),
        (lambda flow: flow.add_node("a", nothing, retry=True), "not True"),
        (lambda flow: flow.reducer("notes", "append"), "the reducer of 'notes' is 'append'; give wtb.append"),
    ],
)
def test_a_slip_in_building_a_workflow_is_told_where_it_is_made(slip: Any, advice: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        slip(wtb.Workflow("slips"))
    assert advice in str(refused.value)


def test_a_name_alone_stands_for_a_list_of_one(bench: Bench) -> None:
    flow = wtb.Workflow("names")
    flow.add_node("ask", lambda state: {"answer": state["question"]}, start=True, reads="question")
    flow.add_node("check", nothing)
    flow.edge("ask", "check")
    run = bench.run(flow, {"question": "?"}, break_before="ask")
    assert (run.status, run.state) == ("paused", {"question": "?"})
    run = run.resume(break_before=(), break_after="ask")
    assert (run.status, run.state["answer"]) == ("paused", "?")


def test_what_is_printed_of_an_error_and_of_a_history_is_short(bench: Bench) -> None:
    flow = wtb.Workflow("prints")
    flow.add_node("fail", lambda state: state.get("n", 1) / 0, start=True)
    run = bench.run(flow, run_id="mine")
    assert str(run.error) == "ZeroDivisionError: division by zero"
    assert "Traceback" not in repr(run.error)
    assert repr(run.history) == "<ExecutionHistory of mine: 1 branches, 1 checkpoints, 1 node runs>"


def test_a_run_is_found_by_the_beginning_of_its_id(bench: Bench) -> None:
    for number in range(7):
        bench.create(a_flow(), run_id=f"run-{number}")
    assert bench.get("run-3").id == "run-3"
    assert bench.create(a_flow(), run_id="other").id == bench.get("othe").id
    with pytest.raises(InvalidInput, match=r"run-6, run-5, run-4, run-3, run-2, …; give more"):
        bench.get("run-")
    for unknown in ("oth", "none-of-these", ""):
        with pytest.raises(ExecutionNotFound):
            bench.get(unknown)


def test_files_are_those_of_the_head_or_of_a_checkpoint(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(a_flow())
    assert sorted(run.files()) == ["0.txt", "1.txt", "2.txt"]
    assert sorted(run.files("write#2")) == ["0.txt", "1.txt"]
    assert sorted(run.files(2)) == ["0.txt"]
    assert len(run.files("begin")) == 0
    assert run.export(tmp_path / "all") == run.files()
    run.export(str(tmp_path / "first"), "write#1")
    assert [path.name for path in (tmp_path / "first").iterdir()] == ["0.txt"]
    with pytest.raises(InvalidInput, match="has no files at checkpoint 'begin'"):
        run.export(tmp_path / "none", "begin")
    with pytest.raises(CheckpointNotFound):
        run.export(tmp_path / "none", "nope")
    assert not (tmp_path / "none").exists()


def test_a_run_without_files_cannot_be_exported(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(a_flow(), break_before=["write"])
    assert len(run.files()) == 0
    with pytest.raises(InvalidInput, match="has no files; "):
        run.export(tmp_path / "none")


def test_somebody_can_look_on_while_nodes_run(bench: Bench) -> None:
    together = threading.Barrier(2)
    flow = wtb.Workflow("flow")
    flow.add_node("begin", lambda state: {}, start=True)

    def meet(state: Any) -> None:
        together.wait(60)

    for name in ("left", "right"):
        flow.add_node(name, meet).edge("begin", name)

    @flow.node(retry=wtb.RetryPolicy(times=2, wait_s=0))
    def last(state: Any, ctx: Any) -> None:
        raise ValueError

    flow.edge(["left", "right"], "last")
    seen: list[tuple[str, str, int]] = []

    @contextmanager
    def watch(run: NodeRun) -> Iterator[None]:
        seen.append(("began", run.node, run.attempt))
        try:
            yield
        finally:
            seen.append(("ended", run.node, run.attempt))

    bench.create(flow).resume(watch=watch)
    assert seen[:2] == [("began", "begin", 1), ("ended", "begin", 1)]
    assert sorted(seen[2:4]) == [("began", "left", 1), ("began", "right", 1)]
    assert sorted(seen[4:6]) == [("ended", "left", 1), ("ended", "right", 1)]
    assert seen[6:] == [("began", "last", 1), ("ended", "last", 1), ("began", "last", 2), ("ended", "last", 2)]


def test_all_events_are_more_than_a_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bench.run(a_flow())
    every = run.events()
    for page in range(1, len(every) + 2):
        monkeypatch.setattr("wtb.application.queries.service._PAGE", page)
        assert run.all_events() == list(every)
    times = [event.data["ms"] for event in every if event.type is EventType.NODE_COMPLETED]
    assert times
    assert min(times) >= 0


def test_a_run_that_nobody_runs_is_stopped_at_once(bench: Bench) -> None:
    waiting = bench.run(a_flow(), break_before=["write"])
    waiting.stop()
    assert waiting.status == "cancelled"
    never_begun = bench.create(a_flow())
    never_begun.stop()
    assert never_begun.status == "cancelled"
    done = bench.run(a_flow())
    with pytest.raises(InvalidInput, match="is completed; there is nothing to stop"):
        done.stop()


def test_a_request_that_came_too_late_does_not_end_the_run_when_it_is_resumed(bench: Bench) -> None:
    flow = wtb.Workflow("flow")

    @flow.node(start=True)
    def fails_once(state: Any, ctx: Any) -> None:
        if ctx.run.attempt == 1:
            with bench.services.storage.unit_of_work() as uow:  # as another process asks
                uow.executions.request(ctx.run.execution_id, "stop")
                uow.commit()
            raise ValueError

    flow.add_node("last", lambda state: {"done": True}).edge("fails_once", "last")
    run = bench.run(flow)
    assert run.status == "failed"
    assert run.resume().state == {"done": True}
