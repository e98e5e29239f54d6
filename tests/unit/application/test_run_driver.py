"""RunDriver: takes a run from one superstep to the next, and knows when to stop."""

import operator
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.application.begun_run import BegunRun, open_services
from wtb.bootstrap import Services
from wtb.domain.checkpoint import NodeStatus
from wtb.domain.errors import LeaseLost
from wtb.domain.execution import ExecutionStatus, PauseKind
from wtb.domain.workflow import END
from wtb.flow import Workflow


@pytest.fixture
def services() -> Iterator[Services]:
    with open_services() as services:
        yield services


def counting(last: int = 3) -> Workflow:
    """A loop that counts `n` up."""
    flow = Workflow("counting")
    flow.add_node("add", lambda state: {"n": state["n"] + 1}, start=True)
    flow.edge("add", "add", when=f"n < {last}")
    flow.edge("add", END, otherwise=True)
    return flow


def parallel(left: Any, right: Any) -> Workflow:
    """Two nodes at the same time, whose items are added up."""
    flow = Workflow("parallel")
    flow.add_node("begin", lambda state: {}, start=True)
    flow.add_node("left", left)
    flow.add_node("right", right)
    flow.add_node("join", lambda state: {"joined": sorted(state["items"])})
    flow.edge("begin", "left")
    flow.edge("begin", "right")
    flow.edge(["left", "right"], "join")
    flow.edge("join", END)
    flow.reducer("items", operator.add)
    return flow


def test_a_run_is_driven_to_its_end_one_checkpoint_a_step(services: Services) -> None:
    run = BegunRun(services, counting(), {"n": 0})
    ended = run.driver().drive(pass_breakpoint=False)
    assert ended.execution.status is ExecutionStatus.COMPLETED
    assert run.execution == ended.execution
    assert [(each.node, each.visit) for each in run.line()] == [(None, None), ("add", 1), ("add", 2), ("add", 3)]
    assert run.state == {"n": 3}


def test_a_breakpoint_stops_before_its_node_and_is_passed_once(services: Services) -> None:
    run = BegunRun(services, counting(), {"n": 0})
    driver = run.driver(break_before=("add",))
    driver.drive(pass_breakpoint=False)
    assert (run.state["n"], run.execution.pause and run.execution.pause.kind) == (0, PauseKind.BREAK_BEFORE)
    run.next_driver(break_before=("add",)).drive(pass_breakpoint=True)
    assert (run.state["n"], run.execution.pause and run.execution.pause.kind) == (1, PauseKind.BREAK_BEFORE)


def test_a_breakpoint_after_a_node_is_written_with_its_step(services: Services) -> None:
    run = BegunRun(services, counting(), {"n": 0})
    before = run.execution.version
    ended = run.driver(break_after=("add",)).drive(pass_breakpoint=False)
    assert ended.execution.pause is not None
    assert ended.execution.pause.kind is PauseKind.BREAK_AFTER
    assert (run.state["n"], run.execution.version) == (1, before + 1)


def test_a_breakpoint_after_the_last_node_does_not_keep_the_run_from_completing(services: Services) -> None:
    run = BegunRun(services, counting(1), {"n": 0})
    ended = run.driver(break_after=("add",)).drive(pass_breakpoint=False)
    assert ended.execution.status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize(
    ("request_", "status"), [("pause", ExecutionStatus.PAUSED), ("stop", ExecutionStatus.CANCELLED)]
)
def test_an_interrupt_ends_the_run_before_the_next_node(
    services: Services, request_: str, status: ExecutionStatus
) -> None:
    run = BegunRun(services, counting(), {"n": 0})
    driver = run.driver()
    driver.interrupt(request_)
    assert driver.drive(pass_breakpoint=False).execution.status is status
    assert run.state == {"n": 0}


def test_an_interrupt_during_a_node_keeps_the_result_of_that_node(services: Services) -> None:
    def interrupt(state: Any) -> dict[str, Any]:
        drivers[0].interrupt("pause")
        return {"one": 1}

    flow = Workflow("flow")
    flow.add_node("one", interrupt, start=True)
    flow.add_node("two", lambda state: {"two": 2})
    flow.edge("one", "two")
    flow.edge("two", END)
    run = BegunRun(services, flow)
    drivers = [run.driver()]
    ended = drivers[0].drive(pass_breakpoint=False)
    assert ended.execution.pause is not None
    assert ended.execution.pause.kind is PauseKind.REQUESTED
    assert run.state == {"one": 1}
    assert run.next_driver().drive(pass_breakpoint=False).execution.status is ExecutionStatus.COMPLETED
    assert run.state == {"one": 1, "two": 2}


def test_a_request_of_another_process_ends_the_run_with_the_step_that_is_being_made(services: Services) -> None:
    def ask_to_pause(state: Any) -> dict[str, Any]:
        with services.storage.unit_of_work() as uow:
            uow.executions.request(run.at.execution.id, "pause")
            uow.commit()
        return {"n": state["n"] + 1}

    flow = Workflow("flow")
    flow.add_node("add", ask_to_pause, start=True)
    flow.edge("add", "add")
    run = BegunRun(services, flow, {"n": 0})
    ended = run.driver().drive(pass_breakpoint=False)
    assert (ended.execution.status, run.state["n"]) == (ExecutionStatus.PAUSED, 1)


