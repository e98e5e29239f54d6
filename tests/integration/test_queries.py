"""Queries: what is read of runs, each view in one unit of work, on every storage."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import wtb
from wtb.application.queries import checkpoints as checkpoint_pages
from wtb.application.queries.lookup import Prefix
from wtb.application.queries.views import CheckpointPage, FileTotals, Mark
from wtb.bench import Bench
from wtb.domain.errors import CheckpointNotFound, ExecutionNotFound, InvalidInput
from wtb.domain.events import EventType, Severity
from wtb.domain.ports import UnitOfWork
from wtb.domain.rollback import RollbackDirection


@wtb.tool(effects="none")
def look() -> str:
    return "seen"


def looping(times: int = 3) -> wtb.Workflow:
    """Return a workflow that writes a file, calls a tool and uses tokens at each of its steps."""
    flow = wtb.Workflow("looping", version="7")

    @flow.node(start=True)
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        n = state.get("n", 0) + 1
        ctx.tool(look)
        ctx.usage(input_tokens=10, output_tokens=1, cost_usd=0.25, model="m")
        (ctx.workspace / f"{n}.txt").write_text("x" * n)
        return {"n": n}

    flow.edge("write", "write", when=f"n < {times}")
    flow.edge("write", wtb.END, otherwise=True)
    return flow


class Counted:
    """How many units of work a storage has opened."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = 0
        self._open = bench.services.storage.unit_of_work
        monkeypatch.setattr(bench.services.storage, "unit_of_work", self._counted)

    def _counted(self, *, readonly: bool = False) -> UnitOfWork:
        self.opened += 1
        return self._open(readonly=readonly)


def steps(page: CheckpointPage) -> list[int]:
    return [row.checkpoint.step for row in page.rows]


