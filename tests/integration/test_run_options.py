"""Options of a run: which checkpoints are kept, which are made inside nodes or cannot be made, and changed code."""

from __future__ import annotations

import logging
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.application.runs.leases import LEASE
from wtb.bench import Bench
from wtb.domain.checkpoint import Kind, Trigger
from wtb.domain.errors import CheckpointNotFound, Conflict, InvalidInput, StorageUnavailable
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.files import FileCommitId
from wtb.domain.tools import Tool, ToolSpec
from wtb.flow import Workflow
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.unit_of_work import TransactionalUnitOfWork
from wtb.runs import Run


def counting(*, fail_at: int = 0, until: int = 5) -> Workflow:
    """A loop that counts, and fails once when it is told to."""
    failed: list[int] = []

    def count(state: Any) -> dict[str, Any]:
        if state["n"] + 1 == fail_at and not failed:
            failed.append(1)
            raise ValueError("not yet")
        return {"n": state["n"] + 1}

    flow = Workflow("counting")
    flow.add_node("count", count, start=True)
    flow.edge("count", "count", when=f"n < {until}")
    flow.edge("count", wtb.END, otherwise=True)
    return flow


def steps(run: Run) -> list[int]:
    return [checkpoint.step for checkpoint in run.checkpoints]


@pytest.mark.parametrize(
    ("keep", "fail_at", "kept"),
    [
        ("every_node", 0, [0, 1, 2, 3, 4, 5]),
        ("on_error", 0, [0, 5]),
        ("on_success", 0, [0, 1, 2, 3, 4, 5]),
        ("every_node", 4, [0, 1, 2, 3]),
        ("on_error", 4, [0, 1, 2, 3]),
        ("on_success", 4, [0, 3]),
    ],
)
def test_a_strategy_decides_what_is_kept_after_the_end_and_never_touches_the_head(
    bench: Bench, keep: str, fail_at: int, kept: list[int]
) -> None:
    run = bench.run(counting(fail_at=fail_at), {"n": 0}, checkpoints=keep)
    assert steps(run) == kept
    assert run.state == {"n": kept[-1]}
    assert [visit for _, visit in run.history.path() if visit <= 5][: kept[-1]] == list(range(1, kept[-1] + 1))
    if fail_at:
        assert run.resume().state == {"n": 5}, "a failed run goes on, whatever was kept"


def test_named_checkpoints_are_kept_by_every_strategy(bench: Bench) -> None:
    flow = Workflow("named")
    flow.add_node("count", lambda state, ctx: ctx.checkpoint(f"at {state['n']}") or {"n": state["n"] + 1}, start=True)
    flow.edge("count", "count", when="n < 3")
    flow.edge("count", wtb.END, otherwise=True)
    run = bench.run(flow, {"n": 0}, checkpoints="on_error")
    assert [checkpoint.name for checkpoint in run.checkpoints] == [None, "at 0", "at 1", "at 2", None]


def test_an_unknown_strategy_is_refused_and_names_those_there_are(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="checkpoints='sometimes' is unknown; it is one of every_node, on_success"):
        bench.run(counting(), {"n": 0}, checkpoints="sometimes")


def sender(sent: list[str]) -> Tool:
    """A tool that notes what it sent and returns how much that is."""

    def send(text: str) -> int:
        sent.append(text)
        return len(sent)

    return Tool(spec=ToolSpec(name="send"), function=send)


def noting(ctx: Any, name: str, text: str) -> str:
    (ctx.workspace / name).write_text(text)
    return text


def calling() -> Workflow:
    """A node with two calls and a model's answer, which writes a file after each."""
    sent: list[str] = []
    send = sender(sent)

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        first = ctx.tool(send, text="one")
        noting(ctx, "log", "one")
        ctx.step("model", lambda: "answer")
        second = ctx.tool(send, text="two")
        noting(ctx, "log", "two")
        return {"sent": [first, second]}

    flow = Workflow("calling")
    flow.add_node("work", work, start=True)
    flow.add_node("end", lambda state: {"done": True})
    flow.edge("work", "end")
    return flow


