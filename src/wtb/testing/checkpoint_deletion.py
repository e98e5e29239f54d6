"""A part of the contract of CheckpointStore: deleting keeps every other checkpoint whole."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Barrier

import pytest

from wtb.domain.checkpoint import Checkpoint, Snapshot
from wtb.domain.errors import AlreadyExists, CheckpointNotFound, Conflict, ExecutionNotFound
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.state import Append, DeleteKey, SetValue, Splice, StateDelta
from wtb.testing.stories import Story, StoryFixtures

WAIT_S = 30.0

_LINE = (
    {"items": ["0" * 2_000], "x": 0, "text": "t" * 1_000},
    StateDelta.of(items=Append(("1" * 2_000,)), x=SetValue(1)),
    StateDelta.of(items=Append(("2" * 2_000,)), text=DeleteKey()),
    StateDelta.of(items=Splice(1, 1, ("spliced",)), text=SetValue("t" * 1_000)),
    StateDelta.of(items=Append(("4" * 2_000,)), x=SetValue("x" * 1_000)),
    StateDelta.of(items=Append(("5",))),
    {"x": 6},
)


class RunFamily:
    """A run of seven checkpoints with a branch at the third, and another run forked from the fifth."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.line = story.line(*_LINE)
        story.move_head(self.line[-1])
        self.branch = story.line(StateDelta.of(items=Append(("b",))), {"y": 1}, parent=self.line[2])
        story.add_branch("branch", self.branch[-1])
        self.other = story.fork(self.line[4])
        self.fork = self.other.line(StateDelta.of(items=Append(("f",))), {"z": 1}, parent=self.line[4])
        self.other.move_head(self.fork[-1])

    @property
    def all(self) -> list[Checkpoint]:
        """Every checkpoint of the family."""
        return [*self.line, *self.branch, *self.fork]

    def without(self, gone: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return the others."""
        return [checkpoint for checkpoint in self.all if checkpoint not in gone]

    def snapshots(self, checkpoints: Sequence[Checkpoint]) -> list[Snapshot]:
        """Load these."""
        return [self.story.load(checkpoint) for checkpoint in checkpoints]


def _same(one: Sequence[Snapshot], other: Sequence[Snapshot]) -> bool:
    return [(each.checkpoint, dict(each.state)) for each in one] == [
        (each.checkpoint, dict(each.state)) for each in other
    ]


_CHOICES: dict[str, tuple[int, ...]] = {
    "the root": (0,),
    "the middle": (1,),
    "a branch point": (2,),
    "a fork point": (4,),
    "the parent of a head": (5,),
    "neighbours": (2, 3),
    "every other one": (0, 2, 4),
    "all but the head": (0, 1, 2, 3, 4, 5),
    "all that is no head": (0, 1, 2, 3, 4, 5, 7, 9),
}


class DeletionLaws(StoryFixtures):
    """What is deleted is gone; everything else loads, verifies and compares as before."""

    @pytest.fixture
    def family(self, story: Story) -> RunFamily:
        return RunFamily(story)

    @pytest.mark.parametrize("choice", _CHOICES.values(), ids=_CHOICES.keys())
    def test_the_others_stay_whole(self, family: RunFamily, choice: tuple[int, ...]) -> None:
        gone = [family.all[index] for index in choice]
        others = family.without(gone)
        before = family.snapshots(others)
        family.story.delete(*gone)
        assert _same(family.snapshots(others), before)

    def test_the_others_stay_whole_when_one_is_deleted_after_the_other(self, family: RunFamily) -> None:
        gone: list[Checkpoint] = []
        for index in (3, 0, 9, 4, 2, 7, 1, 5):
            gone.append(family.all[index])
            others = family.without(gone)
            before = family.snapshots(others)
            family.story.delete(gone[-1])
            assert _same(family.snapshots(others), before)

    def test_the_line_can_be_continued_anywhere_afterwards(self, family: RunFamily) -> None:
        states = {each.id: family.story.state(each) for each in family.all}
        family.story.delete(*family.line[:5])
        for end in (family.line[-1], family.branch[0], family.branch[-1], family.fork[0]):
            state = states[end.id]
            more = family.story.save(StateDelta.of(items=Append(("more",))), parent=end)
            cut = family.story.save(StateDelta.of(items=Splice(0, 2, ("cut",))), parent=more)
            assert family.story.state(cut) == state | {"items": ["cut", *state["items"][2:], "more"]}

    def test_what_is_deleted_is_gone(self, storage: Storage, family: RunFamily) -> None:
        gone = family.line[1]
        family.story.delete(gone)
        with storage.unit_of_work() as uow:
            for look in (uow.checkpoints.get, uow.checkpoints.load):
                with pytest.raises(CheckpointNotFound, match=gone.id):
                    look(gone.id)
            with pytest.raises(CheckpointNotFound, match=gone.id):
                uow.checkpoints.delete([gone.id])
        with pytest.raises(CheckpointNotFound, match=gone.id):
            family.story.save({}, parent=gone)
        assert gone not in family.story.infos()

    def test_histories_keep_tombstones_so_that_every_line_is_whole(self, family: RunFamily) -> None:
        gone = family.line[0], family.line[3], family.line[4]
        family.story.delete(*gone)
        for story, line in (
            (family.story, family.line),
            (family.other, [*family.line[:5], *family.fork]),
        ):
            expected = [replace(each, deleted=each in gone) for each in line]
            assert list(story.history().lineage()) == expected

    def test_all_of_a_run_are_read_one_by_one_tombstones_included(self, storage: Storage, family: RunFamily) -> None:
        gone = family.line[0], family.line[3]
        family.story.delete(*gone)
        own = [*family.line, *family.branch]
        expected = [replace(each, deleted=each in gone) for each in sorted(own, key=lambda each: (each.step, each.id))]
        with storage.unit_of_work(readonly=True) as uow:
            assert list(uow.checkpoints.each_info(family.story.id)) == expected
            assert list(uow.checkpoints.each_info(family.other.id)) == family.fork

    def test_nothing_else_leaves_the_lists(self, family: RunFamily) -> None:
        family.story.delete(family.line[2], family.line[4])
        kept = {each.id for each in (*family.line, *family.branch)} - {family.line[2].id, family.line[4].id}
        assert {info.id for info in family.story.infos()} == kept
        assert list(family.other.infos()) == family.fork

    @pytest.mark.parametrize("index", [6, 8, 10], ids=["main", "another branch", "another run"])
    def test_a_head_is_not_deleted_nor_what_was_named_with_it(
        self, storage: Storage, family: RunFamily, index: int
    ) -> None:
        before = family.snapshots(family.all)
        with storage.unit_of_work() as uow:
            with pytest.raises(Conflict, match=family.all[index].id):
                uow.checkpoints.delete([family.line[1].id, family.all[index].id])
            uow.commit()
        assert _same(family.snapshots(family.all), before)

    def test_the_head_of_a_run_that_has_no_step_yet_is_not_deleted(self, family: RunFamily) -> None:
        family.story.fork(family.line[1])
        with pytest.raises(Conflict, match=family.line[1].id):
            family.story.delete(family.line[1])

    def test_an_unknown_id_is_named_and_nothing_is_deleted(self, storage: Storage, family: RunFamily) -> None:
        before = family.snapshots(family.all)
        with storage.unit_of_work() as uow:
            with pytest.raises(CheckpointNotFound) as raised:
                uow.checkpoints.delete([family.line[1].id, CheckpointId("no-such-id")])
            uow.commit()
        assert "no-such-id" in str(raised.value)
        assert family.line[1].id not in str(raised.value)
        assert _same(family.snapshots(family.all), before)

    def test_an_undone_deletion_deletes_nothing(self, storage: Storage, family: RunFamily) -> None:
        before = family.snapshots(family.all)
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete([each.id for each in family.line[:5]])
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete_run(family.story.id)
        assert _same(family.snapshots(family.all), before)
        end = family.story.save(StateDelta.of(items=Splice(0, 3)), parent=family.line[4])
        assert family.story.state(end)["items"] == ["4" * 2_000]

    def test_deleting_nothing_is_allowed(self, storage: Storage, family: RunFamily) -> None:
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete([])
            uow.commit()
        assert len(family.snapshots(family.all)) == len(family.all)

    def test_naming_one_twice_deletes_it_once(self, storage: Storage, family: RunFamily) -> None:
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete([family.line[1].id, family.line[1].id])
            uow.commit()
        assert family.line[1] not in family.story.infos()

    def test_a_name_is_free_again_after_deletion(self, story: Story) -> None:
        named, child = story.line({"x": 1}, {}, name=None)
        first = story.save({"x": 2}, parent=child, name="good")
        story.delete(first)
        again = story.save({"x": 3}, parent=child, name="good")
        assert story.state(again) == {"x": 3}
        assert story.history().by_name("good") == again
        assert story.state(named) == {"x": 1}

    def test_an_id_is_never_given_again(self, story: Story) -> None:
        first, _ = story.line({"x": 1}, {})
        story.delete(first)
        with pytest.raises(AlreadyExists, match=first.id):
            story.save({"x": 2}, id=first.id)

    def test_a_run_is_deleted_with_its_heads(self, storage: Storage, family: RunFamily) -> None:
        family.story.delete_run()
        assert family.story.infos() == ()
        with storage.unit_of_work(readonly=True) as uow:
            for gone in (*family.line, *family.branch):
                with pytest.raises(CheckpointNotFound, match=gone.id):
                    uow.checkpoints.load(gone.id)

    def test_forks_of_a_deleted_run_stay_whole(self, family: RunFamily) -> None:
        before = family.snapshots(family.fork)
        family.story.delete_run()
        assert _same(family.snapshots(family.fork), before)
        more = family.other.save(StateDelta.of(items=Append(("more",))), parent=family.fork[-1])
        assert family.other.state(more)["items"][-2:] == ["f", "more"]

    def test_the_lines_of_forks_stay_whole_when_a_run_is_deleted(self, storage: Storage, family: RunFamily) -> None:
        family.story.delete(family.line[1])
        family.other.delete(family.fork[0])
        family.story.delete_run()
        with storage.unit_of_work() as uow:
            uow.executions.delete(family.story.id)
            uow.commit()
        expected = [*[replace(each, deleted=True) for each in (*family.line[:5], family.fork[0])], family.fork[1]]
        assert list(family.other.history().lineage()) == expected

    def test_a_run_can_be_deleted_after_the_one_it_was_forked_from(self, family: RunFamily) -> None:
        family.story.delete_run()
        family.other.delete_run()
        assert family.other.infos() == ()

    def test_a_run_on_which_another_still_stands_is_not_deleted(self, storage: Storage, family: RunFamily) -> None:
        waiting = family.story.fork(family.line[1])
        before = family.snapshots(family.all)
        with storage.unit_of_work() as uow:
            with pytest.raises(Conflict, match=family.line[1].id):
                uow.checkpoints.delete_run(family.story.id)
            uow.commit()
        assert _same(family.snapshots(family.all), before)
        assert waiting.history().latest() == family.line[1]

    def test_deleting_a_run_twice_or_one_without_checkpoints_changes_nothing(
        self, storage: Storage, family: RunFamily
    ) -> None:
        family.story.delete_run()
        before = family.snapshots(family.fork)
        family.story.delete_run()
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete_run(ExecutionId("no-such-id"))
            uow.commit()
        assert _same(family.snapshots(family.fork), before)

    def test_a_deleted_execution_has_no_history(self, storage: Storage, family: RunFamily) -> None:
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete_run(family.story.id)
            uow.executions.delete(family.story.id)
            uow.commit()
        with pytest.raises(ExecutionNotFound, match=family.story.id):
            family.story.history()

    def test_a_long_line_is_thinned_out(self, story: Story) -> None:
        line = story.line(*[StateDelta.of(items=Append((f"{number} {'x' * 300}",))) for number in range(120)])
        kept = [*line[::20], line[-1]]
        before = [story.load(each) for each in kept]
        story.delete(*[each for each in line if each not in kept])
        assert _same([story.load(each) for each in kept], before)

    def test_who_saves_on_what_another_deletes_is_whole_or_refused(self, story: Story, storage: Storage) -> None:
        start = story.save({"items": ["x" * 1_000]})
        for number in range(10):
            parent = story.save({"number": number}, parent=start)
            meet = Barrier(2)
            with ThreadPoolExecutor(2) as pool:
                saving = pool.submit(_save_child, story, parent, meet)
                pool.submit(_delete, story, parent, meet).result()
                child = saving.result()
            assert parent.id not in {info.id for info in story.infos()}
            if child is not None:
                assert story.state(child) == {"items": ["x" * 1_000], "number": number, "child": True}


def _save_child(story: Story, parent: Checkpoint, meet: Barrier) -> Checkpoint | None:
    meet.wait(WAIT_S)
    with suppress(CheckpointNotFound):
        return story.save({"child": True}, parent=parent)
    return None


def _delete(story: Story, checkpoint: Checkpoint, meet: Barrier) -> None:
    meet.wait(WAIT_S)
    story.delete(checkpoint)
