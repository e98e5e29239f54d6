"""MemoryTelemetry, and the places where WTB measures."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wtb.bench import Bench
from wtb.bootstrap import bootstrap
from wtb.domain.ports.telemetry import Measure
from wtb.domain.workflow import END
from wtb.flow import Workflow
from wtb.infrastructure.telemetry import Measurement, MemoryTelemetry
from wtb.settings import load_settings


def calling() -> Workflow:
    flow = Workflow("flow")
    flow.add_node("one", lambda state, ctx: {"n": ctx.step("roll", lambda: 4)}, start=True)
    flow.add_node("two", lambda state: {"m": 1})
    flow.edge("one", "two")
    flow.edge("two", END)
    return flow


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.fixture
def bench(telemetry: MemoryTelemetry, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench("memory://")
    bench.services.close()
    bench.services = bootstrap(load_settings(folder=tmp_path / "folder"), telemetry=telemetry)
    with bench:
        yield bench


def test_it_adds_up_by_measure_and_name(telemetry: MemoryTelemetry) -> None:
    telemetry.count(Measure.CALL, "a", amount=3)
    telemetry.count(Measure.CALL, "b")
    telemetry.count(Measure.JOB, "a")
    assert telemetry.by_name(Measure.CALL) == {"a": Measurement(count=3), "b": Measurement(count=1)}
    assert telemetry.total(Measure.CALL).count == 4
    assert telemetry.total(Measure.SWEEP) == Measurement()


def test_it_times_spans_and_counts_those_that_an_exception_ends(telemetry: MemoryTelemetry) -> None:
    with telemetry.span(Measure.NODE, "a"):
        pass
    with pytest.raises(ValueError, match="no"), telemetry.span(Measure.NODE, "a"):
        raise ValueError("no")
    found = telemetry.total(Measure.NODE)
    assert (found.count, found.raised) == (2, 1)
    assert 0 < found.longest_s <= found.total_s


def counts(telemetry: MemoryTelemetry, measure: Measure) -> dict[str, int]:
    return {name: found.count for name, found in telemetry.by_name(measure).items()}


def test_a_run_is_measured_by_step_save_node_and_call(bench: Bench, telemetry: MemoryTelemetry) -> None:
    bench.run(calling(), {})
    assert counts(telemetry, Measure.STEP) == {"flow": 2}
    assert counts(telemetry, Measure.SAVE) == {"flow": 2}
    assert counts(telemetry, Measure.NODE) == {"one": 1, "two": 1}
    assert counts(telemetry, Measure.CALL) == {"roll": 1}


def test_a_call_whose_result_is_recorded_is_not_counted_again(bench: Bench, telemetry: MemoryTelemetry) -> None:
    tries: list[int] = []

    def fail_once(state: Any, ctx: Any) -> dict[str, Any]:
        found = ctx.step("roll", lambda: 4)
        tries.append(found)
        if len(tries) == 1:
            raise OSError("not now")
        return {"n": found}

    flow = Workflow("flow")
    flow.add_node("work", fail_once, start=True, retry=2)
    bench.run(flow, {})
    found = telemetry.by_name(Measure.NODE)["work"]
    assert (found.count, found.raised) == (2, 1)
    assert counts(telemetry, Measure.CALL) == {"roll": 1}


def test_an_async_call_is_measured(bench: Bench, telemetry: MemoryTelemetry) -> None:
    async def roll() -> int:
        return 4

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        return {"n": await ctx.astep("roll", roll), "m": await ctx.astep("sync", lambda: 5)}

    flow = Workflow("flow")
    flow.add_node("work", work, start=True)
    assert bench.run(flow, {}).state == {"n": 4, "m": 5}
    assert counts(telemetry, Measure.CALL) == {"roll": 1, "sync": 1}


def test_everything_that_can_be_measured_is(bench: Bench, telemetry: MemoryTelemetry) -> None:
    run = bench.run(calling(), {})
    run.rollback("one")
    run.redo()
    bench.batch(calling(), cases=[{"id": "a", "input": {}}], evaluators=["steps"], name="batch")
    bench.services.retention.sweep()
    only_elsewhere = {
        Measure.FAILED,
        Measure.BATCH_FAILED,
        Measure.WORKERS,
        Measure.CONNECTIONS,
        Measure.RETRY,
    }  # connections are those of Postgres, and a retry needs an outage: see test_lost_connections
    assert {measure for measure in Measure if telemetry.total(measure).count} == set(Measure) - only_elsewhere
    assert counts(telemetry, Measure.COMPLETED) == {"baseline": 1}
    assert counts(telemetry, Measure.BATCH) == {"batch": 1}
    assert counts(telemetry, Measure.BATCH_COMPLETED) == {"batch": 1}
    assert counts(telemetry, Measure.ROLLBACK) == {"rollback": 1, "redo": 1}
    assert counts(telemetry, Measure.JOB) == {"baseline": 1}
    assert set(counts(telemetry, Measure.POOL)) == {"read", "write"}


def failing(state: Any) -> dict[str, Any]:
    raise ValueError("no")


def test_a_batch_counts_once_as_failed_or_completed_and_not_at_all_if_it_was_stopped(
    bench: Bench, telemetry: MemoryTelemetry
) -> None:
    flow = Workflow("failing")
    flow.add_node("fail", failing, start=True)
    bench.batch(flow, cases=[{"id": "a", "input": {}}], evaluators=["steps"])
    stop = threading.Event()
    stop.set()
    bench.batch(calling(), cases=[{"id": "a", "input": {}}], evaluators=["steps"], stop=stop)
    assert counts(telemetry, Measure.BATCH_FAILED) == {"failing": 1}
    assert counts(telemetry, Measure.BATCH_COMPLETED) == {}


def test_the_bytes_of_checkpoints_are_those_that_the_history_shows(bench: Bench, telemetry: MemoryTelemetry) -> None:
    run = bench.run(calling(), {"text": "x" * 500})
    stored = [checkpoint.size_bytes for checkpoint in run.history.checkpoints if checkpoint.step]
    assert counts(telemetry, Measure.CHECKPOINT_BYTES) == {"flow": sum(stored)}


def test_the_last_level_counts(telemetry: MemoryTelemetry) -> None:
    telemetry.level(Measure.CONNECTIONS, "host/1", 3)
    telemetry.level(Measure.CONNECTIONS, "host/2", 1)
    telemetry.level(Measure.CONNECTIONS, "host/1", 2)
    assert telemetry.levels(Measure.CONNECTIONS) == {"host/1": 2, "host/2": 1}


def test_a_bench_measures_nothing_unless_it_is_told_to() -> None:
    with bootstrap(load_settings(url="memory://")) as services:
        assert not services.telemetry.is_on
