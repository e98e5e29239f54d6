"""A part of the contract of CheckpointStore: what its hashes cover, and what they do not depend on."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from wtb.domain.checkpoint import CheckpointDraft, Kind, Trigger
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.ports import Storage
from wtb.domain.state import Append, DeleteKey, SetValue, Splice, StateDelta
from wtb.testing.stories import StateChange, Story, StoryFixtures, delta_of

_ITEMS = [f"{number} {'x' * 900}" for number in range(100)]

_SAME_STATE: dict[str, tuple[StateChange, ...]] = {
    "set whole": ({"items": _ITEMS, "map": {"a": 1, "b": 2}, "x": None},),
    "keys in another order": ({"x": None, "map": {"b": 2, "a": 1}, "items": _ITEMS},),
    "appended one by one": (
        {"x": None, "map": {"a": 1, "b": 2}},
        *[StateDelta.of(items=Append((item,))) for item in _ITEMS],
    ),
    "appended in two parts": (
        {"items": _ITEMS[:7], "x": None},
        StateDelta.of(items=Append(tuple(_ITEMS[7:])), map=SetValue({"b": 2, "a": 1})),
    ),
    "spliced": (
        {"items": [*_ITEMS[:50], "wrong", "wrong", *_ITEMS[51:], "wrong"], "map": {"a": 1, "b": 2}, "x": None},
        StateDelta.of(items=Splice(50, 2, (_ITEMS[50],))),
        StateDelta.of(items=Splice(100, 1)),
    ),
    "changed and changed back": (
        {"items": _ITEMS, "map": {}, "x": 1, "more": 2},
        {"items": "no list", "map": {"a": 1, "b": 2}, "x": None},
        StateDelta({"items": (SetValue([]), Append(tuple(_ITEMS))), "more": (DeleteKey(),)}),
    ),
}

_DIFFERENT_STATES: tuple[dict[str, Any], ...] = (
    *({}, {"a": None}, {"a": []}, {"a": ()}, {"a": {}}, {"a": ""}, {"": "a"}, {"a": 0}, {"a": False}, {"a": 0.0}),
    *({"a": -0.0}, {"a": [[]]}, {"a": [1]}, {"a": (1,)}, {"a": ["1"]}, {"a": [True]}, {"b": [1]}, {"a": [1, 1]}),
    *({"a": [[1], 2]}, {"a": [1, [2]]}, {"a": [1, 2]}, {"a": [2, 1]}, {"a": [[1, 2]]}, {"a": {"b": 1}}),
    *({"a": 1, "b": 2}, {"a": 2, "b": 1}, {"ab": 1}, {"a": "b1"}, {"a": b"b1"}, {"a": "x" * 300}, {"a": b"x" * 300}),
    *({"a": ["x" * 300]}, {"a": ("x" * 300,)}, {"a": {1}}, {"a": frozenset({1})}),
)

_OTHER_FACTS: dict[str, Any] = {
    "id": CheckpointId("other"),
    "execution_id": ExecutionId("other"),
    "branch_id": BranchId("other"),
    "step": 7,
    "node": "other",
    "visit": 7,
    "node_run_id": NodeRunId("other"),
    "trigger": Trigger.PAUSE,
    "kind": Kind.MANUAL,
    "name": "other",
    "description": "other",
    "next_nodes": ("other",),
    "joins": {"other": ("a",)},
    "file_commit": "other",
    "agent": "other",
    "restore_point": False,
    "created_by": "other",
}


class HashLaws(StoryFixtures):
    """Hashes cover the content and the line before it, and nothing else."""

    @pytest.mark.parametrize("changes", _SAME_STATE.values(), ids=_SAME_STATE.keys())
    def test_equal_states_have_equal_hashes_whatever_their_history(
        self, story: Story, changes: tuple[StateChange, ...]
    ) -> None:
        whole = story.save(_SAME_STATE["set whole"][0])
        end = story.line(*changes)[-1]
        assert story.state(end) == story.state(whole)
        assert end.state_hash == whole.state_hash

    def test_equal_states_of_many_keys_have_equal_hashes_whatever_their_order(self, story: Story) -> None:
        values = {f"key {number}": number for number in range(1_000)}
        one = story.save(values)
        other = story.save(dict(reversed(values.items())))
        apart = story.line(*[{key: values[key]} for key in reversed(values)])[-1]
        assert one.state_hash == other.state_hash == apart.state_hash

    def test_equal_states_have_equal_hashes_in_forks_too(self, story: Story) -> None:
        start = story.save({"items": _ITEMS[:50]})
        other = story.fork(start)
        here = story.save(StateDelta.of(items=Append(tuple(_ITEMS[50:]))), parent=start)
        there = other.line(*[StateDelta.of(items=Append((item,))) for item in _ITEMS[50:]], parent=start)[-1]
        assert here.state_hash == there.state_hash

    def test_different_states_have_different_hashes(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            saved = [
                (state, uow.checkpoints.save(story.draft(), delta_of(state)).state_hash) for state in _DIFFERENT_STATES
            ]
        alike = [(one, other) for (one, hash), (other, its_hash) in combinations(saved, 2) if hash == its_hash]
        assert alike == []

    def test_a_line_is_chained(self, story: Story) -> None:
        line = story.line({"x": 1}, {"x": 2}, {"x": 1})
        assert line[0].parent_hash == b""
        assert [each.parent_hash for each in line[1:]] == [each.hash for each in line[:-1]]
        assert line[0].state_hash == line[2].state_hash
        assert len({each.hash for each in line}) == 3

    def test_the_same_checkpoint_has_the_same_hash(self, storage: Storage, story: Story) -> None:
        draft = story.draft(joins={"a": ("x",), "b": ("y",)})
        again = replace(draft, joins={"b": ("y",), "a": ("x",)})
        assert _hash(storage, draft, {"x": [1], "y": 2}) == _hash(storage, again, {"y": 2, "x": [1]})

    def test_a_hash_covers_every_fact(self, storage: Storage, story: Story) -> None:
        draft = story.draft()
        others = _OTHER_FACTS | {"created_at": draft.created_at + timedelta(microseconds=1)}
        assert {"parent_id", *others} == {fact.name for fact in fields(CheckpointDraft)}
        hashes = [_hash(storage, replace(draft, **{fact: value}), {"x": 1}) for fact, value in others.items()]
        assert len({_hash(storage, draft, {"x": 1}), *hashes}) == 1 + len(others)

    def test_a_hash_covers_the_state_and_what_was_returned(self, storage: Storage, story: Story) -> None:
        draft = story.draft()
        returned: list[dict[str, dict[str, Any]]] = [
            {},
            {"a": {"x": 1}},
            {"a": {"x": 2}},
            {"b": {"x": 1}},
            {"a": {"y": 1}},
            {"a": {"x": 1}, "b": {}},
        ]
        hashes = {_hash(storage, draft, {"x": 1}, each) for each in returned}
        hashes.add(_hash(storage, draft, {"x": 2}))
        assert len(hashes) == 7

    def test_a_hash_covers_the_memory_of_the_engine(self, storage: Storage, story: Story) -> None:
        draft = story.draft()
        kept: list[dict[str, Any] | None] = [None, {}, {"x": 1}, {"x": 2}, {"y": 1}]
        assert len({_hash(storage, draft, {"x": 1}, memory=memory) for memory in kept}) == 5

    def test_a_hash_covers_the_line_before_it(self, storage: Storage, story: Story) -> None:
        parents = [story.save({"x": 1}), story.save({"x": 1})]
        draft = story.draft(parent=parents[0])
        hashes = {_hash(storage, replace(draft, parent_id=parent.id), {"y": 1}) for parent in parents}
        assert len(hashes) == 2


def _hash(
    storage: Storage,
    draft: CheckpointDraft,
    change: StateChange,
    returned: dict[str, dict[str, Any]] | None = None,
    memory: dict[str, Any] | None = None,
) -> bytes:
    """Return the hash that a checkpoint would have, without keeping it."""
    with storage.unit_of_work() as uow:
        return uow.checkpoints.save(draft, delta_of(change), returned, memory).hash
