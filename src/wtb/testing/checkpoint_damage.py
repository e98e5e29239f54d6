"""A part of the contract of CheckpointStore: what was changed behind its back is found when it is read."""

from __future__ import annotations

from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import DamagedData
from wtb.domain.ports import Storage
from wtb.domain.state import Append, StateDelta
from wtb.testing.damage import Tamper
from wtb.testing.stories import StateChange, Story, StoryFixtures

_GOOD, _BAD = "0ld-value", "n3w-value"

_HOLDING: dict[str, StateChange] = {
    "a small value": {"x": _GOOD},
    "a large value": {"x": [0], "y": _GOOD * 1_000},
    "a mapping": {"x": {"y": [{"z": _GOOD}]}},
    "an item": {"x": [1, _GOOD, 2]},
    "a large item": {"x": ["a" * 5_000, _GOOD * 1_000]},
    "an appended item": StateDelta.of(list=Append((_GOOD,))),
    "a key": {_GOOD: 1},
}


class DamageLaws(StoryFixtures):
    """Damage is named where it is met. The fixture `tamper` does it."""

    @pytest.mark.parametrize("change", _HOLDING.values(), ids=_HOLDING.keys())
    def test_a_changed_state_is_found(self, story: Story, tamper: Tamper, change: StateChange) -> None:
        start = story.save({"list": [1]})
        damaged = story.save(change, parent=start)
        child = story.save({"child": 1}, parent=damaged)
        beside = story.save({"beside": 1}, parent=start)
        tamper(_GOOD.encode(), _BAD.encode())
        with pytest.raises(DamagedData, match=damaged.id):
            story.load(damaged)
        with pytest.raises(DamagedData):
            story.load(child)
        assert story.state(beside) == {"list": [1], "beside": 1}

    def test_a_changed_item_is_found_however_long_ago_it_was_added(self, story: Story, tamper: Tamper) -> None:
        deltas = [StateDelta.of(items=Append((f"{number} {'x' * 600}",))) for number in range(120)]
        line = story.line(StateDelta.of(items=Append((_GOOD,))), *deltas)
        tamper(_GOOD.encode(), _BAD.encode())
        for damaged in (line[0], line[60], line[-1]):
            with pytest.raises(DamagedData):
                story.load(damaged)

    def test_a_changed_record_of_what_was_returned_is_found(self, story: Story, tamper: Tamper) -> None:
        for value in (_GOOD, _GOOD * 1_000):
            damaged = story.save({"x": 1}, returned={"work": {"x": value}})
            tamper(_GOOD.encode(), _BAD.encode())
            with pytest.raises(DamagedData, match=damaged.id):
                story.load(damaged)

    @pytest.mark.parametrize("fact", ["name", "description", "node", "agent", "created_by", "file_commit"])
    def test_a_changed_fact_is_found_by_every_way_of_reading(
        self, storage: Storage, story: Story, tamper: Tamper, fact: str
    ) -> None:
        facts: dict[str, Any] = {fact: _GOOD}
        damaged = story.save({"x": 1}, **facts)
        tamper(_GOOD.encode(), _BAD.encode())
        _assert_found(storage, story, damaged)

    @pytest.mark.parametrize("hashed", ["hash", "state_hash", "parent_hash"])
    def test_a_changed_hash_is_found_by_every_way_of_reading(
        self, storage: Storage, story: Story, tamper: Tamper, hashed: str
    ) -> None:
        start = story.save({"x": 1})
        damaged = story.save({"x": 2}, parent=start)
        tamper(getattr(damaged, hashed), b"\x07" * 32)
        _assert_found(storage, story, start if hashed == "parent_hash" else damaged)


def _assert_found(storage: Storage, story: Story, damaged: Checkpoint) -> None:
    with storage.unit_of_work(readonly=True) as uow:
        for look in (uow.checkpoints.get, uow.checkpoints.load):
            with pytest.raises(DamagedData, match=damaged.id):
                look(damaged.id)
        for list_them in (uow.checkpoints.list_infos, uow.checkpoints.load_history):
            with pytest.raises(DamagedData, match=damaged.id):
                list_them(story.id)
        with pytest.raises(DamagedData, match=damaged.id):
            list(uow.checkpoints.each_info(story.id))
