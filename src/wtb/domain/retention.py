"""Retention: decides which checkpoints of a run may be deleted, and which must stay at any age."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from wtb.domain.checkpoint import Checkpoint, Kind, NodeRun, NodeStatus, Trigger
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Branch
from wtb.domain.ids import CheckpointId, NodeRunId


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How many automatic checkpoints of a run are kept at most, for how many days, and how long its workspaces.

    `keep_workspaces_days` counts from the end of the run; None keeps its folders until the run is deleted.
    """

    keep_last: int = 20
    keep_days: float = 90
    keep_workspaces_days: float | None = 7

    def __post_init__(self) -> None:
        if self.keep_last < 0 or not 0 <= self.keep_days <= 1_000_000:
            raise InvalidInput(f"keep_last={self.keep_last} and keep_days={self.keep_days}: both must be 0 or more")
        if not 0 <= (self.keep_workspaces_days or 0) <= 1_000_000:
            raise InvalidInput(f"keep_workspaces_days must be 0 or more, not {self.keep_workspaces_days}")

    def oldest(self, now: datetime) -> datetime:
        """Return the time before which a checkpoint is too old."""
        return _days_before(now, self.keep_days)

    def oldest_workspace(self, now: datetime) -> datetime | None:
        """Return the time before which a run must have ended for its folders to be removed; None if they stay."""
        return None if self.keep_workspaces_days is None else _days_before(now, self.keep_workspaces_days)


def _days_before(now: datetime, days: float) -> datetime:
    try:
        return now - timedelta(days=days)
    except OverflowError:  # more days than the calendar has
        return datetime.min.replace(tzinfo=now.tzinfo)


class Reason(StrEnum):
    """Why a checkpoint may be deleted."""

    BEYOND_LAST = "beyond the last ones"
    TOO_OLD = "too old"
    OFF_LINE = "off the active line"


class Stub(NamedTuple):
    """The few facts that decide whether a checkpoint may be deleted; small, because a run may have very many.

    `may_go` says that it is automatic, not deleted, not the start, and not part of an open node.
    """

    id: CheckpointId
    parent_id: CheckpointId | None
    step: int
    created_at: datetime
    size_bytes: int
    kind: Kind
    deleted: bool
    may_go: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A run as retention sees it: its own checkpoints by id, oldest first, its head, and checkpoints that must stay.

    The line of a forked run begins here with the run's own first checkpoint.
    """

    stubs: Mapping[CheckpointId, Stub]
    head_id: CheckpointId | None
    needed: frozenset[CheckpointId]

    @classmethod
    def of(
        cls,
        checkpoints: Iterable[Checkpoint],
        *,
        head_id: CheckpointId | None,
        branches: Sequence[Branch],
        open_runs: Sequence[NodeRun],
    ) -> Outline:
        """Return the outline of a run from its checkpoints in the order of steps; it keeps no reference to them."""
        runs = {run.id for run in open_runs}
        stubs: dict[CheckpointId, Stub] = {}
        for checkpoint in checkpoints:
            parent = None if checkpoint.parent_id is None else stubs.get(checkpoint.parent_id)
            stubs[checkpoint.id] = _stub(checkpoint, parent, runs)
        return cls(stubs=stubs, head_id=head_id, needed=frozenset(_needed(branches, open_runs)))

    def line_to(self, checkpoint_id: CheckpointId | None) -> Iterator[Stub]:
        """Yield a checkpoint and its ancestors in this run, newest first."""
        at = None if checkpoint_id is None else self.stubs.get(checkpoint_id)
        while at is not None:
            yield at
            at = None if at.parent_id is None else self.stubs.get(at.parent_id)


def _stub(checkpoint: Checkpoint, parent: Stub | None, open_runs: Collection[NodeRunId]) -> Stub:
    return Stub(
        id=checkpoint.id,
        parent_id=checkpoint.parent_id if parent is None else parent.id,  # one string for both
        step=checkpoint.step,
        created_at=checkpoint.created_at,
        size_bytes=checkpoint.size_bytes,
        kind=checkpoint.kind,
        deleted=checkpoint.deleted,
        may_go=checkpoint.kind is Kind.AUTO
        and not checkpoint.deleted
        and checkpoint.parent_id is not None
        and checkpoint.trigger is not Trigger.START
        and checkpoint.node_run_id not in open_runs,
    )


def _needed(branches: Sequence[Branch], open_runs: Sequence[NodeRun]) -> Iterator[CheckpointId]:
    """Yield heads, branch points, and the checkpoints that open node runs began from or have made."""
    for branch in branches:
        yield from (id for id in (branch.head_id, branch.forked_from_id) if id is not None)
    for run in open_runs:
        yield from (id for id in (run.input_id, run.first_id, run.last_id) if id is not None)


def open_runs(runs: Iterable[NodeRun], heads: Iterable[Checkpoint]) -> tuple[NodeRun, ...]:
    """Return the node runs that may still continue: not ended, waiting for their barrier, or with a head inside."""
    inside = {head.node_run_id for head in heads if head.trigger is not Trigger.NODE_END}
    return tuple(run for run in runs if run.status is NodeStatus.STARTED or run.pending is not None or run.id in inside)


def expendable(outline: Outline, policy: RetentionPolicy, now: datetime) -> list[tuple[Stub, Reason]]:
    """Return the automatic checkpoints of a run that may be deleted, newest first, each with the reason.

    It never returns checkpoints that a person made, heads and branch points of this run, the start, checkpoints that an
    open node began from or made, or those that redo needs. It does not know where other runs were forked.
    """
    on_line = {stub.id for stub in outline.line_to(outline.head_id)}
    last = set(_last_automatic(outline, policy.keep_last))
    redoable = _redoable(outline, on_line, policy, now)
    oldest = policy.oldest(now)
    found: list[tuple[Stub, Reason]] = []
    for stub in outline.stubs.values():
        if not stub.may_go or stub.id in outline.needed or stub.id in redoable:
            continue
        if stub.created_at < oldest:
            found.append((stub, Reason.TOO_OLD))
        elif stub.id not in last:
            found.append((stub, Reason.BEYOND_LAST if stub.id in on_line else Reason.OFF_LINE))
    found.sort(key=lambda each: (each[0].step, each[0].id), reverse=True)
    return found


def _last_automatic(outline: Outline, count: int) -> Iterator[CheckpointId]:
    living = (stub.id for stub in outline.line_to(outline.head_id) if stub.kind is Kind.AUTO and not stub.deleted)
    return islice(living, count)


def _redoable(
    outline: Outline, on_line: Collection[CheckpointId], policy: RetentionPolicy, now: datetime
) -> set[CheckpointId]:
    """Return the lines that rollbacks left behind and that a redo may still need.

    A rollback makes a safety checkpoint at the end of the line that it leaves; the line is kept until that checkpoint
    is too old.
    """
    found: set[CheckpointId] = set()
    oldest = policy.oldest(now)
    for stub in outline.stubs.values():
        if stub.kind is Kind.SYSTEM and not stub.deleted and stub.created_at >= oldest:
            for at in outline.line_to(stub.id):
                if at.id in found or at.id in on_line:
                    break
                found.add(at.id)
    return found
