"""Reads the figures of a run: those on the way to its head, and its total spending.

They are stored with the node runs. Older node runs (schema 0008 and before) have them only in the event
`node.completed`, so they are read from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from wtb.domain.checkpoint import NodeRun, NodeStatus
from wtb.domain.event_catalogue import EventType, NodeCompleted, NodeSkipped, ToolFailed
from wtb.domain.events import RecordedEvent
from wtb.domain.figures import Figures
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId
from wtb.domain.line_figures import LineFigures
from wtb.domain.ports import UnitOfWork

_PAGE = 10_000
_TOLD = (EventType.NODE_COMPLETED, EventType.NODE_SKIPPED, EventType.TOOL_FAILED)

_Visit = tuple[Any, str, int]
"""The last checkpoint of a visit of a node, the node, and the visit."""


def line_figures(uow: UnitOfWork, execution_id: ExecutionId) -> LineFigures:
    """Return the figures on the way to the head of a run; for a fork, this includes the runs before it."""
    return LineFigures.of(measured_history(uow, execution_id))


def measured_history(uow: UnitOfWork, execution_id: ExecutionId) -> ExecutionHistory:
    """Return the history of a run, with the figures of all its node runs."""
    history = uow.checkpoints.load_history(execution_id)
    return replace(history, node_runs=_measured(uow, history.node_runs))


def measured_runs(uow: UnitOfWork, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
    """Return all node runs of a run on all lines, with their figures: its total spending."""
    return _measured(uow, uow.node_runs.list_runs(execution_id))


def _measured(uow: UnitOfWork, runs: Sequence[NodeRun]) -> tuple[NodeRun, ...]:
    """Return node runs with their figures, from the events for those that have none."""
    streams = {run.execution_id for run in runs if _is_bare(run)}
    if not streams:
        return tuple(runs)
    by_stream = {stream: _figures_in_events(uow, stream) for stream in streams}
    return tuple(_with_figures(run, by_stream[run.execution_id]) if _is_bare(run) else run for run in runs)


def _is_bare(run: NodeRun) -> bool:
    return run.figures is None and run.status is NodeStatus.COMPLETED and run.last_id is not None


def _with_figures(run: NodeRun, found_figures: dict[_Visit, Figures]) -> NodeRun:
    """Return the run with the figures from its event, which names no checkpoint if that could not be stored."""
    found = found_figures.get((run.last_id, run.node, run.visit)) or found_figures.get((None, run.node, run.visit))
    return run if found is None else run.measured(found)


def _figures_in_events(uow: UnitOfWork, stream: ExecutionId) -> dict[_Visit, Figures]:
    """Return the figures in the events of a run; a failed call counts for the visit that completed next."""
    found: dict[_Visit, Figures] = {}
    failed: Counter[tuple[str, int]] = Counter()
    for event in _events(uow, stream):
        match event.body:
            case ToolFailed(node=str() as node, visit=int() as visit):
                failed[node, visit] += 1
            case NodeSkipped(node=node, visit=visit):
                failed.pop((node, visit), None)
            case NodeCompleted(node=node, visit=visit, checkpoint=checkpoint):
                figures = Figures.from_data(event.data)
                failures = failed.pop((node, visit), 0)
                found[checkpoint, node, visit] = replace(figures, tool_errors=figures.tool_errors + failures)
    return found


def _events(uow: UnitOfWork, stream: ExecutionId) -> Iterable[RecordedEvent]:
    after = 0
    while page := uow.events.list_events(stream=stream, by="sequence", types=_TOLD, after=after, limit=_PAGE):
        yield from page
        after = page[-1].sequence
