"""Runs: as rows of a list, and with everything that is known about one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel, ListAnswer
from wtb.api.models.checkpoints import CheckpointAnswer
from wtb.api.models.figures import Number, PlainData, PlainText, UsageAnswer, plain
from wtb.api.models.states import StateAnswer
from wtb.application.queries.state_parts import StatePart
from wtb.application.queries.views import OpenRollback, RunPage, RunRow, RunView
from wtb.domain.execution import Execution, ExecutionStatus, Failure, Neglect, Pause, PauseKind
from wtb.domain.job_origin import JobOrigin
from wtb.domain.rollback import RollbackDirection
from wtb.domain.run_scores import RunScore
from wtb.domain.secrets import Masker
from wtb.domain.tools import ToolCall


class JobAnswer(AnswerModel):
    """The job of a batch that made a run."""

    batch: str = Field(description="The id of the batch.")
    combination: PlainText = Field(examples=["answer=long"])
    case: PlainText = Field(examples=["c17"])
    repeat: int
    is_fork: bool = Field(description="Whether the run was forked from the run of that job.")

    @classmethod
    def find(cls, execution: Execution) -> Self | None:
        """Return the job of a run; None if no batch made it."""
        origin = JobOrigin.find(execution.metadata)
        if origin is None:
            return None
        return cls(
            batch=str(origin.batch_id),
            combination=str(origin.combination),
            case=str(origin.case_id),
            repeat=origin.repeat,
            is_fork=bool(origin.is_fork),
        )


class RunFailureAnswer(AnswerModel):
    """Why a run failed."""

    type: PlainText = Field(examples=["ValueError"])
    message: PlainText
    traceback: PlainText
    node: PlainText | None
    visit: int | None
    checkpoint: str | None = Field(description="The checkpoint from which the node can be tried again.")

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """Return a failure as an answer."""
        return cls(
            type=failure.type,
            message=failure.message,
            traceback=failure.traceback,
            node=failure.node,
            visit=failure.visit,
            checkpoint=failure.input_checkpoint_id,
        )


class PauseAnswer(AnswerModel):
    """Why a run waits."""

    reason: PlainText
    kind: PauseKind
    node: PlainText | None
    question: PlainData | None = Field(description="What it asks a person.")

    @classmethod
    def of(cls, pause: Pause) -> Self:
        """Return a pause as an answer."""
        question = None if pause.question is None else dict(pause.question)
        return cls(reason=pause.reason, kind=pause.kind, node=pause.node, question=question)


class ExecutionRowAnswer(AnswerModel):
    """A run in a list."""

    id: str = Field(examples=["0199a5c1-7c1e-7b7c-8000-3f2b8c1d4e5f"])
    workflow: PlainText = Field(examples=["support_qa"])
    source: PlainText | None = Field(description="Where its workflow can be loaded from.", examples=["flows.py:flow"])
    status: ExecutionStatus
    neglect: Neglect | None = Field(
        description="Set if it is recorded as running but is not: its process is gone, or was silent for an hour."
    )
    version: int = Field(description="Rises with every change; the ETag of the run.")
    created_at: datetime
    created_by: PlainText | None
    updated_at: datetime
    error: PlainText | None = Field(description="Why it failed, in one line.")
    waits_for: PauseKind | None = Field(description="Why it is paused.")
    job: JobAnswer | None = Field(description="The job of a batch that made it.")

    @classmethod
    def of(cls, row: RunRow) -> Self:
        """Return a row as an answer."""
        return cls(**row_facts(row.execution, row.neglect))


def row_facts(execution: Execution, neglect: Neglect | None) -> dict[str, Any]:
    """Return what a list shows of a run."""
    return {
        "id": execution.id,
        "workflow": execution.workflow_name,
        "source": execution.workflow_source,
        "status": execution.status,
        "neglect": neglect,
        "version": execution.version,
        "created_at": execution.created_at,
        "created_by": execution.created_by,
        "updated_at": execution.updated_at,
        "error": None if execution.failure is None else str(execution.failure).partition("\n")[0][:500],
        "waits_for": None if execution.pause is None else execution.pause.kind,
        "job": JobAnswer.find(execution),
    }


class ExecutionListAnswer(ListAnswer[ExecutionRowAnswer]):
    """A page of runs, newest first."""

    counts: dict[ExecutionStatus, int] | None = Field(
        default=None, description="How many runs fit the filters, by status; only if `counts=true` was asked for."
    )

    @classmethod
    def of(cls, page: RunPage) -> Self:
        """Return a page as an answer."""
        counts = None if page.counts is None else dict(page.counts)
        return cls(items=[ExecutionRowAnswer.of(row) for row in page.rows], next=page.next, counts=counts)


class ScoreAnswer(AnswerModel):
    """What an evaluator said about a run."""

    metric: PlainText = Field(examples=["exact_match"])
    score: Number | bool = Field(description="Null if the evaluator failed.", examples=[1.0])
    error: PlainText | None
    checkpoint: str = Field(description="The checkpoint that was scored.")
    fingerprint: str = Field(description="Scores with the same fingerprint can be compared.")
    created_at: datetime
    created_by: PlainText | None

    @classmethod
    def of(cls, score: RunScore) -> Self:
        """Return a score as an answer."""
        return cls(
            metric=score.metric,
            score=score.score,
            error=score.error,
            checkpoint=score.checkpoint_id,
            fingerprint=score.fingerprint,
            created_at=score.created_at,
            created_by=score.created_by,
        )


class CallName(AnswerModel):
    """A call by its name."""

    tool: PlainText
    call: PlainText
    status: str

    @classmethod
    def of(cls, call: ToolCall) -> Self:
        """Return the name of a call as an answer."""
        return cls(tool=call.tool, call=call.identity, status=call.status.value)


class OpenRollbackAnswer(AnswerModel):
    """A rollback or redo that has not finished: continue it or give it up."""

    direction: RollbackDirection
    target: str
    step: int
    error: PlainText | None
    done: list[CallName]
    left: list[CallName]

    @classmethod
    def of(cls, found: OpenRollback) -> Self:
        """Return an open rollback as an answer."""
        return cls(
            direction=found.journal.direction,
            target=found.journal.target_id,
            step=found.target.step,
            error=found.journal.error,
            done=[CallName.of(call) for call in found.done],
            left=[CallName.of(call) for call in found.left],
        )


class ExecutionAnswer(ExecutionRowAnswer):
    """Everything about a run."""

    batch_name: PlainText | None
    variants: dict[str, str] = Field(description="The variants that it runs, by node.")
    options: dict[str, Any]
    metadata: dict[str, Any] = Field(description="What its caller keeps with it. Secrets are masked.")
    started_at: datetime | None
    paused_at: datetime | None
    ended_at: datetime | None
    duration_s: Number
    head: CheckpointAnswer | None = Field(description="Its current position.")
    current_nodes: list[str] = Field(description="The nodes that run or come next.")
    branch: str
    branches: list[str]
    checkpoints: int
    restore_points: int
    files: int
    file_bytes: int
    failure: RunFailureAnswer | None
    pause: PauseAnswer | None
    rollback: OpenRollbackAnswer | None
    degraded: PlainText | None = Field(description="Why a checkpoint could not be written when its step ended.")
    notes: list[PlainText]
    usage: UsageAnswer = Field(description="Tokens and cost on the way to the head.")
    spent: UsageAnswer = Field(description="All tokens and cost, including other lines and failed attempts.")
    scores: list[ScoreAnswer]
    state: StateAnswer = Field(description="The state at the head; a large one without its values.")

    @classmethod
    def of_view(cls, view: RunView, state: StatePart, masker: Masker) -> Self:
        """Return a view as an answer; the state is given in the form in which it is shown."""
        execution, times = view.execution, view.times
        return cls(
            **row_facts(execution, view.neglect),
            batch_name=view.batch_name,
            variants={str(node): str(name) for node, name in execution.options.get("variants", {}).items()},
            options=plain(execution.options),
            metadata=plain(masker.data(execution.metadata)),
            started_at=times.started_at,
            paused_at=times.paused_at,
            ended_at=times.ended_at,
            duration_s=None if times.duration is None else times.duration.total_seconds(),
            head=None if view.head is None else CheckpointAnswer.of(view.head),
            current_nodes=list(view.current_nodes),
            branch=view.branch.name,
            branches=[branch.name for branch in view.branches],
            checkpoints=view.counts.checkpoints,
            restore_points=view.counts.restore_points,
            files=view.files.files,
            file_bytes=view.files.size_bytes,
            failure=None if execution.failure is None else RunFailureAnswer.of(execution.failure),
            pause=None if execution.pause is None else PauseAnswer.of(execution.pause),
            rollback=None if view.rollback is None else OpenRollbackAnswer.of(view.rollback),
            degraded=execution.degraded,
            notes=list(view.notes),
            usage=UsageAnswer.of(view.usage),
            spent=UsageAnswer.of(view.spent),
            scores=[ScoreAnswer.of(score) for score in view.scores.all],
            state=StateAnswer.of(state),
        )
