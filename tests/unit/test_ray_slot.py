"""The place of one worker on Ray, with an actor that answers when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from wtb.application.batches.worker_messages import report_data
from wtb.domain.batch import JobStatus
from wtb.domain.job_limits import JobLimits, Resources
from wtb.domain.runner import (
    JobBroke,
    JobEnded,
    JobLost,
    JobOverLimit,
    JobRunsElsewhere,
    RunnerReport,
    WorkerLost,
    WorkerReady,
)
from wtb.domain.spending import Spent
from wtb.infrastructure.runners.ray_slot import RaySlot, SlotState
from wtb.infrastructure.runners.worker_actor import WorkerActor

LIMIT_S = 10.0


class RayErrors:
    """Ray's exceptions as far as a slot tells them apart. Importing Ray takes a second, and settles its settings."""

    class RayError(Exception):
        """The root."""

    class RayTaskError(RayError):
        """The called function raised."""

    class RayActorError(RayError):
        """The actor is lost, or may be."""

    class ActorUnavailableError(RayActorError):
        """Nobody knows whether the actor has run the call."""


UNAVAILABLE = RayErrors.ActorUnavailableError("the connection broke")
DIED = RayErrors.RayActorError("the node died")
SYSTEM = RayErrors.RayError("an object was lost")


