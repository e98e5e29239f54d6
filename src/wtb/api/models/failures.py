"""Why a run failed, and what changed since the last run that went well."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.api.models.checkpoints import CheckpointAnswer
from wtb.api.models.diffs import StateDiffAnswer
from wtb.api.models.executions import RunFailureAnswer
from wtb.api.models.figures import PlainText
from wtb.api.models.states import StateAnswer
from wtb.application.queries.state_parts import StatePart
from wtb.application.queries.tagged_json import TaggedJson
from wtb.application.queries.views import FailureView, LastGoodRun
from wtb.domain.diff import StateDiff

_MOST_CHANGES = 200


class NodeInputAnswer(AnswerModel):
    """What the failed node got."""

    checkpoint: CheckpointAnswer = Field(description="Where the node started; fork or roll back to it to try again.")
    reads: list[PlainText] | None = Field(description="The keys that the node may read; null if it may read all.")
    state: StateAnswer = Field(description="What the node could see; a large state without its values.")


class VariantChangeAnswer(AnswerModel):
    """A node that runs another variant than before; null is the node without one."""

    node: PlainText
    before: PlainText | None
    now: PlainText | None


class LastGoodRunAnswer(AnswerModel):
    """The last run that went well, and what the failed run has that is different."""

    run: str
    created_at: datetime
    same_code: bool | None = Field(description="Whether the workflow and its code are the same; null if not known.")
    code: list[PlainText] = Field(description="What changed in them, in words.")
    variants: list[VariantChangeAnswer]
    input: list[StateDiffAnswer] | None = Field(description="How the inputs differ; null if one is gone.")
    state: list[StateDiffAnswer] | None = Field(
        description="How the states differ from which the node started; null if the other run did not get there."
    )
    left_out: int = Field(description="How many further differences of inputs and states there are.")

    @classmethod
    def of(cls, found: LastGoodRun, json: TaggedJson) -> Self:
        """Return a comparison as an answer."""
        changes = [side for side in (found.input, found.state) if side is not None]
        return cls(
            run=found.execution.id,
            created_at=found.execution.created_at,
            same_code=None if found.code is None else not found.code,
            code=list(found.code or ()),
            variants=[VariantChangeAnswer(node=each.node, before=each.before, now=each.now) for each in found.variants],
            input=None if found.input is None else _first(found.input, json),
            state=None if found.state is None else _first(found.state, json),
            left_out=sum(max(0, len(side) - _MOST_CHANGES) for side in changes),
        )


def _first(found: Iterable[StateDiff], json: TaggedJson) -> list[StateDiffAnswer]:
    return [StateDiffAnswer.of(each, json) for each in list(found)[:_MOST_CHANGES]]


class FailureExplanation(AnswerModel):
    """Why a run failed, what its node got, and what changed since the last run that went well."""

    run: str
    workflow: PlainText
    failure: RunFailureAnswer
    input: NodeInputAnswer | None = Field(description="Null if no node failed, or its input is not stored.")
    last_good: LastGoodRunAnswer | None = Field(description="Null if no earlier run of the workflow has completed.")

    @classmethod
    def of(cls, view: FailureView, state: StatePart | None, json: TaggedJson) -> Self:
        """Return a view as an answer; the state is given in the form in which it is shown."""
        got = None
        if view.input is not None and state is not None:
            reads = None if view.input.reads is None else list(view.input.reads)
            checkpoint = CheckpointAnswer.of(view.input.checkpoint)
            got = NodeInputAnswer(checkpoint=checkpoint, reads=reads, state=StateAnswer.of(state))
        return cls(
            run=view.execution.id,
            workflow=view.execution.workflow_name,
            failure=RunFailureAnswer.of(view.failure),
            input=got,
            last_good=None if view.last_good is None else LastGoodRunAnswer.of(view.last_good, json),
        )
