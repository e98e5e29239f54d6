"""Limits: how a width adapts, when a breaker opens and closes, what means overload, and whose turn it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import URLError

import pytest

import wtb
from wtb.domain.errors import InvalidInput, StorageUnavailable
from wtb.domain.limit_slots import LimitSlot, is_free_for
from wtb.domain.limits import TRIAL_LEASE, BreakerState, CallEnd, Limit, LimitState, read_limits
from wtb.domain.overload import is_overload

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ADAPTIVE = Limit(10, adaptive=True, start=4, least=2)
BREAKING = Limit(10, break_after=3, cool_down_s=30)


def after(
    state: LimitState,
    limit: Limit,
    *ends: CallEnd,
    began_s: float = 0,
    now_s: float = 0,
    is_full: bool = True,
    is_trial: bool = False,
) -> LimitState:
    for end in ends:
        state = state.ended(
            limit,
            end,
            began_at=NOON + timedelta(seconds=began_s),
            now=NOON + timedelta(seconds=now_s),
            is_full=is_full,
            is_trial=is_trial,
        )
    return state


def first(limit: Limit) -> LimitState:
    return LimitState.first("batch", "openai", limit)


# Adaptive widths


def test_a_width_grows_by_one_after_as_many_successes_as_it_is_wide() -> None:
    state = after(first(ADAPTIVE), ADAPTIVE, *[CallEnd.SUCCEEDED] * 3)
    assert state.width == 4
    state = after(state, ADAPTIVE, CallEnd.SUCCEEDED)
    assert state.width == 5
    assert after(state, ADAPTIVE, *[CallEnd.SUCCEEDED] * 5).width == 6


def test_a_width_that_nobody_fills_does_not_grow() -> None:
    assert after(first(ADAPTIVE), ADAPTIVE, *[CallEnd.SUCCEEDED] * 50, is_full=False).width == 4


def test_a_width_is_halved_on_overload_and_never_falls_below_the_least() -> None:
    state = after(replace(first(ADAPTIVE), width=9), ADAPTIVE, CallEnd.OVERLOADED)
    assert state.width == 4
    state = after(state, ADAPTIVE, CallEnd.OVERLOADED, began_s=1, now_s=2)
    assert state.width == 2
    assert after(state, ADAPTIVE, CallEnd.OVERLOADED, began_s=3, now_s=4).width == 2


def test_calls_that_began_before_a_width_shrank_do_not_shrink_it_again() -> None:
    state = after(replace(first(ADAPTIVE), width=8), ADAPTIVE, CallEnd.OVERLOADED, began_s=0, now_s=5)
    assert after(state, ADAPTIVE, *[CallEnd.OVERLOADED] * 7, began_s=4, now_s=6).width == 4


def test_a_width_never_grows_above_the_most() -> None:
    state = after(replace(first(ADAPTIVE), width=10), ADAPTIVE, *[CallEnd.SUCCEEDED] * 30)
    assert state.width == 10


def test_overload_starts_the_count_of_successes_again() -> None:
    state = after(first(ADAPTIVE), ADAPTIVE, *[CallEnd.SUCCEEDED] * 3, CallEnd.OVERLOADED)
    assert (state.width, state.successes) == (2, 0)


def test_other_errors_change_no_width() -> None:
    state = after(first(ADAPTIVE), ADAPTIVE, *[CallEnd.SUCCEEDED] * 3)
    assert after(state, ADAPTIVE, *[CallEnd.OTHER] * 20) == state


def test_a_fixed_width_stays() -> None:
    limit = Limit(10)
    assert after(first(limit), limit, *[CallEnd.OVERLOADED] * 3, *[CallEnd.SUCCEEDED] * 50).width == 10


def test_a_stored_width_is_fitted_to_a_limit_that_has_changed() -> None:
    stored = replace(first(ADAPTIVE), width=8)
    assert stored.fitted(Limit(20)).width == 20
    assert stored.fitted(Limit(6, adaptive=True)).width == 6
    assert stored.fitted(ADAPTIVE) is stored


def test_a_width_is_told_when_it_has_doubled_or_halved() -> None:
    state = first(ADAPTIVE)
    told = []
    for _ in range(60):
        state = after(state, ADAPTIVE, CallEnd.SUCCEEDED)
        told.append(state.told_width)
    assert sorted(set(told)) == [4, 8]
    state = after(state, ADAPTIVE, CallEnd.OVERLOADED)
    assert (state.width, state.told_width) == (5, 8)
    state = after(state, ADAPTIVE, CallEnd.OVERLOADED, began_s=1, now_s=2)
    assert (state.width, state.told_width) == (2, 2)


# Circuit breakers


def test_a_breaker_opens_after_enough_overloaded_calls_in_a_row() -> None:
    state = after(first(BREAKING), BREAKING, CallEnd.OVERLOADED, CallEnd.OVERLOADED)
    assert state.breaker is BreakerState.CLOSED
    state = after(state, BREAKING, CallEnd.SUCCEEDED, CallEnd.OVERLOADED, CallEnd.OVERLOADED)
    assert state.breaker is BreakerState.CLOSED, "a success in between starts the count again"
    state = after(state, BREAKING, CallEnd.OVERLOADED, now_s=7)
    assert (state.breaker, state.until) == (BreakerState.OPEN, NOON + timedelta(seconds=37))


def test_other_errors_neither_open_a_breaker_nor_start_its_count_again() -> None:
    state = after(first(BREAKING), BREAKING, CallEnd.OVERLOADED, CallEnd.OVERLOADED, *[CallEnd.OTHER] * 9)
    assert state.breaker is BreakerState.CLOSED
    assert after(state, BREAKING, CallEnd.OVERLOADED).breaker is BreakerState.OPEN


def test_an_open_breaker_refuses_calls_and_says_when_one_is_tried() -> None:
    state = after(first(BREAKING), BREAKING, *[CallEnd.OVERLOADED] * 3)
    with pytest.raises(wtb.CircuitOpen, match=r"'openai' is open: 3 calls in a row .* from 12:00:30 UTC") as caught:
        state.admitted(BREAKING, NOON + timedelta(seconds=29))
    assert caught.value.until == NOON + timedelta(seconds=30)


def test_after_the_cool_down_one_call_is_tried_and_others_are_refused() -> None:
    state = after(first(BREAKING), BREAKING, *[CallEnd.OVERLOADED] * 3)
    trial = state.admitted(BREAKING, NOON + timedelta(seconds=30))
    assert trial.breaker is BreakerState.TRIAL
    with pytest.raises(wtb.CircuitOpen):
        trial.admitted(BREAKING, NOON + timedelta(seconds=31))
    again = trial.admitted(BREAKING, NOON + timedelta(seconds=30) + TRIAL_LEASE)
    assert again.breaker is BreakerState.TRIAL, "the first trial was lost"


def test_a_trial_that_succeeds_closes_the_breaker() -> None:
    state = after(first(BREAKING), BREAKING, *[CallEnd.OVERLOADED] * 3)
    trial = state.admitted(BREAKING, NOON + timedelta(seconds=30))
    closed = after(trial, BREAKING, CallEnd.SUCCEEDED, is_trial=True)
    assert (closed.breaker, closed.failures, closed.until) == (BreakerState.CLOSED, 0, None)


def test_a_trial_that_fails_opens_the_breaker_for_another_cool_down() -> None:
    state = after(first(BREAKING), BREAKING, *[CallEnd.OVERLOADED] * 3)
    trial = state.admitted(BREAKING, NOON + timedelta(seconds=30))
    failed = after(trial, BREAKING, CallEnd.OVERLOADED, now_s=40, is_trial=True)
    assert (failed.breaker, failed.until) == (BreakerState.OPEN, NOON + timedelta(seconds=70))


def test_a_trial_that_tells_nothing_leaves_the_next_call_to_try() -> None:
    state = after(first(BREAKING), BREAKING, *[CallEnd.OVERLOADED] * 3)
    trial = state.admitted(BREAKING, NOON + timedelta(seconds=30))
    left = after(trial, BREAKING, CallEnd.OTHER, now_s=40, is_trial=True)
    assert left.breaker is BreakerState.OPEN
    assert left.admitted(BREAKING, NOON + timedelta(seconds=40)).breaker is BreakerState.TRIAL


def test_late_calls_do_not_close_an_open_breaker() -> None:
    state = after(first(BREAKING), BREAKING, *[CallEnd.OVERLOADED] * 3)
    assert after(state, BREAKING, CallEnd.SUCCEEDED).breaker is BreakerState.OPEN
    assert after(state, BREAKING, CallEnd.OVERLOADED, now_s=20).until == state.until


def test_a_late_trial_does_not_open_a_breaker_that_another_trial_closed() -> None:
    state = after(first(BREAKING), BREAKING, *[CallEnd.OVERLOADED] * 3)
    trial = state.admitted(BREAKING, NOON + timedelta(seconds=30))
    closed = after(trial, BREAKING, CallEnd.SUCCEEDED, is_trial=True)
    assert after(closed, BREAKING, CallEnd.OVERLOADED, now_s=120, is_trial=True).breaker is BreakerState.CLOSED


def test_a_batch_that_is_run_again_keeps_its_width_and_closes_its_breaker() -> None:
    limit = replace(ADAPTIVE, break_after=1)
    state = after(first(limit), limit, CallEnd.OVERLOADED)
    begun = state.begun(limit)
    assert (begun.width, begun.breaker, begun.failures) == (2, BreakerState.CLOSED, 0)


def test_without_break_after_nothing_breaks() -> None:
    state = after(first(ADAPTIVE), ADAPTIVE, *[CallEnd.OVERLOADED] * 100)
    assert state.breaker is BreakerState.CLOSED
    assert state.admitted(ADAPTIVE, NOON) is state


# What means overload


class Answer:
    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)


class ServiceError(Exception):
    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionRefusedError(),
        ServiceError(status_code=429),
        ServiceError(status=503),
        ServiceError(code=529),
        ServiceError(code="429"),
        ServiceError(response=Answer(status_code=429)),
    ],
)
def test_these_errors_mean_overload(error: Exception) -> None:
    assert is_overload(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("429"),
        ServiceError(status_code=400),
        ServiceError(code="rate_limit"),
        ServiceError(response=None),
        KeyboardInterrupt(),
        StorageUnavailable("the database is away"),
    ],
)
def test_these_errors_do_not(error: BaseException) -> None:
    assert not is_overload(error)


def test_the_cause_of_an_error_counts() -> None:
    error = RuntimeError("the search failed")
    error.__cause__ = ServiceError(status_code=429)
    assert is_overload(error)


def test_the_reason_that_urllib_names_counts() -> None:
    assert is_overload(URLError(ConnectionRefusedError(111, "refused")))
    assert not is_overload(URLError("unknown url type"))


def test_an_error_that_was_raised_while_another_was_handled_counts() -> None:
    error = RuntimeError("the client gave up")
    error.__context__ = ConnectionResetError()
    assert is_overload(error)
    error.__suppress_context__ = True
    assert not is_overload(error)


def test_the_database_behind_an_error_of_wtb_is_not_the_service() -> None:
    error = StorageUnavailable("the database is away")
    error.__cause__ = TimeoutError()
    assert not is_overload(error)


def test_a_function_of_the_user_adds_errors() -> None:
    assert is_overload(ValueError("slow down"), lambda error: "slow down" in str(error))
    assert not is_overload(ValueError("no"), lambda error: "slow down" in str(error))


def test_a_function_of_the_user_that_raises_counts_as_no(caplog: pytest.LogCaptureFixture) -> None:
    assert not is_overload(ValueError("no"), lambda error: error.nothing)  # type: ignore[attr-defined]
    assert "`overloaded` function of a limit raised AttributeError" in caplog.text


# Whose turn it is


def slots(**held: int) -> list[LimitSlot]:
    return [_slot(owner, number=number) for owner, count in held.items() for number in range(count)]


def waits(owner: str, since_s: float = 0) -> LimitSlot:
    return _slot(owner, since_s=since_s, waiting=1)


def _slot(owner: str, *, number: int = 0, since_s: float = 0, waiting: int = 0) -> LimitSlot:
    since = NOON + timedelta(seconds=since_s)
    return LimitSlot(
        id=f"{owner}{number}{waiting}",
        scope="batch",
        name="openai",
        owner=owner,
        since=since,
        expires_at=since,
        waiting=waiting,
    )


def test_a_process_takes_slots_until_none_is_left() -> None:
    assert is_free_for("a", slots(a=3), 4)
    assert not is_free_for("a", slots(a=4), 4)
    assert not is_free_for("a", slots(a=2, b=2), 4)


def test_a_process_leaves_the_last_slot_to_one_that_waits_with_less_than_its_share() -> None:
    assert not is_free_for("a", [*slots(a=3), waits("b")], 4)
    assert is_free_for("b", [*slots(a=3), waits("b")], 4)


def test_a_process_takes_a_second_free_slot_while_another_waits_for_the_first() -> None:
    assert is_free_for("a", [*slots(a=2), waits("b")], 4)


def test_who_waits_with_its_share_does_not_hold_up_others() -> None:
    assert is_free_for("a", [*slots(a=1, b=2), waits("b")], 4)


def test_with_fewer_slots_than_processes_the_longest_wait_counts() -> None:
    line = [waits("b", 1), waits("a", 2), waits("c", 3)]
    assert [is_free_for(each, line, 1) for each in "abc"] == [False, True, False]


def test_more_than_a_share_is_taken_only_if_nobody_with_less_waits() -> None:
    line = [*slots(a=2), waits("a", 0), waits("b", 5)]
    assert not is_free_for("a", line, 3)
    assert is_free_for("b", line, 3)


# How limits are written


def test_limits_are_numbers_or_adaptive_or_limits() -> None:
    own = Limit(5, break_after=2)
    found = read_limits({"openai": 20, "search": "adaptive", "own": own})
    assert found == {"openai": Limit(20), "search": Limit(adaptive=True), "own": own}


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "many", None, {}])
def test_other_limits_are_refused_with_an_example(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"limit 'openai' is .* for example limits="):
        read_limits({"openai": given})


@pytest.mark.parametrize("name", ["", " ", 3, "a\nb"])
def test_names_that_cannot_be_shown_are_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of a limit"):
        read_limits({name: 3})


@pytest.mark.parametrize(
    "facts",
    [
        {"most": 0},
        {"least": 0},
        {"most": 3, "least": 4},
        {"start": 0},
        {"break_after": 0},
        {"cool_down_s": 0},
        {"cool_down_s": "1"},
    ],
)
def test_limits_that_make_no_sense_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Limit(**facts)


def test_a_limit_comes_back_from_plain_data_without_its_function() -> None:
    limit = Limit(5, adaptive=True, start=2, least=2, break_after=4, cool_down_s=1.5, overloaded=bool)
    assert Limit.from_data(limit.to_data()) == replace(limit, overloaded=None)
