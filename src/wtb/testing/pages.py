"""The contract of Pages: a subclass gives the fixtures `storage`, and `tamper` (see wtb.testing.damage)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.errors import DamagedData
from wtb.domain.execution import ExecutionStatus
from wtb.domain.figures import NOTHING, Figures, Usage
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId
from wtb.domain.ports import CheckpointCounts, Clock, Ids, Pages, Storage
from wtb.testing.damage import Tamper
from wtb.testing.stories import Story, StoryFixtures

_UNKNOWN = CheckpointId("no-such-id")


class PagesContract(StoryFixtures):
    """What every storage pages, counts and sums."""

    def test_a_line_is_read_from_its_end(self, storage: Storage, story: Story) -> None:
        line = tuple(story.line(*[{"n": number} for number in range(6)]))
        story.save({}, parent=line[2])
        with _pages(storage) as pages:
            assert pages.list_line(line[-1].id, limit=9) == line
            assert pages.list_line(line[-1].id, limit=2) == line[4:]
            assert pages.list_line(line[-1].id, upto=3, limit=2) == line[2:4]
            assert pages.list_line(line[-1].id, upto=9, limit=1) == line[5:]
            assert pages.list_line(line[-1].id, upto=-1, limit=2) == ()
            assert pages.list_line(line[3].id, limit=2) == line[2:4]
            assert pages.list_line(_UNKNOWN, limit=2) == ()

    def test_the_line_of_a_fork_goes_on_in_the_run_that_it_left(self, storage: Storage, story: Story) -> None:
        start, point, _ = story.line({}, {}, {})
        own = story.fork(point).save({}, parent=point)
        with _pages(storage) as pages:
            assert pages.list_line(own.id, limit=9) == (start, point, own)
            assert pages.list_line(own.id, upto=1, limit=1) == (point,)

    def test_a_line_is_whole_where_checkpoints_are_deleted(self, storage: Storage, story: Story) -> None:
        start, middle, end = story.line({}, {}, {})
        story.delete(middle)
        with _pages(storage) as pages:
            assert [(each.id, each.deleted) for each in pages.list_line(end.id, limit=9)] == [
                (start.id, False), (middle.id, True), (end.id, False),
            ]  # fmt: skip

    def test_the_checkpoints_of_a_run_come_by_step_and_id(self, storage: Storage, story: Story) -> None:
        line = story.line({}, {}, {})
        side = story.save({}, parent=line[0])
        story.fork(line[1]).save({}, parent=line[1])
        every = tuple(sorted([*line, side], key=lambda each: (each.step, each.id)))
        with _pages(storage) as pages:
            assert pages.list_checkpoints(story.id, limit=9) == every
            assert pages.list_checkpoints(story.id, limit=2) == every[2:]
            for number, each in enumerate(every):
                assert pages.list_checkpoints(story.id, before=(each.step, each.id), limit=9) == every[:number]
            assert pages.list_checkpoints(ExecutionId("no-such-id"), limit=9) == ()

    def test_living_checkpoints_are_counted(self, storage: Storage, story: Story) -> None:
        _, second, _ = story.line({}, {}, {})
        story.save({}, parent=second, restore_point=False)
        story.delete(second)
        with _pages(storage) as pages:
            assert pages.count_checkpoints(story.id) == CheckpointCounts(3, 2)
            assert pages.count_checkpoints(ExecutionId("no-such-id")) == CheckpointCounts(0, 0)

    def test_runs_are_counted_by_status(self, storage: Storage, story: Story) -> None:
        made = [story.new_execution(status=ExecutionStatus.FAILED, created_by=who) for who in ("ann", "ann", "bob")]
        with storage.unit_of_work() as uow:
            for execution in made:
                uow.executions.add(execution)
            uow.commit()
        with _pages(storage) as pages:
            assert pages.count_runs() == {story.execution.status: 1, ExecutionStatus.FAILED: 3}
            assert pages.count_runs(created_by="ann") == {ExecutionStatus.FAILED: 2}
            assert pages.count_runs(workflow="no-such-workflow") == {}

    def test_a_damaged_checkpoint_is_found_in_its_page(self, storage: Storage, story: Story, tamper: Tamper) -> None:
        line = story.line({}, {}, {}, description="0ld-value")
        tamper(b"0ld-value", b"n3w-value")
        with _pages(storage) as pages:
            with pytest.raises(DamagedData, match=line[1].id):
                pages.list_line(line[1].id, limit=1)
            with pytest.raises(DamagedData, match=line[2].id):
                pages.list_checkpoints(story.id, limit=1)

    def test_the_usage_of_a_line_leaves_out_other_lines_and_what_has_not_completed(
        self, storage: Storage, story: Story
    ) -> None:
        start, first, second = story.line({}, {}, {})
        side = story.save({}, parent=start, branch_id=BranchId("side"))
        _keep(
            storage,
            _ended(story, start, first, Figures(usage=_used(1, "a"), spent=_used(10, "a"))),
            _ended(story, first, second, Figures(ms=2.5)),
            _ended(story, first, second, Figures(usage=_used(2, "b", unpriced=("b",)))),
            _ended(story, start, side, Figures(usage=_used(4, "c"))),
            story.new_node_run(input_id=second.id).measured(Figures(spent=_used(8, "d"))),
        )
        with _pages(storage) as pages:
            assert pages.sum_line(second.id) == _used(3, "a", "b", unpriced=("b",))
            assert pages.sum_line(first.id) == _used(1, "a")
            assert pages.sum_line(start.id) == NOTHING
            assert pages.sum_line(_UNKNOWN) == NOTHING

    def test_the_line_of_a_fork_has_the_usage_of_the_run_that_it_left(self, storage: Storage, story: Story) -> None:
        start, point, after = story.line({}, {}, {})
        own = (fork := story.fork(point)).save({}, parent=point)
        _keep(
            storage,
            _ended(story, start, point, Figures(usage=_used(1, "a"), spent=_used(1, "a"))),
            _ended(story, point, after, Figures(usage=_used(2, "a"), spent=_used(2, "a"))),
            _ended(fork, point, own, Figures(usage=_used(4, "a"), spent=_used(4, "a"))),
        )
        with _pages(storage) as pages:
            assert pages.sum_line(own.id) == _used(5, "a")
            assert pages.sum_spent(fork.id) == _used(4, "a")
            assert pages.sum_spent(story.id) == _used(3, "a")

    def test_what_was_spent_counts_every_attempt_and_nothing_that_was_shared(
        self, storage: Storage, story: Story
    ) -> None:
        start, first = story.line({}, {})
        _keep(
            storage,
            _ended(story, start, first, Figures(usage=_used(1, "a"), spent=_used(10, "b"))),
            _ended(story, start, first, Figures(usage=_used(2, "a"), spent=_used(2, "a"))),
            _ended(story, start, first, Figures(usage=_used(4, "a"), is_shared=True)),
            story.new_node_run().ended(NodeStatus.FAILED, start.created_at).measured(Figures(spent=_used(8, "c"))),
            story.new_node_run(),
        )
        with _pages(storage) as pages:
            assert pages.sum_spent(story.id) == _used(20, "a", "b", "c")
            assert pages.sum_spent(ExecutionId("no-such-id")) == NOTHING

    def test_nothing_is_summed_where_the_figures_of_a_completed_run_are_not_kept(
        self, storage: Storage, story: Story
    ) -> None:
        start, first, second = story.line({}, {}, {})
        _keep(
            storage,
            _ended(story, start, first, Figures(usage=_used(1, "a"), spent=_used(1, "a"))),
            story.new_node_run(input_id=first.id).completed(second.id, second.created_at),
        )
        with _pages(storage) as pages:
            assert pages.sum_line(first.id) == _used(1, "a")
            assert pages.sum_line(second.id) is None
            assert pages.sum_spent(story.id) is None

    @pytest.mark.parametrize("name", ["nul \x00", "surrogate \ud800", "ü \" '"], ids=["nul", "surrogate", "quotes"])
    def test_models_of_any_name_are_summed(self, storage: Storage, story: Story, name: str) -> None:
        start, first = story.line({}, {})
        _keep(storage, _ended(story, start, first, Figures(usage=_used(1, name, unpriced=(name,)))))
        with _pages(storage) as pages:
            assert pages.sum_line(first.id) == _used(1, name, unpriced=(name,))

    def test_workflows_are_listed_with_their_runs(self, storage: Storage, ids: Ids, clock: Clock) -> None:
        with storage.unit_of_work() as uow:
            old, new, other = (
                uow.workflows.save({"name": name, "version": version})
                for name, version in (("b", "1"), ("b", "2"), ("a", "1"))
            )
            uow.commit()
        made = [
            _run_of(Story(storage, ids, clock), storage, name, id)
            for name, id in (("b", new), ("a", other), ("b", old), ("b", old))
        ]
        with _pages(storage) as pages:
            found = [use for use in pages.list_workflows() if use.name != "story"]
        assert [(use.name, use.version, use.workflow_id, use.runs) for use in found] == [
            ("a", "1", other, 1), ("b", "2", new, 1), ("b", "1", old, 2),
        ]  # fmt: skip
        assert (found[2].first_at, found[2].last_at) == (made[2].created_at, made[3].created_at)


@contextmanager
def _pages(storage: Storage) -> Iterator[Pages]:
    with storage.unit_of_work(readonly=True) as uow:
        yield uow.pages


def _used(number: int, *models: str, **facts: Any) -> Usage:
    """Return a usage whose parts are known by one number; quarters of dollars have exact sums."""
    return Usage(input_tokens=number, output_tokens=number * 100, cost_usd=number / 4, models=models, **facts)


def _ended(story: Story, begin: Checkpoint, end: Checkpoint, figures: Figures) -> NodeRun:
    return story.new_node_run(input_id=begin.id).completed(end.id, end.created_at).measured(figures)


def _keep(storage: Storage, *runs: NodeRun) -> None:
    with storage.unit_of_work() as uow:
        for run in runs:
            uow.node_runs.save(run)
        uow.commit()


def _run_of(story: Story, storage: Storage, name: str, workflow_id: str) -> Any:
    made = story.new_execution(workflow_name=name, workflow_id=workflow_id)
    with storage.unit_of_work() as uow:
        uow.executions.add(made)
        uow.commit()
    return made
