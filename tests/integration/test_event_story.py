"""Every event of the catalogue happens: stories that make each type, and who did it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import StateGraph

import wtb
from tests.integration import environment_nodes
from tests.integration.support_desk import Desk, support
from wtb.application.runs.leases import LEASE
from wtb.application.server.background_jobs import BackgroundJobs, JobPlan, JobRun
from wtb.application.server.webhook_outbox import WebhookOutbox
from wtb.application.server.webhooks import Webhooks
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.bench import Bench
from wtb.domain.access import Role
from wtb.domain.commands import CommandKind
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import CATALOGUE, EventType
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import ExecutionStatus
from wtb.domain.runner import RunJob, RunnerReport, WorkerEnded, WorkerLost, WorkerReady
from wtb.domain.webhooks import MOST_ATTEMPTS
from wtb.domain.workflow import RetryPolicy
from wtb.flow import Workflow
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.webhook_sender import PinnedSender


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://", user="alice") as bench:
        yield bench


def log_of(bench: Bench) -> tuple[RecordedEvent, ...]:
    return bench.services.queries.event_page(limit=10_000).events


def told(bench: Bench, type: str, run: str | None = None) -> Any:
    """Return the facts of the one event of a type."""
    (found,) = [each for each in log_of(bench) if each.type == type and run in (None, each.stream)]
    return found.body


def everyday(bench: Bench) -> None:
    """A run is created, started, paused, edited, resumed with another variant, named, thinned out; one is stopped."""
    flow = Workflow("everyday")
    flow.add_node("first", lambda state: {"n": 1}, start=True)
    flow.add_node("second", lambda state: {"n": state["n"] + 1})
    flow.add_variant("second", "slow", lambda state: {"n": state["n"] + 2})
    flow.edge("first", "second")
    run = bench.run(flow, {"n": 0}, break_after=["first"], run_id="everyday")
    run.checkpoint("here")
    run.resume(update={"n": 5}, variants={"second": "slow"}, break_after=[])
    ended = bench.run(flow, {"n": 0}, checkpoints="on_error")
    bench.evaluate(ended, [wtb.Steps(), wtb.ExactMatch("absent")], expected=1)
    bench.create(flow, {"n": 0}, run_id="stopped").stop()


def questions(bench: Bench) -> None:
    """A node asks, and a person answers."""
    flow = Workflow("questions")
    flow.add_node("ask", lambda state, ctx: {"said": ctx.ask("Go on?")}, start=True)
    bench.run(flow, {}, run_id="asked").resume(answer="yes, with token=abc12345")


def messages(bench: Bench) -> None:
    """A node reports its progress and logs a line."""

    def work(state: Any, ctx: Any) -> None:
        ctx.emit({"done": 1})
        ctx.log("half way")

    flow = Workflow("messages")
    flow.add_node("work", work, start=True)
    bench.run(flow, {})


def trouble(bench: Bench) -> None:
    """A node is tried again, fails for good, and is begun afresh."""
    tries = iter([OSError("one"), OSError("two"), None])

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.step("look", lambda: 1)
        error = next(tries)
        if error is not None:
            raise error
        return {}

    flow = Workflow("trouble")
    flow.add_node("work", work, start=True, retry=RetryPolicy(times=2, wait_s=0))
    bench.run(flow, {}, run_id="trouble").resume(rerun_node=True)


def waiting(bench: Bench) -> None:
    """A node runs out of time in a call, and its next attempt waits for that call."""
    let_go = threading.Event()
    bench.subscribe("tool.awaited", lambda event: let_go.set())
    slow = wtb.tool(name="slow-story", idempotent=True)(lambda: let_go.wait(30))
    flow = Workflow("waiting")
    tries = RetryPolicy(times=50, wait_s=0)
    flow.add_node("wait", lambda state, ctx: {"done": ctx.tool(slow)}, start=True, timeout_s=0.05, retry=tries)
    assert bench.run(flow, {}).status == "completed"


def failing_tool(bench: Bench) -> None:
    @wtb.tool(name="broken-story")
    def broken(password: str, text: str) -> None:
        raise ConnectionError("no line")

    flow = Workflow("failing")
    flow.add_node("call", lambda state, ctx: ctx.tool(broken, password="x1y2z3", text="a" * 1_000), start=True)
    bench.run(flow, {}, run_id="failing")


def time_travel(bench: Bench) -> None:
    """Rollback, redo, fork, a rollback that stops half-way, and deletion."""
    desk = Desk()
    run = bench.run(support(desk), {}, run_id="travelled")
    run.rollback("b")
    run.redo()
    run.fork("a", run_id="forked", update={"log": []}).delete()
    run.delete(1)
    desk.broken = True
    with pytest.raises(RollbackFailed):
        run.rollback("c")


class Counted(TypedDict):
    n: int


def graphs(bench: Bench) -> None:
    """A graph with a graph inside one of its nodes."""
    inner: Any = StateGraph(Counted)
    inner.add_node("inner", lambda state: {"n": 1})
    inner.set_entry_point("inner")
    outer: Any = StateGraph(Counted)
    outer.add_node("outer", inner.compile())
    outer.set_entry_point("outer")
    assert bench.run(outer.compile(), {"n": 0}).status == "completed"


def takeover(bench: Bench) -> None:
    """A run is taken from a process that has ended."""
    flow = Workflow("left")
    flow.add_node("work", lambda state: {}, start=True)
    run = bench.create(flow, {}, run_id="left")
    with bench.services.storage.unit_of_work() as uow:
        now = bench.services.clock.now()
        machine = ProcessOwners().me().partition("/")[0]
        running = uow.executions.get(run.id).moved_to(ExecutionStatus.RUNNING, now)
        uow.executions.save(running.owned(f"{machine}/999999/1", now, LEASE))
        uow.commit()
    run.resume()


class Cluster:
    """A runner with one worker, which is lost and replaced; the jobs themselves run here."""

    def start(self, run: RunJob, workers: int, report: Callable[[RunnerReport], None]) -> None:
        self.run, self.report = run, report
        for each in (WorkerReady("pc-1:2/34/5"), WorkerLost("pc-1:2/34/5", "was ended by signal SIGKILL")):
            report(each)
        report(WorkerReady("pc-1:2/35/6", ray_actor="a1"))

    def submit(self, number: int) -> None:
        self.report(self.run(number))

    def close(self) -> None:
        self.report(WorkerEnded("trace", (), "pc-1:2/35/6"))


def workers(bench: Bench) -> None:
    """Workers of a batch start and end, and one is lost."""
    flow = Workflow("worked")
    flow.add_node("answer", lambda state: {"a": 1}, start=True)
    cases = [{"id": "1", "input": {}}]
    bench.batch(flow, name="worked", cases=cases, evaluators=[wtb.Steps()], runner=f"{__name__}:Cluster")


def batches(bench: Bench) -> None:
    """A batch completes, is scored again and becomes a baseline; one breaks, one is cancelled; all that is deleted."""
    flow = Workflow("batched")
    flow.add_node("work", lambda state: {"out": state["in"]}, start=True)
    flow.add_variant("work", "other", lambda state: {"out": 0})
    what: dict[str, Any] = {"cases": [{"id": "1", "input": {"in": 1}}], "evaluators": [wtb.Steps()]}
    bench.batch(flow, name="fine", **what)
    bench.evaluate("fine", [wtb.Latency()])
    bench.set_baseline("main", "fine")
    bench.delete_baseline("main")

    def broken(progress: Any) -> None:
        raise RuntimeError("the display broke")

    with pytest.raises(RuntimeError, match="the display broke"):
        bench.batch(flow, name="broken", on_progress=broken, workers=1, **what)
    stop = threading.Event()
    stop.set()
    bench.batch(flow, name="stopped", stop=stop, **what)
    bench.delete_batch("stopped")


def limits(bench: Bench) -> None:
    """A service is away at first: its limit shrinks and its breaker opens. Then it answers, and the breaker closes."""
    answers = iter([ConnectionError("away"), None])

    def ask(state: Any, ctx: Any) -> None:
        time.sleep(0.01)  # longer than the cool-down
        with ctx.limit("service"):
            error = next(answers)
            if error is not None:
                raise error

    flow = Workflow("limited")
    flow.add_node("ask", ask, start=True)
    limit = wtb.Limit(4, adaptive=True, break_after=1, cool_down_s=0.001)
    cases = [{"id": id, "input": {"n": id}} for id in "ab"]
    bench.batch(flow, cases=cases, evaluators=[wtb.Steps()], workers=1, limits={"service": limit})


def environments(bench: Bench) -> None:
    """A node has its own environment, which ends with the bench."""
    flow = Workflow("environments")
    flow.add_node("work", environment_nodes.add, start=True, environment="subprocess")
    assert bench.run(flow, {"a": 1, "b": 2}).status == "completed"
    bench.services.controller.close()


def full_disk(folder: Path) -> set[EventType]:
    """A checkpoint cannot be written, and the next one makes up for it; memory never fails like that."""
    locks: list[sqlite3.Connection] = []

    def lock(state: Any) -> dict[str, Any]:
        locks.append(sqlite3.connect(folder / "wtb.db", isolation_level=None, check_same_thread=False))
        locks[0].execute("BEGIN IMMEDIATE")
        return {}

    def unlock(state: Any) -> dict[str, Any]:
        with closing(locks[0]) as connection:
            connection.execute("ROLLBACK")
        return {}

    flow = Workflow("locked")
    flow.add_node("lock", lock, start=True)
    flow.add_node("unlock", unlock)
    flow.edge("lock", "unlock")
    with Bench(folder=folder, busy_timeout_s=0.01) as bench:
        assert bench.run(flow, {}).execution.degraded
        return {event.type for event in log_of(bench)}


def webhooks(bench: Bench) -> None:
    """A webhook is added; an event does not reach it, is sent again, and does not reach it; it is deleted."""
    services, sender = bench.services, PinnedSender(to_private=True)
    made = Webhooks(services.storage, services.clock, services.ids, sender)
    webhook = made.create("http://127.0.0.1:9/", ["token.created"], by="alice")
    services.tokens.create("hooked", Role.VIEWER, by="alice")
    outbox = WebhookOutbox(services.storage, services.clock, sender, services.masker, poll_s=0.01, shift_s=0.3)
    outbox.note(webhook.id)
    (delivery,) = made.list_deliveries(webhook.id)
    with services.storage.unit_of_work() as uow:
        uow.deliveries.save(replace(delivery, attempts=MOST_ATTEMPTS - 1))
        uow.commit()
    outbox.run(JobRun())
    made.retry(webhook.id, delivery.position, by="alice")
    made.delete(webhook.id, by="alice")


def background(bench: Bench) -> None:
    """One background job succeeds, and another fails."""

    def fail(run: JobRun) -> None:
        run.count(objects=1)
        raise wtb.WTBError("the disk is full")

    services = bench.services
    plans = [
        JobPlan(name="tidy", summary="", every=None, work=lambda run: run.count(objects=1)),
        JobPlan(name="fail", summary="", every=None, work=fail),
    ]
    jobs = BackgroundJobs(services.storage, services.clock, services.owners, services.masker, plans)
    for plan in plans:
        jobs.request(plan.name, by="alice")
    jobs.look()
    deadline = time.monotonic() + 10
    while any(view.job is None or view.job.last_ended_at is None for view in jobs.list_jobs()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def tokens(bench: Bench) -> None:
    """A token for a server is created, and revoked."""
    bench.services.tokens.create("ci", Role.VIEWER, by="alice")
    bench.services.tokens.revoke("ci", by="alice")


def commands(bench: Bench) -> None:
    """A command of a server is cancelled."""
    given = bench.services.commands
    given.cancel(given.accept(CommandKind.RUN_START, by="bob", arguments={}, subject="later").id, by="alice")


CHAPTERS: list[Callable[[Bench], None]] = [
    everyday,
    questions,
    messages,
    trouble,
    waiting,
    failing_tool,
    time_travel,
    graphs,
    takeover,
    batches,
    workers,
    limits,
    environments,
    tokens,
    webhooks,
    background,
    commands,
]


@pytest.fixture(scope="module")
def story() -> tuple[RecordedEvent, ...]:
    """The log after all chapters."""
    with Bench("memory://", user="alice") as bench:
        for chapter in CHAPTERS:
            chapter(bench)
        return log_of(bench)


def test_every_event_of_the_catalogue_happens(story: tuple[RecordedEvent, ...], tmp_path: Path) -> None:
    seen = {event.type for event in story} | full_disk(tmp_path / "wtb")
    assert set(EventType) - seen == set()


def test_every_event_is_written_from_its_class_and_nobody_adds_to_it(story: tuple[RecordedEvent, ...]) -> None:
    assert len(story) > 50
    assert [event for event in story if event.body.to_data() != event.data] == []


def test_everything_that_a_person_does_names_that_person(story: tuple[RecordedEvent, ...]) -> None:
    nameless = {event.type.value for event in story if _has_by(event.body) and event.data.get("by") != "alice"}
    by_itself = {"execution.paused", "tool.started", "tool.completed", "tool.failed"}
    assert nameless == by_itself


def _has_by(body: EventBody) -> bool:
    return hasattr(body, "by")


def test_the_end_of_a_run_says_where_it_is_and_what_it_took(bench: Bench) -> None:
    everyday(bench)
    run = bench.get("everyday")
    end = told(bench, "execution.completed", "everyday")
    assert (end.nodes, end.checkpoint) == (2, run.view().head.id)  # type: ignore[union-attr]
    assert end.ms > 0
    assert told(bench, "execution.cancelled", "stopped").by == "alice"
    edit = told(bench, "state.updated", "everyday")
    assert (edit.keys, edit.by) == (("n",), "alice")
    assert run.at(edit.checkpoint).created_by == "alice"


def test_an_answer_is_told_without_its_secrets(bench: Bench) -> None:
    questions(bench)
    answered = told(bench, "question.answered")
    assert (answered.node, answered.visit, answered.tool, answered.by) == ("ask", 1, "ask", "alice")
    assert answered.answer == "yes, with token=***"


def test_arguments_of_calls_are_told_short_and_without_secrets(bench: Bench) -> None:
    failing_tool(bench)
    started, failed = told(bench, "tool.started"), told(bench, "tool.failed")
    assert started.arguments["password"] == "***"
    assert started.arguments["text"].startswith("aaaa")
    assert len(started.arguments["text"]) == 200
    assert (failed.error, failed.node, failed.call) == ("ConnectionError: no line", "call", started.call)
    assert failed.ms >= 0


def test_a_rollback_tells_the_nodes_and_calls_that_it_took_back(bench: Bench) -> None:
    time_travel(bench)
    run = bench.get("travelled")
    back, forward = [each.body for each in run.events(types=["rollback.completed"])]
    assert isinstance(back, CATALOGUE[EventType.ROLLBACK_COMPLETED])
    assert (back.nodes, len(back.calls), back.by) == (("c#1", "d#1"), 2, "alice")  # type: ignore[attr-defined]
    assert forward.nodes == back.nodes  # type: ignore[attr-defined]
    assert forward.calls == tuple(reversed(back.calls))  # type: ignore[attr-defined]
    started = [each.body for each in run.events(types=["rollback.started"])]
    assert started[0].calls == back.calls  # type: ignore[attr-defined]


def test_a_batch_tells_its_variants_and_why_it_broke(bench: Bench) -> None:
    batches(bench)
    stream = bench.get_batch("broken").id
    (started,) = [each.body for each in log_of(bench) if each.type == "batch.started" and each.stream == stream]
    assert (started.variants, started.cases) == (("baseline", "work=other"), 1)  # type: ignore[attr-defined]
    assert told(bench, "batch.failed").error == "RuntimeError: the display broke"
    assert told(bench, "baseline.kept").batches == ("fine",)


def test_workers_tell_their_process_and_how_they_were_lost(bench: Bench) -> None:
    workers(bench)
    lost = told(bench, "worker.lost")
    assert (lost.host, lost.pid, lost.reason) == ("pc", "34", "was ended by signal SIGKILL")
    assert told(bench, "worker.ended").reason == "its work was done"
    assert [each.data.get("ray_actor") for each in log_of(bench) if each.type == "worker.started"] == [None, "a1"]


def test_a_limit_tells_its_width_and_a_breaker_why_it_opened(bench: Bench) -> None:
    limits(bench)
    stream = bench.get_batch("limited").id
    changed = told(bench, "limit.changed", stream)
    assert (changed.limit, changed.before, changed.width) == ("service", 4, 2)
    opened = told(bench, "breaker.opened", stream)
    assert (opened.limit, opened.failures, opened.error) == ("service", 1, "ConnectionError: away")
    assert told(bench, "breaker.closed", stream).limit == "service"
