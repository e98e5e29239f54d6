"""Requests that change runs, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from wtb.api.models.base import AnswerModel, RequestModel, example
from wtb.api.models.commands import CommandAnswer
from wtb.api.models.executions import PauseAnswer
from wtb.api.models.figures import PlainData, PlainText
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import MAX_ID_LENGTH, check_id

Name = Annotated[str, Field(min_length=1, max_length=200)]
Target = Annotated[int, Field(ge=0)] | Annotated[str, Field(min_length=1, max_length=200)]
Variants = dict[Name, Name]
"""Which variant of a node to run."""

NewRunId = Annotated[
    str,
    AfterValidator(lambda id: check_id(id, "the run id")),
    Field(
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="An id of your choice: letters, digits and `-_.:`. One that is taken gets 409. Without one, WTB "
        "makes one.",
        examples=["nightly-42"],
    ),
]

_EDIT = {"set": [{"path": ["messages", {"id": "m1"}, "content"], "value": "hello"}], "delete": [["draft"]]}


class PathChangeRequest(RequestModel):
    """A new value at one path of a state."""

    path: list[Any] = Field(
        min_length=1,
        max_length=200,
        description='A key of the state, then keys, positions, names of fields; `{"id": …}` is the message of this id.',
    )
    value: Any = Field(description="The new value, as tagged JSON. A masked value that comes back stays as it is.")


class StateEditRequest(RequestModel):
    """The paths of a state that change; everything else stays."""

    set: list[PathChangeRequest] = Field(default=[], max_length=10_000, description="New values.")
    delete: list[list[Any]] = Field(default=[], max_length=10_000, description="Paths to delete.")


class RunOptionsRequest(RequestModel):
    """How to run. What is left out is as the workflow or the run has it."""

    break_before: list[Name] | None = Field(default=None, description="Pause before these nodes.")
    break_after: list[Name] | None = Field(default=None, description="Pause after these nodes.")
    max_steps: int | None = Field(default=None, ge=1, description="The run fails if it takes more steps.")
    timeout_s: float | None = Field(default=None, gt=0, description="The run fails if it takes more seconds.")
    seed: int | None = Field(default=None, description="Decides `ctx.seed` and `ctx.rng`.")
    checkpoints: Literal["every_node", "on_error", "on_success"] | None = Field(
        default=None, description="Which checkpoints to keep."
    )
    fine_grained: bool | None = Field(
        default=None, description="Also make checkpoints at calls of tools and recorded steps."
    )
    checkpoint_failure: Literal["warn", "fatal"] | None = Field(
        default=None, description="Whether a checkpoint that cannot be stored stops the run."
    )
    variants: Variants | None = Field(
        default=None, description="The variant to run, by node.", examples=[{"retrieve": "dense"}]
    )

    def given(self) -> dict[str, Any]:
        """Return the options that the request names."""
        return self.model_dump(exclude_none=True)


class StartRequest(RequestModel):
    """A new run of a workflow that the server serves."""

    workflow: Name = Field(description="The name of a served workflow.", examples=["support"])
    input: dict[str, Any] | None = Field(
        default=None, description="What the state begins with, as tagged JSON.", examples=[{"question": "Why?"}]
    )
    run_id: NewRunId | None = None
    start: bool = Field(default=True, description="`false`: only create the run; resuming it starts it.")
    options: RunOptionsRequest = Field(default=RunOptionsRequest(), description="How to run.")
    metadata: dict[str, Any] | None = Field(default=None, description="Kept with the run for your own use.")

    model_config = example(workflow="support", input={"question": "Why?"}, options={"break_before": ["answer"]})


class ResumeRequest(RequestModel):
    """How a run goes on."""

    update: StateEditRequest | None = Field(default=None, description="Change the state first.")
    answer: Any = Field(default=None, description="The answer to the question that the run asks, as tagged JSON.")
    rerun_node: bool = Field(
        default=False, description="Undo what can be undone of the unfinished node; start it over."
    )
    strict: bool = Field(default=False, description="Refuse if the workflow has changed since the run began.")
    options: RunOptionsRequest = Field(default=RunOptionsRequest(), description="How to go on.")

    model_config = example(update=_EDIT)

    def given(self) -> dict[str, Any]:
        """Return what the request names."""
        edit = {} if self.update is None else {"update": self.update.model_dump()}
        answer = {} if self.answer is None else {"answer": self.answer}
        how = {"rerun_node": self.rerun_node, "strict": self.strict, "options": self.options.given()}
        return {**edit, **answer, **how}


class PlanRequest(RequestModel):
    """Where to roll back to, and what goes back with the state."""

    target: Target = Field(description="A step, the id or name of a checkpoint, a node, or `node#2`.", examples=[1])
    tools: bool = Field(default=True, description="Undo the effects of tools.")
    files: bool = Field(default=True, description="Put the files back.")
    shared: Literal["keep", "reverse"] = Field(default="keep", description="Calls that another branch builds on.")

    model_config = example(target="retrieve")


class RollbackRequest(PlanRequest):
    """A rollback of exactly the plan that If-Match names."""

    allow_irreversible: bool = Field(default=False, description="Go back even if some calls cannot be undone.")


class InDoubtRequest(RequestModel):
    """What to do about a reversal that was interrupted."""

    in_doubt: Literal["done", "again"] | None = Field(
        default=None, description="`done`: the call was undone; `again`: undo it again."
    )

    model_config = example(in_doubt="again")


class ForkRequest(RequestModel):
    """A new run that begins at a checkpoint of another one."""

    target: Target | None = Field(default=None, description="Where it begins; without one, at the last checkpoint.")
    run_id: NewRunId | None = None
    name: Name | None = Field(default=None, description="The name of its branch.")
    update: StateEditRequest | None = Field(default=None, description="Change the state there.")
    input: dict[str, Any] | None = Field(default=None, description="Begin anew with this input; then name no target.")
    variants: Variants | None = Field(default=None, description="The variants that the new run uses, by node.")

    model_config = example(target="retrieve", variants={"answer": "long"})

    def given(self) -> dict[str, Any]:
        """Return what the request names. A new value may be null, so nothing inside is left out."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class CheckpointRequest(RequestModel):
    """A name for the current position of a run."""

    name: Name = Field(description="Names the checkpoint from now on.", examples=["before the answer"])
    description: str = Field(default="", max_length=10_000, description="A note for people.")

    model_config = example(name="before the answer")


