"""The contracts of the repositories of workflows, branches and node runs: a subclass gives the fixture `storage`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta, timezone
from threading import Barrier
from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.errors import (
    AlreadyExists,
    BranchNotFound,
    CheckpointNotFound,
    Conflict,
    InvalidInput,
    NodeRunNotFound,
    WorkflowNotFound,
)
from wtb.domain.execution import Branch, Failure
from wtb.domain.figures import Figures, Usage
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, WorkflowId
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.rollback import CallKey, Rollback, RollbackDirection, RollbackStatus
from wtb.domain.values import evolve
from wtb.domain.workflow import END, Edge, Node, WorkflowDefinition
from wtb.testing.stories import Story, StoryFixtures

WAIT_S = 30.0


class WorkflowRepositoryContract:
    """What every repository of workflow definitions does."""

    def test_a_definition_comes_back_as_it_was(self, storage: Storage) -> None:
        definition = WorkflowDefinition(
            name="support",
            nodes=(Node(name="reply", reference="module:reply", start=True, config={"k": [1, 2.5, None, "ü\x00"]}),),
            edges=(Edge(sources=("reply",), target=END),),
        )
        with storage.unit_of_work() as uow:
            workflow_id = uow.workflows.save(definition.to_dict())
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.workflows.get(workflow_id) == definition.to_dict()
            assert WorkflowDefinition.from_dict(uow.workflows.get(workflow_id)) == definition

    def test_equal_definitions_have_the_same_id(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow:
            first = uow.workflows.save({"name": "a", "version": "1", "nodes": [{"x": 1, "y": 2}]})
            uow.commit()
        with storage.unit_of_work() as uow:
            assert uow.workflows.save({"nodes": [{"y": 2, "x": 1}], "version": "1", "name": "a"}) == first

    def test_different_definitions_have_different_ids(self, storage: Storage) -> None:
        definition: dict[str, Any] = {"name": "a", "version": "1", "nodes": []}
        others = [definition | {"version": "2"}, definition | {"name": "b"}, definition | {"nodes": [{}]}]
        with storage.unit_of_work() as uow:
            assert len({uow.workflows.save(each) for each in [definition, *others]}) == 4

    def test_what_is_done_to_a_definition_afterwards_is_not_stored(self, storage: Storage) -> None:
        definition = {"name": "a", "version": "1", "nodes": ["x"]}
        with storage.unit_of_work() as uow:
            workflow_id = uow.workflows.save(definition)
            definition["nodes"] = []
            assert uow.workflows.get(workflow_id)["nodes"] == ["x"]

    def test_an_unknown_id_is_named(self, storage: Storage) -> None:
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(WorkflowNotFound, match="no-such-id"):
            uow.workflows.get(WorkflowId("no-such-id"))

    def test_a_definition_that_is_no_plain_data_is_refused_by_name(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow, pytest.raises(InvalidInput, match="support"):
            uow.workflows.save({"name": "support", "version": "1", "nodes": [object()]})


class BranchRepositoryContract(StoryFixtures):
    """What every repository of branches does."""

    def test_a_branch_comes_back_as_it_was(self, storage: Storage, story: Story) -> None:
        branch = story.add_branch("naïve ☃", story.save({}))
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.branches.get(branch.id) == branch
            assert uow.branches.get(story.main.id) == story.main

    def test_an_unknown_id_is_named(self, storage: Storage, story: Story) -> None:
        head = story.save({})
        with storage.unit_of_work() as uow:
            with pytest.raises(BranchNotFound, match="no-such-id"):
                uow.branches.get(BranchId("no-such-id"))
            with pytest.raises(BranchNotFound, match="no-such-id"):
                uow.branches.move_head(BranchId("no-such-id"), head.id, expected=None)

    def test_a_branch_that_is_deleted_leaves_its_checkpoints(self, storage: Storage, story: Story) -> None:
        head = story.save({"a": 1})
        branch = story.add_branch("side", head)
        with storage.unit_of_work() as uow:
            uow.branches.delete(branch.id)
            with pytest.raises(BranchNotFound):
                uow.branches.delete(branch.id)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.branches.list_branches(story.id) == (uow.branches.get(story.main.id),)
            assert uow.checkpoints.load(head.id).state["a"] == 1

    def test_an_id_is_given_once(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            with pytest.raises(AlreadyExists):
                uow.branches.add(replace(story.main, name="other"))
            assert uow.branches.get(story.main.id) == story.main

    def test_a_name_is_given_once_in_an_execution(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow, pytest.raises(AlreadyExists, match="main"):
            uow.branches.add(story.new_branch("main"))

    def test_executions_share_no_names(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        assert other.main.name == story.main.name

    def test_branches_are_listed_in_the_order_of_their_making(self, storage: Storage, story: Story) -> None:
        head = story.save({})
        made = [story.main, *[story.add_branch(name, head) for name in ("z", "a", "m")]]
        story.fork(head)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.branches.list_branches(story.id) == tuple(made)
            assert uow.branches.list_branches(ExecutionId("no-such-id")) == ()

    def test_forks_are_found_by_where_they_left_in_whichever_execution(self, storage: Storage, story: Story) -> None:
        first, second, third = story.line({}, {}, {})
        near = story.add_branch("near", second)
        far = story.fork(first).main
        story.fork(third)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.branches.list_forks([second.id, first.id, second.id]) == (near, far)
            assert uow.branches.list_forks([CheckpointId("no-such-id")]) == ()
            assert uow.branches.list_forks([]) == ()
            many = [CheckpointId(f"c{number}") for number in range(2_000)]
            assert uow.branches.list_forks([*many, second.id]) == (near,)

    def test_a_fork_is_found_where_it_is_said_to_have_left(self, storage: Storage, story: Story) -> None:
        first, second = story.line({}, {})
        fork = story.fork(second).main
        with storage.unit_of_work() as uow:
            uow.branches.fork_from(fork.id, first.id)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.branches.list_forks([second.id]) == ()
            assert uow.branches.list_forks([first.id]) == (evolve(fork, forked_from_id=first.id),)

    def test_branches_are_found_by_where_they_left_and_by_where_they_are(self, storage: Storage, story: Story) -> None:
        first, second, third = story.line({}, {}, {})
        here, there = story.add_branch("here", first), story.add_branch("there", second)
        other = story.fork(first)
        story.move_head(third, here)
        story.move_head(third)
        with storage.unit_of_work(readonly=True) as uow:
            moved, main = uow.branches.get(here.id), uow.branches.get(story.main.id)
            assert uow.branches.list_forks([first.id]) == (moved, other.main)
            assert uow.branches.list_forks([second.id, first.id]) == (moved, there, other.main)
            assert uow.branches.list_at([third.id]) == (main, moved)
            assert uow.branches.list_at([first.id, second.id]) == (there, other.main)
            for look in (uow.branches.list_forks, uow.branches.list_at):
                assert look([]) == look([CheckpointId("no-such-id")]) == ()

    def test_a_head_moves_from_where_it_is_expected(self, storage: Storage, story: Story) -> None:
        first, second = story.line({}, {})
        with storage.unit_of_work() as uow:
            uow.branches.move_head(story.main.id, first.id, expected=None)
            uow.branches.move_head(story.main.id, second.id, expected=first.id)
            uow.branches.move_head(story.main.id, first.id, expected=second.id)
            uow.commit()
        assert _head(storage, story.main) == first.id

    def test_a_branch_goes_back_from_where_its_head_is_expected(self, storage: Storage, story: Story) -> None:
        first, second = story.line({}, {})
        story.move_head(second)
        with storage.unit_of_work() as uow:
            with pytest.raises(Conflict, match="main"):
                uow.branches.rewind(story.main.id, first.id, expected=first.id)
            uow.branches.rewind(story.main.id, first.id, expected=second.id)
            uow.commit()
        assert _head(storage, story.main) == first.id

    def test_a_head_that_is_elsewhere_does_not_move(self, storage: Storage, story: Story) -> None:
        first, second = story.line({}, {})
        with storage.unit_of_work() as uow:
            with pytest.raises(Conflict, match="main"):
                uow.branches.move_head(story.main.id, second.id, expected=first.id)
            uow.branches.move_head(story.main.id, first.id, expected=None)
            with pytest.raises(Conflict, match="main"):
                uow.branches.move_head(story.main.id, second.id, expected=None)
            with pytest.raises(Conflict, match="main"):
                uow.branches.move_head(story.main.id, first.id, expected=second.id)
            uow.commit()
        assert _head(storage, story.main) == first.id

    def test_a_head_is_a_checkpoint_that_exists(self, storage: Storage, story: Story) -> None:
        gone, child = story.line({}, {})
        story.delete(gone)
        with storage.unit_of_work() as uow:
            for missing in (gone.id, CheckpointId("no-such-id")):
                with pytest.raises(CheckpointNotFound, match=missing):
                    uow.branches.move_head(story.main.id, missing, expected=None)
                with pytest.raises(CheckpointNotFound, match=missing):
                    uow.branches.add(story.new_branch("other", head_id=missing))
            uow.branches.move_head(story.main.id, child.id, expected=None)

    def test_of_two_who_move_a_head_one_is_first(self, storage: Storage, story: Story) -> None:
        start, left, right = story.line({}, {}, {})
        story.move_head(start)
        meet = Barrier(2)

        def move(to: Checkpoint) -> bool:
            meet.wait(WAIT_S)
            with suppress(Conflict), storage.unit_of_work() as uow:
                uow.branches.move_head(story.main.id, to.id, expected=start.id)
                uow.commit()
                return True
            return False

        with ThreadPoolExecutor(2) as pool:
            moved = list(pool.map(move, (left, right)))
        assert sorted(moved) == [False, True]
        assert _head(storage, story.main) == (left if moved[0] else right).id


def _head(storage: Storage, branch: Branch) -> CheckpointId | None:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.branches.get(branch.id).head_id


class RollbackRepositoryContract(StoryFixtures):
    """What every repository of rollback journals does."""

    def test_a_journal_comes_back_as_it_was_at_every_stage(self, storage: Storage, story: Story) -> None:
        start, head, safety = story.line({}, {}, {})
        now = story.execution.created_at
        begun = Rollback(
            id="first",
            execution_id=story.id,
            branch_id=story.main.id,
            direction=RollbackDirection.ROLLBACK,
            head_id=head.id,
            target_id=start.id,
            safety_id=safety.id,
            calls=(CallKey(node_run_id=NodeRunId("run"), identity="tool:1#1"),),
            created_by="ann",
            created_at=now,
        )
        failed = begun.ended(RollbackStatus.FAILED, now, "said \x00 and ☃")
        for stage in (begun, failed, failed.ended(RollbackStatus.COMPLETED, now)):
            with storage.unit_of_work() as uow:
                uow.rollbacks.save(stage)
                uow.commit()
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.rollbacks.list_rollbacks(story.id) == (stage,)
                assert uow.rollbacks.count_rollbacks(story.id) == 1
                assert uow.rollbacks.list_rollbacks(ExecutionId("no-such-id")) == ()
                assert uow.rollbacks.count_rollbacks(ExecutionId("no-such-id")) == 0

    def test_journals_are_listed_in_the_order_of_their_making(self, storage: Storage, story: Story) -> None:
        (start,) = story.line({})
        made = [
            Rollback(
                id=f"{9 - number}",
                execution_id=story.id,
                branch_id=story.main.id,
                direction=RollbackDirection.REDO,
                head_id=start.id,
                target_id=start.id,
                safety_id=start.id,
                created_at=story.execution.created_at + timedelta(seconds=number),
            )
            for number in range(5)
        ]
        with storage.unit_of_work() as uow:
            for journal in reversed(made):
                uow.rollbacks.save(journal)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.rollbacks.list_rollbacks(story.id) == tuple(made)


class NodeRunRepositoryContract(StoryFixtures):
    """What every repository of node runs does."""

    def test_a_node_run_comes_back_as_it_was_at_every_stage(self, storage: Storage, story: Story) -> None:
        for run in _life(story):
            _save(storage, run)
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.node_runs.get(story.id, run.id) == run
                assert uow.node_runs.list_runs(story.id) == (run,)

    def test_figures_come_back_to_the_last_digit(self, storage: Storage, story: Story) -> None:
        usage = Usage(input_tokens=3, output_tokens=2**40, cost_usd=0.1 + 0.2, models=("☃ \x00", "m"), unpriced=("m",))
        life = [
            Figures(),
            Figures(ms=0.123),
            Figures(spent=usage, tool_errors=2),
            Figures(ms=1e7 + 0.001, usage=usage, spent=usage + usage),
            Figures(ms=1.5, usage=usage, spent=usage),
            Figures(ms=1.5, usage=usage, tool_errors=1, is_shared=True),
            Figures(is_shared=True),
        ]
        run = story.new_node_run()
        for figures in life:
            _save(storage, run.measured(figures))
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.node_runs.get(story.id, run.id).figures == figures

    def test_the_projection_is_the_boundary_at_every_stage(self, storage: Storage, story: Story) -> None:
        for run in _life(story):
            _save(storage, run)
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.node_runs.list_boundaries(story.id) == (run.boundary(),)

    def test_the_unfinished_are_those_that_go_on_or_wait_for_their_barrier(
        self, storage: Storage, story: Story
    ) -> None:
        for run in _life(story):
            _save(storage, run)
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.node_runs.list_unfinished(story.id) == ((run,) if run.status is NodeStatus.STARTED else ())
        waiting = replace(run, pending={"returned": {}})
        _save(storage, waiting)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.node_runs.list_unfinished(story.id) == (waiting,)

    def test_runs_and_boundaries_are_listed_by_id(self, storage: Storage, story: Story) -> None:
        runs = [story.new_node_run("work", visit) for visit in range(1, 6)]
        _save(storage, *reversed(runs))
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.node_runs.list_runs(story.id) == tuple(runs)
            assert uow.node_runs.list_boundaries(story.id) == tuple(run.boundary() for run in runs)

    def test_each_execution_has_its_own_runs(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        _save(storage, story.new_node_run(), theirs := other.new_node_run())
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.node_runs.list_runs(other.id) == (theirs,)
            assert uow.node_runs.list_boundaries(other.id) == (theirs.boundary(),)
            assert uow.node_runs.list_runs(ExecutionId("no-such-id")) == ()
            with pytest.raises(NodeRunNotFound, match=theirs.id):
                uow.node_runs.get(story.id, theirs.id)

    def test_an_unknown_id_is_named(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(NodeRunNotFound, match="no-such-id"):
            uow.node_runs.get(story.id, NodeRunId("no-such-id"))

    def test_a_failure_may_say_anything(self, storage: Storage, story: Story) -> None:
        failure = Failure(type="Error", message="\x00 \ud800 ☃ '\"\\ {}", traceback="line\r\nline", node="work")
        run = story.new_node_run().ended(NodeStatus.FAILED, story.execution.created_at, failure)
        _save(storage, run)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.node_runs.get(story.id, run.id) == run
            assert uow.node_runs.list_boundaries(story.id) == (run.boundary(),)

    def test_times_are_moments_whatever_their_zone(self, storage: Storage, story: Story) -> None:
        started = story.execution.created_at.replace(microsecond=123_457).astimezone(timezone(timedelta(hours=-7)))
        run = story.new_node_run(started_at=started)
        _save(storage, run)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.node_runs.get(story.id, run.id) == run


def _life(story: Story) -> list[NodeRun]:
    """Return one node run at every stage: tried thrice, later the third time, with two checkpoints and a tool call."""
    first, second = story.line({}, {})
    now = story.execution.created_at
    started = story.new_node_run("work", 3, input_id=first.id)
    reached = started.reached(first.id).called_tool()
    failed = reached.ended(NodeStatus.FAILED, now, Failure(type="ValueError", message="no", node="work", visit=3))
    again = failed.tried_again()
    later = again.tried_again(since=now + timedelta(hours=1))
    done = later.reached(second.id).ended(NodeStatus.COMPLETED, now + timedelta(hours=2))
    return [started, reached, failed, again, later, done]


def _save(storage: Storage, *runs: NodeRun) -> None:
    with storage.unit_of_work() as uow:
        for run in runs:
            uow.node_runs.save(run)
        uow.commit()
