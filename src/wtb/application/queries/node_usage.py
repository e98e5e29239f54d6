"""Usage and calls of a run by node."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from wtb.application.runs.run_figures import measured_history, measured_runs
from wtb.domain.execution import Execution
from wtb.domain.figures import NOTHING, Usage
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import UnitOfWork
from wtb.domain.tools import CallKind, CallStatus, Effects, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """What one node used on the way to the head, and what it spent in all attempts and on all lines."""

    node: str
    visits: int
    busy_ms: float
    usage: Usage
    spent: Usage


def usage_by_node(uow: UnitOfWork, execution: Execution) -> tuple[NodeUsage, ...]:
    """Return the usage of each node, in the order in which they first ran."""
    on_line = measured_history(uow, execution.id).runs()
    spent: dict[str, Usage] = defaultdict(lambda: NOTHING)
    nodes: dict[str, list[float]] = {run.node: [0, 0.0] for run in on_line}
    usage: dict[str, Usage] = defaultdict(lambda: NOTHING)
    for run in measured_runs(uow, execution.id):
        nodes.setdefault(run.node, [0, 0.0])
        spent[run.node] += NOTHING if run.figures is None else run.figures.spent
    for run in on_line:
        nodes[run.node][0] += 1
        if run.figures is not None:
            nodes[run.node][1] += run.figures.ms
            usage[run.node] += run.figures.usage
    return tuple(
        NodeUsage(node=node, visits=int(visits), busy_ms=ms, usage=usage[node], spent=spent[node])
        for node, (visits, ms) in nodes.items()
    )


class Undo(StrEnum):
    """How a rollback treats a call."""

    NOTHING = "nothing"
    """There is nothing to undo: it changed nothing, or it failed."""
    FILES = "files"
    """It changed files of the workspace, which go back with the state."""
    TOOL = "tool"
    """It changed the world outside, and its tool can undo it."""
    NEVER = "never"
    """It changed the world outside, and its tool cannot undo it."""
    UNKNOWN = "unknown"
    """It changed the world outside, and an older version did not record whether its tool can undo it."""
    DONE = "done"
    """A rollback has undone it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """A recorded call with the visit of the node that made it, and how a rollback treats it."""

    call: ToolCall
    node: str | None
    visit: int | None
    undo: Undo


def call_views(uow: UnitOfWork, execution: Execution, ended_with: CheckpointId | None = None) -> tuple[CallView, ...]:
    """Return the calls of a run on all lines, or of the visits that ended with a checkpoint, as they began."""
    runs = [run for run in uow.node_runs.list_runs(execution.id) if ended_with in (None, run.last_id)]
    visits = {run.id: (run.node, run.visit) for run in runs}
    found = []
    for call in uow.tool_calls.list_calls(execution.id):
        if ended_with is not None and call.node_run_id not in visits:
            continue
        node, visit = visits.get(call.node_run_id, (None, None))
        found.append(CallView(call=call, node=node, visit=visit, undo=_undo(call)))
    return tuple(found)


def _undo(call: ToolCall) -> Undo:
    if call.status is CallStatus.REVERSED:
        return Undo.DONE
    if call.kind is not CallKind.TOOL or call.status is CallStatus.FAILED:
        return Undo.NOTHING
    if call.effects is not Effects.EXTERNAL:
        return Undo.FILES if call.effects is Effects.WORKSPACE else Undo.NOTHING
    return {True: Undo.TOOL, False: Undo.NEVER, None: Undo.UNKNOWN}[call.reversible]
