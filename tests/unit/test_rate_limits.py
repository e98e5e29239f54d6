"""Rate limits, and the depth of a JSON text."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.api.rate_limits import RateLimit
from wtb.api.request_limits import depth_of
from wtb.domain.errors import TooManyRequests


class Timer:
    """Seconds that pass only when told."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_bucket_is_emptied_by_requests_and_filled_by_time() -> None:
    timer = Timer()
    limit = RateLimit(60, timer)
    for _ in range(60):
        limit.take("ci", "requests")
    with pytest.raises(TooManyRequests, match="too many requests; try again in 1 s"):
        limit.take("ci", "requests")
    limit.take("other", "requests")
    timer.seconds += 1
    limit.take("ci", "requests")
    with pytest.raises(TooManyRequests):
        limit.check("ci", "requests")


def test_a_bucket_never_holds_more_than_a_minute() -> None:
    timer = Timer()
    limit = RateLimit(2, timer)
    limit.take("ci", "requests")
    timer.seconds += 3_600
    limit.take("ci", "requests")
    limit.take("ci", "requests")
    with pytest.raises(TooManyRequests) as refused:
        limit.take("ci", "requests")
    assert refused.value.retry_after_s == 30


def test_many_addresses_do_not_fill_the_memory() -> None:
    limit = RateLimit(1, Timer())
    for number in range(20_000):
        limit.take(str(number), "requests")
    assert len(limit._buckets) <= 10_000


_JSON = st.recursive(st.none() | st.text('[]{}"\\a'), lambda item: st.lists(item) | st.dictionaries(st.text(), item))


def _depth(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(_depth, value), default=0)
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
    return 0


@given(_JSON)
def test_the_depth_of_a_text_is_that_of_its_value(value: object) -> None:
    assert depth_of(json.dumps(value).encode()) == _depth(value)


@pytest.mark.parametrize("body", [b'"\\"' * 2_000_000, b'"' * 4_000_000, b"[" * 4_000_000, b"\\" * 4_000_000])
def test_no_text_takes_long_to_look_at(body: bytes) -> None:
    begun = time.process_time()
    depth_of(body)
    assert time.process_time() - begun < 2
