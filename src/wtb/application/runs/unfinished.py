"""Unfinished: a step in which some nodes have returned while others wait or have failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.application.runs.recovery import engine_memory, is_open
from wtb.application.runs.steps import Position
from wtb.domain.checkpoint import NodeRun
from wtb.domain.engine import Standpoint
from wtb.domain.ports import UnitOfWork

Returned = Mapping[int, Mapping[str, Any]]
"""The results of nodes, by their positions among the nodes of the superstep."""


def unfinished(uow: UnitOfWork, at: Position, *, has_memory: bool) -> tuple[Standpoint, Returned] | None:
    """Return where the superstep began and the results of its finished nodes; None if none has finished."""
    runs = [run for run in uow.node_runs.list_runs(at.execution.id) if is_open(run, at)]
    finished = {_position(run, runs, at): run.pending["returned"] for run in runs if run.pending is not None}
    if not finished:
        return None
    head = uow.checkpoints.load(at.head.id)
    memory = engine_memory(uow, head) if has_memory else {}
    return Standpoint(state=head.state, next_nodes=at.head.next_nodes, memory=memory), finished


def _position(run: NodeRun, runs: list[NodeRun], at: Position) -> int:
    """Return the position of a node run among the due nodes; a node that is due several times is visited in order."""
    first = min(each.visit for each in runs if each.node == run.node)
    due = [position for position, node in enumerate(at.head.next_nodes) if node == run.node]
    return due[run.visit - first]
