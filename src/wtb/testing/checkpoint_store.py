"""The contract of CheckpointStore: a subclass gives the fixtures `storage`, and `tamper` (see wtb.testing.damage).

It has parts: what is saved and read back is here, the rest in `checkpoint_values`, `checkpoint_hashes`,
`checkpoint_comparison`, `checkpoint_deletion` and `checkpoint_damage`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta, timezone
from threading import Barrier
from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Kind, Trigger
from wtb.domain.errors import AlreadyExists, CheckpointNotFound, ExecutionNotFound, InvalidInput
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.state import DELETE, Append, DeleteKey, SetValue, Splice, StateDelta
from wtb.testing.checkpoint_comparison import ComparisonLaws
from wtb.testing.checkpoint_damage import DamageLaws
from wtb.testing.checkpoint_deletion import DeletionLaws
from wtb.testing.checkpoint_hashes import HashLaws
from wtb.testing.checkpoint_values import ValueLaws
from wtb.testing.stories import Story, StoryFixtures, delta_of
from wtb.testing.values import identical

WAIT_S = 30.0


def full_facts(story: Story) -> dict[str, Any]:
    """Return a value for every fact of a draft that is not given by its place."""
    return {
        "step": 1 << 40,
        "node": "wörk",
        "visit": 3,
        "node_run_id": NodeRunId("run-1"),
        "trigger": Trigger.USER_REQUEST,
        "kind": Kind.MANUAL,
        "name": "before the ☃ change",
        "description": "line\nline",
        "next_nodes": ("b", "a"),
        "joins": {"z": ("b", "a"), "a": ()},
        "file_commit": "f" * 64,
        "agent": "planner",
        "restore_point": False,
        "created_by": "ü@example.org",
        "created_at": story.execution.created_at.replace(microsecond=7).astimezone(timezone(timedelta(hours=9))),
    }


class SavingLaws(StoryFixtures):
    """What is saved, and how it is read back."""

    def test_a_checkpoint_says_what_its_draft_said(self, story: Story) -> None:
        draft = story.draft(**full_facts(story))
        saved = story.save_draft(draft, {"x": 1})
        assert {each.name: getattr(saved, each.name) for each in fields(CheckpointDraft)} == {
            each.name: getattr(draft, each.name) for each in fields(CheckpointDraft)
        }

    def test_every_way_of_reading_gives_what_saving_gave(self, storage: Storage, story: Story) -> None:
        plain = story.save({"x": 1})
        full = story.save({"y": 2}, parent=plain, **full_facts(story))
        with storage.unit_of_work(readonly=True) as uow:
            for saved in (plain, full):
                assert uow.checkpoints.get(saved.id) == saved
                assert uow.checkpoints.load(saved.id).checkpoint == saved
            assert uow.checkpoints.list_infos(story.id) == (plain, full)
            assert tuple(uow.checkpoints.each_info(story.id)) == (plain, full)
            assert tuple(uow.checkpoints.each_info(ExecutionId("no-such-id"))) == ()
            assert uow.checkpoints.load_history(story.id).checkpoints == (plain, full)

    def test_many_are_read_at_once_in_the_order_asked_for(self, storage: Storage, story: Story) -> None:
        line = story.line({"a": 1}, {"b": [{"n": 1}]}, StateDelta.of(b=Append(("x" * 5000,))), {"a": "y" * 5000})
        side = story.save({"b": []}, parent=line[1])
        story.save({"c": 1}, parent=side)
        wanted = [side.id, line[3].id, CheckpointId("unknown"), line[2].id, line[0].id]
        with storage.unit_of_work() as uow:
            found = list(uow.checkpoints.load_many(wanted))
            assert found == [uow.checkpoints.load(id) for id in wanted if id != "unknown"]
            uow.checkpoints.delete([line[2].id])
            assert [snapshot.checkpoint.id for snapshot in uow.checkpoints.load_many(wanted)] == [
                side.id, line[3].id, line[0].id,
            ]  # fmt: skip

    def test_a_history_of_a_list_is_read_whole_however_it_came_about(self, storage: Storage, story: Story) -> None:
        """Lists that are beginnings of each other, that lost some of what was added at once, and large ones."""
        grown = [StateDelta.of(items=Append(({"n": number}, "x" * 900))) for number in range(30)]
        cut = [StateDelta.of(items=Splice(41, 19, ("new",))), StateDelta.of(items=Append(("last",)))]
        line = story.line({"items": [0, 1], "text": "y" * 5000}, *grown, *cut, StateDelta.of(items=SetValue([])))
        with storage.unit_of_work(readonly=True) as uow:
            wanted = {each.id: uow.checkpoints.load(each.id) for each in line}
            oldest_first = list(uow.checkpoints.load_many(list(wanted)))
            newest_first = uow.checkpoints.load_many(list(wanted)[::-1])
        assert oldest_first == list(wanted.values())
        for snapshot in newest_first:
            assert snapshot == wanted[snapshot.checkpoint.id]
            if len(snapshot.state["items"]) > 2:
                snapshot.state["items"][2]["n"] = "changed"  # each is a state of its own

    @pytest.mark.parametrize("text", ["nul \x00", "surrogate \ud800"], ids=["nul", "surrogate"])
    def test_text_comes_back_as_it_was_or_is_refused(self, story: Story, text: str) -> None:
        for fact in ("name", "description", "node", "agent", "created_by"):
            before, facts = story.infos(), dict[str, Any]({fact: text})
            with suppress(InvalidInput):
                story.save({"x": 1}, **facts)
            assert [getattr(info, fact) for info in story.infos() if info not in before] in ([], [text])

    def test_states_grow_by_their_deltas(self, story: Story) -> None:
        line = story.line({"a": 1}, {"b": [1]}, StateDelta.of(b=Append((2,))), StateDelta.of(a=DeleteKey()), {})
        states = [{"a": 1}, {"a": 1, "b": [1]}, {"a": 1, "b": [1, 2]}, {"b": [1, 2]}, {"b": [1, 2]}]
        assert [story.state(checkpoint) for checkpoint in line] == states

    def test_an_empty_state_is_a_state(self, story: Story) -> None:
        assert story.state(story.save({})) == {}

    def test_each_loading_gives_a_state_of_its_own(self, story: Story) -> None:
        saved = story.save({"items": [{"x": 1}], "map": {"y": [1]}}, returned={"work": {"z": [1]}})
        snapshot = story.load(saved)
        snapshot.state["map"]["y"].append(2)
        snapshot.state["items"][0]["x"] = 2
        snapshot.returned["work"]["z"].append(2)
        assert story.state(saved) == {"items": [{"x": 1}], "map": {"y": [1]}}
        assert story.load(saved).returned == {"work": {"z": [1]}}

    def test_what_is_done_to_values_after_saving_is_not_stored(self, storage: Storage, story: Story) -> None:
        items, draft = [1], story.draft()
        with storage.unit_of_work() as uow:
            uow.checkpoints.save(draft, delta_of({"items": items}))
            items.append(2)
            saved = uow.checkpoints.get(draft.id)
            uow.commit()
        assert story.state(saved) == {"items": [1]}

    def test_siblings_do_not_see_each_other(self, story: Story) -> None:
        start = story.save({"items": ["start"], "x": 0})
        left = story.save(StateDelta.of(items=Append(("left",)), x=SetValue(1)), parent=start)
        right = story.save(StateDelta.of(items=Append(("right",))), parent=start)
        deeper = story.save(StateDelta.of(items=Append(("more",))), parent=left)
        assert story.state(start) == {"items": ["start"], "x": 0}
        assert story.state(left) == {"items": ["start", "left"], "x": 1}
        assert story.state(right) == {"items": ["start", "right"], "x": 0}
        assert story.state(deeper) == {"items": ["start", "left", "more"], "x": 1}

    def test_a_fork_in_another_execution_goes_on_from_there(self, story: Story) -> None:
        start = story.save({"x": 1})
        other = story.fork(start)
        forked = other.save({"y": 2}, parent=start)
        assert other.state(forked) == {"x": 1, "y": 2}
        assert other.infos() == (forked,)
        assert story.infos() == (start,)

    def test_many_forks_of_one_point_are_whole(self, story: Story) -> None:
        line = story.line(*[StateDelta.of(items=Append((str(number) * 500,))) for number in range(40)])
        forks = [story.fork(line[-1]).save({"fork": number}, parent=line[-1]) for number in range(10)]
        items = [str(number) * 500 for number in range(40)]
        assert [story.state(fork) for fork in forks] == [{"items": items, "fork": n} for n in range(10)]

    @pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "unknown"])
    def test_a_parent_must_be_there(self, story: Story, *, deleted: bool) -> None:
        parent, _ = story.line({}, {})
        if deleted:
            story.delete(parent)
        else:
            parent = replace(parent, id=CheckpointId("no-such-id"))
        with pytest.raises(CheckpointNotFound, match=parent.id):
            story.save({"x": 1}, parent=parent)

    def test_an_id_is_given_once(self, story: Story) -> None:
        saved = story.save({"x": 1})
        for taken in (story.draft(id=saved.id), story.fork(saved).draft(id=saved.id)):
            with pytest.raises(AlreadyExists, match=saved.id):
                story.save_draft(taken, {"x": 2})
        assert story.state(saved) == {"x": 1}
        assert story.infos() == (saved,)

    def test_a_name_is_given_once_in_an_execution(self, story: Story) -> None:
        named = story.save({"x": 1}, name="good")
        with pytest.raises(AlreadyExists, match="good"):
            story.save({"x": 2}, parent=named, name="good")
        story.save({"x": 3}, parent=named, name="Good")
        other = story.fork(named).save({"x": 4}, parent=named, name="good")
        assert other.name == named.name

    def test_a_save_that_raises_keeps_nothing(self, storage: Storage, story: Story) -> None:
        first = story.save({"x": 1}, name="good")
        with storage.unit_of_work() as uow:
            with pytest.raises(AlreadyExists):
                uow.checkpoints.save(story.draft(name="good"), delta_of({"big": "x" * 10_000}))
            with pytest.raises(AlreadyExists):
                uow.checkpoints.save(story.draft(id=first.id), delta_of({"big": "y" * 10_000}))
            with pytest.raises(CheckpointNotFound):
                uow.checkpoints.save(story.draft(parent_id=CheckpointId("no-such-id")), delta_of({"x": 2}))
            uow.commit()
        assert story.infos() == (first,)
        assert story.state(story.save({"y": 2}, parent=first)) == {"x": 1, "y": 2}

    def test_unknown_ids_are_named(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow:
            for look in (uow.checkpoints.get, uow.checkpoints.load):
                with pytest.raises(CheckpointNotFound, match="no-such-id"):
                    look(CheckpointId("no-such-id"))
            with pytest.raises(CheckpointNotFound, match="no-such-id"):
                uow.checkpoints.delete([CheckpointId("no-such-id")])
            with pytest.raises(ExecutionNotFound, match="no-such-id"):
                uow.checkpoints.load_history(ExecutionId("no-such-id"))

    def test_infos_come_by_step_and_then_id(self, story: Story) -> None:
        drafts = [story.draft(step=step) for step in (2, 0, 1, 1, 10)]
        saved = [story.save_draft(draft, {}) for draft in reversed(drafts)]
        assert list(story.infos()) == sorted(saved, key=lambda info: (info.step, info.id))

    def test_a_small_change_costs_the_same_however_large_the_state_is(self, story: Story) -> None:
        small = story.save({"items": [1]})
        large = story.save({"items": list(range(50_000)), "text": "x" * 1_000_000})
        for delta in (StateDelta.of(items=Append((1,))), delta_of({"x": 1}), StateDelta.of(items=DeleteKey())):
            sizes = [story.save(delta, parent=parent).size_bytes for parent in (small, large)]
            assert sizes[0] == sizes[1] < 1_000

    def test_of_two_who_save_the_same_name_one_is_first(self, storage: Storage, story: Story) -> None:
        start = story.save({})

        def save(draft: CheckpointDraft) -> bool:
            with suppress(AlreadyExists):
                story.save_draft(draft, {"x": 1})
                return True
            return False

        drafts = [story.draft(parent=start, name="good") for _ in range(2)]
        assert sorted(_together(save, *drafts)) == [False, True]
        assert [info.name for info in story.infos()] == [None, "good"]

    def test_branches_grow_from_one_point_at_the_same_time(self, story: Story) -> None:
        start = story.line(*[StateDelta.of(items=Append(("x" * 1_000,))) for _ in range(15)])[-1]

        def grow(other: Story) -> Checkpoint:
            deltas = [StateDelta.of(items=Append((f"{other.id} {number}",))) for number in range(20)]
            return other.line(*deltas, parent=start)[-1]

        others = [story.fork(start) for _ in range(3)]
        for other, end in zip(others, _together(grow, *others), strict=True):
            assert story.state(end)["items"][15:] == [f"{other.id} {number}" for number in range(20)]


def _together(action: Callable[[Any], Any], *arguments: Any) -> list[Any]:
    """Call the action with each argument, in threads that begin at the same time."""
    meet = Barrier(len(arguments))

    def act(argument: Any) -> Any:
        meet.wait(WAIT_S)
        return action(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(act, arguments))


class ReturnedLaws(StoryFixtures):
    """What nodes returned, before reducers."""

    @pytest.mark.parametrize(
        "returned",
        [
            {"work": {"x": 1, "text": "y" * 1_000, "items": [1, 2], "nothing": None}},
            {"a": {"x": 1}, "b": {"x": 2, "y": (1, {2})}},
            {"work": {}},
            {"work": {"items": ["z" * 500] * 500, "gone": DELETE}},
            {},
        ],
        ids=["one node", "two nodes", "nothing", "large, and a deletion", "no node"],
    )
    def test_it_comes_back_exactly(self, story: Story, returned: dict[str, dict[str, Any]]) -> None:
        start = story.save({"other": 1})
        saved = story.save({"x": "reduced"}, parent=start, returned=returned)
        assert identical(story.load(saved).returned, returned)
        assert story.load(start).returned == {}

    def test_it_comes_back_exactly_where_the_delta_holds_it_too(self, story: Story) -> None:
        items, text, written = ["a", "b"], "x" * 1_000, (1, 2)
        start = story.save({"items": ["start"], "gone": 1})
        delta = StateDelta.of(
            items=Append(tuple(items)), text=SetValue(text), written=SetValue(written), gone=DeleteKey()
        )
        returned = {"work": {"items": items, "text": text, "written": written, "gone": DELETE}}
        saved = story.save(delta, parent=start, returned=returned)
        assert identical(story.load(saved).returned, returned)
        assert story.state(saved) == {"items": ["start", "a", "b"], "text": text, "written": written}

    def test_it_survives_the_deletion_of_other_checkpoints(self, story: Story) -> None:
        first, second, third = (
            story.save({"x": 1}, returned={"a": {"x": "1" * 1_000}}),
            *(story.draft(), story.draft()),
        )
        middle = story.save_draft(replace(second, parent_id=first.id, step=1), {"x": 2}, {"b": {"x": "2" * 1_000}})
        last = story.save_draft(replace(third, parent_id=middle.id, step=2), {"x": 3}, {"c": {"x": "1" * 1_000}})
        story.delete(first, middle)
        assert story.load(last).returned == {"c": {"x": "1" * 1_000}}


class MemoryLaws(StoryFixtures):
    """What an engine keeps with a step beside the state."""

    @pytest.mark.parametrize(
        "memory",
        [{"versions": {"x": 1}, "id": "1f0", "hidden": {}}, {"large": ["z" * 500] * 500}, {}, None],
        ids=["small", "large", "empty", "none"],
    )
    def test_it_comes_back_exactly(self, story: Story, memory: dict[str, Any] | None) -> None:
        start = story.save({"x": 0})
        saved = story.save({"x": 1}, parent=start, returned={"work": {"x": 1}}, memory=memory)
        assert identical(story.load(saved).memory, memory)
        assert story.load(start).memory is None

    def test_it_is_not_mixed_up_with_what_nodes_returned(self, story: Story) -> None:
        saved = story.save({"x": 1}, returned={"memory": {"x": 1}}, memory={"x": 2})
        assert (story.load(saved).returned, story.load(saved).memory) == ({"memory": {"x": 1}}, {"x": 2})

    def test_it_comes_back_where_the_state_holds_an_equal_value_under_the_same_key(self, story: Story) -> None:
        text = "y" * 1_000
        saved = story.save({"id": text}, returned={"work": {"id": text}}, memory={"id": text})
        found = story.load(saved)
        assert (found.state["id"], found.returned, found.memory) == (text, {"work": {"id": text}}, {"id": text})

    def test_it_comes_back_when_many_are_loaded(self, storage: Storage, story: Story) -> None:
        first = story.save({"x": 1}, memory={"n": 1})
        second = story.save({"x": 2}, parent=first)
        with storage.unit_of_work(readonly=True) as uow:
            found = [snapshot.memory for snapshot in uow.checkpoints.load_many([second.id, first.id])]
        assert found == [None, {"n": 1}]


class HistoryLaws(StoryFixtures):
    """What a history holds."""

    def test_a_history_is_what_the_run_did(self, storage: Storage, story: Story) -> None:
        start = story.save({"x": 0}, trigger=Trigger.START)
        run = story.new_node_run("work", input_id=start.id)
        end = story.save({"x": 1}, parent=start, node="work", visit=1, node_run_id=run.id)
        run = run.completed(end.id, end.created_at)
        with storage.unit_of_work() as uow:
            uow.node_runs.save(run)
            uow.commit()
        story.move_head(end)
        history = story.history()
        assert history.execution_id == story.id
        assert history.active_branch_id == story.main.id
        assert history.branches == (story.main.moved(end.id),)
        assert history.lineage() == (start, end)
        assert history.node_runs == (run,)
        assert history.boundaries() == (run.boundary(),)

    def test_a_run_without_checkpoints_has_a_history(self, story: Story) -> None:
        history = story.history()
        assert history.checkpoints == ()
        assert history.lineage() == ()
        assert history.latest() is None

    def test_each_branch_has_its_line(self, story: Story) -> None:
        start, left = story.line({}, {})
        story.move_head(left)
        right = story.save({}, parent=start, branch_id=BranchId("unused"))
        story.add_branch("right", right)
        history = story.history()
        assert history.lineage("main") == (start, left)
        assert history.lineage("right") == (start, right)

    def test_a_forked_run_knows_where_it_came_from(self, storage: Storage, story: Story) -> None:
        start, point, _after = story.line({}, {}, {})
        run = story.new_node_run("work", input_id=start.id).completed(point.id, point.created_at)
        with storage.unit_of_work() as uow:
            uow.node_runs.save(run)
            uow.commit()
        other = story.fork(point)
        own = other.save({}, parent=point)
        other.move_head(own)
        assert other.history().lineage() == (start, point, own)
        assert run in other.history().node_runs

    def test_a_forked_run_knows_it_before_its_first_step(self, story: Story) -> None:
        start, point = story.line({}, {})
        history = story.fork(point).history()
        assert history.lineage() == (start, point)
        assert history.latest() == point

    def test_a_fork_of_a_fork_knows_all_of_its_line(self, story: Story) -> None:
        start = story.save({"x": 1})
        second = (first := story.fork(start)).save({}, parent=start)
        third = (other := first.fork(second)).save({}, parent=second)
        other.move_head(third)
        assert other.history().lineage() == (start, second, third)

    def test_histories_of_others_are_not_mixed_in(self, story: Story, storage: Storage, ids: Ids, clock: Clock) -> None:
        Story(storage, ids, clock).save({"x": 1})
        own = story.save({"x": 1})
        assert story.history().checkpoints == (own,)


class CheckpointStoreContract(
    SavingLaws, ReturnedLaws, MemoryLaws, HistoryLaws, ValueLaws, HashLaws, ComparisonLaws, DeletionLaws, DamageLaws
):
    """What every checkpoint store does."""
