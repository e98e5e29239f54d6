"""The contract of BaselineRepository."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from wtb.domain.batch import Baseline, BatchStatus, Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.errors import BaselineNotFound, BatchNotFound
from wtb.domain.evaluation import Metric
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import JobRecord
from wtb.domain.ports import Clock, Storage
from wtb.testing.stories import StoryFixtures


class BaselineRepositoryContract(StoryFixtures):
    """What every repository of baselines does."""

    def test_a_baseline_comes_back_with_its_results_in_order(self, storage: Storage, clock: Clock) -> None:
        baseline, results = _baseline("main", clock), [_result(number) for number in (1, 0, 2)]
        _save(storage, baseline, results)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.baselines.get("main") == baseline
            assert uow.baselines.find("b1") == baseline
            assert uow.baselines.list_results("main") == tuple(_result(number) for number in range(3))

    def test_saving_a_name_again_replaces_the_baseline_and_all_its_results(
        self, storage: Storage, clock: Clock
    ) -> None:
        _save(storage, _baseline("main", clock), [_result(number) for number in range(3)])
        later = replace(_baseline("main", clock, results=1), batch_id="b2", created_at=clock.now() + timedelta(days=1))
        _save(storage, later, [replace(_result(0), batch_id="b2")])
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.baselines.list_baselines() == (later,)
            assert uow.baselines.list_results("main") == (replace(_result(0), batch_id="b2"),)
            assert uow.baselines.find("b1") is None

    def test_baselines_are_listed_by_name(self, storage: Storage, clock: Clock) -> None:
        for number, name in enumerate(("b", "Z", "ä", "a")):
            _save(storage, replace(_baseline(name, clock, results=0), batch_id=f"b{number}"), [])
        with storage.unit_of_work(readonly=True) as uow:
            assert [baseline.name for baseline in uow.baselines.list_baselines()] == ["Z", "a", "b", "ä"]

    def test_a_baseline_is_deleted_with_its_results_and_others_stay(self, storage: Storage, clock: Clock) -> None:
        _save(storage, _baseline("main", clock), [_result(number) for number in range(3)])
        other = replace(_baseline("other", clock, results=1), batch_id="b2")
        _save(storage, other, [replace(_result(0), batch_id="b2")])
        with storage.unit_of_work() as uow:
            uow.baselines.delete("main")
            uow.baselines.delete("nope")
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.baselines.list_baselines() == (other,)
            assert len(uow.baselines.list_results("other")) == 1
            assert uow.baselines.find("b1") is None
            with pytest.raises(BaselineNotFound):
                uow.baselines.list_results("main")

    def test_a_baseline_that_is_not_there_is_named_beside_those_that_are(self, storage: Storage, clock: Clock) -> None:
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(BaselineNotFound, match="no baseline 'nope'"):
            uow.baselines.get("nope")
        _save(storage, _baseline("main", clock, results=0), [])
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(BaselineNotFound, match="which has main"):
            uow.baselines.list_results("nope")

    def test_a_baseline_is_no_batch_and_its_results_are_no_jobs(self, storage: Storage, clock: Clock) -> None:
        _save(storage, _baseline("main", clock), [_result(number) for number in range(3)])
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.batches.list_batches() == ()
            assert uow.batches.list_jobs("b1") == ()
            with pytest.raises(BatchNotFound):
                uow.batches.get("b1")

    def test_its_results_can_be_read_as_a_batch(self, storage: Storage, clock: Clock) -> None:
        _save(storage, _baseline("main", clock), [_result(number) for number in range(3)])
        with storage.unit_of_work(readonly=True) as uow:
            batch = uow.baselines.get("main").as_batch(uow.baselines.list_results("main"))
        assert (batch.id, batch.workflow_name, batch.status) == ("b1", "support", BatchStatus.COMPLETED)


def _save(storage: Storage, baseline: Baseline, results: Sequence[Job]) -> None:
    with storage.unit_of_work() as uow:
        uow.baselines.save(baseline, results)
        uow.commit()


def _baseline(name: str, clock: Clock, *, results: int = 3) -> Baseline:
    return Baseline(
        name=name,
        batch_id="b1",
        workflow_name="support",
        combination="answer=long",
        record=BatchRecord(
            combinations=("answer=long",),
            baseline="answer=long",
            cases=("c0", "c1", "c2"),
            repeats=1,
            metrics=(Metric(name="f1"),),
            expected=b"\xc1\x00",
            pooled=("monday", "tuesday"),
            copies=("tuesday",),
        ),
        results=results,
        created_at=clock.now(),
    )


def _result(number: int) -> Job:
    return Job(
        batch_id="b1",
        number=number,
        combination="answer=long",
        case_id=f"c{number}",
        repeat=0,
        fingerprint=f"f{number}",
        status=JobStatus.COMPLETED,
        execution_id=ExecutionId(f"r{number}"),
        record=JobRecord(scores={"f1": number / 4}),
    )
