"""Time travel where it is hardest: inside nodes, past forks, through failures of what was to be undone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import wtb
from tests.integration.support_desk import AFTER_B, AFTER_D, Desk, files, fine, support, world
from wtb.application.runs.leases import LEASE
from wtb.application.runs.reversals import RedoDiverged, Reversals
from wtb.application.time_travel.rollback_executor import RollbackExecutor, RollbackFailed
from wtb.bench import Bench
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import Conflict, InvalidInput, InvalidTransition, StateNotSerialisable
from wtb.domain.event_catalogue import RollbackCompleted
from wtb.domain.events import bodies
from wtb.domain.execution import ExecutionStatus
from wtb.domain.tools import ToolCall
from wtb.flow import Workflow
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.upkeep.garbage import SweptGarbage
from wtb.runs import Run


class Killed(BaseException):
    """The end of a process, as far as one can have it within one."""


@pytest.fixture
def desk() -> Desk:
    return Desk()


def after_call(run: Run, number: int) -> Checkpoint:
    return [each for each in run.history.lineage() if each.trigger == "tool_end"][number - 1]


def test_from_inside_a_node_a_run_goes_further_back_and_takes_the_rest_back_once(bench: Bench, desk: Desk) -> None:
    run = bench.run(fine(desk), {}, fine_grained=True)
    run.rollback(after_call(run, 2).id)
    run.rollback(0)
    assert (desk.tickets, desk.log) == ([], ["+one", "+two", "+three", "-three", "-two", "-one"])


def test_a_node_that_went_on_from_inside_is_undone_whole_and_in_parts_each_call_once(bench: Bench, desk: Desk) -> None:
    run = bench.run(fine(desk), {}, fine_grained=True)
    run.rollback(after_call(run, 2).id)
    run = run.resume()
    run.rollback(after_call(run, 1).id)
    assert desk.tickets == ["one"]
    run = run.resume()
    assert desk.tickets == ["one", "two", "three"]
    run.rollback(0)
    assert desk.tickets == []
    run.redo()
    assert desk.tickets == ["one", "two", "three"]


def test_what_was_taken_back_where_it_was_made_answers_in_no_later_run(bench: Bench, desk: Desk) -> None:
    flow = fine(desk)
    run = bench.run(flow, {}, fine_grained=True)
    run.rollback(after_call(run, 1).id)
    run = run.resume()
    third = after_call(run, 3)
    run.rollback(0)
    fork = bench.resume(run.fork(third.id).id, flow)
    assert fork.state["numbers"] == ["#one", "#two", "#three"]
    assert desk.tickets == ["one", "two", "three"]


def test_a_fork_inside_a_node_leaves_the_calls_that_it_inherited_to_whoever_made_them(bench: Bench, desk: Desk) -> None:
    flow = fine(desk)
    run = bench.run(flow, {}, fine_grained=True)
    fork = bench.resume(run.fork(after_call(run, 2).id).id, flow)
    assert desk.tickets == ["one", "two", "three", "three"]
    fork.rollback(0)
    assert desk.tickets == ["one", "two", "three"]
    plan = run.rollback(0)
    assert [call.arguments["title"] for call in plan.kept] == ["two", "one"], "the fork was begun from them"
    assert desk.tickets == ["one", "two"]


def test_calls_are_kept_that_a_fork_of_an_abandoned_line_builds_on(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    last = run.checkpoints[-1]
    run.rollback("c")
    run.fork(last.id)
    assert [call.arguments["title"] for call in run.rollback("a").kept] == ["c", "b"]


def test_a_checkpoint_that_a_node_made_before_it_failed_keeps_what_was_called_before_it_only(
    bench: Bench, desk: Desk
) -> None:
    flow = Workflow("failing")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(desk.open, title="one")
        ctx.checkpoint("middle")
        ctx.tool(desk.open, title="two")
        if ctx.run.attempt == 1:
            raise OSError("refused")
        return {"done": True}

    flow.add_node("node", node, start=True)
    run = bench.run(flow, {})
    run.rollback("middle")
    assert desk.tickets == ["one"]
    assert run.resume().state == {"done": True}
    assert desk.log == ["+one", "+two", "-two", "+two"]


def test_a_checkpoint_named_inside_a_node_lies_inside_it(bench: Bench, desk: Desk) -> None:
    run = bench.run(fine(desk), {}, fine_grained=True)
    run.rollback(after_call(run, 2).id)
    run.checkpoint("here")
    run = run.resume()
    assert (run.state["numbers"], files(run)) == (["#one", "#two", "#three"], {"log": "one\ntwo\nthree\n"})
    assert desk.log == ["+one", "+two", "+three", "-three", "+three"]


def test_a_checkpoint_named_after_a_rollback_knows_nothing_of_what_the_node_did_behind_it(bench: Bench) -> None:
    sent: list[str] = []
    flow = Workflow("mails")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(sent.append, "first")
        ctx.checkpoint("between")
        ctx.tool(sent.append, "second")
        return {"done": True}

    flow.add_node("node", node, start=True)
    run = bench.run(flow, {})
    run.rollback("between", allow_irreversible=True)
    run.checkpoint("here")
    assert [call.call.arguments for call in run.diff(0, "here").calls] == [{"object": "first"}]
    assert run.resume().status is ExecutionStatus.COMPLETED
    assert sent == ["first", "second", "second"]
    assert len(run.diff(0).calls) == 2
    branching = bench.services.run_editor
    assert len(branching.effects_after(run.id, branching.fork(run.id, 0).checkpoint)) == 3


def test_a_call_that_a_rollback_took_back_before_it_was_given_up_is_made_again_once(bench: Bench, desk: Desk) -> None:
    stuck = {"one"}

    def close(call: ToolCall) -> None:
        if call.arguments["title"] in stuck:
            raise ConnectionError("not now")
        desk.close(call)

    open_ticket = wtb.tool(name="open-stuck", reverse=close)(desk.opened)
    flow = Workflow("asking")

    def node(state: Any, ctx: Any) -> None:
        for title in ("one", "two"):
            ctx.tool(open_ticket, title=title)
        ctx.ask("Go on?")

    flow.add_node("node", node, start=True)
    run = bench.run(flow, {})
    with pytest.raises(RollbackFailed):
        run.rollback(0)
    run.abandon_rollback()
    stuck.clear()
    assert (run.status, desk.tickets) == (ExecutionStatus.PAUSED, ["one"])
    assert run.resume().resume(answer="yes").status is ExecutionStatus.COMPLETED
    assert desk.tickets == ["one", "two"]
    run.rollback(0)
    assert desk.tickets == []


def test_files_that_stay_as_they_are_leave_the_run_inside_the_node(bench: Bench, desk: Desk) -> None:
    run = bench.run(fine(desk), {}, fine_grained=True)
    run.rollback(after_call(run, 2).id, files=False)
    assert files(run) == {"log": "one\ntwo\nthree\n"}
    run = run.resume()
    assert files(run) == {"log": "one\ntwo\nthree\n"}
    assert desk.log == ["+one", "+two", "+three", "-three", "+three"]


def test_a_fork_of_a_node_that_failed_inside_counts_the_visit_once(bench: Bench, desk: Desk) -> None:
    flow = Workflow("failing")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(desk.open, title="one")
        ctx.checkpoint("middle")
        if desk.broken:
            raise OSError("refused")
        ctx.checkpoint("later")
        return {"answer": ctx.ask("really?")}

    flow.add_node("node", node, start=True)
    desk.broken = True
    run = bench.run(flow, {})
    desk.broken = False
    fork = bench.resume(run.fork("middle").id, flow)
    fork = bench.resume(fork.id, flow, answer="yes")
    assert (fork.state, fork.history.path()) == ({"answer": "yes"}, (("node", 1),))
    assert desk.log == ["+one"]


def test_a_node_begun_afresh_inside_leaves_inherited_calls_alone(bench: Bench, desk: Desk) -> None:
    flow = fine(desk)
    run = bench.run(flow, {}, fine_grained=True)
    fork = run.fork(after_call(run, 2).id)
    desk.result = lambda title: 1 / 0
    fork = bench.resume(fork.id, flow)
    assert fork.status is ExecutionStatus.FAILED
    desk.result = lambda title: f"#{title}"
    desk.tickets, desk.log = ["one", "two", "three"], []
    bench.resume(fork.id, flow, rerun_node=True)
    assert desk.log == ["+three"]


def test_the_state_is_not_changed_in_the_middle_of_a_node_by_a_fork(bench: Bench, desk: Desk) -> None:
    run = bench.run(fine(desk), {}, fine_grained=True)
    with pytest.raises(InvalidInput, match=r"is in the middle of node 'node'.*fork without update"):
        run.fork(after_call(run, 2).id, update={"x": 1})


def test_a_fork_whose_update_cannot_be_stored_is_not_there(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    with pytest.raises(StateNotSerialisable):
        run.fork("b", update={"x": object()})
    assert [each.id for each in bench.list_runs()] == [run.id]


def test_a_reversal_needs_its_tool_also_when_it_is_continued(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    desk.broken = True
    with pytest.raises(RollbackFailed):
        run.rollback("b")
    desk.broken = False
    object.__setattr__(desk.open, "reverse", None)
    with pytest.raises(RollbackFailed, match=r"this program has no tool of that name with reverse="):
        run.continue_rollback()
    object.__setattr__(desk.open, "reverse", desk.close)
    run.continue_rollback()
    assert world(run, desk) == AFTER_B


def test_a_redo_that_was_killed_when_a_call_gave_something_else_still_knows_that(
    bench: Bench, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.run(support(desk), {})
    run.rollback("b")
    desk.result = lambda title: f"new {title}"
    with monkeypatch.context() as patch:
        patch.setattr(Reversals, "reverse", killed)
        with pytest.raises(Killed):
            run.redo()
    with pytest.raises(RedoDiverged, match="gave 'new c'"):
        run.continue_rollback()
    assert (run.status, world(run, desk)) == (ExecutionStatus.PAUSED, AFTER_B)


def test_a_redo_that_cannot_take_back_what_it_made_again_waits(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    run.rollback("b")
    desk.result, desk.broken = (lambda title: f"new {title}"), True
    with pytest.raises(RollbackFailed, match=r"the desk is closed.*The redo of run .* is unfinished"):
        run.redo()
    assert run.status is ExecutionStatus.ROLLING_BACK
    desk.broken = False
    run.abandon_rollback()
    assert (run.status, world(run, desk)) == (ExecutionStatus.PAUSED, AFTER_B)


def killed(*args: Any, **kwargs: Any) -> None:
    raise Killed


@pytest.mark.parametrize("happened", [True, False])
def test_giving_up_settles_the_reversal_that_a_process_died_in(bench: Bench, desk: Desk, happened: bool) -> None:
    flow = Workflow("failing")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(desk.open, title="one")
        if ctx.run.attempt == 1:
            raise OSError("refused")
        return {"done": True}

    def close(call: ToolCall) -> None:
        if happened:
            desk.close(call)
        raise Killed

    flow.add_node("node", node, start=True)
    run = bench.run(flow, {})
    object.__setattr__(desk.open, "reverse", close)
    with pytest.raises(Killed):
        run.rollback(0)
    object.__setattr__(desk.open, "reverse", desk.close)
    with pytest.raises(InvalidInput, match="was being taken back when its process died"):
        run.abandon_rollback()
    run.abandon_rollback(in_doubt="done" if happened else "again")
    assert desk.tickets == []
    run.resume()
    assert desk.tickets == ["one"]


def test_a_call_whose_fate_is_unknown_is_as_unknown_after_a_reversal_that_failed(bench: Bench, desk: Desk) -> None:
    def sent() -> None:
        raise Killed

    def taken_back(call: ToolCall) -> None:
        raise ConnectionError("the desk is closed")

    tool = wtb.tool(name="sent-in-doubt", reverse=taken_back, reverse_in_doubt=True)(sent)
    flow = Workflow("killed")
    flow.add_node("node", lambda state, ctx: ctx.tool(tool), start=True)
    with pytest.raises(Killed):
        bench.run(flow, {}, run_id="killed")
    run = bench.get("killed")
    with bench.services.storage.unit_of_work() as uow:
        uow.executions.save(run.execution.moved_to(ExecutionStatus.PAUSED, run.execution.updated_at))
        uow.commit()
    with pytest.raises(RollbackFailed):
        run.rollback(0)
    run.abandon_rollback()
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        assert [call.status for call in uow.tool_calls.list_calls(run.id)] == ["intended"]


def test_a_checkpoint_is_deleted_by_the_run_that_made_it(bench: Bench, desk: Desk) -> None:
    flow = support(desk)
    run = bench.run(flow, {})
    fork = bench.resume(run.fork("c").id, flow)
    with pytest.raises(InvalidInput, match=f"belongs to run '{run.id}'.*delete it there"):
        fork.delete("b")
    assert all(not checkpoint.deleted for checkpoint in run.history.checkpoints)


def test_what_a_rollback_that_waits_needs_is_not_deleted(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    desk.broken = True
    with pytest.raises(RollbackFailed):
        run.rollback("b")
    with pytest.raises(InvalidTransition, match="in the middle of a rollback"):
        run.delete("b")
    desk.broken = False
    run.continue_rollback()
    run.delete("a")
    assert world(run, desk) == AFTER_B


def test_a_run_is_not_deleted_while_somebody_alive_rolls_it_back(bench: Bench, desk: Desk) -> None:
    run = bench.run(support(desk), {})
    execution = run.execution
    with bench.services.storage.unit_of_work() as uow:
        uow.executions.save(execution.leased("somebody@elsewhere:1:1", uow.now(), LEASE))
        uow.commit()
    with pytest.raises(Conflict, match="is being run by somebody@elsewhere"):
        run.delete()
    assert world(run, desk) == AFTER_D


def test_a_run_is_let_go_of_when_its_folder_is_tidy(bench: Bench, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes the run up next stages files in the same place."""
    run = bench.run(support(desk), {})
    folder, end, found = run.workspace, RollbackExecutor._end, list[set[str]]()

    def looked_at(*args: Any) -> Any:
        found.append({path.name for path in folder.iterdir()} - set(AFTER_D[1]))
        return end(*args)

    monkeypatch.setattr(RollbackExecutor, "_end", looked_at)
    run.rollback("b")
    run.redo()
    run.rollback("b")
    desk.result = lambda title: f"new {title}"
    with pytest.raises(RedoDiverged):
        run.redo()
    assert found == [set()] * 4


