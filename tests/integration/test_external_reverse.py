"""external="reverse": the external calls of a job are taken back once it is scored, seen from the server's side."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import wtb.langgraph
from tests.integration.booking_office import BookingOffice, ask, book, cancel, mail, open_office, trip
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import EvaluationContext
from wtb.domain.integrity import FaultKind
from wtb.domain.tools import CallStatus, ToolCall
from wtb.flow import Workflow

CASES: list[dict[str, Any]] = [{"id": name, "input": {}} for name in ("ada", "bob")]


@pytest.fixture
def office() -> Iterator[BookingOffice]:
    with open_office() as opened:
        yield opened


class Standing:
    """Counts the bookings of a run that stand when it is scored."""

    name = "standing"

    def __init__(self, office: BookingOffice) -> None:
        self._office = office

    def __wtb_fingerprint__(self) -> str:
        return "standing"

    def evaluate(self, context: EvaluationContext) -> float:
        return float(sum(room.startswith(context.state["run"]) for room in self._office.booked))


def reversed_batch(bench: Bench, flow: Workflow, office: BookingOffice, **options: Any) -> Any:
    given: dict[str, Any] = {"cases": CASES, "evaluators": [Standing(office)], "external": "reverse", **options}
    return bench.batch(flow, **given)


def test_calls_are_taken_back_newest_first_once_the_job_is_scored(bench: Bench, office: BookingOffice) -> None:
    result = reversed_batch(bench, trip(), office, workers=4)
    assert (result.status, office.booked) == ("completed", {})
    assert [each.scores["standing"] for each in result.results] == [2.0] * 4, "they stood when the job was scored"
    for each in result.results:
        own = [line for line in office.log if each.run_id in line]
        there, back = f"{each.run_id}.there", f"{each.run_id}.back"
        assert own == [f"book {there}", f"book {back}", f"cancel {back}", f"cancel {there}"]
        assert (each.run.status, each.run.execution.lease) == ("completed", None)
        assert [call.status for call in each.run.calls] == [CallStatus.REVERSED] * 2
        assert each.state == {"run": each.run_id, "there": "booked", "back": "booked"}


def test_the_calls_of_a_job_that_fails_and_of_each_retry_are_taken_back(bench: Bench, office: BookingOffice) -> None:
    flow = Workflow("failing trip")

    def fail(state: Any, ctx: Any) -> None:
        ctx.tool(book, f"{ctx.run.execution_id}.room")
        raise ValueError("no way back")

    flow.add_node("fail", fail, start=True)
    result = reversed_batch(bench, flow, office, retries=1)
    assert (result.status, office.booked) == ("completed_with_errors", {})
    assert len([line for line in office.log if line.startswith("book")]) == 2 * 2
    assert all("no way back" in str(each.error) and not each.not_taken_back for each in result.results)


def test_a_call_that_cannot_be_taken_back_is_an_error_until_it_can_be(bench: Bench, office: BookingOffice) -> None:
    flow = trip()
    office.refuses_to_cancel = RefusesAll()
    result = reversed_batch(bench, flow, office, variants=[{}])
    assert result.status == "completed_with_errors"
    assert {each.status for each in result.results} == {"completed"}
    assert [each.scores["standing"] for each in result.results] == [2.0, 2.0]
    (left, _) = result.not_taken_back
    assert left.error.startswith("office_book (")
    assert f"could not be undone: PermissionError: the office does not cancel {left.run_id}.back" in left.error
    assert bench.plan(flow, cases=CASES, evaluators=[Standing(office)], variants=[{}]).scored == 2

    office.refuses_to_cancel = set()
    seen = len(office.log)
    again = reversed_batch(bench, flow, office, variants=[{}], external="run")
    assert (again.status, again.not_taken_back, office.booked) == ("completed", [], {})
    assert {line.split()[0] for line in office.log[seen:]} == {"cancel"}, "nothing runs again"
    assert [each.run_id for each in again.results] == [each.run_id for each in result.results]


def test_calls_that_are_left_are_an_error_also_of_a_combination_that_does_not_run_now(
    bench: Bench, office: BookingOffice
) -> None:
    flow = trip()
    office.refuses_to_cancel = RefusesAll()
    reversed_batch(bench, flow, office)
    office.refuses_to_cancel = set()
    part = reversed_batch(bench, flow, office, only=["baseline"])
    assert (part.status, len(part.not_taken_back)) == ("completed_with_errors", 2)
    assert reversed_batch(bench, flow, office).status == "completed"


class RefusesAll(set[str]):
    """Every room is among the refused ones."""

    def __contains__(self, room: object) -> bool:
        return True


def test_a_person_can_leave_calls_in_effect_by_abandoning_their_reversal(bench: Bench, office: BookingOffice) -> None:
    flow = trip()
    office.refuses_to_cancel = RefusesAll()
    result = reversed_batch(bench, flow, office, variants=[{}], cases=CASES[:1])
    run = result.results[0].run
    assert run.status == "completed"
    run.abandon_rollback()
    office.refuses_to_cancel = set()
    again = reversed_batch(bench, flow, office, variants=[{}], cases=CASES[:1])
    assert (again.status, sorted(office.booked)) == ("completed", [f"{run.id}.back", f"{run.id}.there"])
    assert (run.status, [call.status for call in run.calls]) == ("completed", [CallStatus.SUCCEEDED] * 2)


def test_a_tool_without_reverse_is_named_before_the_batch_and_with_its_run_after_it(
    bench: Bench, office: BookingOffice, caplog: pytest.LogCaptureFixture
) -> None:
    flow = Workflow("mailing trip")

    def both(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(book, f"{ctx.run.execution_id}.room")
        ctx.tool(mail, "ada")
        return {"run": ctx.run.execution_id}

    flow.add_node("both", both, start=True)
    planned = bench.plan(flow, cases=CASES, evaluators=["steps"], external="reverse").external
    # Classes that other tests registered may name more tools.
    booked, mailed = [tool for tool in planned if tool.name.startswith("office_")]
    assert (booked.name, booked.answer, booked.taken_back) == ("office_book", "reverse", True)
    assert (mailed.name, mailed.answer, mailed.taken_back) == ("office_mail", "reverse", False)
    result = reversed_batch(bench, flow, office)
    (warning,) = [each for each in caplog.messages if "office_mail" in each]
    assert "External tool office_mail: called for real but NOT taken back, because it has no reverse=" in warning
    assert (result.status, office.booked) == ("completed_with_errors", {}), "the others are taken back"
    for left in result.not_taken_back:
        assert left.error.startswith("office_mail (")
        assert left.error.endswith("cannot be undone: this program has no tool of that name with reverse=")
        assert left.run_id in {each.run_id for each in result.results}
    mocked = reversed_batch(bench, flow, office, tools={"office_mail": lambda room: "x"}, name="mocked")
    assert (mocked.status, office.booked) == ("completed", {})


def test_recorded_calls_are_taken_back_and_later_jobs_still_get_their_answers(
    bench: Bench, office: BookingOffice
) -> None:
    flow = Workflow("recorded trip")
    flow.add_node("go", lambda state, ctx: {"run": "", "room": ctx.tool(book, state["room"])}, start=True)
    cases = [{"id": name, "input": {"room": name}} for name in ("ada", "bob")]
    options: dict[str, Any] = {"tools": {"office_book": "record"}, "cases": cases, "repeats": 4, "share": False}
    result = reversed_batch(bench, flow, office, workers=8, **options)
    assert (result.status, office.booked) == ("completed", {})
    assert sorted(office.log) == ["book ada", "book bob", "cancel ada", "cancel bob"]
    assert {each.state["room"] for each in result.results} == {"booked"}


def test_a_stopped_batch_takes_back_the_calls_of_the_jobs_that_ended_and_the_next_run_those_of_the_rest(
    bench: Bench, office: BookingOffice
) -> None:
    stop = threading.Event()
    flow = trip()
    result = reversed_batch(bench, flow, office, workers=1, stop=stop, on_progress=lambda progress: stop.set())
    assert (result.status, result.left, office.booked) == ("cancelled", 3, {})
    again = reversed_batch(bench, flow, office)
    assert (again.status, again.left, office.booked) == ("completed", 0, {})


def test_jobs_that_ran_before_with_external_run_keep_their_calls(bench: Bench, office: BookingOffice) -> None:
    flow = trip()
    reversed_batch(bench, flow, office, external="run")
    booked = dict(office.booked)
    assert len(booked) == 8
    result = reversed_batch(bench, flow, office)
    assert (result.status, office.booked) == ("completed", booked)


def test_the_doctor_names_open_reversals_and_their_batch_cannot_be_deleted(bench: Bench, office: BookingOffice) -> None:
    flow = trip()
    office.refuses_to_cancel = RefusesAll()
    result = reversed_batch(bench, flow, office, variants=[{}], cases=CASES[:1])
    (fault,) = bench.services.integrity.check().faults
    run = result.results[0].run
    assert (fault.kind, fault.runs) == (FaultKind.OPEN_REVERSAL, (run.id,))
    assert fault.problem.startswith(
        f"batch 'trip' has not taken back the external calls of run {run.id!r}: office_book ("
    )
    assert fault.problem.endswith("; run the batch again to take them back")
    with pytest.raises(InvalidInput, match="batch 'trip' has external calls left to take back"):
        bench.delete_batch("trip")
    office.refuses_to_cancel = set()
    run.continue_rollback()
    assert (office.booked, bench.services.integrity.check().faults) == ({}, ())
    bench.delete_batch("trip")


WORKER = """
import sys
import wtb
from tests.integration.booking_office import OFFICE, trip

