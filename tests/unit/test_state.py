"""State and StateDelta: immutable states, the smallest change that says what a node did, and the way back."""

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from wtb.domain.errors import InvalidStateChange
from wtb.domain.state import (
    DELETE,
    MISSING,
    REDUCERS,
    Append,
    Change,
    DeleteKey,
    SetValue,
    Splice,
    State,
    StateDelta,
    add,
    append,
    merge,
    spliced,
)

BERLIN = ZoneInfo("Europe/Berlin")


@dataclass
class Message:
    """A dataclass whose == overlooks a field."""

    text: Any
    note: str = field(default="", compare=False)


class Pair(NamedTuple):
    """A named tuple, whose == is that of tuples."""

    one: Any
    two: Any = None


def updated(before: dict[str, Any], update: dict[str, Any], **reducers: Any) -> tuple[StateDelta, dict[str, Any]]:
    """Return the delta of what a node returned, and the state that it leads to."""
    state = State(before)
    delta = StateDelta.of_update(state, update, reducers)
    return delta, dict(state.apply(delta))


def test_a_state_is_a_mapping_that_equals_the_plain_one() -> None:
    state = State({"a": 1, "l": [1, 2]})
    assert state == {"a": 1, "l": [1, 2]}
    assert (len(state), list(state), "a" in state, state.get("b")) == (2, ["a", "l"], True, None)
    assert repr(state) == "State({'a': 1, 'l': [1, 2]})"


def test_a_missing_key_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="b"):
        State({"a": 1})["b"]


@pytest.mark.parametrize("key", [1, None, b"a", ("a",)])
def test_a_key_that_is_no_string_is_refused_by_states_and_deltas(key: Any) -> None:
    with pytest.raises(InvalidStateChange, match=f"not {type(key).__name__}"):
        State({key: 1})
    with pytest.raises(InvalidStateChange, match=f"not {type(key).__name__}"):
        StateDelta.setting({key: 1})
    with pytest.raises(InvalidStateChange, match=f"not {type(key).__name__}"):
        StateDelta.of_update(State(), {key: 1}, {})


def test_a_state_does_not_see_what_happens_to_the_list_it_was_made_of() -> None:
    items = [1]
    state, other = State({"l": items}), State().apply(StateDelta.of(l=SetValue(items)))
    items.append(2)
    state["l"].append(3)
    assert state == other == {"l": [1]}


def test_applying_a_delta_leaves_the_state_before_it_as_it_was() -> None:
    before = State({"a": 1, "l": [1]})
    after = before.apply(StateDelta.of(a=SetValue(2), l=Append((2,)), b=SetValue(3)))
    assert before == {"a": 1, "l": [1]}
    assert after == {"a": 2, "l": [1, 2], "b": 3}


