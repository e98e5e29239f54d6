"""Ids: the layout of uuid7, and a source whose ids sort in the order in which they were given."""

import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.ids import MAX_ID_LENGTH, check_id, uuid7
from wtb.infrastructure.system import Uuid7Ids, _LastId

FrozenTime = Callable[[int], None]


@pytest.fixture
def set_time_ms(monkeypatch: pytest.MonkeyPatch) -> FrozenTime:
    """Stop the clock of the operating system at a millisecond, in a process that has given no id yet."""
    monkeypatch.setattr("wtb.infrastructure.system._LAST_ID", _LastId())

    def set_to(unix_ms: int) -> None:
        monkeypatch.setattr("wtb.infrastructure.system.time.time_ns", lambda: unix_ms * 1_000_000)

    return set_to


def test_the_bits_of_version_and_variant_are_those_of_rfc_9562() -> None:
    for parts in ((0, 0, 0), ((1 << 48) - 1, 0xFFF, (1 << 62) - 1), (1_767_225_600_000, 5, 12345)):
        value = UUID(uuid7(*parts))
        assert (value.version, value.variant) == (7, "specified in RFC 4122")


def test_time_counter_and_random_bits_lie_where_they_should() -> None:
    value = UUID(uuid7(0x0123456789AB, 0xCDE, 0x3FFF_FFFF_FFFF_FFF0)).int
    assert value >> 80 == 0x0123456789AB
    assert value >> 64 & 0xFFF == 0xCDE
    assert value & (1 << 62) - 1 == 0x3FFF_FFFF_FFFF_FFF0


def test_parts_that_are_too_large_do_not_spill_into_their_neighbours() -> None:
    assert uuid7(1 << 48, 1 << 12, 1 << 62) == uuid7(0, 0, 0)


def test_ids_of_a_later_millisecond_sort_after_earlier_ones() -> None:
    assert uuid7(1, 0xFFF, (1 << 62) - 1) < uuid7(2, 0, 0)


def test_many_ids_within_one_millisecond_still_sort(set_time_ms: FrozenTime) -> None:
    set_time_ms(1_767_225_600_000)
    ids = Uuid7Ids()
    given = [ids.new() for _ in range(10_000)]  # more than the counter of 12 bits can tell apart
    assert given == sorted(set(given))
    assert {UUID(one).version for one in given} == {7}


def test_ids_go_on_growing_when_the_clock_is_set_back(set_time_ms: FrozenTime) -> None:
    ids = Uuid7Ids()
    set_time_ms(2_000_000)
    before = ids.new()
    set_time_ms(1_000_000)
    assert before < ids.new() < ids.new()


def test_a_second_source_goes_on_behind_the_first_when_the_clock_is_set_back(set_time_ms: FrozenTime) -> None:
    set_time_ms(2_000_000)
    before = Uuid7Ids().new()
    set_time_ms(1_000_000)
    assert before < Uuid7Ids().new()


def test_threads_that_share_a_source_get_different_ids_each_in_order() -> None:
    ids = Uuid7Ids()
    given: list[list[str]] = [[] for _ in range(8)]
    together = threading.Barrier(len(given))

    def take(mine: list[str]) -> None:
        together.wait()
        mine += [ids.new() for _ in range(1_000)]

    threads = [threading.Thread(target=take, args=(mine,)) for mine in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in given)
    assert len(set().union(*given)) == 8_000


@pytest.mark.parametrize("value", ["a", "run-1", "A.b_c:d", "7" * MAX_ID_LENGTH, "größe"])
def test_an_id_that_a_person_chose_is_returned_as_it_is(value: str) -> None:
    assert check_id(value, "the id") == value


@pytest.mark.parametrize("value", ["", " ", "a b", "a/b", "../up", "a\n", "a\0", "x" * (MAX_ID_LENGTH + 1), "\ud800"])
def test_an_id_that_could_not_be_typed_or_stored_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidInput, match="the run id"):
        check_id(value, "the run id")