def test_from_inside_a_node_a_run_goes_on_though_the_start_of_the_node_was_deleted_and_swept(bench: Bench) -> None:
    flow = Workflow("files")

    def node(state: Any, ctx: Any) -> None:
        (ctx.workspace / "mine").rename(ctx.workspace / "yours")
        (ctx.workspace / "yours").write_text("replaced")
        ctx.checkpoint("half way")

    flow.add_node("before", lambda state, ctx: (ctx.workspace / "mine").write_text("precious") and None, start=True)
    flow.add_node("node", node)
    flow.edge("before", "node")
    run = bench.run(flow, {})
    run.rollback("half way")
    run.delete("before")
    services = bench.services
    assert isinstance(services.storage, MemoryStorage | SqlStorage)
    garbage = SweptGarbage(services.storage, services.objects, codec=services.codec, clock=services.clock)
    garbage.sweep(timedelta(0))
    run = run.resume()
    assert (run.status, files(run)) == (ExecutionStatus.COMPLETED, {"yours": "replaced"})


def test_a_safety_checkpoint_holds_no_file_of_an_attempt_that_failed(bench: Bench) -> None:
    flow = Workflow("retried")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        (ctx.workspace / f"attempt {ctx.run.attempt}").touch()
        if ctx.run.attempt == 1:
            raise OSError("refused")
        return {"n": 1}

    flow.add_node("before", lambda state, ctx: (ctx.workspace / "before").touch(), start=True)
    flow.add_node("node", node, retry=wtb.RetryPolicy(times=2, wait_s=0))
    flow.edge("before", "node")
    run = bench.run(flow, {})
    run.rollback("before", files=False)
    assert sorted(files(run)) == ["attempt 2", "before"]
    fork = run.fork(next(each.id for each in run.checkpoints if each.kind == "system"))
    assert sorted(files(fork)) == ["attempt 2", "before"]


