"""Timeline: the node visits on the line of a run with their times, attempts and waits, page by page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from wtb.application.queries.lookup import head_of
from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.events import EventType, RecordedEvent
from wtb.domain.execution import Execution
from wtb.domain.figures import NO_FIGURES
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import UnitOfWork
from wtb.domain.tools import CallKind

_MOST_PAUSES = 1_000
_BEGIN, _PAUSE = (EventType.EXECUTION_STARTED, EventType.EXECUTION_RESUMED), EventType.EXECUTION_PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A time in which a node waited for a person, or the run was paused; `ended_at` is None while it lasts."""

    reason: str
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineVisit:
    """One visit of a node: when it began and ended, how often it was tried, and its questions to people."""

    node: str
    visit: int
    node_run_id: str
    run_id: ExecutionId
    """The run that made it: for a fork, another one before the point where it left."""
    status: NodeStatus
    attempts: int
    step: int | None
    """The step that it ended with."""
    started_at: datetime
    ended_at: datetime | None
    busy_ms: float
    """How long the successful attempt worked."""
    is_shared: bool
    """Whether a batch took the result from another run."""
    parallel: bool
    """Whether other nodes ran beside it in the same step."""
    tool_calls: int
    error: str | None
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """A page of visits in the order of their starts, the pauses of the run, and whether earlier visits exist."""

    run_id: ExecutionId
    visits: tuple[TimelineVisit, ...]
    pauses: tuple[Wait, ...]
    before: int | None
    """The step to give as `before` for the page of earlier visits; None if there are none."""


def timeline(uow: UnitOfWork, execution: Execution, *, before: int | None, limit: int) -> TimelineView:
    """Return the visits that ended with the last steps of the line, or with the steps before one."""
    head_id = head_of(uow, execution)
    upto = None if before is None else before - 1
    line = () if head_id is None else uow.pages.list_line(head_id, upto=upto, limit=limit)
    is_last = before is None
    runs = sorted(_runs(uow, execution, line, head_id if is_last else None), key=lambda run: run.id)
    steps = {checkpoint.id: checkpoint.step for checkpoint in line}
    beside = Counter(run.input_id for run in runs)
    return TimelineView(
        run_id=execution.id,
        visits=tuple(_visit(uow, run, steps, is_parallel=beside[run.input_id] > 1) for run in runs),
        pauses=tuple(_pauses(uow, execution)),
        before=line[0].step if line and line[0].parent_id is not None else None,
    )


def _runs(
    uow: UnitOfWork, execution: Execution, line: Sequence[Checkpoint], head_id: CheckpointId | None
) -> Iterator[NodeRun]:
    """Yield the node runs that made these checkpoints; with the head, also those that began there and did not end."""
    ids = {checkpoint.id for checkpoint in line}
    for run_id in dict.fromkeys([*(checkpoint.execution_id for checkpoint in line), execution.id]):
        own = [checkpoint for checkpoint in line if checkpoint.execution_id == run_id]
        for run in uow.node_runs.list_leading_to(run_id, own):
            has_ended = run.status is NodeStatus.COMPLETED and run.last_id in ids
            is_open = head_id is not None and (run.last_id or run.input_id) == head_id
            if has_ended or (is_open and run.branch_id == execution.branch_id):
                yield run


def _visit(uow: UnitOfWork, run: NodeRun, steps: dict[CheckpointId, int], *, is_parallel: bool) -> TimelineVisit:
    figures = run.figures or NO_FIGURES
    calls = uow.tool_calls.list_calls(run.execution_id, run.id)
    asked = [call for call in calls if call.kind is CallKind.ASK]
    return TimelineVisit(
        node=run.node,
        visit=run.visit,
        node_run_id=run.id,
        run_id=run.execution_id,
        status=run.status,
        attempts=run.attempt,
        step=None if run.last_id is None else steps.get(run.last_id),
        started_at=run.started_at,
        ended_at=run.ended_at,
        busy_ms=figures.ms,
        is_shared=figures.is_shared,
        parallel=is_parallel,
        tool_calls=run.tool_count,
        error=None if run.failure is None else str(run.failure),
        waits=tuple(Wait(reason="question", started_at=call.started_at, ended_at=call.ended_at) for call in asked),
    )


def _pauses(uow: UnitOfWork, execution: Execution) -> Iterator[Wait]:
    """Yield the times in which the run was paused, oldest first."""
    begun: RecordedEvent | None = None
    types = (*_BEGIN, _PAUSE)
    for event in uow.events.list_events(
        stream=execution.id, by="sequence", types=types, limit=_MOST_PAUSES, newest=True
    ):
        if event.at < execution.created_at:
            continue  # of a deleted run that had this id
        if event.type is _PAUSE:
            begun = begun or event
        elif begun is not None:
            yield Wait(reason=str(begun.data.get("reason", "")), started_at=begun.at, ended_at=event.at)
            begun = None
    if begun is not None:
        yield Wait(reason=str(begun.data.get("reason", "")), started_at=begun.at, ended_at=None)
