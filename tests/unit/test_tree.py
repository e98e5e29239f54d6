"""HistoryTree: lines, what leaves them, what rollbacks left behind, and what is folded."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.domain.checkpoint import Checkpoint, Kind, NodeRun, Trigger
from wtb.domain.execution import Branch
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.tree import HistoryTree, TreeLine, TreeStep

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = ExecutionId("run")


def a_checkpoint(number: int, parent: int | None, **facts: Any) -> Checkpoint:
    given: dict[str, Any] = {
        "id": CheckpointId(f"c{number}"),
        "execution_id": RUN,
        "branch_id": BranchId("main"),
        "parent_id": None if parent is None else CheckpointId(f"c{parent}"),
        "step": number,
        "node": None if parent is None else "work",
        "visit": number,
        "trigger": Trigger.START if parent is None else Trigger.NODE_END,
        "created_at": NOW + timedelta(seconds=number),
        "state_hash": b"",
        "parent_hash": b"",
        "hash": b"",
        "size_bytes": 0,
    }
    return Checkpoint(**given | facts)


def a_branch(name: str, head: int, run: ExecutionId = RUN, forked_from: int | None = None) -> Branch:
    return Branch(
        id=BranchId(name),
        execution_id=run,
        name=name,
        head_id=CheckpointId(f"c{head}"),
        forked_from_id=None if forked_from is None else CheckpointId(f"c{forked_from}"),
        created_at=NOW,
    )


def a_tree(
    parents: list[int | None], heads: dict[str, int], forks: tuple[Branch, ...] = (), **special: Any
) -> HistoryTree:
    """Return the tree of checkpoints c0, c1, … with these parents; the first branch is the active one."""
    facts = special.pop("facts", {})
    history = ExecutionHistory(
        execution_id=RUN,
        active_branch_id=BranchId(next(iter(heads))),
        branches=tuple(a_branch(name, head) for name, head in heads.items()),
        checkpoints=tuple(
            a_checkpoint(number, parent, **facts.get(number, {})) for number, parent in enumerate(parents)
        ),
        node_runs=special.get("node_runs", ()),
    )
    return HistoryTree.of(history, forks)


def numbers(line: TreeLine) -> list[Any]:
    """Return a line as numbers, each followed by the lines that leave from it."""
    told: list[Any] = []
    for step in line.steps:
        told.append(step.checkpoint.step)
        told += [(numbers(other)) for other in step.lines]
    return told


def told(tree: HistoryTree) -> list[Any]:
    (line,) = tree.lines
    return numbers(line)


def test_one_line_is_one_line() -> None:
    tree = a_tree([None, 0, 1], {"main": 2})
    assert told(tree) == [0, 1, 2]
    (line,) = tree.lines
    assert [(step.active, [branch.name for branch in step.heads]) for step in line.steps] == [
        (False, []),
        (False, []),
        (True, ["main"]),
    ]


def test_the_active_line_goes_straight_on_however_short_it_is() -> None:
    parents = [None, 0, 1, 2, 3, 1]
    assert told(a_tree(parents, {"main": 4, "side": 5})) == [0, 1, [5], 2, 3, 4]
    assert told(a_tree(parents, {"side": 5, "main": 4})) == [0, 1, [2, 3, 4], 5]


def test_what_a_rollback_left_behind_is_an_abandoned_line() -> None:
    tree = a_tree([None, 0, 1, 2], {"main": 1})
    assert told(tree) == [0, 1, [2, 3]]
    left = tree.lines[0].steps[1].lines[0]
    assert left.abandoned
    assert not tree.lines[0].abandoned


def test_an_abandoned_line_never_goes_straight_on_from_a_head() -> None:
    tree = a_tree([None, 0, 0, 2, 3], {"main": 1, "side": 2})
    assert told(tree) == [0, [2, [3, 4]], 1]
    (side,) = tree.lines[0].steps[0].lines
    assert (side.abandoned, side.steps[0].lines[0].abandoned) == (False, True)


def test_branches_that_end_at_one_checkpoint_are_all_there() -> None:
    tree = a_tree([None, 0], {"main": 1, "copy": 1})
    assert [branch.name for branch in tree.lines[0].steps[1].heads] == ["main", "copy"]


def test_forks_into_other_runs_are_where_they_left() -> None:
    fork = a_branch("main", 9, ExecutionId("other"), forked_from=1)
    tree = a_tree([None, 0, 1], {"main": 2}, (fork,))
    assert [step.forks for step in tree.lines[0].steps] == [(), (fork,), ()]


def test_the_members_of_a_superstep_are_named_at_its_barrier() -> None:
    run = NodeRun(
        id=NodeRunId("r"),
        execution_id=RUN,
        branch_id=BranchId("main"),
        node="left",
        visit=1,
        input_id=None,
        last_id=CheckpointId("c1"),
        started_at=NOW,
    )
    members = (run, replace(run, node="right", visit=2))
    tree = a_tree([None, 0], {"main": 1}, facts={1: {"node": None, "visit": None}}, node_runs=members)
    assert tree.lines[0].steps[1].visits == (("left", 1), ("right", 2))


def test_a_line_whose_beginning_is_gone_is_a_root_of_its_own() -> None:
    tree = a_tree([None, 0, 77, 2], {"main": 1, "side": 3})
    assert [numbers(line) for line in tree.lines] == [[0, 1], [2, 3]]


def test_a_run_without_checkpoints_has_no_lines() -> None:
    branch = replace(a_branch("main", 0), head_id=None)
    history = ExecutionHistory(
        execution_id=RUN, active_branch_id=branch.id, branches=(branch,), checkpoints=(), node_runs=()
    )
    assert HistoryTree.of(history).lines == ()


def folds(tree: HistoryTree) -> list[Any]:
    (line,) = tree.lines
    return [item.checkpoint.step if isinstance(item, TreeStep) else len(item) for item in line.folded()]


def test_steps_in_a_row_are_folded_between_the_first_and_the_last() -> None:
    straight = [None, *range(20)]
    assert folds(a_tree(straight, {"main": 20})) == [0, 19, 20]
    assert folds(a_tree([None, 0, 1, 2], {"main": 3})) == [0, 1, 2, 3]
    assert folds(a_tree([None], {"main": 0})) == [0]


@pytest.mark.parametrize("facts", [{"name": "here"}, {"kind": Kind.MANUAL}, {"kind": Kind.SYSTEM}])
def test_what_is_remarkable_is_not_folded(facts: dict[str, Any]) -> None:
    straight = [None, *range(20)]
    assert folds(a_tree(straight, {"main": 20}, facts={10: facts})) == [0, 9, 10, 9, 20]


def test_a_safety_copy_at_the_end_of_an_abandoned_line_is_left_out_unless_something_came_of_it() -> None:
    safety = {"kind": Kind.SYSTEM}
    tree = a_tree([None, 0, 1, 2, 0], {"main": 0}, facts={3: safety, 4: safety})
    left = tree.lines[0].steps[0].lines
    assert [[step.checkpoint.step for step in line.folded() if isinstance(step, TreeStep)] for line in left] == [
        [1, 2],
        [],
    ]
    fork = a_branch("main", 9, ExecutionId("other"), forked_from=3)
    tree = a_tree([None, 0, 1, 2], {"main": 0}, (fork,), facts={3: safety})
    assert len(list(tree.lines[0].steps[0].lines[0].folded())) == 3


def test_heads_branch_points_and_forks_are_not_folded() -> None:
    straight = [None, *range(20)]
    assert folds(a_tree(straight, {"main": 20, "old": 10})) == [0, 9, 10, 9, 20]
    assert folds(a_tree([*straight, 10], {"main": 20})) == [0, 9, 10, 9, 20]
    fork = a_branch("main", 0, ExecutionId("other"), forked_from=10)
    assert folds(a_tree(straight, {"main": 20}, (fork,))) == [0, 9, 10, 9, 20]


def test_deleted_steps_are_folded_with_the_others() -> None:
    facts = {number: {"deleted": True} for number in range(5, 15)}
    assert folds(a_tree([None, *range(20)], {"main": 20}, facts=facts)) == [0, 19, 20]


@given(st.integers(0, 10_000))
def test_every_checkpoint_is_drawn_once_below_its_parent_and_not_deep(seed: int) -> None:
    random = Random(seed)
    earlier = range(1, random.randint(1, 60))
    parents = [None, *(random.randint(max(0, each - random.choice((1, 4, 60))), each - 1) for each in earlier)]
    heads = {name: random.randrange(len(parents)) for name in ("main", "b", "c")}
    tree = a_tree(parents, heads)
    seen: list[int] = []

    def look(line: TreeLine, parent: int | None, depth: int) -> None:
        assert depth <= math.log2(len(parents) + 1) + 3
        for step in line.steps:
            assert parents[step.checkpoint.step] == parent
            parent = step.checkpoint.step
            seen.append(parent)
            for other in step.lines:
                assert other.abandoned or not line.abandoned
                look(other, parent, depth + 1)

    (root,) = tree.lines
    look(root, None, 1)
    assert sorted(seen) == list(range(len(parents)))
    assert root.steps[-1].active


def test_a_tree_is_plain_data() -> None:
    fork = a_branch("main", 9, ExecutionId("other"), forked_from=1)
    data = a_tree([None, 0, 1], {"main": 1}, (fork,)).to_dict()
    step = data["lines"][0]["steps"][1]
    assert (step["checkpoint"], step["heads"], step["active"]) == ("c1", ["main"], True)
    assert step["visits"] == [{"node": "work", "visit": 1}]
    assert step["forks"] == [{"run": "other", "branch": "main", "head": "c9"}]
    assert step["lines"][0]["abandoned"]
