"""A part of the contract of CheckpointStore: which values and changes it keeps, and how it refuses the rest."""

from __future__ import annotations

import random
from typing import Any

import pytest

from wtb.domain.errors import CheckpointNotFound, InvalidInput, InvalidStateChange, StateNotSerialisable
from wtb.domain.ports import Storage
from wtb.domain.state import Append, Change, DeleteKey, Merge, SetValue, Splice, State, StateDelta
from wtb.testing.stories import Story, StoryFixtures, delta_of
from wtb.testing.values import AWKWARD_VALUES, EXACT_VALUES, identical

_BIG = "x" * 3_000

_CHANGES: dict[str, tuple[Change, ...]] = {
    "set": (SetValue({"new": 1}),),
    "set to a list": (SetValue(["new", 1]),),
    "set to an empty list": (SetValue([]),),
    "delete": (DeleteKey(),),
    "append": (Append(("new", {"x": [1]})),),
    "append nothing": (Append(()),),
    "append much": (Append(tuple(f"{number} {_BIG}" for number in range(60))),),
    "splice at the start": (Splice(0, 2, ("new",)),),
    "splice in the middle": (Splice(3, 2, ("new", "newer", _BIG)),),
    "splice at the end": (Splice(10, 0, ("new",)),),
    "splice everything": (Splice(0, 10),),
    "splice nothing": (Splice(4, 0),),
    "append, splice, append": (Append((_BIG, "a")), Splice(9, 2, ("b",)), Append(("c",))),
    "delete, append": (DeleteKey(), Append(("again",))),
    "set, append, splice": (SetValue(["only"]), Append(("two", "three")), Splice(1, 1)),
    "splice, splice": (Splice(0, 5), Splice(0, 5, ("end",))),
    "append, delete": (Append(("x",)), DeleteKey()),
    "set, set": (SetValue(1), SetValue([2])),
}

_LISTS: tuple[list[Any], ...] = (
    list(range(10)),
    [f"{number} {_BIG}" for number in range(10)],
    [f"{number} {'y' * 50_000}" for number in range(10)],
)


def _callback() -> None: ...


def _short(key: str) -> str:
    return ascii(key)[:12]