def test_files_that_stay_as_they_are_are_those_of_all_members_of_a_parallel_step(bench: Bench) -> None:
    flow = Workflow("parallel")
    for name in ("start", "left", "right"):

        def node(state: Any, ctx: Any, name: str = name) -> None:
            (ctx.workspace / name).touch()

        flow.add_node(name, node, start=name == "start")
    flow.edge("start", "left")
    flow.edge("start", "right")
    run = bench.run(flow, {})
    run.rollback("start", files=False)
    assert sorted(files(run)) == ["left", "right", "start"]


def test_a_fork_goes_on_counting_visits_when_its_origin_is_deleted(bench: Bench, desk: Desk) -> None:
    flow = Workflow("loop")
    flow.add_node("node", lambda state: {"n": state["n"] + 1}, start=True)
    flow.edge("node", "node", when="n < 5")
    flow.edge("node", wtb.END, otherwise=True)
    run = bench.run(flow, {"n": 0})
    fork = bench.resume(run.fork("node#2").id, flow, break_after=["node"])
    run.delete()
    fork = bench.resume(fork.id, flow, break_after=[])
    assert fork.history.path() == tuple(("node", visit) for visit in range(1, 6))


def test_redo_takes_up_every_member_that_had_begun(bench: Bench, desk: Desk) -> None:
    flow = Workflow("members")

    def right(state: Any, ctx: Any) -> dict[str, Any]:
        if not desk.broken:
            raise OSError("refused")
        return {"right": ctx.tool(desk.open, title="right")}

    flow.add_node("start", lambda state: None, start=True)
    flow.add_node("left", lambda state, ctx: {"left": ctx.tool(desk.mail, text="left")})
    flow.add_node("right", right)
    flow.edge("start", "left")
    flow.edge("start", "right")
    run = bench.run(flow, {})
    run.rollback("start", allow_irreversible=True)
    run.redo()
    desk.broken = True
    assert run.resume().status is ExecutionStatus.COMPLETED
    assert desk.log == ["mail left", "+right"]


