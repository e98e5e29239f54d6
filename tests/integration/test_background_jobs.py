"""Background jobs of a server: what is due runs once, beside everything else; errors stop nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from wtb.application.server import background_jobs
from wtb.application.server.background_jobs import BackgroundJobs, JobPlan, JobRun
from wtb.domain.background import JOB_LEASE, BackgroundJob
from wtb.domain.errors import BackgroundJobNotFound, StorageUnavailable
from wtb.domain.events import EventType
from wtb.domain.ports import Owners, Storage
from wtb.domain.secrets import Masker
from wtb.testing.fakes import FakeClock


class NamedOwner:
    """A process with a name of its own; `gone` are those that have ended."""

    def __init__(self, name: str, gone: set[str]) -> None:
        self._name = name
        self._gone = gone

    def me(self) -> str:
        return self._name

    def is_gone(self, owner: str) -> bool | None:
        return True if owner in self._gone else None


def plan(work: Callable[[JobRun], None], name: str = "job", **facts: Any) -> JobPlan:
    every = facts.pop("every", timedelta(days=1))
    return JobPlan(name=name, summary="Do it.", every=every, work=work, **facts)


def nothing(run: JobRun) -> None:
    """Do nothing."""


def server(storage: Storage, *plans: JobPlan, owner: Owners | None = None) -> BackgroundJobs:
    owner = owner or NamedOwner("here", set())
    return BackgroundJobs(storage, FakeClock(), owner, Masker(), plans, look_s=0.01)


def stored(storage: Storage, name: str = "job") -> BackgroundJob:
    with storage.unit_of_work(readonly=True) as uow:
        return {job.name: job for job in uow.background_jobs.list_jobs()}[name]


def change(storage: Storage, **changes: Any) -> None:
    with storage.unit_of_work() as uow:
        job = uow.background_jobs.lock("job")
        assert job is not None
        uow.background_jobs.save(replace(job, **changes))
        uow.commit()


def told(storage: Storage) -> list[tuple[str, dict[str, Any]]]:
    with storage.unit_of_work(readonly=True) as uow:
        found = uow.events.list_events(types=[EventType.BACKGROUND_COMPLETED, EventType.BACKGROUND_FAILED])
    return [(event.type.value, {**event.data}) for event in found]


@contextmanager
def running(jobs: BackgroundJobs) -> Iterator[BackgroundJobs]:
    jobs.start()
    try:
        yield jobs
    finally:
        jobs.stop()


def until(is_so: Callable[[], object], timeout_s: float = 15.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def test_a_due_job_runs_once_and_is_told_with_its_figures(storage: Storage) -> None:
    def work(run: JobRun) -> None:
        run.count(checkpoints=3, objects=0)
        run.notes["place"] = run.notes.get("place", 0) + 1

    jobs = server(storage, plan(work))
    jobs.look()
    assert stored(storage).last_started_at is None, "a new server deletes nothing at once"
    with storage.unit_of_work() as uow:
        change_at = uow.now() - timedelta(days=2)
    change(storage, registered_at=change_at)
    with running(jobs):
        until(lambda: told(storage))
        for _ in range(3):
            jobs.look()
    ((type, data),) = told(storage)
    assert type == "background.completed"
    assert data.pop("duration_s") < 5
    assert data == {"job": "job", "figures": {"checkpoints": 3}}
    job = stored(storage)
    assert (job.owner, job.last_error, job.figures, job.notes) == (None, None, {"checkpoints": 3}, {"place": 1})
    assert jobs.get("job").next_at == job.due_at(timedelta(days=1))


def test_a_request_runs_a_job_ahead_of_time_and_its_event_names_who_asked(storage: Storage) -> None:
    who = []
    with running(server(storage, plan(lambda run: who.append(run.by), every=None))) as jobs:
        jobs.request("job", by="alice")
        until(lambda: told(storage))
    assert who == ["alice"]
    assert told(storage)[0][1]["by"] == "alice"
    with pytest.raises(BackgroundJobNotFound, match="this server, which has job"):
        jobs.request("jbo", by="alice")


def test_a_failing_job_is_told_without_secrets_and_others_go_on(storage: Storage) -> None:
    def fail(run: JobRun) -> None:
        run.count(objects=2)
        raise StorageUnavailable("cannot reach postgresql://wtb:geheim123@db/wtb")

    def explode(run: JobRun) -> None:
        raise ZeroDivisionError("a bug")

    plans = [plan(fail, "a"), plan(explode, "b"), plan(nothing, "c")]
    with running(server(storage, *plans)) as jobs:
        for name in "abc":
            jobs.request(name, by="alice")
        until(lambda: len(told(storage)) == 3)
    found = {data["job"]: (type, data) for type, data in told(storage)}
    assert found["a"][0] == found["b"][0] == "background.failed"
    assert found["a"][1]["figures"] == {"objects": 2}
    assert "geheim123" not in str(found)
    assert "ZeroDivisionError: a bug" in found["b"][1]["error"]
    assert found["c"][0] == "background.completed"
    assert stored(storage, "b").last_error == "ZeroDivisionError: a bug"


def test_of_two_servers_one_takes_a_job_and_the_other_takes_over_when_it_is_gone(storage: Storage) -> None:
    gone: set[str] = set()
    hold, ran = threading.Event(), []

    def wait(name: str) -> Callable[[JobRun], None]:
        def work(run: JobRun) -> None:
            ran.append(name)
            hold.wait(20)

        return work

    first = server(storage, plan(wait("first")), owner=NamedOwner("first", gone))
    second = server(storage, plan(wait("second")), owner=NamedOwner("second", gone))
    first.request("job", by="alice")
    first.look()
    until(lambda: ran == ["first"])
    second.request("job", by="bob")  # due, but not free
    second.look()
    assert ran == ["first"]
    gone.add("first")
    second.look()
    until(lambda: ran == ["first", "second"])
    hold.set()
    until(lambda: stored(storage).owner is None)
    time.sleep(0.05)
    assert [data["by"] for _, data in told(storage)] == ["bob"], "the first one must not tell of its end any more"


def test_a_silent_server_loses_its_job_by_the_time_of_the_database(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_jobs, "JOB_LEASE", timedelta(0))  # extend it at each look
    first = server(storage, plan(lambda run: ended.append(run.stopped.wait(20))), owner=NamedOwner("first", set()))
    ended: list[bool] = []
    first.request("job", by="alice")
    first.look()
    until(lambda: stored(storage).owner == "first")
    with storage.unit_of_work() as uow:
        past = uow.now() - JOB_LEASE * 2
    change(storage, expires_at=past, requested_by="bob")
    second = server(storage, plan(nothing), owner=NamedOwner("second", set()))
    second.look()
    until(lambda: told(storage))
    first.look()  # notices that it has lost the job, and ends its run
    until(lambda: ended == [True])
    assert len(told(storage)) == 1


def test_a_stopped_server_ends_its_runs_at_once_and_leaves_them_as_due_as_before(storage: Storage) -> None:
    def work(run: JobRun) -> None:
        begun.set()
        run.notes["place"] = 7
        run.stopped.wait(60)

    begun = threading.Event()
    jobs = server(storage, plan(work))
    with running(jobs):
        jobs.request("job", by="alice")
        assert begun.wait(10)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    job = stored(storage)
    assert (job.owner, job.last_ended_at, job.notes) == (None, None, {"place": 7})
    assert told(storage) == []


def test_a_standing_job_tells_only_what_it_did_and_each_error_once(storage: Storage) -> None:
    outcomes = iter(["quiet", "busy", "error", "error", "other error", "quiet"])
    done = []

    def work(run: JobRun) -> None:
        outcome = next(outcomes)
        done.append(outcome)
        if outcome == "busy":
            run.count(delivered=1)
        elif outcome != "quiet":
            raise StorageUnavailable(outcome)

    jobs = server(storage, plan(work, is_standing=True, every=timedelta(days=1)))
    for number in range(1, 7):
        jobs.request("job", by="alice")
        jobs.look()
        until(lambda number=number: len(done) == number and not jobs._running)  # type: ignore[misc]  # the number of now
    said = [data.get("error") or data["figures"] for _, data in told(storage)]
    assert said == [{"delivered": 1}, "StorageUnavailable: error", "StorageUnavailable: other error"]
