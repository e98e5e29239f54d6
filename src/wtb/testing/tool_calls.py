"""The contract of ToolCallRepository."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from wtb.domain.errors import StateNotSerialisable
from wtb.domain.figures import Usage
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.tools import CallKind, Effects, ToolCall
from wtb.domain.values import evolve
from wtb.testing.stories import Story, StoryFixtures


class ToolCallRepositoryContract(StoryFixtures):
    """What every repository of recorded calls does."""

    def test_a_call_comes_back_as_it_was_at_every_stage(self, storage: Storage, story: Story) -> None:
        call = _call(story)
        later = call.started_at + timedelta(seconds=1)
        done = call.succeeded({"id": Decimal("1.50"), "tags": ("a", {"b"})}, later)
        life = [
            call,
            call.failed("OSError: \ud800 and ☃", later),
            call.failed("OSError", later).counted_failure(),
            call.failed("OSError", later).counted_failure().again(later),
            call.again(later),
            done,
            done.using(Usage(input_tokens=3, output_tokens=1, cost_usd=0.1, models=("m",), unpriced=("m",))),
            done.reversing(),
            done.not_reversed("refused"),
            done.reversed(),
            done.redoing(),
            done.redone(),
            evolve(call, started_step=3, started_number=7),
            evolve(done, started_step=3, started_number=7, ended_step=4),
            evolve(done, reversible=True),
            evolve(call.using(Usage(input_tokens=1)), reversible=False),
        ]
        for stage in life:
            _save(storage, stage)
            with storage.unit_of_work(readonly=True) as uow:
                assert uow.tool_calls.list_calls(story.id) == (stage,)

    def test_arguments_and_results_are_those_of_the_moment_of_saving(self, storage: Storage, story: Story) -> None:
        arguments: dict[str, Any] = {"to": ["ann"]}
        result = ["sent"]
        call = _call(story, arguments=arguments).succeeded(result, story.execution.created_at)
        _save(storage, call)
        arguments["to"].append("bob")
        result.append("twice")
        with storage.unit_of_work(readonly=True) as uow:
            (found,) = uow.tool_calls.list_calls(story.id)
        assert (found.arguments, found.result) == ({"to": ["ann"]}, ["sent"])

    def test_calls_are_listed_by_node_run_and_then_in_the_order_of_their_beginning(
        self, storage: Storage, story: Story
    ) -> None:
        first, second = (NodeRunId(story.new_node_run().id) for _ in range(2))
        calls = [_call(story, node_run_id=run, sequence=number) for run in (first, second) for number in range(3)]
        _save(storage, *reversed(calls))
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.tool_calls.list_calls(story.id) == tuple(calls)
            assert uow.tool_calls.list_calls(story.id, second) == tuple(calls[3:])

    def test_each_execution_has_its_own_calls(self, storage: Storage, story: Story, ids: Ids, clock: Clock) -> None:
        other = Story(storage, ids, clock)
        _save(storage, _call(story), theirs := _call(other))
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.tool_calls.list_calls(other.id) == (theirs,)
            assert uow.tool_calls.list_calls(ExecutionId("no-such-id")) == ()

    def test_calls_whose_node_run_is_not_there_are_lost(
        self, storage: Storage, story: Story, ids: Ids, clock: Clock
    ) -> None:
        run, other = story.new_node_run(), Story(storage, ids, clock)
        with storage.unit_of_work() as uow:
            uow.node_runs.save(run)
            uow.commit()
        _save(storage, _call(story, node_run_id=run.id), _call(story, sequence=2), _call(story, sequence=1))
        _save(storage, _call(other, node_run_id=run.id))  # a node run of another execution
        with storage.unit_of_work(readonly=True) as uow:
            lost = uow.tool_calls.list_lost(story.id)
            assert [(key.node_run_id, key.identity) for key in lost] == [("run", "send:1#1"), ("run", "send:2#1")]
            assert [key.node_run_id for key in uow.tool_calls.list_lost(other.id)] == [run.id]
            assert uow.tool_calls.list_lost(ExecutionId("no-such-id")) == ()

    def test_what_cannot_be_stored_is_named_and_nothing_is_kept(self, storage: Storage, story: Story) -> None:
        with storage.unit_of_work() as uow:
            with pytest.raises(StateNotSerialisable, match=r"send\(\)\.to"):
                uow.tool_calls.save(_call(story, arguments={"to": object()}))
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.tool_calls.list_calls(story.id) == ()

    def test_calls_go_with_their_execution(self, storage: Storage, story: Story) -> None:
        _save(storage, _call(story))
        with storage.unit_of_work() as uow:
            uow.checkpoints.delete_run(story.id)
            uow.executions.delete(story.id)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.tool_calls.list_calls(story.id) == ()


def _call(story: Story, **facts: Any) -> ToolCall:
    given: dict[str, Any] = {
        "execution_id": story.id,
        "node_run_id": NodeRunId("run"),
        "identity": f"send:{facts.get('sequence', 0)}#1",
        "sequence": 0,
        "kind": CallKind.TOOL,
        "tool": "send",
        "effects": Effects.EXTERNAL,
        "arguments": {"to": "ann"},
        "started_at": story.execution.created_at,
    }
    return ToolCall(**given | facts)


def _save(storage: Storage, *calls: ToolCall) -> None:
    with storage.unit_of_work() as uow:
        for call in calls:
            uow.tool_calls.save(call)
        uow.commit()
