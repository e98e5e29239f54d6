"""Retention: which checkpoints of a run may go, and why; and which must stay whatever their age."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from wtb.domain.checkpoint import Checkpoint, Kind, NodeRun, NodeStatus, Trigger
from wtb.domain.errors import InvalidInput
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, NodeRunId


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How many automatic checkpoints of a run are kept at most, and for how many days."""

    keep_last: int = 20
    keep_days: float = 90

    def __post_init__(self) -> None:
        if self.keep_last < 0 or not 0 <= self.keep_days <= 1_000_000:
            raise InvalidInput(f"keep_last and keep_days cannot be {self.keep_last} and {self.keep_days}")

    def oldest(self, now: datetime) -> datetime:
        """Return the time before which a checkpoint is too old."""
        try:
            return now - timedelta(days=self.keep_days)
        except OverflowError:  # more days than there have been
            return datetime.min.replace(tzinfo=now.tzinfo)


class Reason(StrEnum):
    """Why a checkpoint may go."""

    BEYOND_LAST = "beyond the last ones"
    TOO_OLD = "too old"
    OFF_LINE = "off the active line"


def expendable(
    history: ExecutionHistory, policy: RetentionPolicy, now: datetime, protected: Collection[CheckpointId]
) -> tuple[tuple[Checkpoint, Reason], ...]:
    """Return the automatic checkpoints of a run that nothing needs any more, newest first, each with the reason.

    Never those that a person made, heads and branch points of this run, the start, what an open node began from or
    has made, nor what is `protected`: branch points and heads of other runs, and what redo needs (`redoable`).
    """
    line = [checkpoint.id for checkpoint in history.lineage()]
    last = set(_last_automatic(history, policy.keep_last))
    kept = {*protected, *_needed(history)}
    oldest, on_line = policy.oldest(now), set(line)
    found: list[tuple[Checkpoint, Reason]] = []
    for checkpoint in history.checkpoints:
        if not _is_candidate(checkpoint, history) or checkpoint.id in kept:
            continue
        if checkpoint.created_at < oldest:
            found.append((checkpoint, Reason.TOO_OLD))
        elif checkpoint.id not in last:
            found.append((checkpoint, Reason.BEYOND_LAST if checkpoint.id in on_line else Reason.OFF_LINE))
    return tuple(sorted(found, key=lambda each: (each[0].step, each[0].id), reverse=True))


def redoable(history: ExecutionHistory, policy: RetentionPolicy, now: datetime) -> frozenset[CheckpointId]:
    """Return the lines that rollbacks left behind, as long as a redo may go along them.

    A rollback makes a safety checkpoint at the end of the line that it leaves; the line is kept while that one is
    not too old.
    """
    by_id = {checkpoint.id: checkpoint for checkpoint in history.checkpoints}
    found = {checkpoint.id for checkpoint in history.lineage()}
    on_line, oldest = frozenset(found), policy.oldest(now)
    for checkpoint in history.checkpoints:
        if checkpoint.kind is not Kind.SYSTEM or checkpoint.deleted or checkpoint.created_at < oldest:
            continue
        at: Checkpoint | None = checkpoint
        while at is not None and at.id not in found:
            found.add(at.id)
            at = None if at.parent_id is None else by_id.get(at.parent_id)
    return frozenset(found - on_line)


def _last_automatic(history: ExecutionHistory, count: int) -> list[CheckpointId]:
    living = [each.id for each in history.lineage() if each.kind is Kind.AUTO and not each.deleted]
    return living[-count:] if count else []


def _is_candidate(checkpoint: Checkpoint, history: ExecutionHistory) -> bool:
    """Whether a checkpoint is an automatic one of this run itself, alive, and not its start."""
    return (
        checkpoint.kind is Kind.AUTO
        and not checkpoint.deleted
        and checkpoint.execution_id == history.execution_id
        and checkpoint.parent_id is not None
        and checkpoint.trigger is not Trigger.START
    )


def _needed(history: ExecutionHistory) -> Iterator[CheckpointId]:
    """Yield heads, branch points, and what nodes that are open began from or have made."""
    heads = {branch.head_id for branch in history.branches}
    for branch in history.branches:
        yield from (id for id in (branch.head_id, branch.forked_from_id) if id is not None)
    unfinished = {each.node_run_id for each in history.checkpoints if each.id in heads and _is_inside(each)}
    open_runs = {run.id: run for run in history.node_runs if _is_open(run, unfinished)}
    for run in open_runs.values():
        yield from (id for id in (run.input_id, run.first_id, run.last_id) if id is not None)
    yield from (each.id for each in history.checkpoints if each.node_run_id in open_runs)


def _is_inside(checkpoint: Checkpoint) -> bool:
    return checkpoint.node_run_id is not None and checkpoint.trigger is not Trigger.NODE_END


def _is_open(run: NodeRun, unfinished: Collection[NodeRunId | None]) -> bool:
    """Whether a node run may yet go on: it has not ended, waits for its barrier, or left the head in its middle."""
    return run.status is NodeStatus.STARTED or run.pending is not None or run.id in unfinished