def test_branches_that_go_on_from_one_state_do_not_see_each_other() -> None:
    base = State({"l": [0]}).apply(StateDelta.of(l=Append((1,))))
    one = base.apply(StateDelta.of(l=Append(("one",))))
    two = base.apply(StateDelta.of(l=Append(("two",))))
    longer = one.apply(StateDelta.of(l=Append(("more",))))
    assert (base["l"], one["l"], two["l"]) == ([0, 1], [0, 1, "one"], [0, 1, "two"])
    assert longer["l"] == [0, 1, "one", "more"]


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Make threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_go_on_from_one_state_do_not_see_each_other() -> None:
    for _ in range(50):
        base, after = State({"l": [0]}), list[State]()
        together = threading.Barrier(4)

        def go_on(base: State, after: list[State], together: threading.Barrier, number: int) -> None:
            together.wait()
            after.append(base.apply(StateDelta.of(l=Append((number,)))))

        threads = [threading.Thread(target=go_on, args=(base, after, together, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(state["l"] for state in after) == [[0, number] for number in range(4)]


def test_the_length_of_a_list_is_known_without_copying_it() -> None:
    state = State({"l": [1, 2], "text": "ab"})
    assert (state.list_length("l"), state.list_length("text"), state.list_length("none")) == (2, None, None)


def test_appending_to_a_missing_key_begins_a_list() -> None:
    assert State().apply(StateDelta.of(l=Append(()))) == {"l": []}
    assert State().apply(StateDelta.of(l=Append((1,)))) == {"l": [1]}


def test_deleting_a_key_that_is_not_there_changes_nothing() -> None:
    assert State({"a": 1}).apply(StateDelta.of(b=DeleteKey())) == {"a": 1}


@pytest.mark.parametrize("value", ["text", (1, 2), {"a": 1}, None, 5])
@pytest.mark.parametrize(("change", "verb"), [(Append((1,)), "append to"), (Splice(0, 0), "splice")])
def test_only_lists_can_be_appended_to_and_spliced(value: Any, change: Change, verb: str) -> None:
    with pytest.raises(InvalidStateChange, match=f"cannot {verb} 'k': it holds a {type(value).__name__}, not a list"):
        State({"k": value}).apply(StateDelta.of(k=change))


@pytest.mark.parametrize(
    ("splice", "result"),
    [
        (Splice(0, 0), [1, 2, 3]),
        (Splice(0, 3), []),
        (Splice(1, 1, ("a", "b")), [1, "a", "b", 3]),
        (Splice(3, 0, ("end",)), [1, 2, 3, "end"]),
        (Splice(0, 0, ("begin",)), ["begin", 1, 2, 3]),
    ],
)
def test_a_splice_replaces_items_in_the_middle(splice: Splice, result: list[Any]) -> None:
    assert spliced("l", [1, 2, 3], splice) == result


@pytest.mark.parametrize("splice", [Splice(-1, 1), Splice(0, -1), Splice(4, 0), Splice(2, 2), Splice(0, 4)])
def test_a_splice_outside_the_list_is_refused(splice: Splice) -> None:
    with pytest.raises(InvalidStateChange, match="cannot splice 'l'"):
        spliced("l", [1, 2, 3], splice)


def test_a_delta_is_true_when_it_changes_something() -> None:
    assert not StateDelta()
    assert StateDelta.of(a=DeleteKey())


def test_a_list_returned_whole_with_its_old_value_as_prefix_is_an_append() -> None:
    delta, after = updated({"l": [1, {"a": 2}]}, {"l": [1, {"a": 2}, 3]})
    assert delta == StateDelta.of(l=Append((3,)))
    assert after == {"l": [1, {"a": 2}, 3]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1], [True, 2]),
        ([1], [1.0, 2]),
        ([0.0], [-0.0, 2]),
        ([{"a": 1}], [{"a": True}, 2]),
        ([{1: "a"}], [{True: "a"}, 2]),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}, 2]),
        ([(1,)], [[1], 2]),
        ([{1}], [{True}, 2]),
        ([frozenset({1})], [frozenset({1.0}), 2]),
        ([Decimal("1.0")], [Decimal("1.00"), 2]),
        ([datetime(2026, 1, 1, tzinfo=UTC)], [datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 2]),
        ([datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)], [datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), 2]),
        ([time(12)], [time(12, tzinfo=BERLIN), 2]),
        ([Message(1)], [Message(True), 2]),
        ([Message("a", "one")], [Message("a", "two"), 2]),
        ([Pair(1)], [Pair(True), 2]),
        ([SimpleNamespace(a=1)], [SimpleNamespace(a=True), 2]),
    ],
    ids=repr,
)
def test_values_that_are_merely_equal_are_never_taken_for_the_old_ones(old: list[Any], new: list[Any]) -> None:
    delta, after = updated({"l": old}, {"l": new})
    assert delta.changes["l"] == (SetValue(new),)
    assert repr(after["l"]) == repr(new)


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: float("nan"),
        lambda: Decimal("NaN"),
        lambda: Decimal("sNaN"),
        lambda: {1, 2},
        lambda: {"a": (1, [2]), float("nan"): 1},
        lambda: datetime(2026, 1, 1, tzinfo=BERLIN),
        lambda: Message("a", "note"),
        lambda: Pair(1, [2]),
        lambda: SimpleNamespace(a=[1]),
    ],
)
def test_a_copy_of_the_old_items_is_known_again(make: Callable[[], Any]) -> None:
    delta, _ = updated({"l": [make()]}, {"l": [make(), "more"]})
    assert delta == StateDelta.of(l=Append(("more",)))


def test_an_empty_list_that_is_filled_is_set_and_a_shorter_one_too() -> None:
    assert updated({"l": []}, {"l": [1]})[0] == StateDelta.of(l=SetValue([1]))
    assert updated({"l": [1, 2]}, {"l": [1]})[0] == StateDelta.of(l=SetValue([1]))


def test_values_nested_beyond_the_stack_are_set_without_being_compared() -> None:
    def deep() -> list[Any]:
        value: list[Any] = []
        for _ in range(100_000):
            value = [value]
        return value

    new = [deep(), 1]
    assert StateDelta.of_update(State({"l": [deep()]}), {"l": new}, {}).changes["l"][0] == SetValue(new)


def test_a_node_deletes_a_key_by_returning_delete() -> None:
    assert updated({"a": 1, "b": 2}, {"a": DELETE}) == (StateDelta.of(a=DeleteKey()), {"b": 2})
    assert updated({"b": 2}, {"a": DELETE}) == (StateDelta(), {"b": 2})
    assert updated({"l": [1]}, {"l": DELETE}, l=append) == (StateDelta.of(l=DeleteKey()), {})


