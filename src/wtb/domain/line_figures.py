"""LineFigures: what a run used on the way to its head, without steps that were left behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus, Trigger
from wtb.domain.figures import NOTHING, Usage
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, NodeRunId

_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFigures:
    """What a run used on the way to its head, without the steps that a rollback or a fork left behind.

    Nodes of one parallel step run at the same time, so only the slowest counts in `latency_s`.
    """

    steps: int
    latency_s: float
    usage: Usage
    tool_errors: int

    @classmethod
    def of(cls, history: ExecutionHistory) -> LineFigures:
        """Sum up the active line of a history."""
        line = {checkpoint.id: checkpoint for checkpoint in history.lineage()}
        runs = completed_runs(history)
        slowest: dict[CheckpointId | NodeRunId, float] = defaultdict(float)
        usage, tool_errors = NOTHING, 0
        for run in runs:
            step = _step_of(run, line)
            slowest[step] = max(slowest[step], ms_of(run))
            if run.figures is not None:
                usage += run.figures.usage
                tool_errors += run.figures.tool_errors
        return cls(
            steps=len(slowest.keys() | _ends(line.values())),
            latency_s=sum(slowest.values()) / 1e3,
            usage=usage,
            tool_errors=tool_errors,
        )


def completed_runs(history: ExecutionHistory) -> tuple[NodeRun, ...]:
    """Return the node runs that made the active line; one that still waits for its siblings is not included."""
    return tuple(run for run in history.runs() if run.status is NodeStatus.COMPLETED and run.last_id is not None)


def ms_of(run: NodeRun) -> float:
    """Return how long a node run took; without figures, the time from its start to its end."""
    if run.figures is not None:
        return run.figures.ms
    return 0.0 if run.ended_at is None else round((run.ended_at - run.started_at) / _MS, 3)


def _step_of(run: NodeRun, line: Mapping[CheckpointId, Checkpoint]) -> CheckpointId | NodeRunId:
    """Return the checkpoint that the node runs of one superstep made together.

    A run whose checkpoint could not be stored ends with a later step's checkpoint, but counts as its own step.
    """
    assert run.last_id is not None
    owner = line[run.last_id].node_run_id
    return run.last_id if owner == run.id or (owner is None and run.checkpoint_count) else run.id


def _ends(line: Iterable[Checkpoint]) -> set[CheckpointId]:
    """Return the checkpoints that ended steps. A thread that LangGraph drives itself has no other record of steps.

    The first checkpoint after an input only stores the input, so it ends no step.
    """
    return {
        after.id
        for before, after in pairwise(line)
        if after.trigger is Trigger.NODE_END and before.trigger is not Trigger.START
    }
