"""The contracts of Clock and Ids: a subclass gives the fixture `clock`, or `ids`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from wtb.domain.ports import Clock, Ids


class ClockContract:
    """What every clock does."""

    def test_times_are_aware_and_in_utc(self, clock: Clock) -> None:
        assert clock.now().utcoffset() == timedelta(0)

    def test_threads_share_a_clock(self, clock: Clock) -> None:
        with ThreadPoolExecutor(4) as pool:
            times = list(pool.map(lambda _: clock.now(), range(100)))
        assert {time.utcoffset() for time in times} == {timedelta(0)}


class IdsContract:
    """What every source of ids does."""

    def test_each_id_sorts_after_those_before_it(self, ids: Ids) -> None:
        given = [ids.new() for _ in range(10_000)]
        assert given == sorted(given)
        assert len(set(given)) == 10_000

    def test_threads_never_get_the_same_id(self, ids: Ids) -> None:
        with ThreadPoolExecutor(4) as pool:
            given = list(pool.map(lambda _: ids.new(), range(10_000)))
        assert len(set(given)) == 10_000

    def test_an_id_fits_everywhere(self, ids: Ids) -> None:
        given = ids.new()
        assert given.isascii()
        assert given.isprintable()
        assert 1 <= len(given) <= 64