def test_an_answer_that_was_given_after_a_checkpoint_is_asked_for_again_from_there(bench: Bench) -> None:
    flow = Workflow("asking")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.checkpoint("before the question")
        answer = ctx.ask("well?")
        if answer == "wrong":
            raise ValueError(answer)
        return {"answer": answer}

    flow.add_node("node", node, start=True)
    run = bench.run(flow, {}).resume(answer="wrong")
    assert run.status is ExecutionStatus.FAILED
    run.rollback("before the question")
    run = run.resume()
    assert run.waiting is not None
    assert run.resume(answer="right").state == {"answer": "right"}


@pytest.mark.parametrize("looks_again", [True, False])
def test_a_node_that_leaves_the_files_as_they_were_leaves_none_of_those_in_between(
    bench: Bench, desk: Desk, looks_again: bool
) -> None:
    flow = Workflow("tidy")

    def node(state: Any, ctx: Any) -> None:
        if ctx.run.attempt == 1 or looks_again:
            (ctx.workspace / "scratch").touch()
        ctx.checkpoint("in between")
        if ctx.run.attempt == 1:
            raise OSError("refused")
        if looks_again:
            (ctx.workspace / "scratch").unlink()

    flow.add_node("before", lambda state, ctx: (ctx.workspace / "before").touch(), start=True)
    flow.add_node("node", node)
    flow.edge("before", "node")
    run = bench.run(flow, {}).resume()
    assert run.status is ExecutionStatus.COMPLETED
    assert sorted(files(run)) == ["before"]
    assert sorted(run.files("in between")) == ["before", "scratch"]


