"""BackgroundJob: something that one of several servers does again and again, and who does it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from wtb.domain.errors import LeaseLost

JOB_LEASE = timedelta(seconds=30)
"""How long a server may be silent before another one takes over its job."""
TRY_AGAIN_AFTER = timedelta(minutes=15)
"""When a failed job is tried again, unless its interval is shorter."""
_JITTER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundJob:
    """The record of one job. All times are the database's, so that servers agree on them.

    The token grows each time that somebody takes the job; it exposes an owner who was replaced meanwhile.
    """

    name: str
    registered_at: datetime
    owner: str | None = None
    token: int = 0
    expires_at: datetime | None = None
    requested_by: str | None = None
    """Who asked to run it now, ahead of its time."""
    last_started_at: datetime | None = None
    last_ended_at: datetime | None = None
    last_error: str | None = None
    figures: Mapping[str, int] = field(default_factory=dict)
    """What the last run counted."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the job remembers from one run to the next, as plain JSON."""

    def due_at(self, every: timedelta) -> datetime:
        """Return when the next run is due: after the interval and up to a tenth more, by which servers spread load.

        The first run is due one interval after a server first knew of the job: starting a server deletes nothing.
        """
        since = self.last_ended_at or self.registered_at
        wait = min(every, TRY_AGAIN_AFTER) if self.last_error is not None else every
        spread = crc32(f"{self.name} {since.isoformat()}".encode()) / 2**32
        return since + wait * (1 + _JITTER * spread)

    def is_due(self, every: timedelta, now: datetime) -> bool:
        """Whether it is time for the next run, or somebody has asked for one."""
        return self.requested_by is not None or now >= self.due_at(every)

    def is_free(self, me: str, now: datetime, holder_gone: bool | None) -> bool:
        """Whether this server may take it: nobody has it, or its owner has ended or was silent for too long.

        What this server itself still holds, it has not given back because the database was away.
        """
        if self.owner is None or self.owner == me or holder_gone:
            return True
        return self.expires_at is None or (holder_gone is None and now >= self.expires_at)

    def requested(self, by: str) -> BackgroundJob:
        """Return the job with the wish that it runs now."""
        return replace(self, requested_by=by)

    def taken(self, me: str, now: datetime) -> BackgroundJob:
        """Return the job as this server's, with a new token."""
        until = now + JOB_LEASE
        return replace(self, owner=me, token=self.token + 1, expires_at=until, last_started_at=now, requested_by=None)

    def renewed(self, token: int, now: datetime) -> BackgroundJob:
        """Return the job with a longer lease; raise LeaseLost if another server has taken it."""
        self._check(token)
        return replace(self, expires_at=now + JOB_LEASE)

    def ended(
        self,
        token: int,
        now: datetime,
        *,
        figures: Mapping[str, int],
        notes: Mapping[str, Any],
        error: str | None,
    ) -> BackgroundJob:
        """Return the job after a run, without an owner; raise LeaseLost if another server has taken it."""
        self._check(token)
        return replace(
            self, owner=None, expires_at=None, last_ended_at=now, last_error=error, figures=figures, notes=notes
        )

    def given_back(self, token: int, *, notes: Mapping[str, Any]) -> BackgroundJob:
        """Return the job without an owner, as due as before: the server stops before the run has ended."""
        self._check(token)
        return replace(self, owner=None, expires_at=None, notes=notes)

    def _check(self, token: int) -> None:
        if self.token != token or self.owner is None:
            raise LeaseLost(f"background job {self.name!r} now belongs to {self.owner or 'nobody'}; this run must end")
