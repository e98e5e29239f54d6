"""JobSchedule: what runs next, what waits, and when it is over."""

from __future__ import annotations

from wtb.application.batches.schedule import JobSchedule
from wtb.domain.batch import Job
from wtb.domain.job_record import JobRecord
from wtb.domain.spending import Budget, Spent

NOTHING = Spent()


def job(number: int, record: JobRecord | None = None) -> Job:
    return Job(
        batch_id="b",
        number=number,
        combination="baseline",
        case_id=f"c{number}",
        repeat=0,
        fingerprint="",
        record=record or JobRecord(),
    )


def schedule(count: int, workers: int = 2, budget: Budget | None = None) -> JobSchedule:
    return JobSchedule([job(number) for number in range(count)], workers=workers, budget=budget or Budget())


def test_as_many_jobs_begin_as_there_are_workers_and_the_next_when_one_ends() -> None:
    jobs = schedule(3)
    assert list(jobs.begin(NOTHING)) == [0, 1]
    assert list(jobs.begin(NOTHING)) == []
    jobs.ended(1)
    assert list(jobs.begin(NOTHING)) == [2]
    jobs.ended(0)
    assert not jobs.is_done
    jobs.ended(2)
    assert jobs.is_done


def test_a_job_that_waits_leaves_its_worker_to_others_and_goes_on_when_its_result_is_there() -> None:
    jobs = schedule(3, workers=1)
    assert list(jobs.begin(NOTHING)) == [0]
    jobs.waits_for(0, b"result")
    assert list(jobs.begin(NOTHING)) == [1]
    assert list(jobs.awaited) == [b"result"]
    jobs.wake(b"another")
    jobs.wake(b"result")
    jobs.ended(1)
    assert (list(jobs.begin(NOTHING)), list(jobs.awaited)) == ([2], [])
    jobs.ended(2)
    assert list(jobs.begin(NOTHING)) == [0]


def test_once_stopped_nothing_begins_and_what_has_begun_goes_on() -> None:
    jobs = schedule(3, workers=1)
    assert list(jobs.begin(NOTHING)) == [0]
    jobs.waits_for(0, b"result")
    jobs.stop()
    assert (list(jobs.begin(NOTHING)), jobs.dropped) == ([], [1, 2])
    jobs.wake(b"result")
    assert list(jobs.begin(NOTHING)) == [0]
    jobs.ended(0)
    assert jobs.is_done


def test_a_used_up_budget_stops_it_but_not_the_scoring_of_jobs_that_have_run() -> None:
    jobs = JobSchedule([job(0, JobRecord(scores={})), job(1), job(2)], workers=1, budget=Budget(usd=1.0))
    assert list(jobs.begin(Spent(usd=1.0))) == [0]
    jobs.ended(0)
    assert list(jobs.begin(Spent(usd=1.0))) == []
    assert (jobs.is_stopped, jobs.dropped, jobs.is_done) == (True, [1, 2], True)


def test_a_job_that_is_tried_again_is_queued_last_and_may_be_dropped() -> None:
    jobs = schedule(2, workers=1)
    assert list(jobs.begin(NOTHING)) == [0]
    jobs.again(0)
    assert list(jobs.begin(NOTHING)) == [1]
    jobs.stop()
    jobs.ended(1)
    assert (list(jobs.begin(NOTHING)), jobs.dropped, jobs.is_done) == ([], [0], True)


def test_jobs_of_other_processes_come_back_end_there_or_are_left_to_them() -> None:
    jobs = schedule(3, workers=3)
    for number in list(jobs.begin(NOTHING)):
        jobs.runs_elsewhere(number)
    assert list(jobs.look_elsewhere(2)) == [0, 1]
    assert list(jobs.look_elsewhere(2)) == [2, 0], "those first that were not looked at for longest"
    jobs.ended_elsewhere(1)
    jobs.come_back(2)
    jobs.leave_elsewhere(0)
    assert list(jobs.begin(NOTHING)) == [2]
    jobs.ended(2)
    assert (jobs.dropped, jobs.is_done) == ([0], True)


def test_something_that_broke_stops_it_and_leaves_that_job() -> None:
    jobs = schedule(2, workers=1)
    assert list(jobs.begin(NOTHING)) == [0]
    jobs.broke(0)
    assert (list(jobs.begin(NOTHING)), jobs.dropped, jobs.is_done) == ([], [0, 1], True)


def test_a_schedule_without_jobs_is_done() -> None:
    assert schedule(0).is_done


def test_calls_are_taken_back_although_the_budget_is_used_up_and_scoring_costs_something() -> None:
    ran = [job(0, JobRecord(scores={}, take_back={"run": "refused"})), job(1, JobRecord(scores={}))]
    jobs = JobSchedule(ran, workers=1, budget=Budget(usd=1.0), is_scoring_free=False)
    assert list(jobs.begin(Spent(usd=1.0))) == [0]
    jobs.ended(0)
    assert (list(jobs.begin(Spent(usd=1.0))), jobs.dropped) == ([], [1])


def test_scoring_counts_as_free_until_a_job_that_only_needed_scores_has_used_something() -> None:
    jobs = JobSchedule([job(n, JobRecord(scores={})) for n in range(3)], workers=1, budget=Budget(usd=1.0))
    assert list(jobs.begin(Spent(usd=1.0))) == [0]
    jobs.ended(0)
    assert list(jobs.begin(Spent(usd=1.0))) == [1]
    jobs.scored_at_a_cost(1)
    jobs.ended(1)
    assert (list(jobs.begin(Spent(usd=1.5))), jobs.dropped) == ([], [2])


def test_a_job_that_lost_its_worker_is_the_next_one_even_after_a_stop() -> None:
    jobs = schedule(3, workers=1)
    assert list(jobs.begin(NOTHING)) == [0]
    jobs.stop()
    jobs.lost(0)
    assert list(jobs.begin(NOTHING)) == [0]
    jobs.ended(0)
    assert list(jobs.begin(NOTHING)) == []
    assert jobs.is_done
    assert jobs.dropped == [1, 2]
