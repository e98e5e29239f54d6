"""Commands are accepted once, taken by one worker, taken up again when it is gone, and given up in the end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from wtb.api.command_answers import command_answer
from wtb.api.models.run_changes import ChangedRun
from wtb.api.problems import response_of
from wtb.application.server import dispatch
from wtb.application.server.command_errors import error_data, error_from
from wtb.application.server.commands import Commands
from wtb.application.server.dispatch import CommandWorker, Dispatcher
from wtb.domain.commands import LEASE, Command, CommandKind, CommandStatus
from wtb.domain.errors import (
    Conflict,
    IdempotencyMismatch,
    InvalidInput,
    InvalidWorkflow,
    ServerStopping,
    StorageUnavailable,
    TooManyRequests,
    WorkerFailed,
    WorkflowNotServed,
)
from wtb.domain.secrets import Masker
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.testing.fakes import FakeClock, SequentialIds

_START = CommandKind.RUN_START


class Owners:
    """Processes that are gone when the test says so; others are on another machine."""

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def me(self) -> str:
        return "server"

    def is_gone(self, owner: str) -> bool | None:
        return True if owner in self.gone else None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def owners() -> Owners:
    return Owners()


@pytest.fixture
def commands(clock: FakeClock, owners: Owners) -> Commands:
    storage = MemoryStorage(codec=MsgpackCodec(), clock=clock, bus=QueueEventBus())
    return Commands(storage, clock, SequentialIds(), owners, Masker())


def _taken(commands: Commands, owner: str) -> Command:
    found = commands.find_next()
    assert found is not None
    taken = commands.take(found, owner)
    assert taken is not None
    return taken


def test_a_key_means_the_same_request_for_a_day_and_each_caller(commands: Commands, clock: FakeClock) -> None:
    def accept(by: str, topic: str) -> str:
        return commands.accept(_START, by=by, arguments={"topic": topic}, key="k").id

    first = accept("Ada", "a")
    assert accept("Ada", "a") == first
    assert accept("Bob", "b") != first
    with pytest.raises(IdempotencyMismatch, match="'k'"):
        accept("Ada", "b")
    clock.advance(timedelta(hours=23, minutes=58))
    assert accept("Ada", "a") == first
    clock.advance(timedelta(minutes=2))
    assert accept("Ada", "b") != first


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "\x00"])
def test_a_key_is_a_short_printable_text(commands: Commands, key: str) -> None:
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        commands.accept(_START, by="Ada", key=key)


def test_a_command_is_taken_once_and_again_when_its_worker_is_gone(commands: Commands, owners: Owners) -> None:
    command = commands.accept(_START, by="Ada")
    taken = _taken(commands, "one")
    assert commands.find_next() is None
    assert commands.take(command, "two") is None  # a server that saw it before
    owners.gone.add("one")
    again = _taken(commands, "two")
    assert (again.attempts, again.losses) == (2, 0)
    with pytest.raises(Conflict):
        commands.complete(taken, {})
    assert commands.complete(again, {"x": 1}).result == {"x": 1}
    assert commands.find_next() is None


def test_a_command_behind_a_thousand_that_a_server_may_not_take_is_found(commands: Commands) -> None:
    for number in range(1_001):
        commands.accept(_START, by="Ada", arguments={"workflow": "elsewhere", "number": number})
    mine = commands.accept(_START, by="Ada", arguments={"workflow": "mine"})
    assert commands.find_next(lambda command: command.arguments["workflow"] == "mine") == mine
    assert commands.find_next(lambda command: False) is None


def test_a_lease_that_is_not_extended_ends(commands: Commands, clock: FakeClock) -> None:
    commands.accept(_START, by="Ada")
    taken = _taken(commands, "far away")
    clock.advance(LEASE - timedelta(seconds=1))
    extended = commands.extend(taken)
    clock.advance(LEASE - timedelta(seconds=1))
    assert commands.find_next() is None
    clock.advance(timedelta(seconds=1))
    assert _taken(commands, "here").owner == "here"
    with pytest.raises(Conflict):
        commands.extend(extended)


def test_a_command_that_ends_three_workers_fails_with_what_is_known(commands: Commands) -> None:
    id = commands.accept(_START, by="Ada").id
    for worker in ("one", "two"):
        assert commands.lose(_taken(commands, worker), "was killed").status is CommandStatus.PENDING
    failed = commands.lose(_taken(commands, "three"), "was ended by signal SIGKILL")
    assert (failed.status, failed.attempts) == (CommandStatus.FAILED, 3)
    assert failed.error is not None
    assert "SIGKILL" in failed.error["message"]
    assert commands.get(id) == failed


def test_a_command_that_ends_whole_servers_fails_in_the_end(commands: Commands, owners: Owners) -> None:
    id = commands.accept(_START, by="Ada").id
    for number in range(10):
        owners.gone.add(_taken(commands, f"worker {number}").owner or "")
    found = commands.find_next()
    assert found is not None
    assert commands.take(found, "another") is None
    assert commands.get(id).status is CommandStatus.FAILED


def test_a_worker_that_ended_after_its_command_changes_nothing(commands: Commands) -> None:
    commands.accept(_START, by="Ada")
    taken = _taken(commands, "one")
    done = commands.complete(taken, {})
    assert commands.lose(taken, "was killed") == done


def test_whoever_waits_is_woken_by_the_end_and_not_by_the_clock(commands: Commands) -> None:
    id = commands.accept(_START, by="Ada").id
    taken = _taken(commands, "one")
    found: list[Command] = []
    waiter = threading.Thread(target=lambda: found.append(commands.wait_for(id, 60)))
    waiter.start()
    commands.complete(taken, {"x": 1})
    commands.told_of_end(id)
    waiter.join(10)
    assert found[0].result == {"x": 1}
    assert commands.wait_for(commands.accept(_START, by="Ada").id, 0).status is CommandStatus.PENDING


def test_old_commands_are_forgotten(commands: Commands, clock: FakeClock) -> None:
    commands.complete(commands.accept(_START, by="Ada"), {})
    still_open = commands.accept(_START, by="Ada")
    clock.advance(timedelta(days=8))
    assert commands.forget_old() == 1
    assert commands.list_commands() == (still_open,)


def test_errors_keep_their_class_and_facts_and_lose_their_secrets() -> None:
    masker = Masker()
    invalid = error_from(error_data(InvalidWorkflow("w", ["a", "b"]), masker))
    assert isinstance(invalid, InvalidWorkflow)
    assert tuple(invalid.faults) == ("a", "b")
    served = error_from(error_data(WorkflowNotServed("no", "wtb run x"), masker))
    assert isinstance(served, WorkflowNotServed)
    assert served.command == "wtb run x"
    foreign = error_from(error_data(RuntimeError("password=hunter2"), masker))
    assert isinstance(foreign, WorkerFailed)
    assert "hunter2" not in str(foreign)
    assert isinstance(error_from({"type": "open", "message": "x"}), WorkerFailed)


class Worker:
    """A worker that does at once what the test says."""

    def __init__(self, commands: Commands, busy: list[int], gate: threading.Event) -> None:
        self._commands, self._busy, self._gate = commands, busy, gate
        self.name = f"worker {id(self)}"

    def carry_out(self, command: Command, reference: str | None, heard: Any = None) -> str | None:
        self._busy.append(1)
        self._gate.wait(10)
        if command.arguments.get("dies"):
            return "was ended by signal SIGKILL"
        self._commands.complete(command, {"reference": reference})
        return None

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        return question

    def stop(self) -> None:
        self._gate.set()

    def kill(self) -> None:
        self._gate.set()


def test_the_dispatcher_carries_out_so_many_commands_at_a_time_and_only_those_it_serves(commands: Commands) -> None:
    busy: list[int] = []
    gate = threading.Event()

    def reference(command: Command) -> str | None:
        if command.arguments.get("elsewhere"):
            raise WorkflowNotServed("not here", "wtb")
        if command.arguments.get("broken"):
            raise InvalidInput("it cannot be imported")
        return "agent.py:flow"

    def start() -> CommandWorker:
        return Worker(commands, busy, gate)

    dispatcher = Dispatcher(commands, start, workers=2, find_reference=reference)
    given = [commands.accept(_START, by="Ada", arguments=each) for each in ({}, {"dies": 1}, {}, {"broken": 1})]
    elsewhere = commands.accept(_START, by="Ada", arguments={"elsewhere": 1})
    dispatcher.start()
    try:
        while len(busy) < 2:
            gate.wait(0.01)
        assert len(busy) == 2
        gate.set()
        ended = [commands.wait_for(each.id, 20) for each in given]
    finally:
        dispatcher.close()
    assert [each.status for each in ended] == [
        CommandStatus(text) for text in ("completed", "failed", "completed", "failed")
    ]
    assert [(each.result or {}).get("reference") for each in ended] == ["agent.py:flow", None, "agent.py:flow", None]
    assert ended[1].losses == 3
    assert ended[3].error == {"type": "InvalidInput", "message": "it cannot be imported"}
    assert commands.get(elsewhere.id).status is CommandStatus.PENDING


def test_the_dispatcher_outlives_errors_that_nobody_expected(commands: Commands) -> None:
    gate, faults = threading.Event(), [OSError("no more processes"), OSError("still none"), ValueError("garbage")]
    gate.set()

    def reference(command: Command) -> str | None:
        if faults:
            raise faults.pop()
        return "agent.py:flow"

    def start() -> CommandWorker:
        if faults:
            raise faults.pop()
        return Worker(commands, [], gate)

    dispatcher = Dispatcher(commands, start, workers=1, find_reference=reference)
    dispatcher.start()
    try:
        ended = commands.wait_for(commands.accept(_START, by="Ada").id, 20)
    finally:
        dispatcher.close()
    assert (ended.status, faults) == (CommandStatus.COMPLETED, [])


def test_an_outage_of_the_database_is_told_once_and_without_a_traceback(
    commands: Commands, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_LOOK_S", 0.01)
    gate, outages = threading.Event(), [StorageUnavailable("the database is away")] * 3
    gate.set()

    def reference(command: Command) -> str | None:
        if outages:
            raise outages.pop()
        return "agent.py:flow"

    dispatcher = Dispatcher(commands, lambda: Worker(commands, [], gate), workers=1, find_reference=reference)
    dispatcher.start()
    try:
        ended = commands.wait_for(commands.accept(_START, by="Ada").id, 20)
    finally:
        dispatcher.close()
    assert (ended.status, outages) == (CommandStatus.COMPLETED, [])
    told = [record for record in caplog.records if "the database is away" in record.message]
    assert [(record.levelname, record.exc_info) for record in told] == [("WARNING", None)]


def test_a_command_is_cancelled_while_it_waits_and_while_its_worker_hangs(commands: Commands) -> None:
    busy: list[int] = []
    gate = threading.Event()
    dispatcher = Dispatcher(commands, lambda: Worker(commands, busy, gate), workers=1, find_reference=lambda _: None)
    hanging, waiting = (commands.accept(_START, by="Ada") for _ in range(2))
    dispatcher.start()
    try:
        while not busy:
            gate.wait(0.01)
        cancelled = [commands.cancel(each.id, by="Grace") for each in (waiting, hanging)]
        assert not gate.is_set()
        dispatcher.end(hanging.id)
        assert gate.wait(10)
    finally:
        dispatcher.close()
    for each in cancelled:
        assert (each.status, each.owner) == (CommandStatus.FAILED, None)
        assert each.error is not None
        assert each.error["type"] == "CommandCancelled"
        assert "was cancelled by Grace" in each.error["message"]
        assert commands.get(each.id) == each
        with pytest.raises(Conflict, match="has failed already"):
            commands.cancel(each.id, by="Grace")
    assert len(busy) == 1


def test_a_dispatcher_that_closes_waits_for_no_answer(commands: Commands) -> None:
    begun, gate = threading.Event(), threading.Event()
    waited: list[bool] = []

    class Asked(Worker):
        def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
            begun.set()
            waited.append(gate.wait(20))
            return question

    dispatcher = Dispatcher(commands, lambda: Asked(commands, [], gate), workers=1, find_reference=lambda _: None)
    asking = threading.Thread(target=dispatcher.ask, args=({},))
    asking.start()
    begun.wait(10)
    dispatcher.close()
    asking.join()
    assert waited == [True]
    with pytest.raises(ServerStopping):
        dispatcher.ask({})


def test_only_so_many_questions_are_answered_at_a_time(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_MOST_QUESTIONS", 1)
    begun, gate = threading.Event(), threading.Event()

    class Asked(Worker):
        def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
            begun.set()
            gate.wait(20)
            return question

    dispatcher = Dispatcher(commands, lambda: Asked(commands, [], gate), workers=1, find_reference=lambda _: None)
    asking = threading.Thread(target=dispatcher.ask, args=({},))
    asking.start()
    begun.wait(10)
    with pytest.raises(TooManyRequests, match="try again in 2 s"):
        dispatcher.ask({})
    gate.set()
    asking.join()
    assert dispatcher.ask({"again": 1}) == {"again": 1}
    dispatcher.close()


def test_answers_hold_only_texts_that_utf_8_can_hold() -> None:
    half = "half a character: \ud800"
    command = Command(
        id="c",
        kind=_START,
        created_by="Ada",
        created_at=FakeClock().now(),
        status=CommandStatus.COMPLETED,
        result={"run": {"failure": {"message": half}}, "scores": {half: [float("nan")]}},
    )
    shown = command_answer(replace(command, error=error_data(InvalidInput(half), Masker()))).model_dump_json()
    assert shown.count(r"half a character: \\ud800") == 3
    failure = {"type": "E", "message": half, "node": half}
    run = {"id": "r", "workflow": half, "status": "failed", "version": 1, "failure": failure}
    pause = {"reason": half, "kind": "question", "node": None, "question": {"text": half}}
    assert ChangedRun.model_validate({**run, "pause": pause}).model_dump_json().count(r"\\ud800") == 5
    assert ChangedRun.model_validate(run).model_dump_json().count(r"\\ud800") == 3
    assert rb"\\ud800" in response_of(InvalidInput(half)).body
