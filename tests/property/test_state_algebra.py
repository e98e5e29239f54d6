"""State algebra: deltas compose, invert and lead where they say, for whatever states and changes there may be."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from wtb.domain.state import (
    DELETE,
    MISSING,
    Append,
    Change,
    DeleteKey,
    Reducer,
    SetValue,
    Splice,
    State,
    StateDelta,
    add,
    append,
    merge,
)
from wtb.testing.values import identical

KEYS = st.sampled_from(["a", "b", "c", "größe", ""])
# Values that are equal without being the same are among them: 0, 0.0, -0.0 and False; 1, 1.0 and True.
SCALARS = st.sampled_from(
    [None, 0, 1, False, True, 0.0, -0.0, 1.0, float("nan"), "", "1", b"1", (), (1,), (True,), 1 << 70]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", 1, True]), inner, max_size=3)
    ),
    max_leaves=6,
)
LISTS = st.lists(VALUES, max_size=5)
STATES = st.dictionaries(KEYS, LISTS | VALUES, max_size=4).map(State)


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Equal to the last type, in whatever order the keys are."""
    return one.keys() == other.keys() and all(identical(one[key], other[key]) for key in one)


@st.composite
def changes(draw: st.DrawFn, length: int | None) -> Change:
    """Return a change that fits a key: `length` is that of its list, None when it holds something else."""
    kinds = ["set", "delete"] if length is None else ["set", "delete", "append", "append", "splice", "splice"]
    match draw(st.sampled_from(kinds)):
        case "delete":
            return DeleteKey()
        case "append":
            return Append(tuple(draw(LISTS)))
        case "splice":
            start = draw(st.integers(0, length or 0))
            return Splice(start, draw(st.integers(0, (length or 0) - start)), tuple(draw(LISTS)))
    return SetValue(draw(LISTS | VALUES))


@st.composite
def deltas(draw: st.DrawFn, state: State) -> StateDelta:
    """Return a delta that can be applied to the state."""
    result: dict[str, tuple[Change, ...]] = {}
    for key in draw(st.lists(KEYS, unique=True, max_size=3)):
        for _ in range(draw(st.integers(1, 3))):
            before = state.apply(StateDelta(result))
            length = before.list_length(key) if key in before else 0
            result[key] = (*result.get(key, ()), draw(changes(length)))
    return StateDelta(result)


@st.composite
def journeys(draw: st.DrawFn, steps: int) -> tuple[State, list[StateDelta]]:
    """Return a state and deltas, each of which can be applied where the one before it leads to."""
    start = at = draw(STATES)
    way = []
    for _ in range(steps):
        way.append(draw(deltas(at)))
        at = at.apply(way[-1])
    return start, way


@given(journeys(2))
def test_a_composed_delta_does_what_both_do_after_each_other(journey: tuple[State, list[StateDelta]]) -> None:
    start, (first, then) = journey
    assert same(start.apply(first.compose(then)), start.apply(first).apply(then))


@given(journeys(3))
def test_it_does_not_matter_which_deltas_are_composed_first(journey: tuple[State, list[StateDelta]]) -> None:
    start, (one, two, three) = journey
    assert same(start.apply(one.compose(two).compose(three)), start.apply(one.compose(two.compose(three))))


@given(journeys(1))
def test_nothing_is_the_neutral_delta(journey: tuple[State, list[StateDelta]]) -> None:
    start, (delta,) = journey
    there = start.apply(delta)
    assert same(start.apply(StateDelta().compose(delta)), there)
    assert same(start.apply(delta.compose(StateDelta())), there)


@given(journeys(1))
def test_an_inverse_undoes(journey: tuple[State, list[StateDelta]]) -> None:
    start, (delta,) = journey
    assert same(start.apply(delta).apply(delta.invert(start)), start)


