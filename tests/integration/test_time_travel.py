"""Rollback, redo and fork over every storage: state, files and effects of tools move together, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.integration.support_desk import AFTER_B, AFTER_D, Desk, files, fine, support, world
from wtb.application.runs.leases import Leases
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.reversals import RedoDiverged
from wtb.application.runs.steps import Position
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.bench import Bench
from wtb.domain.checkpoint import Kind
from wtb.domain.errors import CheckpointNotFound, Conflict, ExecutionNotFound, InvalidInput, InvalidTransition
from wtb.domain.events import EventType
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.rollback import CannotUndo
from wtb.domain.tools import ToolCall
from wtb.flow import Workflow


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_rollback_takes_back_state_files_and_calls_and_the_run_goes_on_from_there(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    assert world(run, desk) == AFTER_D
    plan = run.rollback("b")
    assert [f"{node.node}#{node.visit}" for node in plan.nodes] == ["d#1", "c#1"]
    assert [call.arguments["title"] for call in plan.reverse] == ["d", "c"]
    assert (run.status, world(run, desk)) == (ExecutionStatus.PAUSED, AFTER_B)
    assert desk.log == ["+a", "+b", "+c", "+d", "-d", "-c"]
    assert run.waiting is not None
    assert run.waiting.reason == "rolled back to b#1"
    run = run.resume()
    assert (run.status, world(run, desk)) == (ExecutionStatus.COMPLETED, AFTER_D)
    assert [node for node, _ in run.history.path()] == ["a", "b", "c", "d"]


def test_a_dry_run_says_exactly_that_and_changes_nothing(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    before = (run.execution, run.checkpoints, run.events(), world(run, desk), list(desk.log))
    plan = run.rollback("b", dry_run=True)
    assert plan.to_dict()["nodes"] == ["d#1", "c#1"]
    assert sorted(plan.files.removed) == ["c", "d"]
    assert sorted(plan.files.put) == ["all"]
    assert (run.execution, run.checkpoints, run.events(), world(run, desk), list(desk.log)) == before
    done = run.rollback("b")
    assert done == plan


@pytest.mark.parametrize("target", ["b", "b#1", 2, "2"])
def test_targets_are_nodes_visits_and_steps(bench: Bench, desk: Desk, target: str | int) -> None:
    run = bench.run(support(desk), {})
    run.rollback(target)
    assert world(run, desk) == AFTER_B


def test_a_checkpoint_id_a_prefix_of_it_and_a_name_are_targets(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {}, break_after=["b"])
    named = run.checkpoint("before c", "two tickets are open")
    assert (named.kind, named.name, named.description) == (Kind.MANUAL, "before c", "two tickets are open")
    run = run.resume(break_after=[])
    for target in ("before c", named.id, named.id[:-4]):
        run.rollback(target)
        assert world(run, desk) == AFTER_B
        run = run.resume()
        assert world(run, desk) == AFTER_D


def test_a_safety_checkpoint_keeps_the_run_as_it_was_with_files_that_a_person_changed(
    bench: Bench, desk: Desk, tmp_path: Path
) -> None:
    run = bench.run(support(desk), {})
    (run.workspace / "mine").write_text("a note")
    run.rollback("b")
    safety = next(checkpoint for checkpoint in run.checkpoints if checkpoint.kind is Kind.SYSTEM)
    run.export(tmp_path / "kept", safety.id)
    assert (tmp_path / "kept" / "mine").read_text() == "a note"
    fork = run.fork(safety.id)
    assert fork.state == AFTER_D[0]


def test_redo_goes_forward_again_with_files_and_calls(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    folder = run.workspace
    (folder / "mine").write_text("a note")
    run.rollback("b")
    assert not (folder / "mine").exists()
    run.redo()
    assert (folder / "mine").read_text() == "a note"
    assert world(run, desk) == AFTER_D
    assert desk.log == ["+a", "+b", "+c", "+d", "-d", "-c", "+c", "+d"]
    assert run.resume().status is ExecutionStatus.COMPLETED
    run.rollback("a")
    assert world(run, desk)[2] == ["a"]
    run.redo()
    assert world(run, desk)[2] == ["a", "b", "c", "d"]


def test_rollbacks_in_a_row_are_redone_one_after_the_other(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    run.rollback("c")
    run.rollback("b")
    run.rollback("a")
    for nodes in ("ab", "abc", "abcd"):
        run.redo()
        assert (run.state["log"], desk.tickets, sorted(files(run))) == (
            list(nodes),
            list(nodes),
            ["a", "all", *nodes[1:]],
        )
    with pytest.raises(InvalidInput, match="has no rollback to redo"):
        run.redo()


def test_files_that_a_person_changed_before_a_redo_are_in_a_safety_checkpoint(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    run.rollback("b")
    (run.workspace / "notes").write_text("mine")
    run.redo()
    assert world(run, desk) == AFTER_D
    kept = [checkpoint for checkpoint in run.checkpoints if checkpoint.description == "before a redo"]
    assert [sorted(run.files(checkpoint.id)) for checkpoint in kept] == [["a", "all", "b", "notes"]]
    run.rollback("b")
    run.redo()
    assert len([checkpoint for checkpoint in run.checkpoints if checkpoint.description == "before a redo"]) == 1


def test_an_earlier_rollback_is_not_redone_from_where_the_run_went_on_after_it(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    run.rollback("b")
    run = run.resume()
    run.rollback("b")
    run.redo()
    assert world(run, desk) == AFTER_D
    with pytest.raises(InvalidInput, match="has gone on since it was rolled back"):
        run.redo()


def test_redo_is_refused_once_the_run_has_gone_on(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    with pytest.raises(InvalidInput, match="has no rollback to redo"):
        run.redo()
    run.rollback("b")
    run = run.resume(break_after=["c"])
    with pytest.raises(InvalidInput, match=r"has gone on since it was rolled back; .*fork it"):
        run.redo()


def test_a_redo_whose_call_gives_something_else_takes_back_what_it_made_again(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    run.rollback("b")
    desk.result = lambda title: f"new {title}" if title == "d" else f"#{title}"
    with pytest.raises(RedoDiverged, match=r"gave 'new d' when it was called again, and '#d' before"):
        run.redo()
    assert (run.status, world(run, desk)) == (ExecutionStatus.PAUSED, AFTER_B)
    assert run.resume().state["d"] == "new d"


def test_a_rollback_that_is_refused_lets_go_of_the_run_though_somebody_names_a_checkpoint_meanwhile(
    bench: Bench, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.run(support(desk, mail=True))
    release, named = Leases.released, list[str]()

    def released(leases: Leases, execution: Execution) -> Execution:
        if not named:
            named.append("meanwhile")
            with bench.services.storage.unit_of_work() as uow:
                uow.executions.save(execution.stepped(execution.updated_at))
                uow.commit()
        return release(leases, execution)

    monkeypatch.setattr(Leases, "released", released)
    with pytest.raises(CannotUndo):
        run.rollback("b")
    assert (named, run.execution.lease) == (["meanwhile"], None)


def test_whoever_names_a_checkpoint_while_another_process_ends_its_work_gets_a_conflict(
    bench: Bench, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.run(support(desk))
    leases, load = bench.services.controller._leases, Recorder.load

    def loaded(recorder: Recorder, execution_id: ExecutionId) -> Position:
        with monkeypatch.context() as unpatched:
            unpatched.setattr(Recorder, "load", load)
            taken = leases.taken(load(recorder, execution_id).execution)
            at = load(recorder, execution_id)
            leases.released(taken)
        return at

    monkeypatch.setattr(Recorder, "load", loaded)
    with pytest.raises(Conflict, match="another process has just changed run"):
        run.checkpoint("mine")


def test_a_call_that_cannot_be_taken_back_refuses_the_rollback_unless_that_is_allowed(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk, mail=True), {})
    with pytest.raises(CannotUndo, match=r"mail-\d+ .*cannot be undone"):
        run.rollback("b")
    assert (run.status, world(run, desk)) == (ExecutionStatus.COMPLETED, AFTER_D)
    plan = run.rollback("b", allow_irreversible=True)
    assert [call.tool for call in plan.irreversible] == [desk.mail.spec.name]
    assert world(run, desk) == AFTER_B
    run.redo()
    assert desk.log.count("mail c") == 1, "what was left in effect is not made again"


def test_tools_and_files_can_be_left_as_they_are(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    plan = run.rollback("b", tools=False, files=False)
    assert (plan.reverse, len(plan.kept)) == ((), 2)
    assert world(run, desk) == (AFTER_B[0], AFTER_D[1], AFTER_D[2])
    run = run.resume()
    assert desk.tickets == ["a", "b", "c", "d", "c", "d"], "what was kept is there twice, as was asked for"


def test_a_reversal_that_fails_waits_and_is_continued(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    desk.broken = True
    with pytest.raises(RollbackFailed, match=r"ConnectionError: the desk is closed.*--continue"):
        run.rollback("b")
    assert run.status is ExecutionStatus.ROLLING_BACK
    assert run.state == AFTER_D[0]
    for refused in (run.resume, run.redo, lambda: run.rollback("a"), lambda: run.checkpoint("x")):
        with pytest.raises(InvalidTransition, match=r"rolling_back|in the middle of a rollback"):
            refused()
    with pytest.raises(RollbackFailed):
        run.continue_rollback()
    desk.broken = False
    run.continue_rollback()
    assert (run.status, world(run, desk)) == (ExecutionStatus.PAUSED, AFTER_B)
    kinds = [event.type for event in run.events()]
    assert kinds.count(EventType.ROLLBACK_FAILED) == 2
    assert kinds.count(EventType.TOOL_REVERSED) == 2


def test_a_reversal_that_fails_half_way_is_given_up_and_says_what_was_undone(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    close = desk.close

    def close_one(call: ToolCall) -> None:
        if call.arguments["title"] == "c":
            raise ConnectionError("the desk is closed")
        close(call)

    object.__setattr__(desk.open, "reverse", close_one)
    with pytest.raises(RollbackFailed):
        run.rollback("b")
    run.abandon_rollback()
    assert (run.status, run.state, desk.tickets) == (ExecutionStatus.PAUSED, AFTER_D[0], ["a", "b", "c"])
    assert files(run) == AFTER_D[1]
    with pytest.raises(InvalidTransition, match="there is no rollback to finish"):
        run.continue_rollback()
    object.__setattr__(desk.open, "reverse", close)
    run.rollback("b")
    assert (world(run, desk), desk.log[-2:]) == (AFTER_B, ["-d", "-c"])


def test_failed_and_reversed_calls_are_not_taken_back(bench: Bench, desk: Desk) -> None:
    flow = Workflow("failing")

    def node(state: Any, ctx: Any) -> None:
        ctx.tool(desk.open, title="one")
        desk.result = fail
        ctx.tool(desk.open, title="two")

    def fail(title: str) -> Any:
        desk.tickets.remove(title)
        raise OSError("refused")

    flow.add_node("before", lambda state: None, start=True)
    flow.add_node("node", node)
    flow.edge("before", "node")
    run = bench.run(flow, {})
    assert run.status is ExecutionStatus.FAILED
    run.rollback("before")
    assert (desk.tickets, desk.log) == ([], ["+one", "+two", "-one"])
    run.rollback("before")
    assert desk.log == ["+one", "+two", "-one"]
    desk.result = lambda title: title
    desk.log.clear()
    run = run.resume()
    assert desk.log == ["+one", "+two"], "nothing answers from a call that was taken back"


def test_a_failed_node_is_undone_by_going_back_to_where_it_began_and_redone(bench: Bench, desk: Desk) -> None:
    flow = Workflow("failing")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        number = ctx.tool(desk.open, title="one")
        if not desk.broken:
            raise OSError("refused")
        return {"number": number}

    flow.add_node("before", lambda state: None, start=True)
    flow.add_node("node", node)
    flow.edge("before", "node")
    run = bench.run(flow, {})
    run.rollback("before")
    assert desk.tickets == []
    run.redo()
    assert desk.tickets == ["one"]
    desk.broken = True
    assert run.resume().state == {"number": "#one"}
    assert desk.log == ["+one", "-one", "+one"], "what redo made again answers from the record"


def test_a_loop_goes_back_to_the_visit_that_is_named(bench: Bench, desk: Desk) -> None:
    flow = Workflow("loop")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(desk.open, title=str(state["n"]))
        return {"n": state["n"] + 1}

    flow.add_node("node", node, start=True)
    flow.edge("node", "node", when="n < 5")
    flow.edge("node", wtb.END, otherwise=True)
    run = bench.run(flow, {"n": 0})
    run.rollback("node#2")
    assert (run.state, desk.tickets) == ({"n": 2}, ["0", "1"])
    run = run.resume()
    assert [visit for _, visit in run.history.path()] == [1, 2, 3, 4, 5]


def test_a_member_of_a_parallel_step_means_its_barrier(bench: Bench, desk: Desk) -> None:
    flow = Workflow("parallel")
    flow.add_node("start", lambda state: None, start=True)
    for name in ("left", "right"):

        def member(state: Any, ctx: Any, name: str = name) -> dict[str, Any]:
            return {name: ctx.tool(desk.open, title=name)}

        flow.add_node(name, member)
        flow.edge("start", name)
    flow.add_node("end", lambda state, ctx: {"end": ctx.tool(desk.open, title="end")})
    flow.edge(["left", "right"], "end")
    run = bench.run(flow, {})
    run.rollback("left")
    assert (sorted(desk.tickets), run.state) == (["left", "right"], {"left": "#left", "right": "#right"})
    run.rollback("start")
    assert (desk.tickets, run.state) == ([], {})


def test_a_target_inside_a_node_keeps_the_calls_before_it_and_the_node_goes_on_from_its_start(
    bench: Bench, desk: Desk
) -> None:
    run = bench.run(fine(desk), {}, fine_grained=True)
    after_two = [checkpoint for checkpoint in run.checkpoints if checkpoint.trigger == "tool_end"][1]
    run.rollback(after_two.id)
    assert (run.state, files(run), desk.tickets) == ({}, {"log": "one\n"}, ["one", "two"])
    with pytest.raises(InvalidInput, match="is in the middle of node 'node'"):
        run.resume(update={"x": 1})
    run = run.resume()
    assert (run.state["numbers"], files(run)) == (["#one", "#two", "#three"], {"log": "one\ntwo\nthree\n"})
    assert desk.log == ["+one", "+two", "+three", "-three", "+three"]
    assert run.history.path() == (("node", 1), ("end", 1))


def test_a_fork_begins_anywhere_and_leaves_the_original_alone(bench: Bench, desk: Desk) -> None:
    flow = support(desk)
    run = bench.run(flow, {})
    before = (run.execution, run.checkpoints, world(run, desk))
    fork = run.fork("b", update={"a": "other"}, run_id="fork")
    assert (fork.id, fork.status, fork.state["a"]) == ("fork", ExecutionStatus.PENDING, "other")
    fork = bench.resume("fork", flow)
    assert fork.state == {**AFTER_D[0], "a": "other"}
    assert files(fork) == AFTER_D[1]
    assert desk.tickets == ["a", "b", "c", "d", "c", "d"]
    assert (run.execution, run.checkpoints, world(run, desk)[:2]) == (*before[:2], before[2][:2])
    assert [node for node, _ in fork.history.path()] == ["a", "b", "c", "d"]


def test_a_fork_takes_back_its_own_calls_only(bench: Bench, desk: Desk) -> None:
    flow = support(desk)
    run = bench.run(flow, {})
    fork = bench.resume(run.fork("b").id, flow)
    plan = fork.rollback("a")
    assert [call.arguments["title"] for call in plan.reverse] == ["d", "c"]
    assert sorted(desk.tickets) == ["a", "b", "c", "d"]
    assert fork.state["log"] == ["a"]


def test_calls_that_a_fork_builds_on_are_kept_unless_that_is_asked_for(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    run.fork("c")
    plan = run.rollback("a", dry_run=True)
    assert [call.arguments["title"] for call in plan.reverse] == ["d"]
    assert [call.arguments["title"] for call in plan.kept] == ["c", "b"]
    run.rollback("a", shared="reverse")
    assert desk.tickets == ["a"]
    with pytest.raises(InvalidInput, match="shared='steal': give 'keep'"):
        run.rollback("a", shared="steal")


def test_calls_that_a_fork_of_a_fork_builds_on_are_kept_when_the_one_between_is_deleted(
    bench: Bench, desk: Desk
) -> None:
    flow = support(desk)
    run = bench.run(flow, {})
    between = run.fork("c", run_id="between").resume()
    last = between.fork("d", run_id="last", update={"more": True}).resume()
    between.delete()
    plan = run.rollback("a", dry_run=True)
    assert [call.arguments["title"] for call in plan.kept] == ["c", "b"]
    assert [call.arguments["title"] for call in plan.reverse] == ["d"]
    last.delete()
    assert [call.arguments["title"] for call in run.rollback("a").reverse] == ["d", "c", "b"]


def test_a_fork_inside_a_node_inherits_the_calls_before_it(bench: Bench, desk: Desk) -> None:
    flow = fine(desk)
    run = bench.run(flow, {}, fine_grained=True)
    after_two = [checkpoint for checkpoint in run.checkpoints if checkpoint.trigger == "tool_end"][1]
    fork = bench.resume(run.fork(after_two.id).id, flow)
    assert fork.state["numbers"] == ["#one", "#two", "#three"]
    assert desk.log == ["+one", "+two", "+three", "+three"]


def test_a_fork_with_another_input_begins_at_the_start(bench: Bench, desk: Desk) -> None:
    flow = support(desk)
    run = bench.run(flow, {"question": "old", "k": 1})
    fork = run.fork(input={"question": "new"})
    assert fork.state == {"question": "new"}
    assert bench.resume(fork.id, flow).state["question"] == "new"
    with pytest.raises(InvalidInput, match="starts at the beginning"):
        run.fork("b", input={})


def test_a_fork_of_a_running_run_takes_its_last_checkpoint_and_lists_the_effects_after_it(
    bench: Bench, desk: Desk
) -> None:
    flow = Workflow("running")
    forks: list[Any] = []

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(desk.open, title="one")
        forks.append(bench.services.run_editor.fork(ctx.run.execution_id))
        with pytest.raises(InvalidTransition, match=r"is running; pause it first: `wtb pause"):
            bench.get(ctx.run.execution_id).rollback("before")
        return {"node": True}

    flow.add_node("before", lambda state: {"before": True}, start=True)
    flow.add_node("node", node)
    flow.edge("before", "node")
    run = bench.run(flow, {})
    assert run.status is ExecutionStatus.COMPLETED
    effects = bench.services.run_editor.effects_after(run.id, forks[0].checkpoint)
    assert [call.tool for call in effects] == [desk.open.spec.name]
    assert bench.get(forks[0].execution.id).state == {"before": True}


def test_names_are_unique_in_a_run_and_are_given_back_with_their_checkpoint(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {}, break_after=["b"])
    run.checkpoint("mine")
    with pytest.raises(Conflict, match="already has a checkpoint 'mine'; choose another name"):
        run.checkpoint("mine")
    run = run.resume()
    run.delete("mine")
    with pytest.raises(CheckpointNotFound):
        run.rollback("mine")
    run.checkpoint("mine")
    run.rollback("b")
    assert world(run, desk) == AFTER_B


def test_a_named_checkpoint_of_a_failed_run_keeps_what_its_node_has_called(bench: Bench, desk: Desk) -> None:
    flow = Workflow("failing")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        number = ctx.tool(desk.open, title="one")
        if ctx.run.attempt == 1:
            raise OSError("refused")
        return {"number": number}

    flow.add_node("node", node, start=True)
    run = bench.run(flow, {})
    run.checkpoint("before I try again")
    assert run.resume().state == {"number": "#one"}
    assert desk.log == ["+one"]


def test_a_run_is_deleted_with_everything_but_its_audit_trail_and_its_forks(bench: Bench, desk: Desk) -> None:
    flow = support(desk)
    run = bench.run(flow, {})
    fork = bench.resume(run.fork("b").id, flow)
    folder = run.workspace
    run.delete()
    with pytest.raises(ExecutionNotFound):
        bench.get(run.id)
    assert not folder.exists()
    assert fork.state == AFTER_D[0]
    assert files(fork) == AFTER_D[1]
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        events = uow.events.list_events(stream=run.id)
        assert uow.tool_calls.list_calls(run.id) == ()
    assert events[-1].type is EventType.EXECUTION_DELETED


def test_a_checkpoint_of_an_abandoned_line_is_forked_not_rolled_back_to(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    last = run.checkpoints[-1]
    run.rollback("a")
    with pytest.raises(
        InvalidInput, match=r"is not on the line to the current position of the run; fork it: `wtb fork"
    ):
        run.rollback(last.id)
    assert run.fork(last.id).state == AFTER_D[0]


def test_two_rollbacks_at_once_are_one_and_a_conflict(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    stale = bench.services.travel._recorder.load(run.id)
    bench.services.travel._leases.taken(stale.execution)
    with pytest.raises(Conflict, match=r"somebody else changed run .* and nothing was done"):
        bench.services.travel._leases.taken(stale.execution)


def test_damaged_files_refuse_the_rollback_before_any_call_is_taken_back(tmp_path: Path, desk: Desk) -> None:
    flow = Workflow("large")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(desk.open, title=str(state["n"]))
        (ctx.workspace / "large").write_bytes(bytes([state["n"]]) * 200_000)
        return {"n": state["n"] + 1}

    flow.add_node("node", node, start=True)
    flow.edge("node", "node", when="n < 3")
    flow.edge("node", wtb.END, otherwise=True)
    with Bench(folder=tmp_path / "wtb") as bench:
        run = bench.run(flow, {"n": 0})
        for stored in (tmp_path / "wtb" / "objects").rglob("*"):
            if stored.is_file() and stored.stat().st_size == 200_000:
                stored.chmod(0o600)
                stored.write_bytes(b"damaged")
        with pytest.raises(wtb.StorageError, match="damaged"):
            run.rollback("node#1")
        assert (run.status, run.state, desk.tickets) == (ExecutionStatus.COMPLETED, {"n": 3}, ["0", "1", "2"])


def test_a_plan_that_is_no_longer_true_is_not_carried_out(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    plan = run.rollback("b", dry_run=True)
    fork = run.fork("c")
    with pytest.raises(Conflict, match="has changed since you saw the plan, so nothing was done"):
        run.rollback("b", expected=plan)
    fork.delete()
    assert (run.status, world(run, desk)) == (ExecutionStatus.COMPLETED, AFTER_D)
    assert run.rollback("b", expected=plan) == plan
    assert world(run, desk) == AFTER_B


def test_a_redo_that_cannot_take_back_what_it_made_again_waits_and_is_given_up(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    run.rollback("b")
    desk.result = lambda title: f"new {title}" if title == "d" else f"#{title}"
    given: list[Any] = []
    close = desk.close

    def close_one(call: ToolCall) -> None:
        given.append(call.result)
        if call.arguments["title"] == "c" and desk.broken:
            raise ConnectionError("the desk is closed")
        desk.broken, broken = False, desk.broken
        close(call)
        desk.broken = broken

    object.__setattr__(desk.open, "reverse", close_one)
    desk.broken = True
    with pytest.raises(RollbackFailed, match=r"ConnectionError: the desk is closed.*The redo of run .* is unfinished"):
        run.redo()
    assert given == ["new d", "#c"], "what gave something else is taken back by what it gave"
    assert (run.status, run.rollbacks[-1].is_open) == (ExecutionStatus.ROLLING_BACK, True)
    desk.broken = False
    run.abandon_rollback()
    assert (run.status, world(run, desk)) == (ExecutionStatus.PAUSED, AFTER_B)


def test_a_fork_does_not_delete_checkpoints_of_the_run_it_came_from(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    fork = run.fork("b", run_id="fork")
    with pytest.raises(InvalidInput, match=r"belongs to run .*, from which this one was forked; delete it there"):
        fork.delete("a")
    run.delete("a")
    assert fork.state == AFTER_B[0]


@pytest.mark.parametrize("name", ["", " ", "2", "a", "a#2", "two\nlines"])
def test_names_that_mean_something_else_are_refused(bench: Bench, desk: Desk, name: str) -> None:
    run = bench.run(support(desk), {})
    with pytest.raises(InvalidInput, match=r"cannot be called|means a visit of a node"):
        run.checkpoint(name)


@pytest.mark.parametrize("name", ["", "2", "later", "node#2"])
def test_a_node_cannot_give_such_names_either(bench: Bench, name: str) -> None:
    flow = Workflow("naming")
    flow.add_node("node", lambda state, ctx: ctx.checkpoint(name), start=True)
    flow.add_node("later", lambda state: None)
    flow.edge("node", "later")
    run = bench.run(flow, {})
    assert run.execution.failure is not None
    assert run.execution.failure.type == "InvalidInput"
    assert [checkpoint.name for checkpoint in run.checkpoints] == [None]


@pytest.mark.parametrize("which", [Kind.AUTO, Kind.SYSTEM])
def test_a_redo_whose_checkpoints_were_deleted_is_refused(bench: Bench, desk: Desk, which: Kind) -> None:
    run = bench.run(support(desk), {})
    run.rollback("b")
    run.delete([checkpoint.id for checkpoint in run.checkpoints if checkpoint.kind is which][-1])
    with pytest.raises(InvalidInput, match="have been deleted; resume the run"):
        run.redo()
    assert (run.status, world(run, desk)) == (ExecutionStatus.PAUSED, AFTER_B)