class ActorCall:
    """A call of an actor, and Ray's reference to its answer."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self._future: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self._future

    def task_id(self) -> ActorCall:
        return self

    def hex(self) -> str:
        return f"task {id(self)}"

    def answer(self, value: object) -> None:
        if isinstance(value, BaseException):
            self._future.set_exception(value)
        else:
            self._future.set_result(value)


class ActorMethod:
    """A method of an actor handle."""

    def __init__(self, handle: ActorHandle, name: str) -> None:
        self._handle, self._name = handle, name

    def options(self, concurrency_group: str) -> ActorMethod:
        return self

    def remote(self, *arguments: Any) -> ActorCall:
        call = ActorCall(self._name, arguments)
        self._handle.calls.append(call)
        return call


class ActorHandle:
    """An actor handle whose calls the test answers."""

    def __init__(self) -> None:
        self.calls: list[ActorCall] = []
        self.ping, self.begin, self.run, self.withdraw, self.watch = (
            ActorMethod(self, name) for name in ("ping", "begin", "run", "withdraw", "watch")
        )
        self._actor_id = self

    def hex(self) -> str:
        return f"actor {id(self)}"


class OneSlotRunner:
    """The runner of one slot: it collects reports, and calls functions when the test says so."""

    errors = RayErrors

    def __init__(self) -> None:
        self.limits = JobLimits(resources=Resources(memory_gb=1), timeout_s=LIMIT_S)
        self.now = 1_000.0
        self.reports: list[RunnerReport] = []
        self.sent_elsewhere: list[int] = []
        self.handles: list[ActorHandle] = []
        self.killed: list[object] = []
        self.given_up: list[BaseException] = []
        self._soon: list[tuple[float, Callable[[], None]]] = []
        self.slot = RaySlot(self, clock=lambda: self.now)

    def soon(self, act: Callable[[], None], after_s: float = 0.0) -> None:
        self._soon.append((self.now + after_s, act))

    def report(self, report: RunnerReport) -> None:
        self.reports.append(report)

    def send_elsewhere(self, numbers: Iterable[int]) -> None:
        self.sent_elsewhere.extend(numbers)

    def give_up(self, error: BaseException) -> None:
        self.given_up.append(error)

    def worker_ended(self, error: BaseException) -> None:
        self.given_up.append(error)

    def start_actor(self) -> WorkerActor:
        self.handles.append(ActorHandle())
        return WorkerActor(self.handles[-1])

    def kill(self, actor: WorkerActor) -> None:
        self.killed.append(actor.handle)

    def work_to_do(self) -> tuple[dict[str, Any], bytes | None]:
        return {}, None

    # For the tests

    def after(self, seconds: float) -> None:
        """Let time pass, and handle everything that is due."""
        self.now += seconds
        self.slot.look()
        while due := [each for each in self._soon if each[0] <= self.now]:
            for each in due:
                self._soon.remove(each)
                each[1]()
            self.slot.look()

    def calls(self, name: str, actor: int = -1) -> list[ActorCall]:
        return [call for call in self.handles[actor].calls if call.name == name]

    def answer(self, name: str, value: object, *, actor: int = -1, position: int = -1) -> None:
        """Answer a call of an actor, the last one unless the position says otherwise."""
        self.calls(name, actor)[position].answer(value)
        self.after(0)

    def start(self, token: str = "first", name: str = "") -> None:
        self.answer("ping", {"token": token, "job": None})
        self.answer("begin", {"ready": name or f"process {token}"})

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.slot.run(number)

    def state(self) -> SlotState:
        return self.slot.state

    def said_of(self, kind: type) -> list[Any]:
        return [report for report in self.reports if isinstance(report, kind)]


@pytest.fixture
def runner() -> OneSlotRunner:
    runner = OneSlotRunner()
    runner.start()
    assert runner.state() is SlotState.READY
    return runner


def ended(number: int) -> dict[str, Any]:
    return {"report": report_data(JobEnded(number, JobStatus.COMPLETED, Spent())), "more": []}


def test_a_late_answer_of_a_replaced_actor_begins_no_work_and_fails_no_start(runner: OneSlotRunner) -> None:
    runner.send(1)
    runner.answer("run", UNAVAILABLE)
    runner.after(61)  # nobody answers: it is lost
    assert len(runner.handles) == 2
    runner.answer("ping", DIED, actor=0)
    assert runner.given_up == []
    assert runner.state() is SlotState.STARTING
    runner.answer("ping", {"token": "second", "job": None})
    assert len(runner.calls("begin")) == 1
    runner.answer("begin", {"ready": "process second"})
    runner.answer("watch", DIED, actor=0)
    assert runner.state() is SlotState.READY
    assert len(runner.handles) == 2


def test_a_question_that_was_to_be_asked_again_is_not_put_to_the_next_actor(runner: OneSlotRunner) -> None:
    runner.send(1)
    runner.answer("run", UNAVAILABLE)
    for _ in range(61):
        runner.answer("ping", UNAVAILABLE, actor=0)
        runner.after(1)
    runner.after(1)
    assert len(runner.handles) == 2
    assert len(runner.calls("ping")) == 1, "two answers would begin the work twice"


def test_a_job_whose_worker_does_not_answer_is_lost_and_the_next_one_goes_elsewhere(runner: OneSlotRunner) -> None:
    runner.send(1, 2)
    runner.answer("run", DIED, position=0)
    runner.answer("ping", DIED)
    assert runner.said_of(JobLost) == [], "its second call may still come back"
    runner.answer("run", DIED, position=1)
    assert [lost.number for lost in runner.said_of(JobLost)] == [1]
    assert runner.sent_elsewhere == [2]


@pytest.mark.parametrize("error", [UNAVAILABLE, DIED, SYSTEM], ids=["unavailable", "died", "system"])
def test_a_call_that_fails_in_ray_leaves_a_doubt_and_breaks_nothing(runner: OneSlotRunner, error: Exception) -> None:
    runner.send(1)
    runner.answer("run", error)
    assert runner.said_of(JobBroke) == []
    assert runner.state() is SlotState.IN_DOUBT
    runner.answer("ping", {"token": "first", "job": None})
    assert runner.said_of(JobRunsElsewhere) == [JobRunsElsewhere(1)]
    assert runner.state() is SlotState.READY


def test_an_error_of_the_worker_itself_breaks_the_job(runner: OneSlotRunner) -> None:
    runner.send(1)
    runner.answer("run", RayErrors.RayTaskError("run raised"))
    assert [broke.number for broke in runner.said_of(JobBroke)] == [1]
    assert runner.state() is SlotState.READY


def test_a_job_whose_call_failed_stays_with_its_worker_until_it_has_ended(runner: OneSlotRunner) -> None:
    runner.send(1)
    runner.answer("run", UNAVAILABLE)
    runner.answer("ping", {"token": "first", "job": 1})
    assert runner.state() is SlotState.OCCUPIED
    assert runner.said_of(JobRunsElsewhere) == []
    runner.after(1)
    runner.answer("ping", {"token": "first", "job": None})
    assert runner.said_of(JobRunsElsewhere) == [JobRunsElsewhere(1)]
    assert runner.state() is SlotState.READY


def test_a_job_whose_call_failed_keeps_to_its_time_limit(runner: OneSlotRunner) -> None:
    runner.send(1)
    runner.after(LIMIT_S / 2)
    runner.answer("run", UNAVAILABLE)
    runner.answer("ping", {"token": "first", "job": 1})
    runner.after(LIMIT_S / 2 - 1)
    runner.answer("ping", {"token": "first", "job": 1})
    assert runner.said_of(JobOverLimit) == []
    runner.after(2)
    assert [late.number for late in runner.said_of(JobOverLimit)] == [1]
    assert runner.killed[0] is runner.handles[0]


def test_the_time_of_a_job_begins_when_the_job_before_it_has_ended_unheard(runner: OneSlotRunner) -> None:
    runner.send(1, 2)
    runner.answer("run", UNAVAILABLE, position=0)
    runner.after(LIMIT_S - 1)
    runner.answer("ping", {"token": "first", "job": 2})
    assert runner.state() is SlotState.READY
    runner.after(LIMIT_S - 1)
    assert runner.said_of(JobOverLimit) == []
    runner.after(2)
    runner.answer("run", DIED, position=1)
    assert [late.number for late in runner.said_of(JobOverLimit)] == [2], "a job without a clock would run for ever"


def test_memory_is_watched_again_after_a_short_fault(runner: OneSlotRunner) -> None:
    runner.send(1)
    runner.answer("run", UNAVAILABLE)
    runner.answer("watch", UNAVAILABLE)
    runner.answer("ping", {"token": "first", "job": None})
    runner.send(2)
    runner.answer("watch", {"used": 3_000_000_000, "job": 2})
    runner.answer("run", DIED)
    assert [greedy.number for greedy in runner.said_of(JobOverLimit)] == [2]


def test_a_worker_that_cannot_watch_its_memory_works_on(runner: OneSlotRunner) -> None:
    runner.answer("watch", RayErrors.RayTaskError("/proc cannot be read"))
    assert runner.state() is SlotState.READY
    assert len(runner.calls("watch")) == 1, "it would fail again at once, and for ever"


def test_an_idle_worker_that_is_restarted_costs_no_job_an_attempt(runner: OneSlotRunner) -> None:
    runner.answer("watch", UNAVAILABLE)
    assert runner.state() is SlotState.IN_DOUBT, "it gets no job until it has begun anew"
    runner.answer("ping", UNAVAILABLE)
    runner.after(1)
    runner.answer("ping", {"token": "second", "job": None})
    runner.answer("begin", {"ready": "process second"})
    assert runner.said_of(JobLost) == []
    assert [lost.worker for lost in runner.said_of(WorkerLost)] == ["process first"]
    assert [ready.worker for ready in runner.said_of(WorkerReady)] == ["process first", "process second"]
    assert runner.killed == []


def test_jobs_that_reach_a_restarted_process_go_elsewhere_and_lose_nothing(runner: OneSlotRunner) -> None:
    runner.send(1, 2)
    runner.answer("run", {"restarted": 1}, position=0)
    runner.answer("ping", {"token": "second", "job": None})
    runner.answer("run", {"restarted": 2}, position=1)
    assert runner.sent_elsewhere == [1, 2]
    assert runner.said_of(JobLost) == []
    assert len(runner.calls("begin")) == 2


def test_a_lost_worker_is_told_in_plain_words(runner: OneSlotRunner) -> None:
    runner.send(1, 2)
    runner.answer("run", {"restarted": 2}, position=1)  # this answer may come before the failure of the first call
    runner.answer("run", UNAVAILABLE, position=0)
    runner.answer("ping", {"token": "second", "job": None})
    assert [lost.reason for lost in runner.said_of(JobLost)] == ["was lost: its process ended"]
    runner.answer("begin", {"ready": "process second"})
    runner.send(3)
    runner.answer("run", UNAVAILABLE)
    runner.after(61)
    assert runner.said_of(JobLost)[-1].reason == "was lost: it did not answer"
    runner.start("third")
    runner.send(4)
    runner.answer("run", UNAVAILABLE)
    runner.answer("ping", {"token": "fourth", "job": None})
    assert runner.said_of(JobLost)[-1].reason == "was lost: its process ended"


def test_a_worker_whose_machine_is_lost_waits_for_a_machine_again(runner: OneSlotRunner) -> None:
    runner.send(1)
    runner.answer("run", DIED)
    runner.answer("ping", DIED)
    runner.after(59)
    assert not runner.slot.waits_for_machine(60)
    runner.after(2)
    assert runner.slot.waits_for_machine(60)
    assert runner.slot.was_ready


def test_a_worker_that_ends_three_times_before_it_is_ready_is_not_started_again() -> None:
    runner = OneSlotRunner()
    for _ in range(3):
        assert runner.given_up == []
        runner.answer("ping", {"token": "one", "job": None})
        runner.answer("begin", DIED)
    assert len(runner.given_up) == 1
    assert len(runner.handles) == 3


def test_a_reported_job_gives_the_next_one_its_turn(runner: OneSlotRunner) -> None:
    runner.send(1, 2)
    runner.after(LIMIT_S - 1)
    runner.answer("run", ended(1), position=0)
    assert [done.number for done in runner.said_of(JobEnded)] == [1]
    runner.after(LIMIT_S - 1)
    assert runner.said_of(JobOverLimit) == []