folder, OFFICE.url = sys.argv[1:]
with wtb.Bench(folder=folder) as bench:
    cases = [{"id": str(number), "input": {}} for number in range(6)]
    bench.batch(trip(), cases=cases, evaluators=["steps"], external="reverse", workers=3)
"""


def test_processes_that_divide_a_batch_take_each_call_back_once(tmp_path: Path, office: BookingOffice) -> None:
    Bench(folder=tmp_path / "wtb").close()
    command = [sys.executable, "-c", WORKER, str(tmp_path / "wtb"), office.url]
    workers = [subprocess.Popen(command) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert office.booked == {}
    asked = Counter(line for line in office.log if not line.startswith("find"))
    assert (len(asked), set(asked.values())) == (6 * 2 * 2 * 2, {1}), "each room is booked and cancelled once"
    with Bench(folder=tmp_path / "wtb") as bench:
        result = bench.get_batch("trip")
        assert (result.status, result.left, bench.services.integrity.check().faults) == ("completed", 0, ())


def test_tools_in_a_tool_node_are_taken_back(bench: Bench, office: BookingOffice) -> None:
    @langchain_tool
    def graph_room(room: str) -> str:
        """Book a room."""
        return f"{ask('book', room)}"

    booking = wtb.langgraph.reversible(graph_room, reverse=cancel)
    calls: list[Any] = [
        {"name": "graph_room", "id": room, "args": {"room": room}, "type": "tool_call"} for room in ("a", "b")
    ]
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [AIMessage("", tool_calls=calls)]})
    builder.add_node("tools", ToolNode([booking]))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    flow = wtb.langgraph.workflow(builder.compile(), name="booking agent")
    cases = [{"id": "1", "input": {"messages": [("user", "go")]}}]
    result = bench.batch(flow, cases=cases, evaluators=["steps"], external="reverse")
    assert (result.status, office.booked, len(office.log)) == ("completed", {}, 4)
    (tool,) = bench.plan(flow, cases=cases, evaluators=["steps"], external="reverse", fresh=True).external
    assert (tool.name, tool.taken_back, tool.earlier_calls) == ("graph_room", True, 2)


def async_trip(booked: list[str]) -> Workflow:
    """Book a room with a tool whose functions are all async."""

    async def leave(call: ToolCall) -> None:
        await asyncio.sleep(0)
        booked.remove(call.arguments["room"])

    async def enter(room: str) -> str:
        await asyncio.sleep(0)
        booked.append(room)
        return room

    tool = wtb.tool(name="async_room", reverse=leave)(enter)

    async def travel(state: Any, ctx: Any) -> dict[str, Any]:
        return {"room": await ctx.atool(tool, "12b")}

    return Workflow("async trip").add_node("travel", travel, start=True)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_an_async_reverse_is_awaited(bench: Bench, is_awaited: bool) -> None:
    booked: list[str] = []
    options: dict[str, Any] = {"cases": CASES, "evaluators": ["steps"], "external": "reverse"}
    if is_awaited:
        result = asyncio.run(bench.abatch(async_trip(booked), **options))
    else:
        result = bench.batch(async_trip(booked), **options)
    assert (result.status, booked) == ("completed", [])


def test_an_async_tool_is_undone_and_called_again(bench: Bench) -> None:
    booked: list[str] = []
    run = bench.run(async_trip(booked), {})
    run.rollback(0)
    assert booked == []
    run.redo()
    assert booked == ["12b"]


def test_an_async_confirm_is_awaited_before_a_call_is_made_again(bench: Bench) -> None:
    begun: list[str] = []

    async def find(call: ToolCall) -> str | None:
        return None

    def enter() -> str:
        begun.append("in")
        if len(begun) == 1:
            raise KeyboardInterrupt  # nobody knows whether it happened
        return "in"

    tool = wtb.tool(name="async_confirmed", confirm=find)(enter)
    flow = Workflow("confirmed").add_node("enter", lambda state, ctx: {"room": ctx.tool(tool)}, start=True)
    with pytest.raises(KeyboardInterrupt):
        bench.run(flow, {}, run_id="left")
    assert bench.resume("left", flow).state == {"room": "in"}
    assert begun == ["in", "in"]
