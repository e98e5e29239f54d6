"""A part of the contract of CheckpointStore: comparing gives what loading both states and comparing them would."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import CheckpointNotFound, DamagedData
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import Storage
from wtb.domain.state import Append, Change, DeleteKey, SetValue, Splice, StateDelta
from wtb.testing.damage import Tamper
from wtb.testing.stories import Story, StoryFixtures
from wtb.testing.values import identical

_KEYS = ("a", "b", "list", "nested")
_VALUES: tuple[Any, ...] = (True, 1, 1.0, -0.0, 0.0, float("nan"), "x" * 300, "y" * 20_000, (1, [2]), {"k": [None]}, [])


class ComparisonLaws(StoryFixtures):
    """What differs between two checkpoints."""

    @pytest.mark.parametrize("seed", range(3))
    def test_it_is_what_differs_between_the_loaded_states(self, storage: Storage, story: Story, seed: int) -> None:
        random = Random(seed)
        made = [story.save({"list": ["z" * 5_000, 0]})]
        for _ in range(12):
            parent = random.choice(made)
            made.append(story.save(_random_delta(random, story.state(parent)), parent=parent))
        states = {checkpoint.id: story.state(checkpoint) for checkpoint in made}
        with storage.unit_of_work(readonly=True) as uow:
            for old, new in product(states, repeat=2):
                found = uow.checkpoints.compare(old, new)
                assert identical(found, _expected(states[old], states[new])), (old, new)

    def test_what_came_about_in_another_way_is_equal(self, storage: Storage, story: Story) -> None:
        start = story.save({"list": [1], "mapping": {"a": 1, "b": 2}})
        grown = story.save(StateDelta.of(list=Append((2,))), parent=start)
        whole = story.fork(start).save({"list": [1, 2], "mapping": {"b": 2, "a": 1}})
        assert _compared(storage, grown, whole) == ({}, {})
        assert _compared(storage, start, whole) == ({"list": [1]}, {"list": [1, 2]})

    def test_both_must_be_there(self, storage: Storage, story: Story) -> None:
        gone, child = story.line({"x": 1}, {"x": 2})
        story.delete(gone)
        with storage.unit_of_work(readonly=True) as uow:
            for missing in (gone.id, CheckpointId("no-such-id")):
                for pair in ((missing, child.id), (child.id, missing)):
                    with pytest.raises(CheckpointNotFound, match=missing):
                        uow.checkpoints.compare(*pair)

    def test_damage_of_what_differs_is_found(self, storage: Storage, story: Story, tamper: Tamper) -> None:
        for good in ("0ld-value", "0ld-value" * 1_000):
            start = story.save({"x": 1})
            damaged = story.save({"x": good}, parent=start)
            tamper(b"0ld-value", b"n3w-value")
            with pytest.raises(DamagedData, match=damaged.id):
                _compared(storage, start, damaged)

    def test_nothing_is_read_of_what_is_equal(self, storage: Storage, story: Story, tamper: Tamper) -> None:
        start = story.save({"x": 1, "large": "0ld-value" * 1_000})
        end = story.save({"x": 2}, parent=start)
        tamper(b"0ld-value", b"n3w-value")
        assert _compared(storage, start, end) == ({"x": 1}, {"x": 2})


def _compared(storage: Storage, old: Checkpoint, new: Checkpoint) -> Any:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.checkpoints.compare(old.id, new.id)


def _random_delta(random: Random, state: dict[str, Any]) -> StateDelta:
    changes: dict[str, Change] = {}
    for key in random.sample(_KEYS, random.randint(0, 2)):
        held = state.get(key, [])
        if type(held) is list and random.random() < 0.5:
            start = random.randint(0, len(held))
            splice = Splice(start, random.randint(0, len(held) - start), (random.choice(_VALUES),))
            changes[key] = random.choice((Append((random.choice(_VALUES),)), splice))
        else:
            changes[key] = random.choice((SetValue(random.choice(_VALUES)), DeleteKey()))
    return StateDelta.of(**changes)


def _expected(old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    differing = [
        key for key in sorted({**old, **new}) if not (key in old and key in new and identical(old[key], new[key]))
    ]
    return {key: old[key] for key in differing if key in old}, {key: new[key] for key in differing if key in new}