class FailureAnswer(AnswerModel):
    """Why a run failed."""

    type: PlainText
    message: PlainText
    node: PlainText | None = None


class ChangedRun(AnswerModel):
    """A run as a command left it. Its version is the ETag that the next change names."""

    id: str
    workflow: PlainText
    status: ExecutionStatus
    version: int
    pause: PauseAnswer | None = None
    failure: FailureAnswer | None = None


class NewCheckpoint(AnswerModel):
    """A checkpoint that a command made."""

    id: str
    step: int
    name: PlainText


class ForkedFrom(AnswerModel):
    """Where a fork begins."""

    run: str
    checkpoint: str | None = None


class RunChange(AnswerModel):
    """A command about a run. What it gave is there if it ended in time (200, 201); otherwise ask for it (202)."""

    command: CommandAnswer
    run: ChangedRun | None = None
    checkpoint: NewCheckpoint | None = None
    forked_from: ForkedFrom | None = None


class RollbackPlanAnswer(AnswerModel):
    """What a rollback would do, newest first. The ETag of this answer is what the rollback names in If-Match."""

    command: CommandAnswer
    plan: PlainData | None = Field(
        default=None, description="The nodes and calls to undo, calls that stay, and files that change."
    )


class RequestedAnswer(AnswerModel):
    """A request to pause or stop was passed on."""

    id: str
    requested: Literal["pause", "stop"]
