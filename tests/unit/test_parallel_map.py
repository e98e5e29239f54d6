"""map_in_threads keeps the law of ParallelMap."""

from __future__ import annotations

import threading

import pytest

from wtb.infrastructure.runners.parallel_map import map_in_threads


def test_results_come_in_the_order_of_the_items_whoever_ends_first() -> None:
    second_has_ended = threading.Event()

    def slow_first(item: int) -> int:
        if item == 0:
            assert second_has_ended.wait(10)
        else:
            second_has_ended.set()
        return item * 10

    assert map_in_threads(slow_first, [0, 1], 2) == [0, 10]


def test_the_error_of_the_first_item_that_has_one_is_raised() -> None:
    def failing(item: int) -> None:
        if item:
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 1"):
        map_in_threads(failing, [0, 1, 2], 1)
