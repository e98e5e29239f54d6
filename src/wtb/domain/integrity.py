"""Integrity: what is wrong with a store, which runs it affects, and whether it can be repaired."""

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
    LEASE = "lease"
    WORKSPACE = "workspace"
    STAT_INDEX = "stat index"
    ANCHOR = "anchor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong. `what` names it, `runs` are those that it concerns, forks of theirs included.

    `remedy` says how a repair would put it right; None when it cannot.
    """

    kind: FaultKind
    what: str
    problem: str
    runs: tuple[ExecutionId, ...] = ()
    remedy: str | None = None
    repaired: bool = False

    def mended(self) -> Fault:
        """Return the fault as one that was put right."""
        return replace(self, repaired=True)
