"""The catalogue of events: every type with its facts. docs/events.md is made from this file.

There is no `node.started`: a step is one transaction with one event, and a second row for each step would tell nothing
that `node.completed` does not tell (its time and duration). `wtb show` reads the nodes that run now from their records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wtb.domain.event_body import Body, EventBody, Severity, described


class EventType(StrEnum):
    """Every event, named noun first."""

    EXECUTION_CREATED = "execution.created"
    EXECUTION_STARTED = "execution.started"
    EXECUTION_RESUMED = "execution.resumed"
    EXECUTION_PAUSED = "execution.paused"
    EXECUTION_COMPLETED = "execution.completed"
    EXECUTION_FAILED = "execution.failed"
    EXECUTION_CANCELLED = "execution.cancelled"
    EXECUTION_ABANDONED = "execution.abandoned"
    EXECUTION_DEGRADED = "execution.degraded"
    EXECUTION_DELETED = "execution.deleted"
    NODE_COMPLETED = "node.completed"
    NODE_FAILED = "node.failed"
    NODE_RETRIED = "node.retried"
    NODE_SKIPPED = "node.skipped"
    NODE_REPLACED = "node.replaced"
    NODE_INSIDE = "node.inside"
    NODE_EMITTED = "node.emitted"
    NODE_LOGGED = "node.logged"
    STATE_UPDATED = "state.updated"
    QUESTION_ANSWERED = "question.answered"
    CHECKPOINT_CREATED = "checkpoint.created"
    CHECKPOINT_RESTORED = "checkpoint.restored"
    CHECKPOINT_DELETED = "checkpoint.deleted"
    CHECKPOINT_FAILED = "checkpoint.failed"
    BRANCH_CREATED = "branch.created"
    ROLLBACK_STARTED = "rollback.started"
    ROLLBACK_COMPLETED = "rollback.completed"
    ROLLBACK_FAILED = "rollback.failed"
    TOOL_STARTED = "tool.started"
    TOOL_COMPLETED = "tool.completed"
    TOOL_FAILED = "tool.failed"
    TOOL_REVERSED = "tool.reversed"
    TOOL_AWAITED = "tool.awaited"
    BATCH_STARTED = "batch.started"
    BATCH_COMPLETED = "batch.completed"
    BATCH_FAILED = "batch.failed"
    BATCH_CANCELLED = "batch.cancelled"
    BATCH_SCORED = "batch.scored"
    BATCH_DELETED = "batch.deleted"
    WORKER_STARTED = "worker.started"
    WORKER_ENDED = "worker.ended"
    WORKER_LOST = "worker.lost"
    BASELINE_KEPT = "baseline.kept"
    BASELINE_DELETED = "baseline.deleted"
    EVALUATION_COMPLETED = "evaluation.completed"
    EVALUATION_FAILED = "evaluation.failed"
    LIMIT_CHANGED = "limit.changed"
    BREAKER_OPENED = "breaker.opened"
    BREAKER_CLOSED = "breaker.closed"
    ENVIRONMENT_CREATED = "environment.created"
    ENVIRONMENT_DESTROYED = "environment.destroyed"
    BACKGROUND_COMPLETED = "background.completed"
    BACKGROUND_FAILED = "background.failed"
    WEBHOOK_CREATED = "webhook.created"
    WEBHOOK_DELETED = "webhook.deleted"
    WEBHOOK_FAILED = "webhook.failed"
    WEBHOOK_RETRIED = "webhook.retried"
    TOKEN_CREATED = "token.created"
    TOKEN_REVOKED = "token.revoked"
    COMMAND_CANCELLED = "command.cancelled"


CATALOGUE: dict[EventType, type[EventBody]] = {}
"""The class of the facts of each type of event."""


def _event(type: EventType, severity: Severity = Severity.INFO, version: int = 1) -> Callable[[type[Body]], type[Body]]:
    """Register a dataclass as the facts of a type of event."""

    def register(cls: Any) -> Any:
        CATALOGUE[type] = described(cls, type, severity, version)
        return cls

    return register


@_event(EventType.EXECUTION_CREATED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCreated(EventBody):
    """A run was recorded with its input; it has not started yet."""

    workflow: str
    """The name of the workflow."""
    checkpoint: str
    """The first checkpoint, which holds the input."""
    variants: Mapping[str, str] | None = None
    """The variant of each node that does not use its own implementation."""
    by: str | None = None
    """Who created the run."""


@_event(EventType.EXECUTION_STARTED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStarted(EventBody):
    """A process began to work on a run for the first time."""

    checkpoint: str
    """The checkpoint that it begins from."""
    changed: tuple[str, ...] = ()
    """What has changed in the workflow since the run was recorded."""
    by: str | None = None
    """Who started it."""


@_event(EventType.EXECUTION_RESUMED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResumed(EventBody):
    """A process continued a run that was paused, had failed, or was left by another process."""

    checkpoint: str
    """The checkpoint that it continues from."""
    changed: tuple[str, ...] = ()
    """What has changed in the workflow since the run began."""
    by: str | None = None
    """Who resumed it."""


@_event(EventType.EXECUTION_PAUSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPaused(EventBody):
    """A run paused: at a breakpoint, at a question, on request, or because its process ended."""

    reason: str
    """Why it paused."""
    node: str | None = None
    """The node that waits, if one does."""
    checkpoint: str | None = None
    """The last checkpoint."""
    notes: tuple[str, ...] = ()
    """Remarks on the last step."""
    by: str | None = None
    """Who paused it; left out if the run paused by itself, or another process had asked it to."""


@_event(EventType.EXECUTION_COMPLETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCompleted(EventBody):
    """A run reached its end."""

    checkpoint: str | None = None
    """The last checkpoint, which holds the result."""
    nodes: int | None = None
    """How many node visits led to the end."""
    ms: float | None = None
    """Milliseconds since the run was created, including pauses."""
    notes: tuple[str, ...] = ()
    """Remarks on the end, for example that no edge applied."""


@_event(EventType.EXECUTION_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFailed(EventBody):
    """A run failed; `wtb resume` tries the failed node again."""

    error: str
    """The type and the message of the error."""
    node: str | None
    """The node that failed; None if no node did, for example when the run took too many steps."""
    visit: int | None = None
    """Which visit of the node failed."""
    checkpoint: str | None = None
    """The last checkpoint before the failure."""
    notes: tuple[str, ...] = ()
    """Remarks on the last step."""


@_event(EventType.EXECUTION_CANCELLED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCancelled(EventBody):
    """A run was stopped for good."""

    checkpoint: str | None = None
    """The last checkpoint."""
    notes: tuple[str, ...] = ()
    """Remarks on the last step."""
    by: str | None = None
    """Who stopped it; left out if another process had asked for it."""


@_event(EventType.EXECUTION_ABANDONED, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionAbandoned(EventBody):
    """A run was taken from a process that had ended or was not heard of any more."""

    reason: str
    """Which process had the run, and why it counts as gone."""
    by: str | None = None
    """Who took the run over."""


@_event(EventType.EXECUTION_DEGRADED, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionDegraded(EventBody):
    """A run went on although a checkpoint could not be written; the next one made up for it."""

    error: str
    """Why the checkpoint could not be written."""


@_event(EventType.EXECUTION_DELETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionDeleted(EventBody):
    """A run was deleted with its checkpoints; its events stay."""

    workflow: str | None
    """The name of the workflow; None if the record of the run was damaged."""
    by: str | None = None
    """Who deleted it."""


@_event(EventType.NODE_COMPLETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCompleted(EventBody):
    """A node finished, and its step was stored. Nodes that run in parallel each have an event of their own."""

    node: str
    """The node."""
    visit: int
    """How often the run has visited the node, this time included."""
    checkpoint: str | None
    """The checkpoint of the step; None if it could not be written and the next one made up for it."""
    ms: float
    """How many milliseconds the node took."""
    usage: Mapping[str, Any] | None = None
    """Tokens, cost and models that the node reported."""
    shared: bool = False
    """True if the result was taken from another run of a batch; the figures are those of that run."""
    tool_errors: int = 0
    """How many calls failed in a shared result."""
    trace: Sequence[Any] | None = None
    """For batches: which part of the trace shows what the node read beside its input."""
    by: str | None = None
    """Who ran the node."""

    def to_data(self) -> dict[str, Any]:
        """Return the body as plain JSON. Every step writes one, so this does by hand what the others do in a loop."""
        data: dict[str, Any] = {"node": self.node, "visit": self.visit, "checkpoint": self.checkpoint, "ms": self.ms}
        if self.usage is not None:
            data["usage"] = self.usage
        if self.shared:
            data["shared"] = True
        if self.tool_errors:
            data["tool_errors"] = self.tool_errors
        if self.trace is not None:
            data["trace"] = self.trace
        if self.by is not None:
            data["by"] = self.by
        return data


@_event(EventType.NODE_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed(EventBody):
    """A node failed and is not tried again; the run fails with it."""

    node: str
    """The node."""
    visit: int
    """Which visit of the node failed."""
    error: str
    """The type and the message of the error."""
    attempt: int = 1
    """Which attempt of this visit failed."""
    by: str | None = None
    """Who ran the node."""


@_event(EventType.NODE_RETRIED, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRetried(EventBody):
    """An attempt of a node failed, and its retry policy allows another."""

    node: str
    """The node."""
    visit: int
    """Which visit of the node."""
    attempt: int
    """The attempt that failed, counted from 1."""
    error: str
    """The type and the message of the error."""


@_event(EventType.NODE_SKIPPED)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSkipped(EventBody):
    """An unfinished visit of a node was given up, because the node begins afresh (`resume --rerun-node`)."""

    node: str
    """The node."""
    visit: int
    """Which visit of the node."""
    by: str | None = None
    """Who began it afresh."""


@_event(EventType.NODE_REPLACED)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReplaced(EventBody):
    """A run continues with another variant of a node."""

    node: str
    """The node."""
    from_: str
    """The variant until now."""
    to: str
    """The variant from now on."""
    by: str | None = None
    """Who chose it."""


@_event(EventType.NODE_INSIDE)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInside(EventBody):
    """Something inside a node of a graph ended: a node of a subgraph, or a model. It comes with `node.completed`."""

    node: str
    """The path inside the graph, for example `outer/inner`."""
    ms: float
    """How many milliseconds it took."""
    model: str | None = None
    """The model, if it was one."""
    input_tokens: int | None = None
    """Tokens that the model read."""
    output_tokens: int | None = None
    """Tokens that the model wrote."""


@_event(EventType.NODE_EMITTED)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEmitted(EventBody):
    """A node reported something with `ctx.emit`, while it ran. It stays if the attempt fails or is rolled back."""

    node: str
    """The node."""
    visit: int
    """Which visit of the node."""
    data: Any
    """What it reported, without secrets; shortened if it is large."""
    attempt: int = 1
    """Which attempt of this visit."""


@_event(EventType.NODE_LOGGED)
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLogged(EventBody):
    """A node wrote a line with `ctx.log`, of level `info` or above. It stays if the attempt fails or is rolled back."""

    node: str
    """The node."""
    visit: int
    """Which visit of the node."""
    level: str
    """`info`, `warning`, `error` or `critical`."""
    text: str
    """The line, without secrets; cut after 4,000 characters."""
    attempt: int = 1
    """Which attempt of this visit."""


@_event(EventType.STATE_UPDATED)
@dataclass(frozen=True, slots=True, kw_only=True)
class StateUpdated(EventBody):
    """Somebody changed the state of an idle run, or of a new fork (`update=`, `input=`)."""

    checkpoint: str
    """The checkpoint that holds the changed state."""
    keys: tuple[str, ...] = ()
    """The keys that changed; their values are in the checkpoint."""
    by: str | None = None
    """Who changed the state."""


@_event(EventType.QUESTION_ANSWERED)
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(EventBody):
    """Somebody answered the question that a run waits for, or said whether a doubtful call had happened."""

    node: str
    """The node that asked."""
    visit: int
    """Which visit of the node."""
    tool: str
    """`ask` for a question; the tool whose call was in doubt."""
    call: str
    """The id of the question or the call within its node run."""
    answer: Any = None
    """The answer, shortened and without secrets."""
    by: str | None = None
    """Who answered."""


@_event(EventType.CHECKPOINT_CREATED)
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCreated(EventBody):
    """A checkpoint was made that does not end a step: somebody named it, or it lies inside a node.

    The checkpoint of a step is in `node.completed`.
    """

    checkpoint: str
    """The checkpoint."""
    name: str | None
    """Its name; None if it has none."""
    node: str | None = None
    """The node that it lies inside, if any."""
    visit: int | None = None
    """Which visit of the node."""
    step: int | None = None
    """Its place in the run, counted from 0."""
    by: str | None = None
    """Who made it."""


@_event(EventType.CHECKPOINT_RESTORED)
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRestored(EventBody):
    """A rollback or redo arrived: the run is at this checkpoint now."""

    checkpoint: str
    """The checkpoint."""
    step: int
    """Its place in the run, counted from 0."""
    node: str | None
    """The node that made it; None at the start of the run."""
    by: str | None = None
    """Who restored it."""


@_event(EventType.CHECKPOINT_DELETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDeleted(EventBody):
    """Checkpoints were deleted: by hand, by `wtb prune`, by LangGraph, or at the end of a run that keeps only a few."""

    count: int
    """How many."""
    checkpoint: str | None = None
    """The checkpoint, if one was deleted by hand."""
    name: str | None = None
    """The name of that checkpoint, if it had one."""
    reason: str | None = None
    """Why they were deleted, if not by hand."""
    by: str | None = None
    """Who deleted them."""


@_event(EventType.CHECKPOINT_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed(EventBody):
    """A checkpoint could not be written; this was recorded with the next one that could."""

    error: str
    """Why it could not be written."""


@_event(EventType.BRANCH_CREATED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCreated(EventBody):
    """A branch began at a checkpoint. A fork into another run is in the events of both runs."""

    branch: str
    """The name of the branch."""
    checkpoint: str | None
    """The checkpoint that it begins at; None if an empty LangGraph thread was copied."""
    run: str | None = None
    """The new run of a fork."""
    from_: str | None = None
    """The run that was forked."""
    by: str | None = None
    """Who made it."""


@_event(EventType.ROLLBACK_STARTED, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackStarted(EventBody):
    """A rollback or a redo began, or a batch began to take external calls back."""

    direction: str
    """`rollback`, `redo`, or `take_back` if only external calls are undone and the run stays where it is."""
    from_: str
    """The checkpoint where the run was."""
    to: str
    """The checkpoint where it goes."""
    calls: tuple[str, ...] = ()
    """The ids of the calls to reverse, or to repeat in a redo, in this order; at most 100."""
    by: str | None = None
    """Who asked for it."""


@_event(EventType.ROLLBACK_COMPLETED, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackCompleted(EventBody):
    """A rollback or a redo ended: it arrived, or it was abandoned and the run stays where it was.

    Or a batch has taken back the external calls of the run.
    """

    direction: str
    """`rollback`, `redo`, or `take_back` if only external calls are undone and the run stays where it is."""
    status: str
    """`completed` or `abandoned`."""
    error: str | None
    """Why it was abandoned; None if it arrived."""
    from_: str | None = None
    """The checkpoint where the run was."""
    to: str | None = None
    """The checkpoint where it went, or should have gone."""
    nodes: tuple[str, ...] = ()
    """The node visits that were rolled back, or came back in a redo, as `node#visit`; the last 100 of them."""
    calls: tuple[str, ...] = ()
    """The ids of the calls that were reversed, or repeated in a redo; at most 100."""
    by: str | None = None
    """Who ended it."""


@_event(EventType.ROLLBACK_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackStopped(EventBody):
    """A rollback or a redo stopped half-way; somebody must continue or abandon it."""

    direction: str
    """`rollback`, `redo`, or `take_back` if only external calls are undone and the run stays where it is."""
    error: str
    """Why it stopped."""
    by: str | None = None
    """Who ran it."""


@_event(EventType.TOOL_STARTED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(EventBody):
    """A node is about to call a tool, run a recorded step, or ask a person; or a redo is about to repeat a call."""

    tool: str
    """The tool or the step; `ask` for a question."""
    call: str
    """The id of the call within its node run."""
    node: str | None = None
    """The node that calls."""
    visit: int | None = None
    """Which visit of the node."""
    arguments: Mapping[str, Any] | None = None
    """The arguments, shortened and without secrets."""
    error: str | None = None
    """In a redo: why the call could not be repeated the last time."""
    by: str | None = None
    """Who repeats the call, in a redo."""


@_event(EventType.TOOL_COMPLETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCompleted(EventBody):
    """A call returned, and its result was stored."""

    tool: str
    """The tool or the step."""
    call: str
    """The id of the call within its node run."""
    node: str | None = None
    """The node that called."""
    visit: int | None = None
    """Which visit of the node."""
    ms: float | None = None
    """How many milliseconds the call took."""
    error: str | None = None
    """In a redo: how the new result differs from the first one."""
    by: str | None = None
    """Who repeated the call, in a redo."""


@_event(EventType.TOOL_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailed(EventBody):
    """A call failed; or a rollback could not reverse it, or a redo could not repeat it."""

    tool: str
    """The tool or the step."""
    call: str
    """The id of the call within its node run."""
    error: str | None = None
    """The type and the message of the error."""
    node: str | None = None
    """The node that called."""
    visit: int | None = None
    """Which visit of the node."""
    ms: float | None = None
    """How many milliseconds the call took."""
    by: str | None = None
    """Who reversed or repeated the call."""


@_event(EventType.TOOL_REVERSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReversed(EventBody):
    """The effect of a call was undone."""

    tool: str
    """The tool."""
    call: str
    """The id of the call within its node run."""
    error: str | None = None
    """In a redo that was taken back: how the new result differed from the first one."""
    by: str | None = None
    """Who reversed it."""


@_event(EventType.TOOL_AWAITED, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAwaited(EventBody):
    """A new attempt of a node waits until a call of an earlier attempt ends, so that it is not made twice."""

    node: str
    """The node."""
    visit: int
    """Which visit of the node."""
    attempt: int
    """The attempt that waits."""
    tool: str
    """The tool that was called."""
    call: str
    """The id of the call within its node run."""


@_event(EventType.BATCH_STARTED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStarted(EventBody):
    """A batch was started or continued."""

    name: str
    """The name of the batch."""
    jobs: int
    """How many jobs it has, including those whose results are kept."""
    workflow: str | None = None
    """The name of the workflow."""
    variants: tuple[str, ...] = ()
    """The combinations of variants that it compares."""
    cases: int | None = None
    """How many cases it has."""
    by: str | None = None
    """Who started it."""


@_event(EventType.BATCH_COMPLETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCompleted(EventBody):
    """All jobs of a batch have ended."""

    executed: int
    """How many nodes ran in this process."""
    shared: int
    """How many node results were taken from other runs."""
    failed: int
    """How many jobs failed in this process."""
    usd: float
    """What the batch has cost so far, in US dollars."""
    by: str | None = None
    """Who ran it."""


@_event(EventType.BATCH_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFailed(EventBody):
    """The process that ran a batch had an error of its own. Run the batch again to continue it."""

    error: str
    """The type and the message of the error."""
    by: str | None = None
    """Who ran it."""


@_event(EventType.BATCH_CANCELLED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCancelled(EventBody):
    """Somebody cancelled a batch; or its process stopped before all jobs had run, for example at its budget.

    The process that runs the batch adds the figures.
    """

    executed: int | None = None
    """How many nodes ran in this process."""
    shared: int | None = None
    """How many node results were taken from other runs."""
    failed: int | None = None
    """How many jobs failed in this process."""
    usd: float | None = None
    """What the batch has cost so far, in US dollars."""
    by: str | None = None
    """Who cancelled or ran it."""


@_event(EventType.BATCH_SCORED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScored(EventBody):
    """The finished runs of a batch were scored again, with these evaluators."""

    jobs: int
    """How many jobs were scored."""
    evaluators: tuple[str, ...] = ()
    """The names of the evaluators, which are also the names of the metrics."""
    by: str | None = None
    """Who had them scored."""


@_event(EventType.BATCH_DELETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDeleted(EventBody):
    """A batch was deleted with its results; its runs and its events stay."""

    name: str
    """The name of the batch."""
    by: str | None = None
    """Who deleted it."""


@_event(EventType.WORKER_STARTED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWorkerStarted(EventBody):
    """A worker of a batch is ready for jobs: a process on this machine, or an actor on Ray. Threads have no event."""

    worker: str
    """The name of its process, as in leases."""
    host: str
    """The name of its machine."""
    pid: str
    """The number of its process."""
    ray_actor: str | None = None
    """The actor, if it runs on Ray."""


@_event(EventType.WORKER_ENDED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWorkerEnded(EventBody):
    """A worker of a batch ended: its work was done, or it was ended because its job exceeded a limit."""

    worker: str
    """The name of its process, as in leases."""
    host: str
    """The name of its machine."""
    pid: str
    """The number of its process."""
    reason: str
    """Why it ended."""
    ray_actor: str | None = None
    """The actor, if it ran on Ray and was ended."""


@_event(EventType.WORKER_LOST, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWorkerLost(EventBody):
    """A worker of a batch ended before its work was done. Another worker continues its job."""

    worker: str
    """The name of its process, as in leases."""
    host: str
    """The name of its machine."""
    pid: str
    """The number of its process."""
    reason: str
    """How it ended."""
    ray_actor: str | None = None
    """The actor, if it ran on Ray."""


@_event(EventType.BASELINE_KEPT)
@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineKept(EventBody):
    """The scores of one combination were saved as a baseline. An event of the system, not of a batch."""

    name: str
    """The name of the baseline."""
    combination: str
    """The combination of variants."""
    batches: tuple[str, ...] = ()
    """The names of the batches that the scores come from."""
    by: str | None = None
    """Who saved it."""


@_event(EventType.BASELINE_DELETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineDeleted(EventBody):
    """A baseline was deleted with its saved scores. An event of the system, not of a batch."""

    name: str
    """The name of the baseline."""
    by: str | None = None
    """Who deleted it."""


@_event(EventType.EVALUATION_COMPLETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationCompleted(EventBody):
    """An evaluator scored a single run, and the score was kept."""

    evaluator: str
    """The name of the evaluator, which is also the name of the metric."""
    score: Any
    """The score."""
    checkpoint: str | None = None
    """The checkpoint that was scored."""
    by: str | None = None
    """Who had it scored."""


@_event(EventType.EVALUATION_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFailed(EventBody):
    """An evaluator failed on a single run, so that the run has no score of it."""

    evaluator: str
    """The name of the evaluator."""
    error: str
    """The type and the message of the error."""
    checkpoint: str | None = None
    """The checkpoint that was to be scored."""
    by: str | None = None
    """Who had it scored."""


@_event(EventType.LIMIT_CHANGED)
@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged(EventBody):
    """The width of an adaptive limit has doubled or halved since the last such event.

    This and the events of breakers belong to the batch. For limits of the settings, they are events of the system.
    """

    limit: str
    """The name of the limit."""
    width: int
    """How many calls may run at a time now."""
    before: int
    """The width that was told last."""


@_event(EventType.BREAKER_OPENED, Severity.WARNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened(EventBody):
    """The circuit breaker of a limit opened: its calls fail at once until one call is tried and succeeds."""

    limit: str
    """The name of the limit."""
    failures: int
    """How many calls in a row found the service overloaded or away."""
    until: str
    """When a call is tried for the first time, in UTC."""
    error: str
    """The type and the message of the last error."""


@_event(EventType.BREAKER_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(EventBody):
    """A trial call succeeded: the circuit breaker of a limit closed, and its calls are made again."""

    limit: str
    """The name of the limit."""


@_event(EventType.ENVIRONMENT_CREATED)
@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentCreated(EventBody):
    """An environment for nodes was started outside the process of the run. An event of the system, not of a run."""

    kind: str
    """The kind of environment, such as `subprocess`."""
    name: str
    """The process or the server, such as `subprocess 4711 on host`."""


@_event(EventType.ENVIRONMENT_DESTROYED)
@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDestroyed(EventBody):
    """An environment was ended, with everything that nodes had started in it. An event of the system, not of a run."""

    kind: str
    """The kind of environment."""
    name: str
    """The process or the server."""
    reason: str
    """Why it was ended."""


@_event(EventType.BACKGROUND_COMPLETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundCompleted(EventBody):
    """A server finished a background job. The job `webhooks` tells only of hours in which it sent something."""

    job: str
    """The name of the job."""
    figures: Mapping[str, int] | None = None
    """What it counted, such as checkpoints that it deleted."""
    duration_s: float
    """How long it took, in seconds."""
    by: str | None = None
    """Who asked for it, if it ran ahead of its time."""


@_event(EventType.BACKGROUND_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundFailed(EventBody):
    """A background job failed; it is tried again. The job `webhooks` tells of an error once."""

    job: str
    """The name of the job."""
    error: str
    """What went wrong."""
    figures: Mapping[str, int] | None = None
    """What it had counted until then."""
    by: str | None = None
    """Who asked for it, if it ran ahead of its time."""


@_event(EventType.WEBHOOK_CREATED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCreated(EventBody):
    """Somebody added a webhook."""

    webhook: str
    """The id of the webhook."""
    url: str
    """The server that gets the events. The path is left out, since it is a secret at some services."""
    types: tuple[str, ...] = ()
    """The types of events that it gets; without any, all of runs and batches."""
    by: str | None = None
    """Who added it."""


@_event(EventType.WEBHOOK_DELETED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDeleted(EventBody):
    """Somebody deleted a webhook, with all its deliveries."""

    webhook: str
    """The id of the webhook."""
    url: str
    """The server that got the events."""
    by: str | None = None
    """Who deleted it."""


@_event(EventType.WEBHOOK_FAILED, Severity.ERROR)
@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFailed(EventBody):
    """A delivery failed at its last attempt; it is dead until somebody sends it again. Never sent to webhooks."""

    webhook: str
    """The id of the webhook."""
    position: int
    """The position of the event that was not delivered."""
    attempts: int
    """How often it was tried."""
    error: str
    """Why the last attempt failed."""


@_event(EventType.WEBHOOK_RETRIED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRetried(EventBody):
    """Somebody asked to send a delivery again."""

    webhook: str
    """The id of the webhook."""
    position: int
    """The position of the event."""
    by: str | None = None
    """Who asked."""


@_event(EventType.TOKEN_CREATED)
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreated(EventBody):
    """A token for the server was created. An event of the system, not of a run."""

    name: str
    """The name of the token: whatever is done with it carries this name."""
    role: str
    """What it may do: `viewer`, `operator` or `admin`."""
    expires_at: str | None = None
    """When it expires, in ISO 8601; None if it does not."""
    by: str | None = None
    """Who created it."""


@_event(EventType.TOKEN_REVOKED)
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRevoked(EventBody):
    """A token for the server was revoked. An event of the system, not of a run."""

    name: str
    """The name of the token."""
    by: str | None = None
    """Who revoked it."""


@_event(EventType.COMMAND_CANCELLED)
@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWasCancelled(EventBody):
    """A command of a server was cancelled; what it has stored stays. An event of the system, not of a run."""

    command: str
    """The id of the command."""
    kind: str
    """What it did, for example `run.resume`."""
    subject: str | None = None
    """The id of its run, or the name of its batch."""
    by: str | None = None
    """Who cancelled it."""


SEVERITIES: Mapping[EventType, Severity] = {type: body.SEVERITY for type, body in CATALOGUE.items()}
"""How much each type of event matters."""
