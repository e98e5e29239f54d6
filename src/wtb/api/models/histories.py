"""What a run did: branches, tree, timeline, calls, usage and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel, example
from wtb.api.models.figures import Number, PlainText, UsageAnswer, plain
from wtb.application.queries.node_usage import CallView, NodeUsage, Undo
from wtb.application.queries.tagged_json import TaggedJson
from wtb.application.queries.timeline import TimelineView, TimelineVisit, Wait
from wtb.domain.checkpoint import Kind, NodeStatus
from wtb.domain.event_body import Severity
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import Branch
from wtb.domain.tools import CallKind, CallStatus, Effects
from wtb.domain.tree import HistoryTree, TreeLine, TreeStep


class BranchAnswer(AnswerModel):
    """A branch of a run."""

    id: str
    name: PlainText
    head: str | None = Field(description="Its last checkpoint.")
    forked_from: str | None = Field(description="The checkpoint where it left another line.")
    is_active: bool
    created_at: datetime

    model_config = example(
        id="01a1f57c-7cf9-7001-a3da-385ac89b86be",
        name="shorter",
        head="01a1f57c-7d0b-7000-9469-254f7a18ff57",
        forked_from="01a1f57c-7cf9-7001-a3da-385ac89b86be",
        is_active=True,
        created_at="2026-11-18T12:00:00+00:00",
    )

    @classmethod
    def of(cls, branch: Branch, active_id: str) -> Self:
        """Return a branch as an answer."""
        return cls(
            id=branch.id,
            name=branch.name,
            head=branch.head_id,
            forked_from=branch.forked_from_id,
            is_active=branch.id == active_id,
            created_at=branch.created_at,
        )


class TreeStepAnswer(AnswerModel):
    """A checkpoint in the tree, or with `folded` a number of plain steps in a row."""

    checkpoint: str | None
    step: int
    kind: Kind = Field(description="`system` for the copy that a rollback made before it went back.")
    folded: int = Field(description="How many plain steps in a row this stands for; 1 for a single checkpoint.")
    visits: list[str] = Field(examples=[["draft#2"]])
    name: PlainText | None
    heads: list[PlainText] = Field(description="The branches that end here.")
    is_active: bool
    lines: list[TreeLineAnswer] = Field(description="The lines that leave here.")
    forks: list[str] = Field(description="Runs that were forked here.")

    @classmethod
    def of(cls, step: TreeStep) -> Self:
        """Return a step as an answer."""
        return cls(
            checkpoint=step.checkpoint.id,
            step=step.checkpoint.step,
            kind=step.checkpoint.kind,
            folded=1,
            visits=[f"{node}#{visit}" for node, visit in step.visits],
            name=step.checkpoint.name,
            heads=[branch.name for branch in step.heads],
            is_active=step.active,
            lines=[TreeLineAnswer.of(line) for line in step.lines],
            forks=[fork.execution_id for fork in step.forks],
        )

    @classmethod
    def of_row(cls, steps: tuple[TreeStep, ...]) -> Self:
        """Return plain steps in a row as one answer."""
        first = cls.of(steps[0])
        return first.model_copy(update={"folded": len(steps), "visits": []})


class TreeLineAnswer(AnswerModel):
    """Checkpoints that follow each other."""

    abandoned: bool = Field(description="Whether it leads to no head of a branch.")
    steps: list[TreeStepAnswer]
    safety_copy: str | None = Field(
        description="The checkpoint that a rollback made at the end of the line before it left it."
    )

    @classmethod
    def of(cls, line: TreeLine) -> Self:
        """Return a line as an answer; plain steps in a row are folded."""
        steps = [
            TreeStepAnswer.of_row(each) if isinstance(each, tuple) else TreeStepAnswer.of(each)
            for each in line.folded()
        ]
        return cls(abandoned=line.abandoned, steps=steps, safety_copy=line.safety_copy)


class TreeAnswer(AnswerModel):
    """All lines of a run."""

    run: str
    lines: list[TreeLineAnswer]

    @classmethod
    def of(cls, tree: HistoryTree) -> Self:
        """Return a tree as an answer."""
        return cls(run=tree.execution_id, lines=[TreeLineAnswer.of(line) for line in tree.lines])


class WaitAnswer(AnswerModel):
    """A time in which a node or the run waited."""

    reason: PlainText
    started_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, wait: Wait) -> Self:
        """Return a wait as an answer."""
        return cls(reason=wait.reason, started_at=wait.started_at, ended_at=wait.ended_at)


class VisitAnswer(AnswerModel):
    """One visit of a node."""

    node: PlainText
    visit: int
    run: str = Field(description="The run that made it.")
    status: NodeStatus
    attempts: int
    step: int | None
    started_at: datetime
    ended_at: datetime | None
    busy_ms: Number = Field(description="How long the successful attempt worked.")
    is_shared: bool = Field(description="Whether a batch took the result from another run.")
    parallel: bool = Field(description="Whether other nodes ran beside it.")
    tool_calls: int
    error: PlainText | None
    waits: list[WaitAnswer]

    @classmethod
    def of(cls, visit: TimelineVisit) -> Self:
        """Return a visit as an answer."""
        return cls(
            node=visit.node,
            visit=visit.visit,
            run=visit.run_id,
            status=visit.status,
            attempts=visit.attempts,
            step=visit.step,
            started_at=visit.started_at,
            ended_at=visit.ended_at,
            busy_ms=visit.busy_ms,
            is_shared=visit.is_shared,
            parallel=visit.parallel,
            tool_calls=visit.tool_calls,
            error=visit.error,
            waits=[WaitAnswer.of(wait) for wait in visit.waits],
        )


class TimelineAnswer(AnswerModel):
    """The visits of the last steps in the order of their starts, and the pauses of the run."""

    run: str
    items: list[VisitAnswer]
    pauses: list[WaitAnswer]
    before: int | None = Field(description="Give this as `before` to get earlier visits; null if there are none.")

    @classmethod
    def of(cls, view: TimelineView) -> Self:
        """Return a timeline as an answer."""
        return cls(
            run=view.run_id,
            items=[VisitAnswer.of(visit) for visit in view.visits],
            pauses=[WaitAnswer.of(pause) for pause in view.pauses],
            before=view.before,
        )


class CallAnswer(AnswerModel):
    """A recorded call to a tool, or a question to a person."""

    call: PlainText = Field(description="The identity of the call within its visit.")
    kind: CallKind
    tool: PlainText
    effects: Effects
    node: PlainText | None
    visit: int | None
    status: CallStatus
    arguments: Any = Field(description="As tagged JSON, with secrets masked.")
    result: Any = Field(description="As tagged JSON, with secrets masked.")
    error: PlainText | None
    undo: Undo = Field(
        description="How a rollback treats it. `tool`: its tool can undo it; `never`: nobody can. For calls of older "
        "versions it is `unknown`, and the plan of a rollback says it."
    )
    started_at: datetime
    ended_at: datetime | None
    duration_ms: Number
    failures: int = Field(description="How many tries failed.")

    @classmethod
    def of(cls, view: CallView, json: TaggedJson) -> Self:
        """Return a call as an answer."""
        call = view.call
        return cls(
            call=call.identity,
            kind=call.kind,
            tool=call.tool,
            effects=call.effects,
            node=view.node,
            visit=view.visit,
            status=call.status,
            arguments=json.write(dict(call.arguments)),
            result=json.write(call.result),
            error=call.error,
            undo=view.undo,
            started_at=call.started_at,
            ended_at=call.ended_at,
            duration_ms=call.ms,
            failures=call.figures.failures,
        )


class NodeUsageAnswer(AnswerModel):
    """What one node used on the way to the head, and what it spent in all."""

    node: PlainText
    visits: int
    busy_ms: Number
    usage: UsageAnswer
    spent: UsageAnswer

    @classmethod
    def of(cls, found: NodeUsage) -> Self:
        """Return the usage of a node as an answer."""
        return cls(
            node=found.node,
            visits=found.visits,
            busy_ms=found.busy_ms,
            usage=UsageAnswer.of(found.usage),
            spent=UsageAnswer.of(found.spent),
        )


class RunEventAnswer(AnswerModel):
    """An event of a run."""

    sequence: int = Field(description="Its number among the events of the run.")
    position: int = Field(description="Its number among all events.")
    type: str = Field(examples=["node.completed"])
    severity: Severity
    at: datetime
    data: dict[str, Any]

    @classmethod
    def of(cls, event: RecordedEvent) -> Self:
        """Return an event as an answer."""
        return cls(
            sequence=event.sequence,
            position=event.position,
            type=event.type.value,
            severity=event.severity,
            at=event.at,
            data=plain(event.data),
        )


class VariantsAnswer(AnswerModel):
    """The variants of a workflow's nodes, as its stored definition has them."""

    workflow: PlainText
    chosen: dict[str, str] = Field(description="The variants that this run uses, by node.")
    nodes: dict[str, list[str]] = Field(description="The variants of each node that has any.")

    model_config = example(workflow="support", chosen={"retrieve": "dense"}, nodes={"retrieve": ["dense", "sparse"]})