def test_the_append_reducer_takes_one_item_or_a_list_of_items() -> None:
    assert updated({"l": [1]}, {"l": 2}, l=append) == (StateDelta.of(l=Append((2,))), {"l": [1, 2]})
    assert updated({"l": [1]}, {"l": [2, 3]}, l=append)[1] == {"l": [1, 2, 3]}
    assert updated({}, {"l": (1, 2)}, l=append)[1] == {"l": [1, 2]}
    assert updated({}, {"l": "text"}, l=append)[1] == {"l": ["text"]}
    assert updated({}, {"l": []}, l=append)[1] == {"l": []}


def test_the_other_reducers_combine_with_the_old_value_or_begin_without_one() -> None:
    assert updated({"n": 1, "m": {"a": 1}}, {"n": 2, "m": {"b": 2}}, n=add, m=merge)[1] == {
        "n": 3,
        "m": {"a": 1, "b": 2},
    }
    assert updated({}, {"n": 2, "m": {"b": 2}}, n=add, m=merge)[1] == {"n": 2, "m": {"b": 2}}


def test_a_reducer_of_the_users_own_learns_that_there_was_nothing() -> None:
    seen: list[Any] = []

    def longest(old: Any, new: Any) -> Any:
        seen.append(old)
        return new if old is MISSING else max(old, new, key=len)

    assert updated({}, {"k": "ab"}, k=longest)[1] == {"k": "ab"}
    assert updated({"k": "abc"}, {"k": "ab"}, k=longest)[1] == {"k": "abc"}
    assert seen == [MISSING, "abc"]


def test_the_reducers_that_data_can_name_are_the_three_that_exist() -> None:
    assert dict(REDUCERS) == {"append": append, "merge": merge, "add": add}


def test_the_delta_between_two_states_holds_only_what_differs() -> None:
    old = State({"same": [1], "gone": 1, "grown": [1], "other": 1})
    new = State({"same": [1], "grown": [1, 2], "other": True, "new": None})
    assert StateDelta.between(old, new) == StateDelta.of(
        gone=DeleteKey(), grown=Append((2,)), other=SetValue(True), new=SetValue(None)
    )
    assert not StateDelta.between(old, State(dict(old)))


@pytest.mark.parametrize(
    ("first", "then", "both"),
    [
        ((Append((1,)),), (Append((2,)),), (Append((1, 2)),)),
        ((SetValue([1]),), (Append((2,)),), (SetValue([1, 2]),)),
        ((SetValue([1, 2]),), (Splice(0, 1),), (SetValue([2]),)),
        ((DeleteKey(),), (Append((2,)),), (SetValue([2]),)),
        ((Append((1,)),), (SetValue(5),), (SetValue(5),)),
        ((Append((1,)),), (DeleteKey(),), (DeleteKey(),)),
        ((Splice(0, 1),), (Append((2,)),), (Splice(0, 1), Append((2,)))),
        ((Append((1,)),), (Splice(0, 1), Append((3,))), (Append((1,)), Splice(0, 1), Append((3,)))),
    ],
    ids=repr,
)
def test_composed_changes_are_as_short_as_they_can_be(
    first: tuple[Change, ...], then: tuple[Change, ...], both: tuple[Change, ...]
) -> None:
    assert StateDelta({"k": first}).compose(StateDelta({"k": then})).changes == {"k": both}


def test_composing_changes_neither_delta() -> None:
    items = [1]
    first, then = StateDelta.of(k=SetValue(items)), StateDelta.of(k=Append((2,)), j=SetValue(3))
    assert first.compose(then) == StateDelta.of(k=SetValue([1, 2]), j=SetValue(3))
    assert (first, items) == (StateDelta.of(k=SetValue([1])), [1])


@pytest.mark.parametrize(
    ("change", "back"),
    [
        (Append((4,)), Splice(3, 1)),
        (Splice(1, 2, ("a",)), Splice(1, 1, (2, 3))),
        (SetValue(5), SetValue([1, 2, 3])),
        (DeleteKey(), SetValue([1, 2, 3])),
    ],
    ids=repr,
)
def test_the_way_back_is_as_short_as_the_way_there(change: Change, back: Change) -> None:
    base = State({"l": [1, 2, 3]})
    inverse = StateDelta.of(l=change).invert(base)
    assert inverse == StateDelta.of(l=back)
    assert base.apply(StateDelta.of(l=change)).apply(inverse) == base


def test_what_was_not_there_before_is_gone_on_the_way_back() -> None:
    delta = StateDelta.of(new=Append((1,)))
    assert delta.invert(State()) == StateDelta.of(new=DeleteKey())


def test_a_composition_that_cannot_be_applied_names_the_key() -> None:
    with pytest.raises(InvalidStateChange, match="cannot splice 'k': items 0 to 2 of a list of 1"):
        StateDelta.of(k=SetValue([1])).compose(StateDelta.of(k=Splice(0, 2)))
