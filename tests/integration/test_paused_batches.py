"""A batch that nobody runs any more is shown as paused, although nobody could store that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import wtb
from wtb.application.runs.leases import LEASE
from wtb.domain.batch import SILENT_AFTER, BatchDriver, BatchStatus, JobStatus
from wtb.domain.errors import DatabaseAway, InvalidInput
from wtb.domain.execution import ExecutionStatus
from wtb.infrastructure.owners import ProcessOwners

ELSEWHERE = "other-12345678:1/23/456"
HERE = ProcessOwners().me().partition("/")[0]
GONE = f"{HERE}/999999/1"


def greeting() -> wtb.Workflow:
    flow = wtb.Workflow("greeting")
    flow.add_node("greet", lambda state: {"said": "hello"}, start=True)
    return flow


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as bench:
        yield bench


def run_batch(bench: wtb.Bench, **options: Any) -> Any:
    cases = [{"id": "one", "input": {}}, {"id": "two", "input": {}}]
    return bench.batch(greeting(), cases=cases, evaluators=["steps"], workers=1, **options)


def left_running(bench: wtb.Bench, owner: str, silent_for: timedelta = timedelta()) -> Any:
    """Return a finished batch that is stored as if this process were running its second job."""
    result = run_batch(bench)
    with bench.services.storage.unit_of_work() as uow:
        uow.batches.save(result.batch.moved_to(BatchStatus.RUNNING, result.batch.updated_at))
        uow.batches.note_driver(result.id, BatchDriver(owner=owner, seen_at=uow.now() - silent_for))
        uow.commit()
    return result


def test_a_batch_is_running_while_it_runs_and_in_all_that_it_calls(bench: wtb.Bench) -> None:
    seen: list[str] = []

    def look(_: Any) -> None:
        seen.append(bench.batch_status("greeting").batch.status)

    assert run_batch(bench, on_planned=look, on_progress=look).status == "completed"
    assert set(seen) == {"running"}
    assert len(seen) >= 3


@pytest.mark.parametrize(
    ("owner", "silent_for", "reason"),
    [
        (GONE, timedelta(), "is gone"),
        (ELSEWHERE, SILENT_AFTER + timedelta(seconds=1), "has been silent"),
        (ProcessOwners().me(), timedelta(), "no longer runs it"),
    ],
    ids=["gone", "silent", "here"],
)
def test_a_batch_whose_process_is_gone_or_silent_is_paused(
    bench: wtb.Bench, owner: str, silent_for: timedelta, reason: str
) -> None:
    result = left_running(bench, owner, silent_for)
    found = bench.batch_status("greeting")
    assert found.to_data()["status"] == "paused"
    assert found.to_data()["lost_driver"]["reason"] == reason
    assert f" {reason}, last heard of at 20" in str(found.lost_driver)
    assert bench.get_batch(result.id).status == "paused"
    assert [batch.status for batch in bench.list_batches()] == ["paused"]
    assert run_batch(bench).status == "completed"
    assert bench.batch_status("greeting").lost_driver is None


def test_a_batch_whose_process_reported_a_moment_ago_is_running(bench: wtb.Bench) -> None:
    left_running(bench, ELSEWHERE, SILENT_AFTER - timedelta(seconds=5))
    found = bench.batch_status("greeting")
    assert (found.batch.status, found.lost_driver) == ("running", None)


@pytest.mark.parametrize(("runs_job", "status"), [(ELSEWHERE, "running"), (GONE, "paused")], ids=["elsewhere", "gone"])
def test_a_batch_is_running_as_long_as_a_living_process_runs_one_of_its_jobs(
    bench: wtb.Bench, runs_job: str, status: str
) -> None:
    result = left_running(bench, GONE)
    with bench.services.storage.unit_of_work() as uow:
        job = uow.batches.list_jobs(result.id)[0]
        uow.batches.save_jobs([job.ended(JobStatus.PENDING, job.execution_id, job.record)])
        assert job.execution_id is not None
        run = uow.executions.get(job.execution_id)
        for way in (ExecutionStatus.ROLLING_BACK, ExecutionStatus.PAUSED):
            run = run.moved_to(way, uow.now())
            uow.executions.save(run)
        uow.executions.save(run.moved_to(ExecutionStatus.RUNNING, uow.now()).owned(runs_job, uow.now(), LEASE))
        uow.commit()
    found = bench.batch_status("greeting")
    assert (found.batch.status, len(found.running)) == (status, int(status == "running"))


def test_a_paused_batch_can_be_cancelled_and_deleted(bench: wtb.Bench) -> None:
    left_running(bench, GONE)
    assert bench.cancel_batch("greeting").status == "cancelled"
    left_running(bench, GONE)
    bench.delete_batch("greeting")
    assert bench.list_batches() == ()


def test_a_cancelled_batch_is_deleted_only_when_its_process_has_finished_its_jobs(bench: wtb.Bench) -> None:
    result = left_running(bench, ELSEWHERE)
    bench.cancel_batch("greeting")
    with pytest.raises(InvalidInput, match="still finishes the jobs that it had begun"):
        bench.delete_batch("greeting")
    with bench.services.storage.unit_of_work() as uow:
        uow.batches.note_driver(result.id, BatchDriver(owner=GONE, seen_at=uow.now()))
        uow.commit()
    bench.delete_batch("greeting")
    assert bench.list_batches() == ()


def test_an_outage_that_ends_a_batch_pauses_it_even_if_the_database_is_back_at_once(bench: wtb.Bench) -> None:
    def lose(_: Any) -> None:
        raise DatabaseAway("the database is away")

    with pytest.raises(DatabaseAway):
        run_batch(bench, on_progress=lose)
    assert bench.get_batch("greeting").status == "paused"
    assert run_batch(bench).status == "completed"