def test_redo_leaves_what_was_begun_in_vain_since_the_rollback(bench: Bench) -> None:
    flow = Workflow("asking")
    flow.add_node("node", lambda state, ctx: {"answer": ctx.ask("well?")}, start=True)
    run = bench.run(flow, {})
    run.rollback(0)
    run = run.resume()
    run.redo()
    run.checkpoint("here")
    run = run.resume()
    assert run.resume(answer="yes").state == {"answer": "yes"}


def test_the_event_of_a_rollback_names_each_node_visit_that_was_undone(bench: Bench, desk: Desk) -> None:
    run = bench.run(fine(desk), {}, fine_grained=True)
    run.rollback(0)
    assert undone_nodes(run) == ("node#1", "end#1"), "a node that saved several checkpoints is named once"
    run.redo()
    assert undone_nodes(run) == ("node#1", "end#1")

    wide = Workflow("wide")
    wide.add_node("first", lambda state: {"first": 1}, start=True)
    wide.add_node("left", lambda state: {"left": 1})
    wide.add_node("right", lambda state: {"right": 1})
    wide.add_node("last", lambda state: {"last": 1})
    wide.edge("first", "left")
    wide.edge("first", "right")
    wide.edge(["left", "right"], "last")
    wide.edge("last", wtb.END)
    run = bench.run(wide, {})
    run.rollback("first")
    assert undone_nodes(run) == ("left#1", "right#1", "last#1")


def undone_nodes(run: Run) -> tuple[str, ...]:
    """Return the nodes that the last rollback or redo names."""
    return list(bodies(run.events(types="rollback"), RollbackCompleted))[-1].nodes
