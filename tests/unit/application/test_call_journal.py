"""CallJournal: records the outside calls of a node run, so that a new attempt does not repeat them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.application.begun_run import BegunRun, open_services
from wtb.application.runs.calls_in_flight import CallInFlight, list_in_flight
from wtb.application.runs.journal import CallJournal, ContextRevoked, made
from wtb.bootstrap import Services
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import LeaseLost, StorageUnavailable
from wtb.domain.figures import Usage
from wtb.domain.secrets import Secret
from wtb.domain.tools import CallKind, CallStatus, Effects, ToolCall
from wtb.flow import Workflow


@pytest.fixture
def services() -> Iterator[Services]:
    with open_services() as services:
        yield services


@pytest.fixture
def begun(services: Services) -> BegunRun:
    flow = Workflow("flow")
    flow.add_node("work", lambda state: {}, start=True)
    return BegunRun(services, flow)


@pytest.fixture
def run(begun: BegunRun) -> NodeRun:
    return begun.node_run()


def tool(journal: CallJournal, name: str = "send", key: str | None = None, **arguments: Any) -> ToolCall:
    """Look up the call of a tool that changes the world."""
    return journal.lookup(CallKind.TOOL, name, Effects.EXTERNAL, arguments, key)


def step(journal: CallJournal, name: str = "think") -> ToolCall:
    """Look up a recorded step, which changes nothing."""
    return journal.lookup(CallKind.STEP, name, Effects.NONE, {}, None)


def ask(journal: CallJournal, question: str) -> ToolCall:
    """Look up a question to a person."""
    return journal.lookup(CallKind.ASK, "ask", Effects.NONE, {"question": question}, None)


def identities(journal: CallJournal, *calls: dict[str, Any]) -> list[str]:
    return [tool(journal, **call).identity for call in calls]


class TestIdentity:
    def test_equal_calls_are_told_apart_by_their_order(self, begun: BegunRun, run: NodeRun) -> None:
        first, second = identities(begun.journal(run), {"to": "a"}, {"to": "a"})
        assert first != second
        assert identities(begun.journal(run), {"to": "a"}, {"to": "a"}) == [first, second]

    def test_calls_with_other_arguments_keep_their_identity_in_any_order(self, begun: BegunRun, run: NodeRun) -> None:
        a, b = identities(begun.journal(run), {"to": "a"}, {"to": "b"})
        assert identities(begun.journal(run), {"to": "b"}, {"to": "a"}) == [b, a]

    def test_a_key_names_a_call_whatever_its_arguments(self, begun: BegunRun, run: NodeRun) -> None:
        one, two = identities(begun.journal(run), {"key": "k", "to": "a"}, {"key": "k", "to": "b"})
        assert one == two == "send=k"

    def test_a_call_inside_another_is_not_mixed_up_with_an_equal_one_outside(
        self, begun: BegunRun, run: NodeRun
    ) -> None:
        journal = begun.journal(run)
        outer = tool(journal, "outer")
        with journal.inside(outer):
            inner = tool(journal, to="a").identity
        assert inner == f"{outer.identity}/{tool(journal, to='a').identity}"

    def test_calls_of_many_threads_get_identities_of_their_own(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: made(journal, tool(journal, to="a"), lambda: 1), range(20)))
        assert found == [1] * 20
        assert len({call.identity for call in begun.calls(run)}) == 20


class TestReplay:
    def test_the_intent_is_stored_before_the_function_runs_and_the_result_after(
        self, begun: BegunRun, run: NodeRun
    ) -> None:
        journal = begun.journal(run)
        before = made(journal, tool(journal), lambda: [call.status.value for call in begun.calls(run)])
        assert before == ["intended"]
        assert [(call.status, call.result) for call in begun.calls(run)] == [(CallStatus.SUCCEEDED, before)]

    def test_a_new_attempt_takes_the_recorded_result(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        made(journal, tool(journal, to="a"), lambda: "sent")
        again = begun.journal(journal.run.tried_again())
        call = tool(again, to="a")
        assert (call.status, call.result) == (CallStatus.SUCCEEDED, "sent")
        assert made(again, call, lambda: pytest.fail("it is called again")) == "sent"

    def test_a_failed_call_is_made_again_and_its_failures_are_counted(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        for _ in range(2):
            with pytest.raises(OSError, match="no"):
                made(journal, tool(journal, key="k"), lambda: (_ for _ in ()).throw(OSError("no")))
        again = begun.journal(journal.measured().tried_again())
        assert made(again, tool(again, key="k"), lambda: "sent") == "sent"
        stored = begun.calls(run)[0]
        assert (stored.status, stored.result, stored.figures.failures) == (CallStatus.SUCCEEDED, "sent", 2)
        assert again.completed(1.0).figures.tool_errors == 2  # type: ignore[union-attr]

    def test_a_tool_that_wrote_to_the_workspace_runs_again(self, begun: BegunRun, run: NodeRun) -> None:
        def write(journal: CallJournal) -> ToolCall:
            return journal.lookup(CallKind.TOOL, "write", Effects.WORKSPACE, {}, None)

        journal = begun.journal(run)
        made(journal, write(journal), lambda: 1)
        again = begun.journal(journal.run.tried_again())
        assert made(again, write(again), lambda: 2) == 2

    def test_questions_that_were_answered_come_in_the_order_of_asking(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        for question in ("b", "a"):
            journal.settle(journal.intend(ask(journal, question)), f"answer to {question}")
        again = begun.journal(journal.run.tried_again())
        assert [call.result for call in again.answered()] == ["answer to b", "answer to a"]

    def test_usage_inside_a_call_comes_back_with_its_result(self, begun: BegunRun, run: NodeRun) -> None:
        def think(journal: CallJournal) -> Any:
            return made(journal, step(journal), lambda: journal.use(Usage(input_tokens=5)))

        journal = begun.journal(run)
        think(journal)
        journal.use(Usage(input_tokens=2))  # outside the call: lost with the attempt
        again = begun.journal(journal.measured().tried_again())
        think(again)
        assert (again.usage.input_tokens, again.spent.input_tokens) == (5, 0)
        figures = again.completed(1.0).figures
        assert figures is not None
        assert (figures.usage.input_tokens, figures.spent.input_tokens) == (5, 7)

    def test_a_secret_is_not_stored_with_the_arguments(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        made(journal, tool(journal, password=Secret("hunter2!")), lambda: 1)
        assert begun.calls(run)[0].arguments == {"password": "***"}


class TestOrder:
    def test_calls_are_numbered_in_the_order_of_their_starts(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        made(journal, tool(journal, "outer"), lambda: made(journal, tool(journal, "inner"), lambda: 1))
        made(journal, tool(journal, "last"), lambda: 1)
        calls = sorted(begun.calls(run), key=lambda call: call.start_order)
        assert [call.tool for call in calls] == ["outer", "inner", "last"]

    def test_each_new_call_counts_in_its_node_run(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        for number in range(3):
            made(journal, tool(journal, number=number), lambda: 1)
        assert journal.run.tool_count == 3


class TestDoubt:
    def test_a_call_that_never_reported_back_is_known_to_be_begun(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        journal.intend(tool(journal))
        again = begun.journal(journal.run.tried_again())
        call = tool(again)
        assert again.is_recorded(call)
        assert (call.status, call.may_have_happened) == (CallStatus.INTENDED, True)

    def test_a_call_that_cannot_be_noted_is_not_made_and_not_in_doubt(self, begun: BegunRun, run: NodeRun) -> None:
        def no_note(run: NodeRun, call: ToolCall) -> None:
            raise StorageUnavailable("the anchor is full")

        journal = begun.journal(run, note=no_note)
        with pytest.raises(StorageUnavailable, match="the anchor is full"):
            made(journal, tool(journal), lambda: pytest.fail("it is called"))
        assert [call.status for call in begun.calls(run)] == [CallStatus.FAILED]

    def test_only_calls_that_change_the_world_are_noted(self, begun: BegunRun, run: NodeRun) -> None:
        noted: list[str] = []
        journal = begun.journal(run, note=lambda run, call: noted.append(call.tool))
        made(journal, step(journal), lambda: 1)
        made(journal, tool(journal), lambda: 1)
        assert noted == ["send"]

    def test_a_call_that_the_store_has_lost_is_in_doubt(self, begun: BegunRun, run: NodeRun) -> None:
        lost = begun.lost_call(run, tool(begun.journal(run), to="a"))
        journal = begun.journal(run, lost={lost.identity: lost})
        assert journal.unasked_lost() == (lost,)
        call = tool(journal, to="a")
        assert journal.is_recorded(call)
        assert (call.status, journal.unasked_lost()) == (CallStatus.INTENDED, ())

    def test_a_call_that_a_new_attempt_leaves_out_is_found(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        made(journal, tool(journal, to="a"), lambda: 1)
        made(journal, tool(journal, to="b"), lambda: 1)
        again = begun.journal(journal.run.tried_again())
        tool(again, to="b")
        assert [call.arguments for call in again.unasked()] == [{"to": "a"}]

    def test_a_call_inside_one_whose_result_is_recorded_is_not_missed(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        made(journal, step(journal), lambda: made(journal, tool(journal), lambda: 1))
        again = begun.journal(journal.run.tried_again())
        step(again)
        assert again.unasked() == ()


class TestRevoked:
    def test_a_node_that_was_given_up_begins_no_call(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        looked_up = tool(journal, to="a")
        journal.revoke()
        with pytest.raises(ContextRevoked, match="is refused"):
            tool(journal, to="b")
        with pytest.raises(ContextRevoked, match="is refused"):
            journal.intend(looked_up)
        assert begun.calls(run) == ()

    def test_the_end_of_an_external_call_is_recorded_for_the_next_attempt(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)

        def be_given_up() -> str:
            journal.revoke()
            return "sent"

        with pytest.raises(ContextRevoked, match="is recorded for its next attempt"):
            made(journal, tool(journal), be_given_up)
        again = begun.journal(journal.run.tried_again())
        assert tool(again).result == "sent"

    def test_any_other_result_is_discarded(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        with pytest.raises(ContextRevoked, match="is discarded"):
            made(journal, step(journal), journal.revoke)
        assert [call.status for call in begun.calls(run)] == [CallStatus.INTENDED]

    def test_a_call_under_way_is_seen_by_other_attempts(self, begun: BegunRun, run: NodeRun) -> None:
        journal = begun.journal(run)
        flights = made(journal, tool(journal), lambda: len(list_in_flight(run.execution_id, run.id)))
        assert (flights, list_in_flight(run.execution_id, run.id)) == (1, ())

    def test_a_call_that_ends_after_the_lease_is_lost_is_handed_to_whoever_has_it(
        self, services: Services, begun: BegunRun, run: NodeRun
    ) -> None:
        found: list[CallInFlight] = []

        def take_over() -> str:
            found.extend(list_in_flight(run.execution_id, run.id))
            services.recorder.begin(services.recorder.load(run.execution_id), "another process")
            return "sent"

        journal = begun.journal(run)
        with pytest.raises(LeaseLost):
            made(journal, tool(journal), take_over)
        assert [flight.unrecorded and flight.unrecorded.result for flight in found] == ["sent"]


class TestSharing:
    def test_a_result_can_be_shared_unless_a_person_or_the_world_took_part(self, begun: BegunRun) -> None:
        quiet, asking, sending = (begun.journal(begun.node_run()) for _ in range(3))
        made(quiet, step(quiet), lambda: 1)
        asking.intend(ask(asking, "?"))
        made(sending, tool(sending), lambda: 1)
        assert quiet.unshareable() is None
        assert "asked a person" in str(asking.unshareable())
        assert "send" in str(sending.unshareable())
