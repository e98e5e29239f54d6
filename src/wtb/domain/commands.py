"""Command: work that a server has accepted, and that one of its workers carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wtb.domain.errors import Conflict

LEASE = timedelta(seconds=30)
"""How long a command belongs to a worker that does not extend it."""

MOST_LOSSES = 3
"""After so many workers that ended before the command did, it fails."""

MOST_ATTEMPTS = 10
"""After so many attempts it fails, whoever ended: a command may take the whole server with it."""

KEEP_ENDED = timedelta(days=7)
"""How long a command that has ended is kept."""

KEEP_REQUESTS = timedelta(hours=24)
"""For how long the same Idempotency-Key means the same request."""


class CommandKind(StrEnum):
    """What a command does."""

    RUN_START = "run.start"
    RUN_RESUME = "run.resume"
    RUN_ROLLBACK = "run.rollback"
    RUN_PLAN_ROLLBACK = "run.plan_rollback"
    RUN_CONTINUE_ROLLBACK = "run.continue_rollback"
    RUN_ABANDON_ROLLBACK = "run.abandon_rollback"
    RUN_REDO = "run.redo"
    RUN_FORK = "run.fork"
    RUN_CHECKPOINT = "run.checkpoint"
    BATCH_START = "batch.start"
    BATCH_PLAN = "batch.plan"
    EVALUATION_START = "evaluation.start"
    THREAD_RUN = "thread.run"
    """Run a graph on a LangGraph thread."""
    THREAD_UPDATE = "thread.update"
    """Change the state of a LangGraph thread, as its graph does."""


THREAD_KINDS = frozenset({CommandKind.THREAD_RUN, CommandKind.THREAD_UPDATE})
"""What works on a LangGraph thread: one at a time."""


class CommandStatus(StrEnum):
    """The status of a command."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One accepted command. Every change returns a new value; a save checks that nobody else was first."""

    id: str
    kind: CommandKind
    subject: str | None = None
    """The run or the batch that it concerns; a new one has its id before it exists."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    created_by: str
    created_at: datetime
    status: CommandStatus = CommandStatus.PENDING
    owner: str | None = None
    """The worker that carries it out."""
    expires_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: int = 0
    losses: int = 0
    """How many workers ended before it did."""
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    """Why it failed, as a problem (RFC 9457)."""

    @property
    def has_ended(self) -> bool:
        """Whether it has a result or an error."""
        return self.status in (CommandStatus.COMPLETED, CommandStatus.FAILED)

    def may_be_taken(self, now: datetime, owner_gone: bool | None) -> bool:
        """Whether no living worker carries it out; if that is not known, the end of its lease decides."""
        if self.status is CommandStatus.PENDING:
            return True
        if self.has_ended or owner_gone is False:
            return False
        return bool(owner_gone) or self.expires_at is None or now >= self.expires_at

    def taken(self, owner: str, now: datetime) -> Command:
        """Return it in the hands of a worker."""
        return replace(
            self,
            status=CommandStatus.RUNNING,
            owner=owner,
            expires_at=now + LEASE,
            started_at=self.started_at or now,
            attempts=self.attempts + 1,
        )

    def extended(self, now: datetime) -> Command:
        """Return it with a lease that begins now."""
        return replace(self, expires_at=now + LEASE)

    def lost(self) -> Command:
        """Return it as waiting for another worker, after its worker ended."""
        return replace(self._free(), losses=self.losses + 1)

    def put_back(self, so_far: Mapping[str, Any]) -> Command:
        """Return it as waiting for another worker, because the server ends, with what the next worker needs."""
        return replace(self._free(), result=so_far)

    def _free(self) -> Command:
        return replace(self, status=CommandStatus.PENDING, owner=None, expires_at=None)

    @property
    def is_hopeless(self) -> bool:
        """Whether it has ended too many workers to try another one."""
        return self.losses >= MOST_LOSSES or self.attempts >= MOST_ATTEMPTS

    def completed(self, result: Mapping[str, Any], now: datetime) -> Command:
        """Return it with its result."""
        return self._ended(now, status=CommandStatus.COMPLETED, result=result)

    def failed(self, error: Mapping[str, Any], now: datetime) -> Command:
        """Return it with the problem that ended it."""
        return self._ended(now, status=CommandStatus.FAILED, error=error)

    def _ended(self, now: datetime, *, result: Mapping[str, Any] | None = None, **how: Any) -> Command:
        if self.has_ended:
            raise Conflict(f"command {self.id!r} has {self.status} already")
        return replace(self, owner=None, expires_at=None, ended_at=now, result=result, **how)

    def to_data(self) -> dict[str, Any]:
        """Return the command as plain JSON."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "subject": self.subject,
            "arguments": dict(self.arguments),
            "created_by": self.created_by,
            "created_at": self.created_at.isoformat(),
            "status": self.status.value,
            "owner": self.owner,
            "expires_at": _text(self.expires_at),
            "started_at": _text(self.started_at),
            "ended_at": _text(self.ended_at),
            "attempts": self.attempts,
            "losses": self.losses,
            "result": self.result,
            "error": self.error,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Command:
        """Read what `to_data` wrote."""
        times = {name: _time(data.get(name)) for name in ("expires_at", "started_at", "ended_at")}
        return cls(
            id=data["id"],
            kind=CommandKind(data["kind"]),
            subject=data.get("subject"),
            arguments=data["arguments"],
            created_by=data["created_by"],
            created_at=datetime.fromisoformat(data["created_at"]),
            status=CommandStatus(data["status"]),
            owner=data.get("owner"),
            attempts=data.get("attempts", 0),
            losses=data.get("losses", 0),
            result=data.get("result"),
            error=data.get("error"),
            **times,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRequest:
    """A request that carried an Idempotency-Key: the same one later gets what the first one made."""

    caller: str
    key: str
    digest: bytes
    """Of everything that the request asks for."""
    made_id: str
    """The command, or the webhook, that it made."""
    created_at: datetime

    def is_forgotten(self, now: datetime) -> bool:
        """Whether the key may be used for another request."""
        return now - self.created_at >= KEEP_REQUESTS


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
