"""Execution: one run of a workflow, with its status, its version and the lease of the process that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wtb.domain.errors import Conflict, InvalidTransition, LeaseLost, VersionMismatch
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, WorkflowId
from wtb.domain.values import evolve


class ExecutionStatus(StrEnum):
    """The status of a run."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    ROLLING_BACK = "rolling_back"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Neglect(StrEnum):
    """Why a run that claims to be running makes no progress: its process is gone, or has long been silent."""

    GONE = "gone"
    ABANDONED = "abandoned"


LONGEST_LEASE = timedelta(minutes=10)
"""The longest lease that anyone takes; the clocks of two machines rarely differ by more."""

ABANDONED_AFTER = timedelta(hours=1)
"""How long a running run may be silent before it is reported as abandoned."""

THREAD = "LangGraph thread"
"""The workflow name that marks a thread which LangGraph alone drives; no other workflow can have this name."""

_S = ExecutionStatus

TRANSITIONS: Mapping[ExecutionStatus, frozenset[ExecutionStatus]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.PAUSED, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
    _S.PAUSED: frozenset({_S.RUNNING, _S.ROLLING_BACK, _S.CANCELLED}),
    _S.FAILED: frozenset({_S.RUNNING, _S.ROLLING_BACK, _S.CANCELLED}),
    _S.COMPLETED: frozenset({_S.ROLLING_BACK}),
    _S.CANCELLED: frozenset({_S.ROLLING_BACK}),
    _S.ROLLING_BACK: frozenset({_S.PAUSED}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, in which node, and the checkpoint from which it can be tried again."""

    type: str
    message: str
    traceback: str = field(default="", repr=False)
    node: str | None = None
    visit: int | None = None
    input_checkpoint_id: CheckpointId | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class PauseKind(StrEnum):
    """Why a run waits, for programs; people read the reason."""

    BREAK_BEFORE = "break_before"
    BREAK_AFTER = "break_after"
    QUESTION = "question"
    """A node asks a person."""
    IN_DOUBT = "in_doubt"
    """It is unknown whether an external call happened."""
    REQUESTED = "requested"
    """A person or a signal asked for the pause."""
    CALLS_DIFFER = "calls_differ"
    """A retried node left out a call that an earlier attempt had made."""
    MOVED = "moved"
    """A rollback or a redo put the run here."""
    PROCESS_GONE = "process_gone"
    THREAD = "thread"
    """LangGraph alone drives it."""
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a run waits: a breakpoint, a request to pause, a question to a person, or a call in doubt."""

    reason: str
    kind: PauseKind = PauseKind.OTHER
    node: str | None = None
    question: Mapping[str, Any] | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the pause as plain data."""
        return {"reason": self.reason, "kind": self.kind.value, "node": self.node, "question": self.question}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Pause:
        """Read what `to_data` wrote, in this version or another one."""
        kind = _kind_in_text(data["reason"]) if "kind" not in data else _known_kind(data["kind"])
        return cls(reason=data["reason"], kind=kind, node=data.get("node"), question=data.get("question"))


def _known_kind(kind: str) -> PauseKind:
    return PauseKind(kind) if kind in PauseKind.__members__.values() else PauseKind.OTHER


_KINDS_BY_TEXT = {
    "break before": PauseKind.BREAK_BEFORE,
    "break after": PauseKind.BREAK_AFTER,
    "question": PauseKind.QUESTION,
    "in doubt": PauseKind.IN_DOUBT,
    "asked to pause": PauseKind.REQUESTED,
    "interrupted": PauseKind.REQUESTED,
    "rolled back to": PauseKind.MOVED,
    "gone forward to": PauseKind.MOVED,
}


def _kind_in_text(reason: str) -> PauseKind:
    """Return the kind of a pause that was stored before pauses had kinds, from the beginning of its reason."""
    return next((kind for text, kind in _KINDS_BY_TEXT.items() if reason.startswith(text)), PauseKind.OTHER)


THREAD_PAUSE = Pause(reason="a LangGraph thread goes on when its graph is invoked", kind=PauseKind.THREAD)
"""The pause of a thread that LangGraph drives."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Says who may write to an execution, and until when. The token only grows, which exposes a stale owner."""

    owner: str
    token: int
    expires_at: datetime

    def expired(self, now: datetime) -> bool:
        """Whether the owner has not extended it in time."""
        return now >= self.expires_at

    def is_too_long(self, now: datetime) -> bool:
        """Whether it ends so late that a clock must be wrong."""
        return self.expires_at - now > LONGEST_LEASE


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A line of checkpoints with a head; `forked_from_id` is the checkpoint where it left another line."""

    id: BranchId
    execution_id: ExecutionId
    name: str
    head_id: CheckpointId | None
    forked_from_id: CheckpointId | None = None
    created_at: datetime

    def moved(self, head_id: CheckpointId) -> Branch:
        """Return the branch with another head."""
        return evolve(self, head_id=head_id)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The record of one run.

    Every change returns a new value with the next version; a save checks the old one.
    """

    id: ExecutionId
    workflow_id: WorkflowId
    workflow_name: str
    workflow_source: str | None = None
    status: ExecutionStatus = ExecutionStatus.PENDING
    version: int = 0
    branch_id: BranchId
    lease: Lease | None = None
    lease_token: int = 0
    failure: Failure | None = None
    pause: Pause | None = None
    degraded: str | None = None
    """Why a checkpoint could not be written when its step ended; a later one made up for it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_by: str | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def is_thread(self) -> bool:
        """Whether LangGraph alone drives it: the store holds its checkpoints, but not its workflow."""
        return self.workflow_name == THREAD

    def check_version(self, version: int | None) -> None:
        """Raise VersionMismatch if somebody wants to change another version than this one."""
        if version is not None and version != self.version:
            raise VersionMismatch(
                f"run {self.id!r} has version {self.version} by now, not {version}, so nothing was done; look at it, "
                "and decide again"
            )

    def moved_to(
        self,
        status: ExecutionStatus,
        now: datetime,
        *,
        failure: Failure | None = None,
        pause: Pause | None = None,
    ) -> Execution:
        """Return the execution in another status, or raise when that is not a legal step.

        The process that ran it gives up its lease, unless the run goes on.
        """
        if status not in TRANSITIONS[self.status]:
            legal = ", ".join(sorted(TRANSITIONS[self.status]))
            raise InvalidTransition(f"run {self.id!r} is {self.status}; from there it can become {legal}, not {status}")
        lease = self.lease if status in (ExecutionStatus.RUNNING, ExecutionStatus.ROLLING_BACK) else None
        return self._changed(now, status=status, failure=failure, pause=pause, lease=lease)

    def thread_moved(self, now: datetime, *, is_finished: bool) -> Execution | None:
        """Return a LangGraph thread as completed when its graph has finished, otherwise as paused.

        Return None if it has that status already.
        """
        if is_finished == (self.status is ExecutionStatus.COMPLETED):
            return None
        if is_finished:
            return self._changed(now, status=ExecutionStatus.COMPLETED, pause=None)
        return self._changed(now, status=ExecutionStatus.PAUSED, pause=THREAD_PAUSE)

    def stepped(self, now: datetime) -> Execution:
        """Return the execution after a step: only the version and the time of activity change."""
        return self._changed(now)

    def on_branch(self, branch_id: BranchId, now: datetime) -> Execution:
        """Return the execution with another active branch."""
        return self._changed(now, branch_id=branch_id)

    def leased(self, owner: str, now: datetime, duration: timedelta, *, holder_gone: bool | None = None) -> Execution:
        """Return the execution owned by `owner` under a new token; raise Conflict if a live owner holds it."""
        self.check_free(owner, now, holder_gone)
        return self._changed(now, **self._new_lease(owner, now, duration))

    def check_free(
        self, owner: str, now: datetime, holder_gone: bool | None, *, is_clock_distrusted: bool = False
    ) -> None:
        """Raise Conflict if another owner holds the lease and is not known to be gone.

        If we cannot tell whether the holder is alive, the end of the lease decides. A caller who distrusts the clock
        that wrote the lease may take a lease that ends impossibly late.
        """
        lease = self.lease
        if lease is None or lease.owner == owner or holder_gone:
            return
        if holder_gone is None and lease.is_too_long(now):
            if is_clock_distrusted:
                return
            raise Conflict(
                f"run {self.id!r} is being run by {lease.owner} until {lease.expires_at:%Y-%m-%d %H:%M:%S} UTC, "
                "longer than any lease lasts: a clock is or was wrong. Correct the clocks. If that process has "
                f"ended, take the run over with `{self.take_over_command}`"
            )
        if holder_gone is False or not lease.expired(now):
            raise Conflict(
                f"run {self.id!r} is being run by {lease.owner} until {lease.expires_at:%H:%M:%S} UTC; "
                f"pause it with `wtb pause {self.id}`, or wait until that process has ended"
            )

    @property
    def take_over_command(self) -> str:
        """The command that continues a run whose lease ends far in the future because a clock was wrong."""
        is_half_done = self.status is ExecutionStatus.ROLLING_BACK
        return f"wtb rollback {self.id} --continue --take-over" if is_half_done else f"wtb resume {self.id} --take-over"

    @property
    def is_busy(self) -> bool:
        """Whether a process should be working on it."""
        return self.status in (ExecutionStatus.RUNNING, ExecutionStatus.ROLLING_BACK)

    def neglect(self, now: datetime, holder_gone: bool | None) -> Neglect | None:
        """Return why a run marked as running makes no progress; None if it does progress, or is not marked so.

        A heartbeat extends the lease, so a node may take hours. Nothing is written: resuming the run is a decision.
        """
        if not self.is_busy:
            return None
        heard_at = self.updated_at if self.lease is None else max(self.updated_at, self.lease.expires_at)
        if now - heard_at >= ABANDONED_AFTER:
            return Neglect.ABANDONED
        silent = self.lease is not None and self.lease.expired(now)
        return Neglect.GONE if holder_gone or (holder_gone is None and silent) else None

    def owned(self, owner: str, now: datetime, duration: timedelta) -> Execution:
        """Return the execution under a new lease, to be saved with another change."""
        return evolve(self, **self._new_lease(owner, now, duration))

    def _new_lease(self, owner: str, now: datetime, duration: timedelta) -> dict[str, Any]:
        token = self.lease_token + 1
        return {"lease": Lease(owner=owner, token=token, expires_at=now + duration), "lease_token": token}

    def renewed(self, token: int, expires_at: datetime) -> Execution:
        """Return the execution with a longer lease; raise LeaseLost if another owner has taken it.

        No new version: a heartbeat must not compete with the steps of the run that it keeps alive.
        """
        self.check_lease(token)
        assert self.lease is not None
        return evolve(self, lease=evolve(self.lease, expires_at=expires_at))

    def released(self, token: int, now: datetime) -> Execution:
        """Return the execution without an owner."""
        self.check_lease(token)
        return self._changed(now, lease=None)

    def check_lease(self, token: int) -> None:
        """Raise LeaseLost unless this token is the current one."""
        if self.lease is None or self.lease.token != token:
            owner = self.lease.owner if self.lease else "nobody"
            raise LeaseLost(f"run {self.id!r} now belongs to {owner}; this process must stop writing to it")

    def _changed(self, now: datetime, **changes: Any) -> Execution:
        return evolve(self, version=self.version + 1, updated_at=now, **changes)