@given(journeys(2))
def test_the_inverse_of_a_composed_delta_undoes_both(journey: tuple[State, list[StateDelta]]) -> None:
    start, (first, then) = journey
    both = first.compose(then)
    assert same(start.apply(first).apply(then).apply(both.invert(start)), start)


@given(journeys(1))
def test_the_inverse_of_an_inverse_leads_there_again(journey: tuple[State, list[StateDelta]]) -> None:
    start, (delta,) = journey
    there = start.apply(delta)
    back = delta.invert(start)
    assert same(start.apply(back.invert(there)), there)


@given(STATES, STATES)
def test_the_delta_between_two_states_leads_from_one_to_the_other(old: State, new: State) -> None:
    delta = StateDelta.between(old, new)
    assert same(old.apply(delta), new)
    assert bool(delta) == (not same(old, new))


@given(journeys(1))
def test_the_delta_between_start_and_end_of_a_change_leads_to_its_end(journey: tuple[State, list[StateDelta]]) -> None:
    start, (delta,) = journey
    there = start.apply(delta)
    assert same(start.apply(StateDelta.between(start, there)), there)


@given(journeys(3))
def test_applying_a_delta_changes_no_state_and_no_delta(journey: tuple[State, list[StateDelta]]) -> None:
    start, way = journey
    before = repr((start, way))
    at, whole = start, StateDelta()
    for delta in way:
        whole = whole.compose(delta)
        delta.invert(at)
        at = at.apply(delta)
    assert repr((start, way)) == before


@given(STATES, st.data())
def test_every_state_of_a_tree_stays_as_it_was_whatever_grows_out_of_it(root: State, data: st.DataObject) -> None:
    """Lists that only grow are shared between states: no branch may see what another appends."""
    tree = [(root, {key: root[key] for key in root})]
    for _ in range(data.draw(st.integers(1, 8))):
        state, _ = data.draw(st.sampled_from(tree))
        child = state.apply(data.draw(deltas(state)))
        tree.append((child, {key: child[key] for key in child}))
    assert all(same(state, as_it_was) for state, as_it_was in tree)


def keep_longest(old: Any, new: Any) -> Any:
    """Stand for a reducer of the user's own that gives back one of the two."""
    return new if old is MISSING or len(repr(new)) > len(repr(old)) else old


def prepend(old: Any, new: Any) -> list[Any]:
    """Stand for a reducer whose result begins with something new."""
    return [new, *([] if old is MISSING else old)]


class Kind(NamedTuple):
    """A reducer, the values that its key may hold, and those that a node may write to it."""

    reducer: Reducer | None
    held: st.SearchStrategy[Any]
    written: st.SearchStrategy[Any]


KINDS = {
    "plain": Kind(None, LISTS | VALUES, LISTS | VALUES),
    "messages": Kind(append, LISTS, LISTS | VALUES),
    "count": Kind(add, st.integers() | st.floats(allow_nan=False), st.integers()),
    "merged": Kind(merge, st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES)),
    "longest": Kind(keep_longest, VALUES, LISTS | VALUES),
    "newest_first": Kind(prepend, LISTS, VALUES),
}
BEFORE = st.fixed_dictionaries({}, optional={key: kind.held for key, kind in KINDS.items()})
UPDATES = st.fixed_dictionaries({}, optional={key: kind.written | st.just(DELETE) for key, kind in KINDS.items()})


def naively(state: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Apply an update as its documentation says, without deltas."""
    result = dict(state)
    for key, written in update.items():
        reducer = KINDS[key].reducer
        if written is DELETE:
            result.pop(key, None)
        else:
            result[key] = reducer(result.get(key, MISSING), written) if reducer else written
    return result


@given(BEFORE, UPDATES)
def test_the_delta_of_an_update_does_what_the_reducers_say(before: dict[str, Any], update: dict[str, Any]) -> None:
    state = State(before)
    reducers = {key: kind.reducer for key, kind in KINDS.items() if kind.reducer is not None}
    assert same(state.apply(StateDelta.of_update(state, update, reducers)), naively(state, update))
