"""NodeCache: a result is made once, whoever needs it first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from wtb.application.node_cache import LEASE, AttemptRef, Busy, NodeCache, SharedFailure, SharedResult
from wtb.domain.execution import Failure
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.testing.fakes import FakeClock

KEY = b"k" * 32
STATE: Mapping[str, Any] = {"question": "why?"}
RESULT = SharedResult(returned={"answer": 42}, file_commit=None, usage={"input_tokens": 3}, ms=1.5)
FAILURE = SharedFailure(failure=Failure(type="ValueError", message="no answer", node="answer"))


class Process:
    """A process by its name, which sees which others have ended; None: it cannot tell."""

    def __init__(self, name: str, gone: Mapping[str, bool | None] | None = None) -> None:
        self.name = name
        self.gone = gone or {}

    def me(self) -> str:
        return self.name

    def is_gone(self, owner: str) -> bool | None:
        return self.gone.get(owner, False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def storage(clock: FakeClock) -> MemoryStorage:
    return MemoryStorage(codec=MsgpackCodec(), clock=clock, bus=QueueEventBus())


def claimed(cache: NodeCache, clock: FakeClock, attempt: str = "a", *, current: bool = True) -> Any:
    return cache.claim(KEY, AttemptRef(id=attempt, began_at=clock.now()), STATE, lambda result: current)


def attempt(clock: FakeClock, name: str = "a") -> AttemptRef:
    return AttemptRef(id=name, began_at=clock.now())


def test_the_first_makes_a_result_and_others_take_it(storage: MemoryStorage, clock: FakeClock) -> None:
    one, other = NodeCache(storage, clock, Process("one")), NodeCache(storage, clock, Process("other"))
    assert claimed(one, clock) is None
    assert isinstance(claimed(other, clock), Busy)
    assert other.is_being_made(KEY)
    one.settle_now(KEY, attempt(clock), RESULT)
    found = claimed(other, clock)
    assert isinstance(found, SharedResult)
    assert (found.returned, found.usage, found.ms) == ({"answer": 42}, {"input_tokens": 3}, 1.5)
    assert not other.is_being_made(KEY)


def test_whoever_listens_hears_of_results_and_of_claims_that_were_given_up(
    storage: MemoryStorage, clock: FakeClock
) -> None:
    cache, heard = NodeCache(storage, clock, Process("one")), list[bytes]()
    stop = cache.listen(heard.append)
    assert claimed(cache, clock) is None
    cache.release(KEY)
    assert (heard, cache.is_being_made(KEY)) == ([KEY], False)
    assert claimed(cache, clock) is None
    cache.settle_now(KEY, attempt(clock), RESULT)
    assert heard == [KEY, KEY]
    stop()
    cache.tell(KEY)
    assert heard == [KEY, KEY]


def test_a_result_that_is_no_longer_current_is_made_again(storage: MemoryStorage, clock: FakeClock) -> None:
    cache = NodeCache(storage, clock, Process("one"))
    claimed(cache, clock)
    cache.settle_now(KEY, attempt(clock), RESULT)
    assert isinstance(claimed(cache, clock), SharedResult)
    assert claimed(cache, clock, current=False) is None


def test_a_failure_is_final_within_its_attempt_and_is_tried_again_in_the_next(
    storage: MemoryStorage, clock: FakeClock
) -> None:
    cache = NodeCache(storage, clock, Process("one"))
    claimed(cache, clock, "first")
    cache.settle_now(KEY, attempt(clock, "first"), FAILURE)
    found = claimed(cache, clock, "first")
    assert isinstance(found, SharedFailure)
    assert found.failure.message == "no answer"
    assert claimed(cache, clock, "second") is None


@pytest.mark.parametrize(
    ("gone", "silent", "is_taken"),
    [(True, timedelta(), True), (None, timedelta(), False), (None, 2 * LEASE, True), (False, 2 * LEASE, False)],
)
def test_a_claim_is_taken_over_from_a_process_that_is_gone_or_silent_for_too_long(
    storage: MemoryStorage, clock: FakeClock, gone: bool | None, silent: timedelta, is_taken: bool
) -> None:
    claimed(NodeCache(storage, clock, Process("lost")), clock)
    clock.advance(silent)
    other = NodeCache(storage, clock, Process("other", {"lost": gone}))
    assert (claimed(other, clock) is None) is is_taken


def test_who_is_late_after_a_claim_was_taken_over_gives_nothing(storage: MemoryStorage, clock: FakeClock) -> None:
    late = NodeCache(storage, clock, Process("late"))
    claimed(late, clock)
    other = NodeCache(storage, clock, Process("other", {"late": True}))
    assert claimed(other, clock) is None
    late.settle_now(KEY, attempt(clock), RESULT)
    assert other.is_being_made(KEY)


def test_claims_that_are_kept_up_hold_beyond_their_lease(storage: MemoryStorage, clock: FakeClock) -> None:
    slow = NodeCache(storage, clock, Process("slow"))
    claimed(slow, clock)
    clock.advance(LEASE / 2)
    slow.keep_claims()
    clock.advance(LEASE / 2 + LEASE / 4)
    other = NodeCache(storage, clock, Process("other", {"slow": None}))
    assert isinstance(claimed(other, clock), Busy)


def test_what_cannot_be_shared_is_left_to_each(storage: MemoryStorage, clock: FakeClock) -> None:
    cache = NodeCache(storage, clock, Process("one"))
    claimed(cache, clock)
    cache.leave_to_each(KEY)
    assert (cache.is_for_each(KEY), cache.is_being_made(KEY)) == (True, False)
