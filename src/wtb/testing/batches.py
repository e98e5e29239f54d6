"""The contract of BatchRepository."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from wtb.domain.batch import Batch, BatchDriver, BatchStatus, Job, JobStatus
from wtb.domain.batch_record import BatchRecord, MadeOf
from wtb.domain.errors import BatchNotFound
from wtb.domain.evaluation import Metric
from wtb.domain.execution import Failure
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import JobRecord
from wtb.domain.observation import Window
from wtb.domain.ports import Clock, Storage
from wtb.domain.spending import Spent
from wtb.testing.stories import StoryFixtures


class BatchRepositoryContract(StoryFixtures):
    """What every repository of batch tests does."""

    def test_a_batch_comes_back_as_it_was_and_as_it_became(self, storage: Storage, clock: Clock) -> None:
        batch = _batch("b1", clock)
        for stage in (batch, batch.moved_to(BatchStatus.COMPLETED, clock.now() + timedelta(seconds=1))):
            with storage.unit_of_work() as uow:
                uow.batches.save(stage)
                uow.commit()
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.batches.get("b1") == stage

    def test_the_seconds_of_a_batch_never_become_fewer(self, storage: Storage, clock: Clock) -> None:
        batch = replace(_batch("b1", clock), spent_s=1.5)
        with storage.unit_of_work() as uow:
            uow.batches.save(batch)
            uow.batches.save(replace(batch, id="b2"))
            uow.batches.took("nope", 9.0)
            uow.commit()
        for told_s, known_s in ((2.25, 2.25), (2.0, 2.25), (3.0, 3.0)):
            with storage.unit_of_work() as uow:
                uow.batches.took("b1", told_s)
                uow.batches.save(batch)  # as it was when somebody else read it
                uow.commit()
            with storage.unit_of_work(readonly=True) as uow:
                assert (uow.batches.get("b1").spent_s, uow.batches.get("b2").spent_s) == (known_s, 1.5)

    def test_a_batch_keeps_its_last_driver_whoever_saves_it(self, storage: Storage, clock: Clock) -> None:
        batch = _batch("b1", clock)
        first = BatchDriver(owner="host:1/2/3", seen_at=clock.now())
        with storage.unit_of_work() as uow:
            uow.batches.save(batch)
            uow.batches.note_driver("b1", first)
            uow.batches.note_driver("nope", first)
            uow.commit()
        second = BatchDriver(owner="host:1/4/5", seen_at=clock.now() + timedelta(seconds=1))
        for driver in (first, second):
            with storage.unit_of_work() as uow:
                uow.batches.note_driver("b1", driver)
                uow.batches.save(batch)  # as it was when somebody else read it
                uow.commit()
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.batches.get("b1") == replace(batch, driver=driver)
                assert uow.batches.list_batches() == (replace(batch, driver=driver),)

    def test_batches_are_listed_newest_first_and_by_name(self, storage: Storage, clock: Clock) -> None:
        first = _batch("b1", clock)
        second = replace(first, id="b2", name="other", created_at=first.created_at + timedelta(seconds=1))
        with storage.unit_of_work() as uow:
            uow.batches.save(first)
            uow.batches.save(second)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.batches.list_batches() == (second, first)
            assert uow.batches.list_batches(limit=1) == (second,)
            assert uow.batches.list_batches(name="qa") == (first,)
            assert uow.batches.list_batches(before=(second.created_at, second.id)) == (first,)
            assert uow.batches.list_batches(before=(first.created_at, first.id)) == ()

    def test_a_batch_that_is_not_there_is_named(self, storage: Storage) -> None:
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(BatchNotFound, match="'nope'"):
            uow.batches.get("nope")

    def test_jobs_come_back_in_order_and_as_they_ended(self, storage: Storage) -> None:
        jobs = [_job(number) for number in (1, 0)]
        ended = jobs[0].ended(JobStatus.COMPLETED, ExecutionId("r1"), _RECORD)
        with storage.unit_of_work() as uow:
            uow.batches.save_jobs(jobs)
            uow.batches.save_jobs([ended])
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.batches.list_jobs("b1") == (jobs[1], ended)
            assert uow.batches.list_jobs("b2") == ()

    def test_the_digest_of_jobs_differs_after_every_change(self, storage: Storage) -> None:
        jobs = [_job(number) for number in (0, 1)]
        ended = jobs[0].ended(JobStatus.COMPLETED, ExecutionId("r1"), _RECORD)
        found = []
        for changed in ([jobs[0]], [jobs[1]], [ended], [ended]):
            with storage.unit_of_work() as uow:
                uow.batches.save_jobs(changed)
                uow.commit()
            with storage.unit_of_work(readonly=True) as uow:
                found.append(uow.batches.digest_jobs("b1"))
        assert None in found or (len(set(found[:3])), found[3]) == (3, found[2])

    def test_one_job_is_found_by_its_number(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow:
            uow.batches.save_jobs([_job(0), _job(1)])
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.batches.get_job("b1", 1) == _job(1)
            with pytest.raises(BatchNotFound, match="b1#2"):
                uow.batches.get_job("b1", 2)

    def test_the_job_of_a_run_is_found(self, storage: Storage) -> None:
        ended = _job(1).ended(JobStatus.COMPLETED, ExecutionId("r1"), _RECORD)
        with storage.unit_of_work() as uow:
            uow.batches.save_jobs([_job(0), ended, replace(ended, batch_id="b2", number=3)])
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.batches.find_job("b1", ExecutionId("r1")) == ended
            assert uow.batches.find_job("b1", ExecutionId("r2")) is None
            assert uow.batches.find_job("b3", ExecutionId("r1")) is None

    def test_a_batch_is_deleted_with_its_jobs_and_others_stay(self, storage: Storage, clock: Clock) -> None:
        other = replace(_batch("b1", clock), id="b2")
        with storage.unit_of_work() as uow:
            for batch in (_batch("b1", clock), other):
                uow.batches.save(batch)
                uow.batches.save_jobs([replace(_job(0), batch_id=batch.id)])
            uow.commit()
        with storage.unit_of_work() as uow:
            uow.batches.lock("qa")
            uow.batches.delete("b1")
            uow.batches.delete("nope")
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.batches.list_batches() == (other,)
            assert (uow.batches.list_jobs("b1"), len(uow.batches.list_jobs("b2"))) == ((), 1)


_RECORD = JobRecord(
    scores={"f1": 0.5, "x": {"error": "ü"}},
    bools=("f1",),
    checkpoint="c1",
    scored_in={"f1": Window("t1", 3, 4)},
    error=Failure(type="ValueError", message="no answer", node="answer"),
    latency_s=0.0,
    executed=0,
    shared=2,
    traces=(Window("t1", 0, 4),),
    spent=Spent(usd=0.5, tokens=10),
    alone=True,
)


def _batch(batch_id: str, clock: Clock) -> Batch:
    return Batch(
        id=batch_id,
        name="qa",
        workflow_name="support",
        record=BatchRecord(
            combinations=("baseline",),
            baseline="baseline",
            cases=("c0", "c1"),
            repeats=1,
            metrics=(Metric(name="f1"),),
            expected=b"\xc1\x00",
            bools=frozenset({"f1"}),
            made_of=MadeOf(workflows={"w": {"answer": "p"}}, parts={"p": {"`answer` in app.py": "d"}}),
            outside={"answer": ("example.com:443",)},
        ),
        created_at=clock.now(),
        updated_at=clock.now(),
    )


def _job(number: int) -> Job:
    return Job(
        batch_id="b1", number=number, combination="baseline", case_id=f"c{number}", repeat=0, fingerprint=f"f{number}"
    )
