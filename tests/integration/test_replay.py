"""Replay over every storage: the record against the workflow as it is now; no node runs, nothing is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

import wtb
from tests.run_writer import RunWriter
from wtb.bench import Bench
from wtb.domain.errors import DamagedData, InvalidInput, InvalidWorkflow
from wtb.domain.execution import ExecutionStatus
from wtb.domain.replay import Aspect, Difference, ReplayReport, ReplayVerdict
from wtb.domain.state import MISSING, StateDelta
from wtb.domain.values import evolve
from wtb.flow import Workflow
from wtb.infrastructure.checkpoints.cache import ManifestCache
from wtb.infrastructure.checkpoints.rows import row_of
from wtb.infrastructure.sql import tables
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.notebooks import KnownFlows
from wtb.runs import Run

SAME, DIFFERENT, TAKEN, UNKNOWN = (
    ReplayVerdict.SAME,
    ReplayVerdict.DIFFERENT,
    ReplayVerdict.TAKEN,
    ReplayVerdict.UNKNOWN,
)
FAILED, PAUSED, PENDING = ExecutionStatus.FAILED, ExecutionStatus.PAUSED, ExecutionStatus.PENDING

ran: list[str] = []
"""Every node of these tests says here that it ran."""


def node(name: str, update: Mapping[str, Any] | Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    def run(state: Any) -> Any:
        ran.append(name)
        return update(state) if callable(update) else update

    return run


def chain(**updates: Any) -> Workflow:
    flow = Workflow("chain")
    for position, (name, update) in enumerate(updates.items()):
        flow.add_node(name, node(name, update), start=position == 0)
    for source, target in itertools.pairwise(updates):
        flow.edge(source, target)
    return flow


def loop(when: Any = "n < 4", reducer: Any = wtb.add) -> Workflow:
    flow = Workflow("loop")
    flow.add_node("tick", node("tick", {"n": 1, "last": "tick"}), start=True)
    flow.add_node("done", node("done"))
    flow.edge("tick", "tick", when=when).edge("tick", "done", otherwise=True)
    return flow.reducer("n", reducer)


def uneven(*members: str, join: tuple[str, ...] = ("late", "right"), log: Any = wtb.append) -> Workflow:
    """Two branches of different length that meet: the join waits for one of them."""
    flow = Workflow("uneven")
    flow.add_node("start", node("start", {"log": ["start"]}), start=True)
    for member in members or ("left", "right"):
        flow.add_node(member, node(member, {"log": [member]})).edge("start", member)
    flow.add_node("late", node("late", {"log": ["late"]})).edge("left", "late")
    flow.add_node("end", node("end", {"log": ["end"]})).edge(join, "end")
    return flow if log is None else flow.reducer("log", log)


def record(run: Run) -> tuple[Any, ...]:
    with run._bench.services.storage.unit_of_work(readonly=True) as uow:
        return (
            uow.executions.get(run.id),
            uow.checkpoints.load_history(run.id),
            [uow.checkpoints.load(checkpoint.id) for checkpoint in uow.checkpoints.list_infos(run.id)],
            uow.tool_calls.list_calls(run.id),
            uow.events.list_events(limit=100_000),
        )


def replayed(run: Run, flow: Workflow | None = None) -> ReplayReport:
    """Replay, and see that no node ran and that the record is what it was."""
    before, calls = record(run), list(ran)
    report = run.replay(flow)
    assert ran == calls, "a replay ran a node"
    assert record(run) == before, "a replay wrote something"
    return report


def verdicts(report: ReplayReport) -> list[ReplayVerdict]:
    return [step.verdict for step in report.steps]


def only(report: ReplayReport) -> Difference:
    (difference,) = report.differences
    return difference


def test_a_chain_is_the_same_as_it_was_recorded(bench: Bench) -> None:
    run = bench.run(chain(one={"a": 1}, two=lambda state: {"b": state["a"] + 1}, three=None), {"zero": 0})
    report = replayed(run)
    assert report.same
    assert verdicts(report) == [SAME] * 4
    assert [step.visits for step in report.steps] == [(), (("one", 1),), (("two", 1),), (("three", 1),)]
    assert [step.checkpoint_id for step in report.steps] == [checkpoint.id for checkpoint in run.checkpoints]


def test_a_loop_is_replayed_visit_by_visit(bench: Bench) -> None:
    report = replayed(bench.run(loop(), {"n": 0}))
    assert report.same
    assert [step.visits[0] for step in report.steps[1:]] == [*(("tick", visit) for visit in range(1, 5)), ("done", 1)]


def test_parallel_branches_and_a_join_that_waits_are_the_same(bench: Bench) -> None:
    run = bench.run(uneven(), {})
    assert any(checkpoint.joins for checkpoint in run.checkpoints)
    report = replayed(run)
    assert report.same
    assert report.steps[2].visits == (("left", 1), ("right", 1))


def test_every_kind_of_value_and_a_removed_key_are_the_same(bench: Bench) -> None:
    values = {"when": datetime(2026, 1, 1, tzinfo=UTC), "set": {2, 1}, "deep": [{"b": (1.0, None), "a": b"x"}]}
    flow = chain(one=values, two={"m": {"z": 1}}, three={"m": {"a": 2}, "deep": wtb.DELETE})
    flow.reducer("m", wtb.merge)
    run = bench.run(flow, {})
    assert list(run.state["m"]) == ["z", "a"]
    assert replayed(run).same


def test_what_a_person_changed_is_taken_as_it_was_recorded(bench: Bench) -> None:
    flow = chain(one={"a": 1}, two=lambda state: {"b": state["a"] + 1})
    run = bench.run(flow, {}, break_before=["two"]).resume(update={"a": 10})
    assert run.state == {"a": 10, "b": 11}
    assert verdicts(replayed(run)) == [SAME, SAME, TAKEN, SAME]


@pytest.mark.parametrize(("broken", "status"), [(lambda state: 1 / 0, FAILED), (None, PAUSED)])
def test_a_run_that_did_not_finish_is_replayed_as_far_as_it_came(bench: Bench, broken: Any, status: Any) -> None:
    run = bench.run(chain(one={"a": 1}, two=broken), {}, break_before=[] if broken else ["two"])
    assert run.status is status
    assert verdicts(replayed(run)) == [SAME, SAME]


def test_a_run_that_waits_for_an_answer_or_was_never_begun_is_replayed(bench: Bench) -> None:
    flow = chain(one={"a": 1})
    flow.add_node("ask", lambda state, ctx: {"answer": ctx.ask("Well?")}).edge("one", "ask")
    waiting = bench.run(flow, {})
    assert verdicts(replayed(waiting)) == [SAME, SAME]
    assert replayed(waiting.resume(answer="yes")).same
    pending = bench.create(flow, {})
    assert (pending.status, verdicts(replayed(pending))) == (PENDING, [SAME])


def test_a_changed_condition_differs_where_it_decides_otherwise_and_nowhere_else(bench: Bench) -> None:
    run = bench.run(loop("n < 4"), {"n": 0})
    report = replayed(run, loop("n < 4 && n != 2"))
    assert verdicts(report) == [SAME, SAME, DIFFERENT, SAME, SAME, SAME]
    found = only(report)
    assert (found.step, found.nodes, found.aspect) == (2, ("tick",), Aspect.NEXT_NODES)
    assert (found.recorded, found.replayed, found.error) == (("tick",), ("done",), None)


def test_a_changed_reducer_differs_in_each_step_from_the_record_and_not_from_itself(bench: Bench) -> None:
    run = bench.run(loop(), {"n": 0})
    report = replayed(run, loop(reducer=lambda old, new: old + 2 * new))
    values = [(found.key, found.recorded, found.replayed) for found in report.differences if found.key]
    assert values == [("n", 1, 2), ("n", 2, 3), ("n", 3, 4), ("n", 4, 5)]
    (route,) = [found for found in report.differences if found.aspect is Aspect.NEXT_NODES]
    assert (route.step, route.recorded, route.replayed) == (3, ("tick",), ("done",)), "routed by what it gives now"


def test_a_record_that_does_not_follow_from_its_own_results_differs(bench: Bench) -> None:
    flow = chain(one={"a": 1})
    recorder = RunWriter(bench.services.storage, bench.services.clock, bench.services.ids)
    at = recorder.start(flow.to_dict(), {"c": 3}, next_nodes=("one",))
    recorder.complete(at, recorder.node_run(at, "one", 1), StateDelta.setting({"b": 2}), returned={"a": 1})
    found = replayed(bench.get(at.execution.id), flow).differences
    assert [(each.key, each.recorded, each.replayed) for each in found] == [("a", MISSING, 1), ("b", 2, MISSING)]


def test_results_that_were_not_recorded_cannot_be_told(bench: Bench) -> None:
    flow = chain(one={"a": 1})
    recorder = RunWriter(bench.services.storage, bench.services.clock, bench.services.ids)
    at = recorder.start(flow.to_dict(), {}, next_nodes=("one",))
    recorder.complete(at, recorder.node_run(at, "one", 1), StateDelta.setting({"a": 1}))
    assert verdicts(replayed(bench.get(at.execution.id), flow)) == [SAME, UNKNOWN]


def test_another_order_of_definition_shows_in_the_state(bench: Bench) -> None:
    run = bench.run(uneven("left", "right"), {})
    found = only(replayed(run, uneven("right", "left")))
    assert (found.step, found.nodes, found.key) == (2, ("right", "left"), "log")
    assert (found.recorded, found.replayed) == (["start", "left", "right"], ["start", "right", "left"])


def test_a_join_that_waits_for_others_differs(bench: Bench) -> None:
    run = bench.run(uneven(), {})
    report = replayed(run, uneven(join=("left", "right")))
    first, second = [found for found in report.differences if found.step == 2]
    assert (first.aspect, first.recorded, first.replayed) == (Aspect.NEXT_NODES, ("late",), ("late", "end"))
    assert (second.aspect, second.recorded, second.replayed) == (Aspect.JOINS, {"[late, right] -> end": ("right",)}, {})
    assert [found.aspect for found in report.differences if found.step == 3] == [Aspect.NEXT_NODES, Aspect.JOINS]


def test_a_node_that_is_gone_is_named_and_the_rest_is_replayed(bench: Bench) -> None:
    run = bench.run(chain(one={"a": 1}, two={"b": 2}, three={"c": 3}), {})
    report = replayed(run, chain(one=None, second=None, three=None))
    assert verdicts(report) == [SAME, DIFFERENT, DIFFERENT, SAME]
    route, gone = report.differences
    assert (route.recorded, route.replayed) == (("two",), ("second",))
    assert (gone.aspect, gone.recorded) == (Aspect.NODE, "two")
    assert gone.error == "the workflow has no node 'two'; it has one, second, three"


def test_another_entry_differs_at_the_input(bench: Bench) -> None:
    run = bench.run(chain(one=None), {})
    first = replayed(run, chain(zero=None, one=None)).differences[0]
    assert (first.step, first.nodes, first.recorded, first.replayed) == (0, (), ("one",), ("zero",))


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("missing > 1", "InvalidCondition: edge tick -> tick"),
        (lambda state: 1 / 0, "InvalidCondition: edge tick -> tick: its function raised ZeroDivisionError"),
        (lambda state: "yes", "must return True or False"),
    ],
)
def test_a_condition_that_raises_now_is_a_difference(bench: Bench, when: Any, said: str) -> None:
    run = bench.run(loop("n < 2"), {"n": 0})
    report = replayed(run, loop(when))
    assert verdicts(report) == [SAME, DIFFERENT, DIFFERENT, SAME]
    first, second = report.differences
    assert (first.recorded, second.recorded) == (("tick",), ("done",))
    assert all(found.error is not None and said in found.error for found in (first, second))


def fails(old: Any, new: Any) -> Any:
    raise OSError("no reducing today")


@pytest.mark.parametrize(
    ("reducer", "said"),
    [(fails, "OSError: no reducing today"), (lambda old, new: fails, "StateNotSerialisable: state.n")],
)
def test_a_reducer_that_cannot_give_a_state_now_is_a_difference(bench: Bench, reducer: Any, said: str) -> None:
    run = bench.run(loop("last.n == 2"), {"n": 0})
    found = only(replayed(run, loop("last.n == 2", reducer)))
    assert (found.step, found.aspect, found.replayed) == (1, Aspect.STATE, MISSING)
    assert found.error is not None
    assert said in found.error


def test_where_a_reducer_raises_the_way_on_is_that_of_the_recorded_state(bench: Bench) -> None:
    run = bench.run(loop("n < 2"), {"n": 0})
    assert [found.aspect for found in replayed(run, loop("n < 2", fails)).differences] == [Aspect.STATE, Aspect.STATE]


def test_members_that_now_write_one_key_without_a_reducer_are_a_difference(bench: Bench) -> None:
    run = bench.run(uneven(), {})
    report = replayed(run, uneven(log=None))
    refused = report.steps[2].differences[0]
    assert refused.recorded == {"log": ["start", "left", "right"]}
    assert refused.error is not None
    assert "'left' and 'right' of one superstep both write 'log'" in refused.error


def test_the_active_branch_is_replayed_with_what_it_shares(bench: Bench) -> None:
    flow = chain(one={"a": 1}, two=lambda state: {"b": state["a"]}, three={"c": 3})
    run = bench.run(flow, {}, break_before=["three"])
    recorder = RunWriter(bench.services.storage, bench.services.clock, bench.services.ids)
    recorder.fork(recorder.load(run.id), run.checkpoints[1].id, "other")
    run = run.resume(update={"a": 5}, break_before=[])
    report = replayed(run)
    assert (run.state["b"], verdicts(report)) == (5, [SAME, SAME, TAKEN, SAME, SAME])
    assert run.returned == {"one": [{"a": 1}], "two": [{"b": 5}], "three": [{"c": 3}]}


def test_steps_at_a_deleted_checkpoint_cannot_be_told(bench: Bench) -> None:
    run = bench.run(loop(), {"n": 0})
    with bench.services.storage.unit_of_work() as uow:
        uow.checkpoints.delete([run.checkpoints[2].id])
        uow.commit()
    report = replayed(run)
    assert verdicts(report) == [SAME, SAME, UNKNOWN, UNKNOWN, SAME, SAME]
    assert (report.same, report.steps[2].visits) == (True, (("tick", 2),))


def test_a_workflow_with_faults_is_refused(bench: Bench) -> None:
    run = bench.run(chain(one=None), {})
    with pytest.raises(InvalidWorkflow, match="'two' cannot be reached"):
        run.replay(chain(one=None).add_node("two", node("two")))


def test_a_workflow_that_cannot_be_found_must_be_passed(bench: Bench) -> None:
    run = bench.run(chain(one=None), {})
    bench._flows = KnownFlows()  # as in a new process
    with pytest.raises(InvalidInput, match=r"pass it: run\.replay\(flow\)"):
        bench.get(run.id).replay()


@contextmanager
def rows_of(bench: Bench) -> Any:
    storage = bench.services.storage
    assert isinstance(storage, SqlStorage)
    with storage.database.engine.begin() as connection:
        yield connection
    storage._manifests = ManifestCache()


@pytest.mark.parametrize("bench", ["sqlite", "postgres"], indirect=True)
def test_a_damaged_step_is_found(bench: Bench) -> None:
    run = bench.run(chain(one={"a": 1}, two={"b": 2}, three={"c": 3}), {})
    damaged = run.checkpoints[1].id
    with rows_of(bench) as connection:
        connection.execute(sa.update(tables.checkpoints).filter_by(id=damaged).values(payload=b"x" * 40))
    with pytest.raises(DamagedData, match=damaged):
        run.replay()


@pytest.mark.parametrize("bench", ["sqlite", "postgres"], indirect=True)
def test_a_step_that_was_replaced_breaks_the_chain(bench: Bench) -> None:
    run = bench.run(chain(one={"a": 1}, two={"b": 2}), {})
    replaced, child = run.checkpoints[1:]
    with rows_of(bench) as connection:
        (row,) = connection.execute(sa.select(tables.checkpoints).filter_by(id=replaced.id)).all()
        forged = row_of(
            bench.services.codec,
            evolve(replaced, description="forged"),
            state_hash=row.state_hash,
            returned_hash=row.returned_hash,
            parent_hash=row.parent_hash,
            size=row.size_bytes,
        )
        statement = sa.update(tables.checkpoints).filter_by(id=replaced.id)
        connection.execute(statement.values(description="forged", hash=forged.hash))
    with pytest.raises(DamagedData, match=f"{child.id}.*does not follow the one before it"):
        run.replay()
