"""Integrity: the faults of a store, the runs that they affect, and whether they can be repaired."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from wtb.domain.ids import ExecutionId


class FaultKind(StrEnum):
    """What is damaged, missing or left behind."""

    CHECKPOINT = "checkpoint"
    CHAIN = "chain"
    DELTA = "delta"
    KEYFRAME = "keyframe"
    BLOB = "blob"
    FILE_COMMIT = "file commit"
    OBJECT = "object"
    EVENT = "event"
    BRANCH = "branch"
    NODE_RUN = "node run"
    TOOL_CALL = "tool call"
    RUN = "run"
    ROLLBACK = "rollback"
    PENDING_WRITE = "pending write"
    BATCH = "batch"
    JOB = "job"
    BASELINE = "baseline"
    BASELINE_RESULT = "baseline result"
    EVALUATION = "evaluation"
    OBSERVATION = "observation"
    DATABASE = "database"
    ABANDONED_RUN = "abandoned run"
    OPEN_REVERSAL = "open reversal"
    LEASE = "lease"
    WORKSPACE = "workspace"
    STAT_INDEX = "stat index"
    ANCHOR = "anchor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `what` names the damaged thing; `runs` are the runs that it affects, with their forks.

    `remedy` says what a repair does, as in "removes it"; None if it cannot be repaired.
    """

    kind: FaultKind
    what: str
    problem: str
    runs: tuple[ExecutionId, ...] = ()
    remedy: str | None = None
    repaired: bool = False

    def mended(self) -> Fault:
        """Return the fault as repaired."""
        return replace(self, repaired=True)
