"""When a background job is due, and who may take it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from wtb.domain.background import JOB_LEASE, TRY_AGAIN_AFTER, BackgroundJob
from wtb.domain.errors import LeaseLost

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_DAY = timedelta(days=1)
_JOB = BackgroundJob(name="retention", registered_at=_NOON)


def test_the_first_run_is_due_an_interval_after_a_server_first_knew_of_the_job() -> None:
    assert not _JOB.is_due(_DAY, _NOON + _DAY - timedelta(seconds=1))
    assert _JOB.is_due(_DAY, _NOON + _DAY * 1.1)


def test_jobs_of_one_interval_are_spread_over_a_tenth_of_it() -> None:
    waits = {replace(_JOB, name=str(number)).due_at(_DAY) - _NOON for number in range(50)}
    assert len(waits) > 40
    assert min(waits) >= _DAY
    assert max(waits) <= _DAY * 1.1


def test_every_server_computes_the_same_time() -> None:
    assert _JOB.due_at(_DAY) == replace(_JOB).due_at(_DAY)


def test_a_failed_run_is_tried_again_earlier_but_never_later_than_its_interval() -> None:
    failed = _JOB.taken("me", _NOON).ended(1, _NOON, figures={}, notes={}, error="the disk is full")
    assert TRY_AGAIN_AFTER <= failed.due_at(_DAY) - _NOON <= TRY_AGAIN_AFTER * 1.1
    assert failed.due_at(timedelta(seconds=10)) - _NOON <= timedelta(seconds=11)


def test_somebody_may_ask_for_a_run_ahead_of_time() -> None:
    asked = _JOB.requested("alice")
    assert asked.is_due(_DAY, _NOON)
    assert not asked.taken("me", _NOON).is_due(_DAY, _NOON)


@pytest.mark.parametrize(
    ("gone", "later", "is_free"),
    [
        (None, timedelta(), False),
        (None, JOB_LEASE, True),
        (True, timedelta(), True),
        (False, JOB_LEASE * 100, False),
    ],
)
def test_a_job_is_free_if_its_owner_has_ended_or_was_silent_for_too_long(
    gone: bool | None, later: timedelta, is_free: bool
) -> None:
    taken = _JOB.taken("another", _NOON)
    assert taken.is_free("me", _NOON + later, gone) is is_free


def test_what_a_server_holds_itself_it_may_take_again() -> None:
    assert _JOB.taken("me", _NOON).is_free("me", _NOON, False)
    assert _JOB.is_free("me", _NOON, None)


def test_an_owner_that_was_replaced_can_neither_extend_nor_end_the_run() -> None:
    taken = _JOB.taken("me", _NOON)
    stolen = taken.taken("another", _NOON)
    with pytest.raises(LeaseLost, match="another"):
        stolen.renewed(taken.token, _NOON)
    with pytest.raises(LeaseLost, match="another"):
        stolen.ended(taken.token, _NOON, figures={}, notes={}, error=None)
    with pytest.raises(LeaseLost, match="another"):
        stolen.given_back(taken.token, notes={})
    assert stolen.renewed(stolen.token, _NOON).expires_at == _NOON + JOB_LEASE


def test_a_run_that_a_stopping_server_gives_back_is_as_due_as_before() -> None:
    back = _JOB.taken("me", _NOON).given_back(1, notes={"place": 3})
    assert (back.owner, back.due_at(_DAY), back.notes) == (None, _JOB.due_at(_DAY), {"place": 3})
