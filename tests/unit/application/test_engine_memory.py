"""The memory of an engine: a field of the snapshot, also where an earlier version stored it as a node's result."""

from collections.abc import Iterator
from typing import TypedDict

import pytest
from langgraph.graph import START, StateGraph

from wtb.bench import Bench
from wtb.domain.checkpoint import Snapshot
from wtb.domain.ids import ExecutionId
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve
from wtb.flow import Workflow
from wtb.infrastructure.system import Uuid7Ids


class Counted(TypedDict):
    """The state of the graph."""

    x: int


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as bench:
        yield bench


def head(bench: Bench, run_id: ExecutionId) -> Snapshot:
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        branch = uow.branches.get(uow.executions.get(run_id).branch_id)
        assert branch.head_id is not None
        return uow.checkpoints.load(branch.head_id)


def test_a_run_of_a_workflow_keeps_no_memory(bench: Bench) -> None:
    flow = Workflow("flow")
    flow.add_node("work", lambda state: {"x": 1}, start=True)
    found = head(bench, bench.run(flow, {}).id)
    assert (found.returned, found.memory) == ({"work": {"x": 1}}, None)


def test_the_memory_of_a_graph_is_no_result_of_a_node(bench: Bench) -> None:
    builder = StateGraph(Counted)
    builder.add_node("work", lambda state: {"x": 1})
    builder.add_edge(START, "work")
    found = head(bench, bench.run(builder.compile(), {"x": 0}).id)
    assert list(found.returned) == ["work"]
    assert found.memory is not None
    assert found.memory["step"] == 1


def test_a_memory_that_an_earlier_version_stored_beside_the_results_is_read(bench: Bench) -> None:
    flow = Workflow("flow")
    flow.add_node("work", lambda state: {"x": 1}, start=True)
    before = head(bench, bench.run(flow, {}).id)
    with bench.services.storage.unit_of_work() as uow:
        old = evolve(before.checkpoint, id=Uuid7Ids().new(), parent_id=before.checkpoint.id, step=9)
        stored = {"work": {"x": 2}, "langgraph:memory": {"step": 7}}
        found = uow.checkpoints.load(uow.checkpoints.save(old, StateDelta.setting({"x": 2}), stored).id)
    assert (found.returned, found.memory) == ({"work": {"x": 2}}, {"step": 7})