class ValueLaws(StoryFixtures):
    """Values and changes come back exactly, or are refused by their path; nothing in between."""

    @pytest.mark.parametrize("changes", _CHANGES.values(), ids=_CHANGES.keys())
    def test_a_list_changes_as_the_delta_says(self, story: Story, changes: tuple[Change, ...]) -> None:
        delta = StateDelta({"key": changes})
        for items in _LISTS:
            before = {"key": items, "other": 1}
            start, end = story.line(before, delta)
            assert story.state(end) == dict(State(before).apply(delta))
            assert story.state(start) == before

    @pytest.mark.parametrize("keys", [3, 32, 40, 200])
    @pytest.mark.parametrize("size", [1, 300, 5_000])
    def test_a_mapping_changes_as_the_deltas_say(self, story: Story, keys: int, size: int) -> None:
        state = State({"key": {f"k{number}": "x" * size for number in range(keys)}})
        deltas, expected = [delta_of(state)], [dict(state)]
        merges = [Merge({f"k{number}": {"new": "y" * size}}, (f"k{number * 7 % keys}",)) for number in range(40)]
        for change in (*merges, Merge({}, tuple(f"k{number}" for number in range(keys))), Merge({1: "one"})):
            deltas.append(StateDelta.of(key=change))
            state = state.apply(deltas[-1])
            expected.append(dict(state))
        assert identical([story.state(checkpoint) for checkpoint in story.line(*deltas)], expected)

    @pytest.mark.parametrize(
        "changes", [(Append((1,)),), (Append(()),), (Splice(0, 0, (1,)),), (Merge({"a": 1}),), (DeleteKey(),)], ids=str
    )
    def test_a_missing_key_counts_as_an_empty_list_or_mapping(self, story: Story, changes: tuple[Change, ...]) -> None:
        saved = story.save(StateDelta({"key": changes}))
        assert story.state(saved) == dict(State().apply(StateDelta({"key": changes})))

    def test_composed_deltas_do_what_their_parts_did(self, story: Story) -> None:
        start = story.save({"key": list(range(10)), "a": 1, "b": 2})
        deltas = [
            StateDelta({"key": (Append((10, _BIG)),), "a": (DeleteKey(),)}),
            StateDelta({"key": (Splice(2, 5, ("cut",)),), "c": (SetValue([1]),)}),
            StateDelta({"key": (Append((11,)),), "c": (Append((2,)),), "a": (SetValue(3),)}),
        ]
        apart = story.line(*deltas, parent=start)[-1]
        at_once = story.save(deltas[0].compose(deltas[1]).compose(deltas[2]), parent=start)
        assert story.state(apart) == story.state(at_once)
        assert apart.state_hash == at_once.state_hash

    def test_an_inverted_delta_leads_back(self, story: Story) -> None:
        base = State({"key": list(range(10)), "a": 1})
        for change in (Append((1, _BIG)), Splice(2, 3, ("x",)), SetValue(1), DeleteKey()):
            delta = StateDelta({"key": (change,), "a": (DeleteKey(),), "new": (SetValue(1),)})
            start, _, back = story.line(dict(base), delta, delta.invert(base))
            assert story.state(back) == dict(base)
            assert back.state_hash == start.state_hash

    def test_a_long_run_of_changes_is_kept_at_every_step(self, story: Story) -> None:
        chance, state = random.Random(7), State({"list": [], "log": []})
        deltas, expected = [delta_of(state)], [dict(state)]
        for number in range(150):
            delta = _any_delta(chance, state, number)
            state = state.apply(delta)
            deltas.append(delta)
            expected.append(dict(state))
        assert [story.state(checkpoint) for checkpoint in story.line(*deltas)] == expected

    def test_exact_values_come_back_exactly(self, story: Story) -> None:
        saved = story.save(EXACT_VALUES)
        state = story.state(saved)
        assert [key for key in EXACT_VALUES if not identical(state[key], EXACT_VALUES[key])] == []

    def test_exact_values_come_back_exactly_inside_others(self, story: Story) -> None:
        values = list(EXACT_VALUES.values())
        first = story.save({"items": values, "map": dict(EXACT_VALUES)})
        second = story.save(StateDelta.of(items=Append(tuple(values))), parent=first)
        assert identical(story.state(first)["map"], EXACT_VALUES)
        assert identical(story.state(first)["items"], values)
        assert identical(story.state(second)["items"], values + values)

    @pytest.mark.parametrize("key", ["", " ", "a.b", "ü☃", "a\x00b", "k" * 1_000, "surrogate \ud800"], ids=_short)
    def test_a_key_may_be_any_text_or_is_refused(self, story: Story, key: str) -> None:
        start = story.save({"x": 1})
        try:
            end = story.line({key: [1]}, StateDelta({key: (Append((2,)),)}), parent=start)[-1]
        except StateNotSerialisable:
            assert story.infos() == (start,)
        else:
            assert story.state(end) == {"x": 1, key: [1, 2]}

    @pytest.mark.parametrize("key", [1, None, b"x", ("x",)], ids=repr)
    def test_a_key_that_is_no_text_is_refused(self, story: Story, key: Any) -> None:
        with pytest.raises(InvalidInput, match="key"):
            story.save(StateDelta({key: (SetValue(1),)}))
        assert story.infos() == ()

    def test_awkward_values_come_back_exactly_or_are_refused_by_their_path(self, story: Story) -> None:
        changed = [name for name, value in AWKWARD_VALUES.items() if not _kept_or_refused(story, value)]
        assert changed == []

    @pytest.mark.parametrize(
        ("path", "delta"),
        [
            ("state.agent", delta_of({"agent": _callback})),
            ("state.agent.callback", delta_of({"good": 1, "agent": {"name": "x", "callback": _callback}})),
            ("state.items[1]", delta_of({"items": ["x" * 1_000, _callback]})),
            ("state.list[2].call", StateDelta.of(list=Append(({"call": _callback},)))),
            ("state.list[1]", StateDelta.of(list=Splice(1, 1, (_callback,)))),
        ],
        ids=["a value", "in a mapping", "in a list", "appended", "spliced"],
    )
    def test_what_cannot_be_stored_is_named_and_nothing_is_kept(
        self, storage: Storage, story: Story, path: str, delta: StateDelta
    ) -> None:
        start = story.save({"list": [1, 2]})
        draft = story.draft(parent=start)
        with storage.unit_of_work() as uow:
            with pytest.raises(StateNotSerialisable) as raised:
                uow.checkpoints.save(draft, delta)
            uow.commit()
        assert raised.value.path == path
        assert str(raised.value).startswith(f"{path}: function")
        with pytest.raises(CheckpointNotFound), storage.unit_of_work(readonly=True) as uow:
            uow.checkpoints.load(draft.id)
        assert story.infos() == (start,)

    def test_what_a_node_returned_is_named_when_it_cannot_be_stored(self, story: Story) -> None:
        with pytest.raises(StateNotSerialisable, match=r"work.*agent\.callback: function"):
            story.save({"agent": "reduced"}, returned={"work": {"agent": {"callback": _callback}}})
        assert story.infos() == ()

    @pytest.mark.parametrize(
        "delta",
        [
            StateDelta.of(text=Append(("x",))),
            StateDelta.of(text=Splice(0, 0, ("x",))),
            StateDelta.of(list=Splice(1, 2)),
            StateDelta.of(list=Splice(3, 0, ("x",))),
            StateDelta.of(list=Splice(-1, 1)),
            StateDelta.of(missing=Splice(0, 1)),
        ],
        ids=["append to text", "splice of text", "too long", "behind the end", "before the start", "of nothing"],
    )
    def test_a_change_that_does_not_fit_is_refused_and_nothing_is_kept(self, story: Story, delta: StateDelta) -> None:
        start = story.save({"text": "abc", "list": [1, 2]})
        with pytest.raises(InvalidStateChange, match=next(iter(delta.changes))):
            story.save(delta, parent=start)
        assert story.infos() == (start,)

    def test_ten_megabytes_are_kept(self, story: Story) -> None:
        values = {"bytes": b"\xab" * 10_000_000, "text": "ü" * 5_000_000, "item": ["x" * 10_000_000]}
        start, end = story.line(values, {"small": 1})
        assert story.state(end) == values | {"small": 1}
        assert end.size_bytes < 1_000 < start.size_bytes

    def test_a_hundred_thousand_keys_are_kept(self, story: Story) -> None:
        values: dict[str, Any] = {f"key {number}": number for number in range(100_000)}
        start = story.save(values)
        end = story.save(StateDelta({"key 5": (SetValue("five"),), "key 6": (DeleteKey(),)}), parent=start)
        del values["key 6"]
        assert story.state(end) == values | {"key 5": "five"}
        assert end.size_bytes < 1_000

    def test_a_hundred_thousand_items_are_kept(self, story: Story) -> None:
        items = list(range(100_000))
        start, more, cut = story.line(
            {"items": items}, StateDelta.of(items=Append(("end",))), StateDelta.of(items=Splice(50_000, 50_000))
        )
        assert story.state(start)["items"] == items
        assert story.state(more)["items"] == [*items, "end"]
        assert story.state(cut)["items"] == [*items[:50_000], "end"]


def _kept_or_refused(story: Story, value: Any) -> bool:
    before = story.infos()
    try:
        saved = story.save({"agent": {"value": value}})
    except StateNotSerialisable as error:
        return str(error).startswith("state.agent.value") and story.infos() == before
    return identical(story.state(saved)["agent"], {"value": value})


def _any_delta(chance: random.Random, state: State, number: int) -> StateDelta:
    """Return a delta of one to three keys that fits the state: mostly appends, some of everything else."""
    changes: dict[str, tuple[Change, ...]] = {"log": (Append((f"step {number} {'l' * chance.randrange(300)}",)),)}
    length = state.list_length("list") or 0
    start = chance.randrange(length + 1)
    match chance.randrange(5):
        case 0:
            changes["list"] = (Splice(start, chance.randrange(length - start + 1), ("spliced", number)),)
        case 1:
            changes["list"] = (Append(tuple(range(chance.randrange(40)))),)
        case 2:
            changes[f"key {chance.randrange(8)}"] = (SetValue("v" * chance.randrange(2_000)),)
        case 3:
            changes[f"key {chance.randrange(8)}"] = (DeleteKey(),)
    return StateDelta(changes)