def test_everything_about_a_run_is_read_in_one_unit_of_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bench.run(looping(), run_id="the-long-name")
    counted = Counted(bench, monkeypatch)
    assert bench.view("the-l").id == run.id
    assert counted.opened == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda queries: queries.history_page(Prefix("the-l"), before=2, limit=1),
        lambda queries: list(queries.each_checkpoint(Prefix("the-l"), every=True)),
        lambda queries: queries.checkpoint_view(Prefix("the-l"), "write#2"),
        lambda queries: queries.event_page(Prefix("the-l"), by="sequence", limit=2),
        lambda queries: list(queries.each_event(Prefix("the-l"))),
        lambda queries: queries.summary(Prefix("the-l")),
        lambda queries: queries.list_runs(),
        lambda queries: queries.list_workflows(),
    ],
    ids=["page", "checkpoints", "checkpoint", "events", "all events", "summary", "runs", "workflows"],
)
def test_every_other_view_is_read_in_one_too(bench: Bench, monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    bench.run(looping(), run_id="the-long-name")
    counted = Counted(bench, monkeypatch)
    assert read(bench.services.queries)
    assert counted.opened == 1


def test_a_view_tells_what_the_run_tells(bench: Bench) -> None:
    run = bench.run(looping())
    view = run.view()
    assert (view.execution, view.state, view.head) == (run.execution, run.state, run.history.latest())
    assert (view.usage.input_tokens, view.spent.cost_usd) == (30, 0.75)
    assert run.usage == {"input_tokens": 30, "output_tokens": 3, "cost_usd": 0.75} == run.spent
    assert view.counts == (4, 4)
    assert view.files == FileTotals(3, 6)
    assert (view.branch.name, view.branches) == ("main", run.branches)
    assert (view.rollback, view.notes, view.current_nodes, view.neglect) == (None, (), (), None)


def test_a_view_has_the_times_of_a_run_as_far_as_it_has_come(bench: Bench) -> None:
    waiting = bench.create(looping())
    times = waiting.view().times
    assert (times.started_at, times.paused_at, times.ended_at, times.duration) == (None, None, None, None)
    paused = bench.run(looping(), break_after=["write"])
    view = paused.view()
    assert view.times.started_at is not None
    assert view.times.paused_at is not None
    assert (view.times.ended_at, view.current_nodes) == (None, ("write",))
    assert view.times.duration == view.times.paused_at - view.times.started_at
    done = paused.resume(break_after=[]).view().times
    assert (done.started_at, done.paused_at) == (view.times.started_at, None)
    assert done.ended_at is not None
    assert done.ended_at >= view.times.paused_at
    paused.rollback("write#1")
    back = paused.view().times
    assert back.ended_at is None
    assert back.paused_at is not None
    assert back.paused_at >= done.ended_at


def test_a_running_run_says_which_node_runs(bench: Bench) -> None:
    flow, seen = wtb.Workflow("looking"), []

    @flow.node(start=True)
    def first(state: Any) -> dict[str, Any]:
        return {}

    @flow.node()
    def second(state: Any) -> dict[str, Any]:
        seen.append(bench.view("watched"))
        return {}

    flow.edge("first", "second")
    bench.run(flow, run_id="watched")
    (view,) = seen
    assert (view.current_nodes, view.times.ended_at) == (("second",), None)
    assert view.times.duration is not None


def test_a_rollback_that_waits_is_in_the_view(bench: Bench) -> None:
    def fails(call: Any) -> None:
        raise OSError("not now")

    send = wtb.tool(name="send", effects="external", reverse=fails)(lambda: "sent")
    flow = wtb.Workflow("sending")
    flow.add_node("begin", lambda state: {}, start=True)
    flow.add_node("send", lambda state, ctx: {"said": ctx.tool(send)})
    flow.edge("begin", "send")
    run = bench.run(flow)
    with pytest.raises(wtb.WTBError):
        run.rollback("begin")
    waiting = run.view().rollback
    assert waiting is not None
    assert (waiting.journal.direction, waiting.target.node) == (RollbackDirection.ROLLBACK, "begin")
    assert (waiting.done, [call.tool for call in waiting.left]) == ((), ["send"])


def test_a_history_is_paged_from_its_end_or_from_anywhere(bench: Bench) -> None:
    run = bench.run(looping(9))
    page = bench.services.queries.history_page
    last = page(run.id, limit=3)
    assert (steps(last), last.has_earlier, last.has_later) == ([7, 8, 9], True, False)
    assert [row.mark for row in last.rows] == [Mark.ON_LINE, Mark.ON_LINE, Mark.HEAD]
    before = page(run.id, before=7, limit=3)
    assert (steps(before), before.has_earlier, before.has_later) == ([4, 5, 6], True, True)
    after = page(run.id, after="write#6", limit=2)
    assert (steps(after), after.has_later) == ([7, 8], True)
    first = page(run.id, before=last.rows[0].checkpoint.id, limit=100)
    assert (steps(first), first.has_earlier) == ([0, 1, 2, 3, 4, 5, 6], False)
    assert steps(page(run.id, after=2, before=4, limit=9)) == [3]
    assert (steps(page(run.id, before=0)), steps(page(run.id, after=9))) == ([], [])
    assert [row.files for row in page(run.id, limit=2).rows] == [FileTotals(8, 36), FileTotals(9, 45)]


def test_all_lines_are_paged_with_what_a_rollback_left(bench: Bench) -> None:
    run = bench.run(looping(3))
    run.rollback("write#1")
    run.resume()
    queries = bench.services.queries
    every = list(queries.each_checkpoint(run.id, every=True))
    assert {row.checkpoint.id for row in every} == {checkpoint.id for checkpoint in run.history.checkpoints}
    assert sum(row.mark is Mark.LEFT for row in every) == 2
    page = queries.history_page(run.id, every=True, limit=4)
    pages = [page]
    while pages[0].has_earlier:
        pages.insert(0, queries.history_page(run.id, every=True, before=pages[0].rows[0].checkpoint.id, limit=4))
    assert [row for page in pages for row in page.rows] == every
    with pytest.raises(InvalidInput, match="before"):
        queries.history_page(run.id, every=True, after=1)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_whole_line_is_read_through_forks_however_long_its_pages_are(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    fork = bench.run(looping(4)).fork("write#2")
    fork.resume()
    monkeypatch.setattr(checkpoint_pages, "_PAGE", size)
    rows = list(bench.services.queries.each_checkpoint(fork.id))
    assert tuple(row.checkpoint for row in rows) == fork.history.lineage()
    every = list(bench.services.queries.each_checkpoint(fork.id, every=True))
    assert {row.checkpoint.id for row in every} == {checkpoint.id for checkpoint in fork.history.checkpoints}


def test_any_checkpoint_shows_its_state_and_files(bench: Bench) -> None:
    run = bench.run(looping(3))
    for target in (2, "2", "write#2", run.history.lineage()[2].id):
        found = run.at(target)
        assert (found.checkpoint.step, found.state, sorted(found.files)) == (2, {"n": 2}, ["1.txt", "2.txt"])
    assert run.at("write").state == {"n": 3}
    assert dict(run.at(0).files) == {}
    with pytest.raises(CheckpointNotFound):
        run.at(9)


def test_a_node_that_is_called_as_a_step_is_the_node(bench: Bench) -> None:
    flow = wtb.Workflow("numbers")
    flow.add_node("first", lambda state: {"at": "first"}, start=True)
    flow.add_node("1", lambda state: {"at": "1"})
    flow.edge("first", "1")
    assert bench.run(flow).at("1").state == {"at": "1"}


def test_events_are_paged_from_their_end_or_from_a_number(bench: Bench) -> None:
    run = bench.run(looping(3))
    every = run.all_events()
    page = partial(bench.services.queries.event_page, by="sequence")
    last = page(run.id, limit=3)
    assert (list(last.events), last.has_earlier, last.has_later) == (every[-3:], True, False)
    before = page(run.id, before=last.events[0].sequence, limit=2)
    assert (list(before.events), before.has_earlier, before.has_later) == (every[-5:-3], True, True)
    after = page(run.id, after=1, limit=2)
    assert (list(after.events), after.has_later) == (every[1:3], True)
    assert (
        list(page(run.id, types=[EventType.NODE_COMPLETED], limit=1).events)
        == [event for event in every if event.type is EventType.NODE_COMPLETED][-1:]
    )
    assert page(run.id, severities=[Severity.ERROR]).events == ()


def test_events_of_a_deleted_run_stay_readable(bench: Bench) -> None:
    run = bench.run(looping(), run_id="gone")
    run.delete()
    bench.run(looping(), run_id="gone-too")
    assert run.events()[-1].type is EventType.EXECUTION_DELETED
    with pytest.raises(ExecutionNotFound):
        _ = run.status  # the beginning of another id is not it
    assert bench.get("gone").id == "gone-too"


def test_workflows_are_listed_with_versions_and_runs(bench: Bench) -> None:
    began = datetime.now(UTC)
    bench.run(looping(1))
    bench.run(looping(2))
    bench.run(wtb.Workflow("looping", version="8").add_node("only", lambda state: {}, start=True))
    last = bench.run(wtb.Workflow("another").add_node("only", lambda state: {}, start=True))
    another, found = bench.list_workflows()
    assert (another.name, another.runs, another.last_run_at) == ("another", 1, last.execution.created_at)
    assert (found.name, found.versions, found.definitions, found.runs) == ("looping", ("7", "8"), 3, 3)
    assert began <= found.first_run_at <= found.last_run_at


def test_the_latest_events_of_this_process_are_remembered(bench: Bench) -> None:
    run = bench.run(looping(2))
    other = bench.run(looping(1))
    assert bench.events(run=run.id) == run.events()
    assert [event.stream for event in bench.events(types=["execution.completed"])] == [run.id, other.id]
    assert bench.events(limit=2) == other.events()[-2:]


def test_the_trail_of_a_batch_is_read_by_its_id(bench: Bench) -> None:
    result = bench.batch(looping(1), cases=[{"id": "a", "input": {}}], evaluators=[wtb.Steps()], workers=1)
    page = bench.services.queries.event_page(result.id)
    assert [event.type for event in page.events] == [EventType.BATCH_STARTED, EventType.BATCH_COMPLETED]
    assert [case.case_id for case in bench.services.queries.batch(result.batch.name).cases] == ["a"]


def test_a_run_with_the_id_of_a_deleted_one_has_times_of_its_own(bench: Bench) -> None:
    flow = looping(1)
    bench.run(flow, {}, run_id="again", break_before=["write"])
    bench.get("again").delete()
    bench.run(flow, {}, run_id="again", break_before=["write"])
    view = bench.services.queries.run("again")
    assert view.times.started_at is not None
    assert view.times.started_at >= view.execution.created_at
    assert len(bench.services.queries.timeline("again").pauses) == 1