def test_fine_grained_checkpoints_stand_at_calls_and_belong_to_their_visit(bench: Bench) -> None:
    run = bench.run(calling(), {}, fine_grained=True)
    made = [(checkpoint.trigger, checkpoint.node) for checkpoint in run.checkpoints]
    call = [(Trigger.TOOL_START, "work"), (Trigger.TOOL_END, "work")]
    assert made == [
        (Trigger.START, None),
        *call,
        (Trigger.LLM_CALL, "work"),
        *call,
        (Trigger.NODE_END, "work"),
        (Trigger.NODE_END, "end"),
    ]
    work, _ = run.history.boundaries()
    assert (work.checkpoint_count, work.tool_count) == (6, 3)
    assert run.history.by_node("work").step == 6
    assert run.state == {"sent": [1, 2], "done": True}


def test_a_checkpoint_inside_a_node_shows_the_files_of_that_moment(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(calling(), {}, fine_grained=True)
    seen = []
    for checkpoint in run.checkpoints[3:7]:
        assert checkpoint.file_commit is not None
        folder = tmp_path / str(checkpoint.step)
        bench.services.workspaces.export(FileCommitId(checkpoint.file_commit), folder)
        seen.append((folder / "log").read_text())
    assert seen == ["one", "one", "one", "two"]


def test_a_node_with_checkpoints_inside_is_tried_again_from_its_start(bench: Bench) -> None:
    """After the failure the head is inside the node; its calls answer from the record and its files begin anew."""
    sent: list[str] = []
    send = sender(sent)

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        lines = (ctx.workspace / "log").read_text() if (ctx.workspace / "log").exists() else ""
        (ctx.workspace / "log").write_text(lines + "line\n")
        number = ctx.tool(send, text="one")
        if ctx.run.attempt == 1:
            raise OSError("gone")
        return {"number": number, "log": (ctx.workspace / "log").read_text()}

    flow = Workflow("again")
    flow.add_node("work", work, start=True)
    run = bench.run(flow, {}, fine_grained=True)
    assert (run.status, run.checkpoints[-1].trigger) == ("failed", Trigger.TOOL_END)
    with pytest.raises(InvalidInput, match="is in the middle of node 'work'"):
        run.resume(update={"number": 7})
    run = run.resume()
    assert (run.status, run.state, sent) == ("completed", {"number": 1, "log": "line\n"}, ["one"])
    assert run.history.path() == (("work", 1),)


def test_checkpoints_inside_nodes_do_not_count_as_steps(bench: Bench) -> None:
    assert bench.run(calling(), {}, fine_grained=True, max_steps=2).status == "completed"


def test_a_pause_that_is_asked_for_inside_a_node_waits_for_its_end(bench: Bench) -> None:
    flow = Workflow("asked")

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        with bench.services.storage.unit_of_work() as uow:
            uow.executions.request(ctx.run.execution_id, "pause")
            uow.commit()
        ctx.checkpoint("inside")
        return {"done": True}

    flow.add_node("work", work, start=True)
    flow.add_node("after", lambda state: None)
    flow.edge("work", "after")
    run = bench.run(flow, {})
    assert (run.status, run.state, run.history.by_node("work").step) == ("paused", {"done": True}, 2)


def test_a_node_names_a_checkpoint_once_and_a_loop_numbers_it(bench: Bench) -> None:
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.checkpoint("before review", description="what the model said")
        if ctx.run.attempt == 1:
            raise OSError("gone")
        return {"n": state["n"] + 1}

    flow = Workflow("named")
    flow.add_node("work", work, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0))
    flow.edge("work", "work", when="n < 2")
    flow.edge("work", wtb.END, otherwise=True)
    run = bench.run(flow, {"n": 0})
    named = [checkpoint for checkpoint in run.checkpoints if checkpoint.name]
    assert [(checkpoint.name, checkpoint.visit) for checkpoint in named] == [
        ("before review", 1),
        ("before review#2", 2),
    ]
    assert {(checkpoint.kind, checkpoint.trigger) for checkpoint in named} == {(Kind.MANUAL, Trigger.USER_REQUEST)}
    assert run.history.resolve("before review").description == "what the model said"


def test_a_member_of_a_parallel_step_cannot_name_a_checkpoint(bench: Bench) -> None:
    flow = Workflow("parallel")
    flow.add_node("start", lambda state: None, start=True)
    for name in ("left", "right"):
        flow.add_node(name, lambda state, ctx: ctx.checkpoint("half"))
        flow.edge("start", name)
    run = bench.run(flow, {})
    assert run.status == "failed"
    assert run.error is not None
    assert "make it in the node that follows" in run.error.message


