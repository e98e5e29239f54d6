"""Starting a run: `bench.run` goes through one door and does each piece of work once."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from wtb.bench import Bench
from wtb.domain.engine import Engine, Runs
from wtb.domain.ports import UnitOfWork
from wtb.domain.workflow import END, WorkflowDefinition
from wtb.flow import Workflow
from wtb.infrastructure.conditions.cel import CelConditions
from wtb.infrastructure.state_adapters.native import NativeEngine


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as bench:
        yield bench


def one_node() -> Workflow:
    flow = Workflow("flow")
    flow.add_node("work", lambda state: {"n": state["n"] + 1}, start=True)
    flow.edge("work", END)
    return flow


class CountedWorkflow(Workflow):
    """A workflow that counts the engines that are built for it."""

    engines = 0

    def definition(self) -> WorkflowDefinition:
        return replace(super().definition(), engine=self._engine)

    def _engine(self, definition: WorkflowDefinition, runs: Runs) -> Engine:
        self.engines += 1
        return NativeEngine(definition, CelConditions(), runs)  # type: ignore[arg-type]


def test_bench_run_builds_one_engine(bench: Bench) -> None:
    flow = CountedWorkflow("flow")
    flow.add_node("work", lambda state: {"n": 1}, start=True)
    assert bench.run(flow, {"n": 0}).status == "completed"
    assert flow.engines == 1


def test_bench_run_reads_nothing_back_that_it_has_just_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bool] = []
    open_unit = bench.services.storage.unit_of_work

    def counted(*, readonly: bool = False) -> UnitOfWork:
        opened.append(readonly)
        return open_unit(readonly=readonly)

    monkeypatch.setattr(bench.services.storage, "unit_of_work", counted)
    run = bench.run(one_node(), {"n": 0})
    assert opened
    assert not any(opened)
    assert run.state == {"n": 1}


def test_a_run_of_one_node_takes_two_transactions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first records the run with its input and its lease, the second its step and its end."""
    opened: list[bool] = []
    open_unit = bench.services.storage.unit_of_work

    def counted(*, readonly: bool = False) -> UnitOfWork:
        opened.append(readonly)
        return open_unit(readonly=readonly)

    monkeypatch.setattr(bench.services.storage, "unit_of_work", counted)
    bench.run(one_node(), {"n": 0})
    assert opened == [False, False]


def test_bench_run_parses_each_condition_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = one_node()
    checked: list[str] = []
    validate = WorkflowDefinition.validate

    def counted(definition: WorkflowDefinition, *args: Any) -> None:
        checked.append(definition.name)
        validate(definition, *args)

    monkeypatch.setattr(WorkflowDefinition, "validate", counted)
    bench.run(flow, {"n": 0})
    assert checked == ["flow"]


def test_a_run_keeps_its_own_copy_of_the_input(bench: Bench) -> None:
    given: dict[str, Any] = {"items": [{"n": 1}]}

    def spoil(state: Any) -> dict[str, Any]:
        given["items"][0]["n"] = 99
        given["items"].append("more")
        return {}

    flow = Workflow("flow")
    flow.add_node("spoil", spoil, start=True)
    flow.add_node("read", lambda state: {"seen": state["items"]})
    flow.edge("spoil", "read")
    flow.edge("read", END)
    run = bench.run(flow, given)
    assert run.state == {"items": [{"n": 1}], "seen": [{"n": 1}]}


def test_a_created_run_and_a_started_run_leave_the_same_record(bench: Bench) -> None:
    flow = one_node()
    started = bench.run(flow, {"n": 0}, metadata={"a": 1}, created_by="me", break_before=["work"])
    created = bench.create(flow, {"n": 0}, metadata={"a": 1}, created_by="me", break_before=["work"]).resume()
    one, two = started.execution, created.execution
    assert (one.status, one.pause, one.options, one.metadata, one.version) == (
        two.status,
        two.pause,
        two.options,
        two.metadata,
        two.version,
    )
    assert [event.type for event in started.events()] == [event.type for event in created.events()]
    assert started.resume().state == created.resume().state == {"n": 1}


def test_a_run_that_was_started_pauses_at_its_first_breakpoint_and_goes_on(bench: Bench) -> None:
    run = bench.run(one_node(), {"n": 0}, break_before=["work"])
    assert run.status == "paused"
    assert run.resume().state == {"n": 1}
