"""Long lists and mappings: a step that changes a little of them compares, hashes and stores a little."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.manifest_builder import Builder
from wtb.bootstrap import bootstrap
from wtb.domain.errors import DamagedData, InvalidStateChange
from wtb.domain.held import SMALLEST_MERGE
from wtb.domain.options import RunOptions
from wtb.domain.state import DELETE, Append, Merge, SetValue, Splice, State, StateDelta, merge
from wtb.domain.updates import restored, shortened
from wtb.flow import Workflow
from wtb.infrastructure.checkpoints.encoder import DeltaEncoder
from wtb.infrastructure.checkpoints.manifest import EMPTY, MappingEntry, Op, ValueEntry
from wtb.settings import Settings

LARGE = {f"k{number}": f"{number} {'x' * 1_000}" for number in range(200)}


def changed(old: Any, new: Any) -> Any:
    """Return the change that a node makes which was given the old value and returns the new one."""
    (change,) = StateDelta.of_update(State({"v": old}), {"v": new}, {}).changes["v"]
    return change


def mapping_of(builder: Builder) -> MappingEntry:
    entry = builder.manifest.find("m")
    assert isinstance(entry, MappingEntry)
    return entry


@pytest.mark.parametrize(
    ("new", "change"),
    [
        ({**LARGE, "new": 1}, Merge({"new": 1})),
        ({**LARGE, "k7": 1}, Merge({"k7": 1})),
        ({key: value for key, value in LARGE.items() if key != "k7"}, Merge({}, ("k7",))),
        ({**{key: value for key, value in LARGE.items() if key != "k7"}, "new": 1}, Merge({"new": 1}, ("k7",))),
        (dict(LARGE), Merge({})),
    ],
)
def test_a_mapping_of_which_few_keys_differ_is_merged(new: dict[str, Any], change: Merge) -> None:
    assert changed(LARGE, new) == change
    assert list(State({"v": LARGE}).apply(StateDelta.of(v=change))["v"].items()) == list(new.items())


@pytest.mark.parametrize(
    "new",
    [
        {"new": 1, **LARGE},
        {**{key: value for key, value in LARGE.items() if key != "k7"}, "k7": LARGE["k7"]},
        dict.fromkeys(LARGE, 1),
        {"k1": LARGE["k1"]},
    ],
    ids=["a key at the beginning", "a key moved to the end", "all values", "few keys left"],
)
def test_a_mapping_in_another_order_or_with_other_values_is_set(new: dict[str, Any]) -> None:
    assert changed(LARGE, new) == SetValue(new)


def test_a_key_that_is_merely_equal_to_the_old_one_is_a_change() -> None:
    old = dict.fromkeys(range(SMALLEST_MERGE), "x")
    new = {True if number == 1 else number: "x" for number in range(SMALLEST_MERGE)}
    assert changed(old, new) == SetValue(new)
    assert type(list(State({"v": old}).apply(StateDelta.of(v=changed(old, new)))["v"])[1]) is bool


def test_small_mappings_are_set_whole() -> None:
    old = {f"k{number}": number for number in range(SMALLEST_MERGE - 1)}
    assert changed(old, {**old, "k1": 5}) == SetValue({**old, "k1": 5})


def test_the_merge_reducer_merges_without_a_comparison() -> None:
    state = State({"v": LARGE})
    assert StateDelta.of_update(state, {"v": {"k1": LARGE["k1"]}}, {"v": merge}).changes["v"] == (
        Merge({"k1": LARGE["k1"]}),
    )


@pytest.mark.parametrize("value", ["text", [1], (1,), None])
def test_only_mappings_can_be_merged_into(value: Any) -> None:
    with pytest.raises(InvalidStateChange, match=f"cannot merge into 'm': it holds a {type(value).__name__}"):
        State({"m": value}).apply(StateDelta.of(m=Merge({"a": 1})))
    with pytest.raises(InvalidStateChange, match="cannot merge into 'm': it does not hold a mapping"):
        Builder().setting({"m": value}).apply(m=Merge({"a": 1}))


def test_merging_into_a_missing_key_begins_a_mapping() -> None:
    assert (
        State().apply(StateDelta.of(m=Merge({"a": 1}))) == Builder().apply(m=Merge({"a": 1})).state == {"m": {"a": 1}}
    )


def test_a_change_of_one_key_hashes_and_stores_little_of_the_mapping() -> None:
    builder = Builder().setting({"m": LARGE})
    hashed, stored = builder.codec.hashed_bytes, sum(map(len, builder.blobs.values()))
    builder.apply(m=Merge({"k7": "short"}, ("k8",)))
    assert builder.codec.hashed_bytes - hashed < 20_000
    assert sum(map(len, builder.blobs.values())) == stored
    assert builder.state["m"]["k7"] == "short"
    assert len(mapping_of(builder).changes.tail[0].data) < 50


def test_the_hash_of_a_mapping_does_not_know_how_it_came_about() -> None:
    direct = Builder().setting({"m": {key: LARGE[key] for key in sorted(LARGE)}})
    detour = Builder().setting({"m": {**LARGE, "gone": 1, "k3": 3}})
    detour.apply(m=Merge({}, ("gone", "k5"))).seal().apply(m=Merge({"k5": LARGE["k5"], "k3": LARGE["k3"]})).seal()
    assert detour.root == direct.root
    assert detour.state["m"] == LARGE
    assert list(detour.state["m"])[-1] == "k5"


def test_a_mapping_that_shrinks_or_gets_other_keys_is_kept_as_one_value_again() -> None:
    small = {key: LARGE[key] for key in list(LARGE)[: SMALLEST_MERGE - 1]}
    shrunk = Builder().setting({"m": LARGE}).apply(m=Merge({}, tuple(list(LARGE)[SMALLEST_MERGE - 1 :])))
    assert shrunk.root == Builder().setting({"m": small}).root
    for key in (1, (1, 2), "\ud800"):
        builder = Builder().setting({"m": LARGE}).apply(m=Merge({key: 1}))
        assert isinstance(builder.manifest.find("m"), ValueEntry)
        assert builder.root == Builder().setting({"m": {**LARGE, key: 1}}).root
        assert builder.apply(m=Merge({}, (key,))).root == Builder().setting({"m": LARGE}).root


def test_another_process_goes_on_from_a_stored_mapping() -> None:
    builder = Builder().setting({"m": LARGE})
    builder.encoder = DeltaEncoder(builder.codec)  # it remembers nothing
    builder.apply(m=Merge({"k7": "short"}))
    assert builder.root == Builder().setting({"m": {**LARGE, "k7": "short"}}).root


def test_a_mapping_that_an_older_version_stored_as_one_value_is_kept_by_key_when_it_changes() -> None:
    builder = Builder()
    data, canonical = builder.codec.encode(LARGE, "")
    address = builder.codec.digest(data)
    builder.blobs[address] = data
    operation = (Op.BLOB, builder.codec.digest(b"value", canonical), address, len(data))
    builder.manifest = EMPTY.apply({"m": (operation,)})
    assert builder.state == {"m": LARGE}
    builder.apply(m=Merge({"k7": "short"}))
    assert builder.root == Builder().setting({"m": {**LARGE, "k7": "short"}}).root


def test_a_key_that_is_set_again_and_again_does_not_make_the_mapping_grow_for_ever() -> None:
    builder = Builder().setting({"m": {f"k{number}": number for number in range(SMALLEST_MERGE)}})
    for number in range(500):
        builder.apply(m=Merge({"k1": number}))
        assert mapping_of(builder).changes.length <= 4 * SMALLEST_MERGE
    assert builder.state["m"]["k1"] == 499
    assert list(builder.state["m"])[1] == "k1"


@pytest.mark.parametrize("kind", ["list", "mapping"])
def test_what_a_node_returned_is_stored_by_what_it_changed(kind: str, tmp_path: Path) -> None:
    def node(state: Any) -> Any:
        more = f"{state['n']} {'y' * 1_000}"
        grown = [*state["v"], more] if kind == "list" else {**state["v"], more[:3]: more}
        return {"v": grown, "n": state["n"] + 1}

    flow = Workflow("grow").add_node("node", node, start=True).edge("node", "node").definition()
    start = {"v": list(LARGE.values()) if kind == "list" else LARGE, "n": 0}
    with bootstrap(Settings(folder=tmp_path / "wtb")) as services:
        run = services.controller.create(flow, start, RunOptions(max_steps=5))
        services.controller.run(run.id, flow)
        with services.storage.unit_of_work(readonly=True) as uow:
            infos = uow.checkpoints.list_infos(run.id)
            last = uow.checkpoints.load(infos[-1].id)
    assert [info.size_bytes < 2_000 for info in infos] == [False, *[True] * 5]
    assert last.returned["node"]["v"] == last.state["v"]
    assert len(last.state["v"]) == len(LARGE) + 5


def test_a_result_that_waits_is_kept_by_what_it_changed() -> None:
    state = State({"list": [1, {"a": 2}], "mapping": LARGE, "gone": 1, "other": [1]})
    update = {"list": [1, {"a": 2}, 3], "mapping": {**LARGE, "k1": 1}, "gone": DELETE, "other": [2], "n": 5}
    data = shortened(state.copy_in(update))
    assert data == {
        "returned": {"other": [2], "n": 5},
        "deleted": ["gone"],
        "grown": {"list": {"length": 2, "items": [3]}, "mapping": {"items": {"k1": 1}, "removed": []}},
    }
    assert restored(data, state) == update
    with pytest.raises(DamagedData, match="'list'"):
        restored(data, State({**state, "list": [1]}))


def test_results_that_older_versions_kept_are_read() -> None:
    assert restored({"returned": {"a": [1]}}, State()) == {"a": [1]}
    assert restored({"returned": {"a": [1]}, "deleted": ["b"]}, State()) == {"a": [1], "b": DELETE}


def test_what_a_node_returns_for_a_key_that_it_cannot_read_does_not_depend_on_the_state() -> None:
    state = State({"list": [1]})
    assert shortened(state.copy_in({"list": [1, 2]}, reads=("other",)))["returned"] == {"list": [1, 2]}


def test_a_node_cannot_change_what_the_state_took_over_from_it() -> None:
    state = State({"list": [{"a": 1}], "mapping": {f"k{number}": {"a": [number]} for number in range(50)}})
    lists, mappings = state.copy_out("list"), state.copy_out("mapping")
    update: dict[str, Any] = {"list": [*lists, {"b": [1]}], "mapping": {**mappings, "new": {"b": [1]}}}
    after = state.apply(StateDelta.of_update(state, state.copy_in(update), {}))
    update["list"][1]["b"].append(2)
    update["mapping"]["new"]["b"].append(2)
    mappings["k3"]["a"].append(2)
    lists[0]["a"] = 2
    assert after["list"] == [{"a": 1}, {"b": [1]}]
    assert (after["mapping"]["new"], after["mapping"]["k3"], state["mapping"]["k3"]) == (
        {"b": [1]},
        {"a": [3]},
        {"a": [3]},
    )


def test_merges_are_composed_and_undone() -> None:
    first, then = Merge({"a": 1, "b": 2}, ("k1",)), Merge({"k1": 5}, ("b", "k2"))
    state = State({"m": LARGE})
    one_by_one = state.apply(StateDelta.of(m=first)).apply(StateDelta.of(m=then))
    both = StateDelta.of(m=first).compose(StateDelta.of(m=then))
    assert list(state.apply(both)["m"].items()) == list(one_by_one["m"].items())
    assert both.changes["m"] == (Merge({"a": 1, "k1": 5}, ("k1", "b", "k2")),)
    assert list(state.apply(both).apply(both.invert(state))["m"].items()) == list(LARGE.items())
    assert StateDelta.of(m=SetValue({"x": 1})).compose(StateDelta.of(m=Merge({"y": 2}))).changes["m"] == (
        SetValue({"x": 1, "y": 2}),
    )


def test_an_append_after_a_merge_is_refused() -> None:
    delta = StateDelta({"m": (Merge({"a": 1}), Append((1,)), Splice(0, 0))})
    with pytest.raises(InvalidStateChange, match="cannot append to 'm': it holds a dict, not a list"):
        State({"m": LARGE}).apply(delta)


def stepped(state: State, **values: Any) -> State:
    """Return the state after a node that returned these values."""
    return state.apply(StateDelta.of_update(state, state.copy_in(values), {}))


def test_a_record_that_is_set_back_is_a_change() -> None:
    first, second = "first" * 10, "second" * 10
    states = [State({"v": {f"k{number}": {"text": first} for number in range(50)}})]
    for text in (first, second, first, second):
        states.append(stepped(states[-1], v={**states[-1].copy_out("v"), "k3": {"text": text}}))
    assert [state["v"]["k3"]["text"] for state in states] == [first, first, second, first, second]


@pytest.mark.parametrize("kind", ["list", "mapping"])
def test_a_key_that_moves_from_one_record_to_the_next_is_a_change(kind: str) -> None:
    items = [{"a": 1}, {"b": 2}] * 20
    moved = [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}, {}, *items[4:]]
    old, new = (
        {"list": each, "mapping": {f"k{number}": item for number, item in enumerate(each)}}[kind]
        for each in (items, moved)
    )
    state = State({"v": old})
    for _ in range(2):
        state = stepped(state, v=state.copy_out("v"))
    assert stepped(state, v=new)["v"] == new