def test_a_run_that_takes_too_many_steps_fails_and_keeps_them(services: Services) -> None:
    run = BegunRun(services, counting(100), {"n": 0})
    failure = run.driver(max_steps=2).drive(pass_breakpoint=False).execution.failure
    assert failure is not None
    assert (failure.type, failure.node, failure.input_checkpoint_id) == ("StepLimitReached", None, run.line()[-1].id)
    assert run.state == {"n": 2}


def test_a_run_whose_time_is_over_fails_before_its_next_node(services: Services) -> None:
    run = BegunRun(services, counting(), {"n": 0})
    failure = run.driver(timeout_s=1e-9).drive(pass_breakpoint=False).execution.failure
    assert failure is not None
    assert (failure.type, run.state) == ("RunTimeout", {"n": 0})


def test_a_node_that_fails_is_tried_again_from_the_same_checkpoint(services: Services) -> None:
    attempts: list[int] = []

    def fail_once(state: Any, ctx: Any) -> dict[str, Any]:
        attempts.append(ctx.run.attempt)
        if len(attempts) == 1:
            raise OSError("not now")
        return {"done": True}

    flow = Workflow("flow")
    flow.add_node("work", fail_once, start=True)
    run = BegunRun(services, flow)
    failure = run.driver().drive(pass_breakpoint=False).execution.failure
    assert failure is not None
    assert (failure.type, failure.node, failure.input_checkpoint_id) == ("OSError", "work", run.line()[0].id)
    driver = run.next_driver()
    assert driver.began_here
    assert driver.drive(pass_breakpoint=False).execution.status is ExecutionStatus.COMPLETED
    assert (attempts, run.state) == ([1, 2], {"done": True})


def test_nodes_that_are_due_together_make_one_checkpoint(services: Services) -> None:
    flow = parallel(lambda state: {"items": ["left"]}, lambda state: {"items": ["right"]})
    run = BegunRun(services, flow, {"items": []})
    run.driver().drive(pass_breakpoint=False)
    assert [each.node for each in run.line()] == [None, "begin", None, "join"]
    assert run.state["joined"] == ["left", "right"]


def test_a_node_whose_sibling_failed_is_not_run_again(services: Services) -> None:
    ran: list[str] = []

    def left(state: Any) -> dict[str, Any]:
        ran.append("left")
        return {"items": ["left"]}

    def right(state: Any) -> dict[str, Any]:
        ran.append("right")
        if ran.count("right") == 1:
            raise OSError("not now")
        return {"items": ["right"]}

    run = BegunRun(services, parallel(left, right), {"items": []})
    assert run.driver().drive(pass_breakpoint=False).execution.status is ExecutionStatus.FAILED
    assert run.next_driver().drive(pass_breakpoint=False).execution.status is ExecutionStatus.COMPLETED
    assert (sorted(ran), run.state["joined"]) == (["left", "right", "right"], ["left", "right"])


def test_siblings_really_run_at_the_same_time(services: Services) -> None:
    meeting = threading.Barrier(2, timeout=10)

    def meet(state: Any) -> dict[str, Any]:
        meeting.wait()
        return {"items": [1]}

    run = BegunRun(services, parallel(meet, meet), {"items": []})
    assert run.driver().drive(pass_breakpoint=False).execution.status is ExecutionStatus.COMPLETED


def test_two_siblings_that_write_the_same_key_fail_the_step(services: Services) -> None:
    flow = parallel(lambda state: {"x": 1, "items": []}, lambda state: {"x": 2, "items": []})
    run = BegunRun(services, flow, {"items": []})
    failure = run.driver().drive(pass_breakpoint=False).execution.failure
    assert failure is not None
    assert failure.type == "InvalidInput"
    assert "x" in failure.message
    assert run.line()[-1].node == "begin"


def test_a_condition_that_raises_fails_the_node_before_it(services: Services) -> None:
    def broken(state: Any) -> bool:
        raise ZeroDivisionError("no")

    flow = Workflow("flow")
    flow.add_node("work", lambda state: {"x": 1}, start=True)
    flow.edge("work", END, when=broken)
    run = BegunRun(services, flow)
    failure = run.driver().drive(pass_breakpoint=False).execution.failure
    assert failure is not None
    assert (failure.type, failure.node, run.state) == ("InvalidCondition", "work", {})


def test_a_run_that_somebody_else_has_taken_over_writes_nothing_more(services: Services) -> None:
    def take_over(state: Any) -> dict[str, Any]:
        services.recorder.begin(services.recorder.load(run.at.execution.id), "another process")
        return {"n": 1}

    flow = Workflow("flow")
    flow.add_node("work", take_over, start=True)
    run = BegunRun(services, flow, {"n": 0})
    with pytest.raises(LeaseLost, match="another process"):
        run.driver().drive(pass_breakpoint=False)
    assert (run.execution.status, run.state) == (ExecutionStatus.RUNNING, {"n": 0})


def test_a_question_pauses_the_run_and_keeps_the_node_run_open(services: Services) -> None:
    flow = Workflow("flow")
    flow.add_node("ask", lambda state, ctx: {"answer": ctx.ask("Well?")}, start=True)
    run = BegunRun(services, flow)
    pause = run.driver().drive(pass_breakpoint=False).execution.pause
    assert pause is not None
    assert (pause.kind, pause.node, (pause.question or {})["question"]) == (PauseKind.QUESTION, "ask", "Well?")
    with services.storage.unit_of_work(readonly=True) as uow:
        statuses = [each.status for each in uow.node_runs.list_runs(run.at.execution.id)]
    assert statuses == [NodeStatus.STARTED]