class Lock:
    """Somebody else who keeps the database locked, for as long as a node wants."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "wtb.db", isolation_level=None, check_same_thread=False)

    def take(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def give_back(self) -> None:
        self._connection.execute("ROLLBACK")


def locked_for_two_steps(folder: Path) -> Workflow:
    flow = Workflow("locked")
    flow.reducer("log", wtb.append)

    def first(state: Any) -> dict[str, Any]:
        locks.append(Lock(folder))
        locks[0].take()
        return {"log": "first"}

    def third(state: Any) -> dict[str, Any]:
        locks[0].give_back()
        return {"log": "third", "n": 3}

    locks: list[Lock] = []
    flow.add_node("first", first, start=True)
    flow.add_node("second", lambda state: {"log": "second", "n": 2})
    flow.add_node("third", third)
    flow.add_node("fourth", lambda state: {"log": "fourth"})
    for source, target in (("first", "second"), ("second", "third"), ("third", "fourth")):
        flow.edge(source, target)
    return flow


def test_steps_that_cannot_be_written_are_made_up_for_and_the_run_is_degraded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Bench(folder=tmp_path / "wtb", busy_timeout_s=0.01) as bench:
        run = bench.run(locked_for_two_steps(tmp_path / "wtb"), {"log": []})
        assert (run.status, run.state) == ("completed", {"log": ["first", "second", "third", "fourth"], "n": 3})
        assert [name for name, _ in run.history.path()] == ["first", "second", "third", "fourth"]
        assert [checkpoint.node for checkpoint in run.checkpoints] == [None, "third", "fourth"]
        assert run.execution.degraded is not None
        assert "database is locked" in run.execution.degraded
        kinds = [event.type for event in run.events()]
        assert kinds.count(EventType.NODE_COMPLETED) == 4
        assert {EventType.CHECKPOINT_FAILED, EventType.EXECUTION_DEGRADED} <= set(kinds)
        assert "continues, but its step 1 could not be stored" in caplog.text
        counts = [boundary.checkpoint_count for boundary in run.history.boundaries()]
        assert counts == [0, 0, 1, 1]
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            assert uow.node_runs.list_boundaries(run.id) == run.history.boundaries()
        with pytest.raises(CheckpointNotFound):
            run.history.resolve("second")


def test_a_checkpoint_that_cannot_be_written_ends_the_run_when_that_is_fatal(tmp_path: Path) -> None:
    with Bench(folder=tmp_path / "wtb", busy_timeout_s=0.01, preset="production") as bench:
        flow = locked_for_two_steps(tmp_path / "wtb")
        with pytest.raises(StorageUnavailable, match="database is locked"):
            bench.run(flow, {"log": []}, run_id="run")
        assert bench.get("run").state == {"log": []}


def test_an_external_tool_is_not_called_while_its_intent_cannot_be_written(tmp_path: Path) -> None:
    called: list[str] = []
    send = Tool(spec=ToolSpec(name="send"), function=called.append)
    flow = Workflow("locked")
    lock: list[Lock] = []

    def first(state: Any) -> dict[str, Any]:
        lock.append(Lock(tmp_path / "wtb"))
        lock[0].take()
        return {"first": True}

    flow.add_node("first", first, start=True)
    flow.add_node("second", lambda state, ctx: ctx.tool(send, "hello"))
    flow.edge("first", "second")
    with Bench(folder=tmp_path / "wtb", busy_timeout_s=0.01) as bench:
        with pytest.raises(StorageUnavailable):
            bench.run(flow, {}, run_id="run")
        assert called == []
        lock[0].give_back()
        assert bench.resume("run", flow.mocked({"first": {"first": True}})).status == "completed"


def test_files_that_cannot_be_committed_are_never_passed_over(tmp_path: Path) -> None:
    flow = Workflow("files")
    lock: list[Lock] = []

    def first(state: Any, ctx: Any) -> None:
        (ctx.workspace / "file").write_text("kept nowhere else")
        lock.append(Lock(tmp_path / "wtb"))
        lock[0].take()

    flow.add_node("first", first, start=True)
    flow.add_node("second", lambda state: None)
    flow.edge("first", "second")
    with Bench(folder=tmp_path / "wtb", busy_timeout_s=0.01) as bench:
        with pytest.raises(StorageUnavailable):
            bench.run(flow, {})
        lock[0].give_back()


def edited(text: str) -> Workflow:
    flow = Workflow("edited")
    versions = {"one": lambda state: {"text": "one"}, "two": lambda state: {"text": "two"}}
    flow.add_node("first", lambda state: {"n": 1}, start=True)
    flow.add_node("second", versions[text])
    flow.edge("first", "second")
    return flow


def test_code_that_changed_under_a_paused_run_is_named_or_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    run = bench.run(edited("one"), {}, break_before=["second"])
    with pytest.raises(InvalidInput, match=re.escape("node `second` has changed: `edited.<locals>.<lambda>` in ")):
        bench.resume(run.id, edited("two"), strict=True)
    assert caplog.text == "", "what is refused is not also warned of as if it went on"
    assert bench.get(run.id).status == "paused"
    with caplog.at_level(logging.WARNING):
        run = bench.resume(run.id, edited("two"))
    assert "continues with a workflow that has changed since it began: node `second` has changed" in caplog.text
    assert run.state["text"] == "two"
    (changed,) = run.events(types=[EventType.EXECUTION_RESUMED])[0].data["changed"]
    assert changed.startswith("node `second` has changed: ")


def test_the_same_code_is_no_change(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    run = bench.run(edited("one"), {}, break_before=["second"])
    assert bench.resume(run.id, edited("one"), strict=True).status == "completed"
    assert caplog.text == ""


def test_a_run_begins_with_the_files_of_a_folder_and_leaves_it_alone(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes").write_text("begin")
    flow = Workflow("files")

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        text = (ctx.workspace / "notes").read_text()
        (ctx.workspace / "notes").write_text("changed")
        return {"text": text}

    flow.add_node("work", work, start=True)
    assert bench.run(flow, {}, workspace=folder).state == {"text": "begin"}
    assert (folder / "notes").read_text() == "begin"
    with pytest.raises(InvalidInput, match="is not a folder"):
        bench.run(flow, {}, workspace=folder / "notes")


def test_a_run_taken_over_says_who_left_it(bench: Bench) -> None:
    flow = counting()
    run = bench.create(flow, {"n": 0})
    with bench.services.storage.unit_of_work() as uow:
        execution = uow.executions.get(run.id)
        now = bench.services.clock.now()
        running = execution.moved_to(ExecutionStatus.RUNNING, now)
        machine = ProcessOwners().me().partition("/")[0]
        uow.executions.save(running.owned(f"{machine}/999999/1", now, LEASE))
        uow.commit()
    run = bench.resume(run.id, flow)
    assert run.status == "completed"
    (event,) = run.events(types=[EventType.EXECUTION_ABANDONED])
    assert event.data["reason"].endswith("/999999/1 is gone")


def test_a_run_of_another_pid_namespace_is_taken_over_only_after_its_lease(bench: Bench) -> None:
    flow = counting()
    machine = ProcessOwners().me().partition("/")[0].rpartition(":")[0]
    elsewhere = f"{machine}:1/999999/1"  # the same host name, in a container of its own
    runs = [bench.create(flow, {"n": 0}), bench.create(flow, {"n": 0})]
    now = bench.services.clock.now()
    for run, leased_at in zip(runs, (now, now - 2 * LEASE), strict=True):
        with bench.services.storage.unit_of_work() as uow:
            running = uow.executions.get(run.id).moved_to(ExecutionStatus.RUNNING, now)
            uow.executions.save(running.owned(elsewhere, leased_at, LEASE))
            uow.commit()
    with pytest.raises(Conflict, match=f"is being run by {elsewhere}"):
        bench.resume(runs[0].id, flow)
    assert bench.resume(runs[1].id, flow).status == "completed"


class AnswerLost:
    """A storage whose next commit happens and then seems to have failed, as when a connection breaks too late."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed = False
        commit = TransactionalUnitOfWork.commit

        def lossy(uow: TransactionalUnitOfWork) -> None:
            commit(uow)
            if self.armed:
                self.armed = False
                raise StorageUnavailable("the answer was lost")

        monkeypatch.setattr(TransactionalUnitOfWork, "commit", lossy)


@pytest.mark.parametrize("at", [1, 3], ids=["in the middle", "with the last step"])
def test_a_step_that_was_stored_though_it_seemed_to_fail_is_not_stored_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    lost = AnswerLost(bench, monkeypatch)

    def count(state: Any) -> dict[str, Any]:
        lost.armed = state["n"] + 1 == at
        return {"n": state["n"] + 1}

    flow = Workflow("counting")
    flow.add_node("count", count, start=True)
    flow.edge("count", "count", when="n < 3")
    flow.edge("count", wtb.END, otherwise=True)
    run = bench.run(flow, {"n": 0})
    assert (run.status, run.state, steps(run)) == ("completed", {"n": 3}, [0, 1, 2, 3])
    assert run.execution.degraded is None
