"""The contract of BackgroundJobRepository."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from wtb.domain.background import BackgroundJob
from wtb.domain.ports import Storage
from wtb.testing.stories import StoryFixtures

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_JOB = BackgroundJob(name="retention", registered_at=_NOON)


class BackgroundJobRepositoryContract(StoryFixtures):
    """What every repository of background jobs does."""

    def test_a_job_comes_back_as_it_was_saved_last(self, storage: Storage) -> None:
        assert _locked(storage, "retention") is None
        _save(storage, _JOB)
        assert _locked(storage, "retention") == _JOB
        later = replace(
            _JOB,
            owner="me",
            token=7,
            expires_at=_NOON + timedelta(microseconds=1),
            requested_by="alice",
            last_started_at=_NOON + timedelta(seconds=1),
            last_ended_at=_NOON + timedelta(seconds=2),
            last_error="the disk is full",
            figures={"checkpoints": 3},
            notes={"after": 12, "faults": [{"what": "ü"}]},
        )
        _save(storage, later)
        assert _locked(storage, "retention") == later

    def test_jobs_are_listed_by_name(self, storage: Storage) -> None:
        for name in ("webhooks", "doctor", "retention"):
            _save(storage, replace(_JOB, name=name))
        with storage.unit_of_work(readonly=True) as uow:
            assert [job.name for job in uow.background_jobs.list_jobs()] == ["doctor", "retention", "webhooks"]

    def test_an_uncommitted_job_is_not_kept(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow:
            uow.background_jobs.save(_JOB)
        assert _locked(storage, "retention") is None

    def test_one_transaction_at_a_time_holds_a_job(self, storage: Storage) -> None:
        """Without the lock, two servers would take the same job."""
        _save(storage, _JOB)

        def take() -> None:
            for _ in range(10):
                with storage.unit_of_work() as uow:
                    job = uow.background_jobs.lock("retention")
                    assert job is not None
                    uow.background_jobs.save(replace(job, token=job.token + 1))
                    uow.commit()

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = _locked(storage, "retention")
        assert found is not None
        assert found.token == 40


def _save(storage: Storage, job: BackgroundJob) -> None:
    with storage.unit_of_work() as uow:
        uow.background_jobs.save(job)
        uow.commit()


def _locked(storage: Storage, name: str) -> BackgroundJob | None:
    with storage.unit_of_work() as uow:
        return uow.background_jobs.lock(name)
