"""The comparison of runners: which facts about the same job differ."""

from __future__ import annotations

from wtb.domain.parity import JobFacts, parity_differences

KEY = ("baseline", "ann", 0)


def differences(old: JobFacts | None, new: JobFacts | None) -> list[tuple[str, str]]:
    found = parity_differences(
        {
            "threads": {} if old is None else {KEY: old},
            "ray": {} if new is None else {KEY: new},
        }
    )
    assert all(each.runners == ("threads", "ray") for each in found)
    return [(each.what, each.detail) for each in found]


def test_equal_jobs_have_no_difference() -> None:
    facts = JobFacts(status="completed", state={"a": 1}, scores={"steps": 2}, files={"x": b"1"})
    assert differences(facts, facts) == []


def test_each_fact_that_differs_is_named() -> None:
    old = JobFacts(status="completed", state={"a": 1, "b": 2}, scores={"steps": 2}, files={"x": b"1"})
    new = JobFacts(status="failed", error="ValueError: no", state={"a": 1, "c": 2}, scores={"steps": 3}, files={})
    assert differences(old, new) == [
        ("status", "completed, failed"),
        ("error", "None, ValueError: no"),
        ("state", "b, c"),
        ("scores", "steps"),
        ("files", "x"),
    ]


def test_a_key_without_a_value_differs_from_no_key() -> None:
    assert differences(JobFacts(status="completed", state={"a": None}), JobFacts(status="completed")) == [
        ("state", "a")
    ]


def test_a_job_that_only_one_runner_ran_is_a_difference() -> None:
    assert differences(JobFacts(status="completed"), None) == [("status", "completed, not run")]
